#include "trainer/nodes.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/watch/recorder.h"

int nodes_find(struct nodes *n, const char *hosts, size_t stride, int world, struct error *err)
{
    int *room = error_calloc((size_t)world, 4 * sizeof *room, err);

    if (!room)
        return -1;
    *n = (struct nodes){
        .world = world, .of = room, .local = room + world, .first = room + 2 * world, .locals = room + 3 * world};
    for (int rank = 0; rank < world; rank++) {
        int node = n->count - 1; /* ranks of a node are mostly consecutive */

        while (node >= 0 && strcmp(hosts + (size_t)n->first[node] * stride, hosts + (size_t)rank * stride) != 0)
            node--;
        if (node < 0) {
            node = n->count++;
            n->first[node] = rank;
        }
        n->of[rank] = node;
        n->local[rank] = n->locals[node]++;
    }
    return 0;
}

void nodes_free(struct nodes *n)
{
    free(n->of);
}

/* -1 if the node has fewer ranks. */
static int rank_at(const struct nodes *n, int node, int local)
{
    for (int rank = n->first[node]; rank < n->world && local < n->locals[node]; rank++)
        if (n->of[rank] == node && n->local[rank] == local)
            return rank;
    return -1;
}

int nodes_rounds(const struct nodes *n)
{
    int rounds = 0;

    for (int node = 0; node < n->count && n->count > 1; node++) {
        int theirs = n->locals[(node + 1) % n->count], needed = (n->locals[node] + theirs - 1) / theirs;

        rounds = needed > rounds ? needed : rounds;
    }
    return rounds;
}

void nodes_partners(const struct nodes *n, int rank, int round, int *to, int *from)
{
    int node = n->of[rank], local = n->local[rank], next = (node + 1) % n->count;
    int before = (node + n->count - 1) % n->count;

    *to = local / n->locals[next] == round ? rank_at(n, next, local % n->locals[next]) : -1;
    *from = rank_at(n, before, round * n->locals[node] + local);
}

/* ---- copies of staged shards ---- */

/* Sent ahead of a shard. */
struct header {
    uint64_t bytes, part_bytes;
    int64_t shard;
};

struct incoming {
    struct header header;
    void *room;
    char *part;
    char answer;
    struct comm_request *answered;
};

static int receive_all(struct comm *world, void *buffer, size_t bytes, int from, struct error *err)
{
    struct comm_request *request = comm_start_recv(world, buffer, bytes, from, err);

    return request ? comm_wait(request, err) : -1;
}

/* The neighbour announces its shard; this rank begins to answer whether there is room. */
static int answer_partner(struct incoming *in, struct ckpt_stage *stage, const struct ckpt_save *save,
                          struct comm *world, int from, struct error *err)
{
    struct ckpt_save theirs = *save;
    struct error no_room;

    if (receive_all(world, &in->header, sizeof in->header, from, err) < 0)
        return -1;
    theirs.shard = (int)in->header.shard;
    if (in->header.bytes > 0 && (in->part = malloc(in->header.part_bytes + 1)))
        in->room = ckpt_stage_borrow(stage, &theirs, in->header.bytes, &no_room);
    in->answer = in->room != NULL;
    in->answered = comm_start_send(world, &in->answer, 1, from, err);
    return in->answered ? 0 : -1;
}

static int keep_copy(struct incoming *in, struct ckpt_stage *stage, struct comm *world, int from, struct error *err)
{
    struct error broken; /* a copy that is damaged is not kept, and takes no room */

    if (!in->room)
        return 0;
    if (receive_all(world, in->part, in->header.part_bytes, from, err) < 0 ||
        receive_all(world, in->room, in->header.bytes, from, err) < 0)
        return -1;
    ckpt_stage_keep(stage, in->part, in->header.part_bytes, &broken);
    return 0;
}

/* Sends are waited for only after this rank has received: else all nodes of the ring would wait for each other. */
static int exchange_round(struct ckpt_stage *stage, const struct ckpt_save *save, struct comm *world, int to, int from,
                          struct error *err)
{
    struct comm_request *ahead = NULL, *part = NULL, *data = NULL;
    struct ckpt_staged_shard mine = {0};
    struct header header = {.shard = save->shard};
    struct incoming in = {0};
    struct error nothing;
    char room = 0;
    int result = -1;

    if (to >= 0) {
        if (ckpt_stage_lend(stage, &mine, &nothing) == 0) {
            header.bytes = mine.bytes;
            header.part_bytes = mine.part_bytes;
        }
        if (!(ahead = comm_start_send(world, &header, sizeof header, to, err)))
            goto end;
    }
    if ((from >= 0 && answer_partner(&in, stage, save, world, from, err) < 0) ||
        (to >= 0 && (comm_wait(ahead, err) < 0 || receive_all(world, &room, 1, to, err) < 0)) ||
        comm_wait(in.answered, err) < 0)
        goto end;
    if (room && (!(part = comm_start_send(world, mine.part, mine.part_bytes, to, err)) ||
                 !(data = comm_start_send(world, mine.data, mine.bytes, to, err))))
        goto end;
    if (from >= 0 && keep_copy(&in, stage, world, from, err) < 0)
        goto end;
    if (room && (comm_wait(part, err) < 0 || comm_wait(data, err) < 0))
        goto end;
    result = 0;
end:
    free(in.part);
    return result;
}

int nodes_exchange(const struct nodes *nodes, struct ckpt_stage *stage, const struct ckpt_save *save,
                   struct comm *world, struct error *err)
{
    recorder_phase("copying to the partner");
    comm_purpose(world, "shards", "partners");
    for (int round = 0; round < nodes_rounds(nodes); round++) {
        int to, from;

        nodes_partners(nodes, comm_rank(world), round, &to, &from);
        if (exchange_round(stage, save, world, to, from, err) < 0)
            return -1;
    }
    return 0;
}
