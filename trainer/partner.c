#include "trainer/partner.h"

#include <stdint.h>
#include <stdlib.h>

/* What goes ahead of a shard. */
struct header {
    uint64_t bytes, part_bytes;
    int64_t shard;
};

struct incoming {
    struct header header;
    void *room;
    char *part;
    char answer;
};

static int fetch(struct comm *world, void *buffer, size_t bytes, int from, struct error *err)
{
    struct comm_request *request = comm_start_recv(world, buffer, bytes, from, err);

    return request ? comm_wait(request, err) : -1;
}

static int give(struct comm *world, const void *buffer, size_t bytes, int to, struct error *err)
{
    struct comm_request *request = comm_start_send(world, buffer, bytes, to, err);

    return request ? comm_wait(request, err) : -1;
}

/* The neighbour says what it has; it is told whether there is room. */
static int answer(struct incoming *in, struct ckpt_stage *stage, const struct ckpt_save *save, struct comm *world,
                  int from, struct error *err)
{
    struct ckpt_save theirs = *save;
    struct error no_room;

    if (fetch(world, &in->header, sizeof in->header, from, err) < 0)
        return -1;
    theirs.shard = (int)in->header.shard;
    if (in->header.bytes > 0 && (in->part = malloc(in->header.part_bytes + 1)))
        in->room = ckpt_stage_borrow(stage, &theirs, in->header.bytes, &no_room);
    in->answer = in->room != NULL;
    return give(world, &in->answer, 1, from, err);
}

static int keep(struct incoming *in, struct ckpt_stage *stage, struct comm *world, int from, struct error *err)
{
    struct error broken; /* a copy that did not arrive whole is none, and takes no room */

    if (!in->room)
        return 0;
    if (fetch(world, in->part, in->header.part_bytes, from, err) < 0 ||
        fetch(world, in->room, in->header.bytes, from, err) < 0)
        return -1;
    ckpt_stage_keep(stage, in->part, in->header.part_bytes, &broken);
    return 0;
}

/* Sends are started and waited for only after what this rank is to receive: the ring would wait for itself. */
static int one_round(struct ckpt_stage *stage, const struct ckpt_save *save, struct comm *world, int to, int from,
                     bool *kept, struct error *err)
{
    struct comm_request *ahead = NULL, *part = NULL, *data = NULL;
    struct ckpt_staged mine = {0};
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
    if (from >= 0 && answer(&in, stage, save, world, from, err) < 0)
        goto end;
    if (to >= 0 && (comm_wait(ahead, err) < 0 || fetch(world, &room, 1, to, err) < 0))
        goto end;
    if (room && (!(part = comm_start_send(world, mine.part, mine.part_bytes, to, err)) ||
                 !(data = comm_start_send(world, mine.data, mine.bytes, to, err))))
        goto end;
    if (from >= 0 && keep(&in, stage, world, from, err) < 0)
        goto end;
    if (room && (comm_wait(part, err) < 0 || comm_wait(data, err) < 0))
        goto end;
    *kept = *kept || room;
    result = 0;
end:
    free(in.part);
    return result;
}

int partner_exchange(struct ckpt_stage *stage, const struct ckpt_save *save, struct comm *world,
                     const struct nodes *nodes, bool *kept, struct error *err)
{
    *kept = false;
    comm_purpose(world, "shards", "partners");
    for (int round = 0; round < nodes_rounds(nodes); round++) {
        int to, from;

        nodes_partners(nodes, comm_rank(world), round, &to, &from);
        if (one_round(stage, save, world, to, from, kept, err) < 0)
            return -1;
    }
    return 0;
}
