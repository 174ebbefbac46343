#include "trainer/watch/local_ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/watch/recorder.h"

struct mapped_rank {
    int rank;
    struct record_file *file;
    const struct process *process;
};

struct local_ranks {
    int rank, world;
    const struct rank_location *all; /* [world] */
    struct mapped_rank *mapped;      /* [count] in the order of rank; this rank among them */
    int count;
};

/* A pid_namespace of 0 is unknown. */
static bool same_node(const struct rank_location *a, const struct rank_location *b)
{
    return a->process.pid_namespace && a->process.pid_namespace == b->process.pid_namespace &&
           strcmp(a->host, b->host) == 0;
}

struct local_ranks *local_ranks_create(const struct rank_location *all, int world, int rank, struct record_file *own,
                                       struct error *err)
{
    struct local_ranks *n = error_calloc(1, sizeof *n, err);

    if (!n)
        return NULL;
    *n = (struct local_ranks){rank, world, all, error_calloc((size_t)world, sizeof *n->mapped, err), 0};
    if (!n->mapped)
        goto fail;
    for (int other = 0; other < world; other++) {
        struct mapped_rank *r = &n->mapped[n->count];

        if (other != rank && !same_node(&all[other], &all[rank]))
            continue;
        *r = (struct mapped_rank){other, own, &all[other].process};
        if (other != rank && !(r->file = record_map(r->process, (int)all[other].record, err))) {
            error_prefix(err, "rank %d", other);
            goto fail;
        }
        n->count++;
    }
    return n;
fail:
    local_ranks_destroy(n);
    return NULL;
}

void local_ranks_destroy(struct local_ranks *n)
{
    if (!n)
        return;
    for (int i = 0; i < n->count; i++)
        if (n->mapped[i].rank != n->rank)
            record_close(n->mapped[i].file);
    free(n->mapped);
    free(n);
}

/* ---- their state ---- */

/* Inspects the process, then copies the record: a rank that had announced its end by then is not dead. A process that
 * cannot be inspected counts as running. */
static enum hang_state inspect_rank(const struct mapped_rank *r, struct flight_record *record)
{
    enum process_state seen = process_inspect(r->process);

    record_copy(record, r->file);
    if (record->ending)
        return HANG_ENDING;
    if (seen == PROCESS_GONE)
        return HANG_DEAD;
    if (record_flag(r->file, RECORD_ABORTING))
        return HANG_ABORTED;
    return seen == PROCESS_STOPPED ? HANG_STOPPED : HANG_RUNNING;
}

/* True if a rank of this node is in one of the states, given as bits 1 << state. */
static bool any_rank_in(const struct local_ranks *n, unsigned states)
{
    struct flight_record record;

    for (int i = 0; i < n->count; i++)
        if (states & 1u << inspect_rank(&n->mapped[i], &record))
            return true;
    return false;
}

bool local_ranks_publisher(const struct local_ranks *n)
{
    struct flight_record record;

    for (int i = 0; n->mapped[i].rank != n->rank; i++) {
        enum hang_state state = inspect_rank(&n->mapped[i], &record);

        if (state == HANG_RUNNING ||
            (state == HANG_ABORTED && process_inspect(n->mapped[i].process) != PROCESS_STOPPED))
            return false;
    }
    return true;
}

bool local_ranks_any_dead(const struct local_ranks *n)
{
    return any_rank_in(n, 1u << HANG_DEAD);
}

bool local_ranks_all_ending(const struct local_ranks *n)
{
    return !any_rank_in(n, 1u << HANG_RUNNING | 1u << HANG_STOPPED);
}

bool local_ranks_alarm(const struct local_ranks *n)
{
    for (int i = 0; i < n->count; i++)
        if (record_flag(n->mapped[i].file, RECORD_ALARM))
            return true;
    return false;
}

bool local_ranks_cause(const struct local_ranks *n, struct record_cause *cause)
{
    for (int i = 0; i < n->count; i++)
        if (record_get_cause(n->mapped[i].file, cause))
            return true;
    return false;
}

struct hang_rank *local_ranks_snapshot(const struct local_ranks *n, struct error *err)
{
    struct hang_rank *ranks = error_calloc((size_t)n->world, sizeof *ranks, err);

    if (!ranks)
        return NULL;
    for (int rank = 0; rank < n->world; rank++)
        memcpy(ranks[rank].host, n->all[rank].host, sizeof ranks[rank].host);
    for (int i = 0; i < n->count; i++) {
        const struct mapped_rank *from = &n->mapped[i];
        struct hang_rank *r = &ranks[from->rank];

        r->state = inspect_rank(from, &r->record);
        r->signal = record_flag(from->file, RECORD_ABORTING);
        r->taken = recorder_now();
        record_make_safe(&r->record, n->world);
    }
    return ranks;
}

void local_ranks_continue(const struct local_ranks *n)
{
    for (int i = 0; i < n->count; i++)
        if (process_inspect(n->mapped[i].process) == PROCESS_STOPPED)
            kill((pid_t)n->mapped[i].process->pid, SIGCONT);
}
