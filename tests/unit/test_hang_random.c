/*
 * Random programs on random meshes, in which some ranks stop at random points while the others go on until nobody can:
 * the verdict names those ranks, and nobody else.
 */
#include "tests/cmocka_test.h"
#include "tests/unit/hang_world.h"

enum { ITEMS = 120, ROUNDS = 3000, MOST_RANKS = 32 };

/* A rank's program: operations begin, and are waited for at once or later. */
struct item {
    enum { BEGIN, WAIT } what;
    int comm, kind, peer;
    int begin;  /* of WAIT: which item began it */
    bool eager; /* a send that the library buffers */
};

struct program {
    struct item items[ITEMS];
    struct record_op ops[ITEMS];
    int count, at, stop; /* stop: where the rank gets stuck; -1: nowhere */
};

static uint64_t random_state;

static int random_below(int n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)n);
}

static int begin(struct program *p, int comm, int kind, int peer, bool eager)
{
    p->items[p->count] = (struct item){.what = BEGIN, .comm = comm, .kind = kind, .peer = peer, .eager = eager};
    return p->count++;
}

static void wait_for(struct program *p, int begun)
{
    p->items[p->count] = p->items[begun];
    p->items[p->count].what = WAIT;
    p->items[p->count].begin = begun;
    p->count++;
}

/* One collective on every group of an axis, or a micro-batch along the pipeline; `late` is waited for afterwards. */
static void add_round(const struct hang_world *w, struct program *programs, int *late)
{
    int axis = random_below(w->pp > 1 ? 5 : 3), kind = random_below(4) ? RECORD_REDUCE_SCATTER : RECORD_SUM;
    bool now = random_below(2), eager = random_below(2);
    int stage = w->dp * w->tp;

    for (int rank = 0; rank < w->size; rank++) {
        struct program *p = &programs[rank];
        int from = axis == FORWARD ? rank - stage : rank + stage, to = axis == FORWARD ? rank + stage : rank - stage;

        if (axis == FORWARD || axis == BACKWARD) {
            if (from >= 0 && from < w->size)
                wait_for(p, begin(p, axis, RECORD_RECEIVE, from, eager));
            if (to >= 0 && to < w->size)
                wait_for(p, begin(p, axis, RECORD_SEND, to, eager));
            continue;
        }
        if ((axis == DP && w->dp == 1) || (axis == TP && w->tp == 1))
            continue;
        if (now) {
            wait_for(p, begin(p, axis, kind, -1, false));
        } else {
            if (late[rank] >= 0)
                wait_for(p, late[rank]);
            late[rank] = begin(p, axis, kind, -1, false);
        }
    }
}

static void write_programs(const struct hang_world *w, struct program *programs)
{
    int late[MOST_RANKS];

    for (int rank = 0; rank < w->size; rank++) {
        programs[rank] = (struct program){.stop = -1};
        late[rank] = -1;
    }
    for (int round = 0; round < 20; round++)
        add_round(w, programs, late);
    for (int rank = 0; rank < w->size; rank++) { /* nobody is through before all are */
        if (late[rank] >= 0)
            wait_for(&programs[rank], late[rank]);
        wait_for(&programs[rank], begin(&programs[rank], WORLD, RECORD_BARRIER, -1, false));
    }
}

static uint64_t transfers(const struct hang_world *w, int rank, int comm, int peer, bool sends)
{
    const struct record_comm *c = &w->ranks[rank].record.comms[comm];

    for (int i = 0; i < c->npeers; i++)
        if (c->peers[i].rank == peer)
            return sends ? c->peers[i].sends : c->peers[i].receives;
    return 0;
}

static bool is_over(const struct hang_world *w, int rank, const struct item *item, const struct record_op *op)
{
    if (item->kind == RECORD_SEND)
        return item->eager || transfers(w, item->peer, item->comm, rank, false) >= op->sequence;
    if (item->kind == RECORD_RECEIVE)
        return transfers(w, item->peer, item->comm, rank, true) >= op->sequence;
    for (int i = 0; i < w->ranks[rank].record.comms[item->comm].size; i++) {
        int member = record_member(&w->ranks[rank].record.comms[item->comm], i);

        if (w->ranks[member].record.comms[item->comm].collectives_entered < op->sequence)
            return false;
    }
    return true;
}

/* One action of a rank; false when it can do none. */
static bool act(struct hang_world *w, struct program *p, int rank)
{
    const struct item *item = &p->items[p->at];

    if (p->at == p->count || p->at == p->stop)
        return false;
    if (item->what == BEGIN) {
        p->ops[p->at] = hang_world_enter(w, rank, item->comm, (enum record_kind)item->kind, item->peer, "");
        p->at++;
        return true;
    }
    if (!w->ranks[rank].record.waiting_since) {
        hang_world_wait(w, rank, &p->ops[item->begin]);
        return true;
    }
    if (!is_over(w, rank, item, &p->ops[item->begin]))
        return false;
    hang_world_leave(w, rank, &p->ops[item->begin]);
    p->at++;
    return true;
}

static void run(struct hang_world *w, struct program *programs)
{
    for (int idle = 0; idle < 40 * w->size;) {
        int rank = random_below(w->size);

        idle = act(w, &programs[rank], rank) ? 0 : idle + 1;
    }
    for (int rank = 0; rank < w->size; rank++) /* whom chance has left out */
        while (act(w, &programs[rank], rank))
            rank = 0;
}

/* How a rank gets stuck. */
static void stick(struct hang_world *w, struct program *p, int rank, enum hang_state state)
{
    int before_barrier = p->count - 1;
    struct hang_rank *r = &w->ranks[rank];

    p->stop = random_below(before_barrier);
    r->state = state;
}

static void names_the_stuck(int victims, const enum hang_state *states, int nstates)
{
    static struct program programs[MOST_RANKS];
    struct hang_world w = hang_world(1 + random_below(4), 1 + random_below(2), 1 + random_below(4));
    struct hang_verdict v;
    struct error err;
    bool stuck[MOST_RANKS] = {false};
    int surest = -1; /* one who is lost */

    if (w.size < 2) {
        hang_world_free(&w);
        w = hang_world(2, 1, 1);
    }
    write_programs(&w, programs);
    for (int i = 0; i < victims && i < w.size - 1; i++) { /* one is left to miss them */
        int rank = random_below(w.size);

        stick(&w, &programs[rank], rank, states[random_below(nstates)]);
        stuck[rank] = true;
    }
    run(&w, programs);
    hang_world_take(&w, 1000);
    for (int rank = 0; rank < w.size; rank++) {
        if (stuck[rank] && (w.ranks[rank].state == HANG_STOPPED || w.ranks[rank].state == HANG_DEAD))
            surest = rank;
        if (w.ranks[rank].state == HANG_SILENT)
            memset(&w.ranks[rank].record, 0, sizeof w.ranks[rank].record);
    }
    assert_int_equal(hang_judge(&v, w.ranks, w.size, 300, &err), 0);
    assert_int_equal(v.kind, HANG_LATE);
    assert_true(v.nnamed >= 1 && v.nnamed <= (size_t)victims);
    for (size_t i = 0; i < v.nnamed; i++) {
        assert_true(stuck[v.named[i].rank]);
        surest = v.named[i].rank == surest ? -1 : surest;
    }
    assert_int_equal(surest, -1);
    free(v.named);
    hang_world_free(&w);
}

static void one_rank_computes(void **state)
{
    for (int i = 0; i < ROUNDS; i++)
        names_the_stuck(1, (enum hang_state[]){HANG_RUNNING}, 1);
}

static void one_rank_is_lost(void **state)
{
    for (int i = 0; i < ROUNDS; i++)
        names_the_stuck(1, (enum hang_state[]){HANG_STOPPED, HANG_DEAD, HANG_SILENT}, 3);
}

static void several(void **state)
{
    for (int i = 0; i < ROUNDS; i++)
        names_the_stuck(2 + random_below(2), (enum hang_state[]){HANG_RUNNING, HANG_STOPPED, HANG_DEAD, HANG_SILENT},
                        4);
}

/* Records that make no sense must end in some verdict. */
static void nonsense(void **state)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct hang_world w = hang_world(1 + random_below(3), 1 + random_below(2), 1 + random_below(3));
        struct hang_verdict v;
        struct error err;

        for (int action = 0; action < 50; action++) {
            int rank = random_below(w.size), comm = random_below(AXES);
            enum record_kind kind = (enum record_kind)random_below(RECORD_KINDS);
            int peer = record_is_message(kind) ? random_below(w.size) : -1;
            struct record_op op;

            if (!w.ranks[rank].record.comms[comm].id ||
                (peer >= 0 && w.ranks[rank].record.comms[comm].npeers == RECORD_PEERS))
                continue;
            op = hang_world_enter(&w, rank, comm, kind, peer, "");
            if (random_below(2))
                hang_world_wait(&w, rank, &op);
            w.ranks[rank].state = (enum hang_state)random_below(HANG_ENDING + 1);
        }
        hang_world_take(&w, 10);
        assert_int_equal(hang_judge(&v, w.ranks, w.size, 300, &err), 0);
        free(v.named);
        hang_world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_computes),
        cmocka_unit_test(one_rank_is_lost),
        cmocka_unit_test(several),
        cmocka_unit_test(nonsense),
    };

    random_state = 20260101;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
