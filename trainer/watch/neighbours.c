#include "trainer/watch/neighbours.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/watch/recorder.h"

struct local {
    int rank;
    struct record_file *record;
    struct process process; /* pid 0: unknown */
};

struct neighbours {
    int rank, world;
    struct neighbour *all; /* [world] */
    int *home;             /* [world] the lowest rank of each rank's host */
    struct local *local;   /* [nlocal] in the order of rank; this rank among them */
    int nlocal;
};

struct neighbour neighbour_self(const char *host, const struct record_file *own)
{
    struct neighbour self = {.process = process_self(), .device = record_device(own)};

    snprintf(self.host, sizeof self.host, "%s", host);
    return self;
}

/* Without a device a record is its rank's alone. */
static bool same_container(const struct neighbour *a, const struct neighbour *b)
{
    return a->device && a->device == b->device && a->process.numbering == b->process.numbering &&
           strcmp(a->host, b->host) == 0;
}

/* A host's ranks usually follow each other. */
static void find_homes(struct neighbours *n)
{
    for (int rank = 0; rank < n->world; rank++) {
        int home = rank > 0 && same_container(&n->all[rank - 1], &n->all[rank]) ? n->home[rank - 1] : 0;

        while (home < rank && !(n->home[home] == home && same_container(&n->all[home], &n->all[rank])))
            home++;
        n->home[rank] = home;
    }
}

static int add_neighbour(struct neighbours *n, int rank, struct record_file *own, struct error *err)
{
    struct local *l = &n->local[n->nlocal];

    l->rank = rank;
    l->record = rank == n->rank ? own : record_map(&n->all[rank].process, n->world, err);
    if (!l->record)
        return error_prefix(err, "the flight record of rank %d", rank);
    l->process = n->all[rank].process;
    if (process_inspect(&l->process) != PROCESS_RUNNING) /* it runs but is not visible: must not raise an alarm */
        l->process.pid = 0;
    n->nlocal++;
    return 0;
}

struct neighbours *neighbours_create(const struct neighbour *all, int world, int rank, struct record_file *own,
                                     struct error *err)
{
    struct neighbours *n = calloc(1, sizeof *n);

    if (!n) {
        error_set(err, CODE_IO, "out of memory");
        return NULL;
    }
    n->rank = rank;
    n->world = world;
    n->all = malloc((size_t)world * sizeof *n->all);
    n->home = calloc((size_t)world, sizeof *n->home);
    n->local = calloc((size_t)world, sizeof *n->local);
    if (!n->all || !n->home || !n->local) {
        error_set(err, CODE_IO, "out of memory for the hosts of %d ranks", world);
        goto fail;
    }
    memcpy(n->all, all, (size_t)world * sizeof *n->all);
    find_homes(n);
    for (int other = 0; other < world; other++)
        if (n->home[other] == n->home[rank] && add_neighbour(n, other, own, err) < 0)
            goto fail;
    return n;
fail:
    neighbours_destroy(n);
    return NULL;
}

void neighbours_destroy(struct neighbours *n)
{
    if (!n)
        return;
    for (int i = 0; i < n->nlocal; i++)
        if (n->local[i].rank != n->rank)
            record_close(n->local[i].record);
    free(n->all);
    free(n->home);
    free(n->local);
    free(n);
}

/* ---- their state ---- */

static bool has_ended(const struct local *l)
{
    struct flight_record record;

    record_copy(&record, l->record);
    return record.ended;
}

bool neighbours_speaker(const struct neighbours *n)
{
    for (int i = 0; i < n->nlocal && n->local[i].rank != n->rank; i++) {
        enum process_state state = process_inspect(&n->local[i].process);

        if (state != PROCESS_GONE && state != PROCESS_STOPPED && !has_ended(&n->local[i]))
            return false;
    }
    return true;
}

int neighbours_dead(const struct neighbours *n)
{
    for (int i = 0; i < n->nlocal; i++)
        /* In this order: a rank that announces its end and then ends is not dead. */
        if (process_inspect(&n->local[i].process) == PROCESS_GONE && !has_ended(&n->local[i]))
            return n->local[i].rank;
    return -1;
}

bool neighbours_left(const struct neighbours *n)
{
    for (int i = 0; i < n->nlocal; i++)
        if (!has_ended(&n->local[i]) && !record_aborting(n->local[i].record) &&
            process_inspect(&n->local[i].process) != PROCESS_GONE)
            return false;
    return true;
}

bool neighbours_alarm(const struct neighbours *n)
{
    for (int i = 0; i < n->nlocal; i++)
        if (record_alarm(n->local[i].record))
            return true;
    return false;
}

bool neighbours_verdict(const struct neighbours *n, char text[static RECORD_VERDICT_SIZE])
{
    for (int i = 0; i < n->nlocal; i++)
        if (record_verdict(n->local[i].record, text))
            return true;
    return false;
}

/* The record was copied after the process was inspected: one that had announced its end by then is not dead. */
static enum hang_state derive_state(enum process_state seen, const struct record_file *file,
                                    const struct flight_record *record)
{
    if (record->ended)
        return HANG_ENDED;
    if (seen == PROCESS_GONE)
        return HANG_DEAD;
    if (record_aborting(file))
        return HANG_ABORTED;
    return seen == PROCESS_STOPPED ? HANG_STOPPED : HANG_RUNNING;
}

void neighbours_take(const struct neighbours *n, struct hang_rank *ranks, bool *chosen)
{
    for (int rank = 0; rank < n->world; rank++)
        memcpy(ranks[rank].host, n->all[rank].host, sizeof ranks[rank].host);
    for (int i = 0; i < n->nlocal; i++) {
        struct hang_rank *r = &ranks[n->local[i].rank];
        enum process_state seen = process_inspect(&n->local[i].process);

        chosen[n->local[i].rank] = true;
        record_copy(&r->record, n->local[i].record);
        r->taken = recorder_now();
        r->state = derive_state(seen, n->local[i].record, &r->record);
        for (int c = 0; c < RECORD_COMMS; c++) {
            int size = r->record.comms[c].size;

            free(r->members[c]);
            r->members[c] = r->record.comms[c].id ? calloc((size_t)size + 1, sizeof(int)) : NULL;
            if (r->members[c])
                record_members(n->local[i].record, c, r->members[c], size);
        }
    }
}

bool neighbours_complete(const struct neighbours *n, const bool *spoken)
{
    for (int rank = 0; rank < n->world; rank++) {
        bool any = false;

        for (int other = rank; other < n->world && n->home[rank] == rank && !any; other++)
            any = spoken[other] && n->home[other] == rank;
        if (n->home[rank] == rank && !any)
            return false;
    }
    return true;
}

void neighbours_wake(const struct neighbours *n)
{
    for (int i = 0; i < n->nlocal; i++)
        if (process_inspect(&n->local[i].process) == PROCESS_STOPPED)
            kill((pid_t)n->local[i].process.pid, SIGCONT);
}
