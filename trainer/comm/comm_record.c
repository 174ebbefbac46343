/* comm_record.c - what comm.c tells the flight recorder, and what the watchdog tells comm_wait. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "trainer/comm/comm_impl.h"

int comm_world_rank(const struct comm *comm, int rank)
{
    return comm->members ? comm->members[rank] : rank;
}

static void add_to_recorder(struct comm *comm)
{
    int *members = malloc((size_t)comm->size * sizeof *members);

    if (!members)
        return;
    for (int rank = 0; rank < comm->size; rank++)
        members[rank] = comm_world_rank(comm, rank);
    recorder_add_comm(&comm->recorded,
                      comm->label[0]  ? comm->label
                      : comm->members ? "group"
                                      : "world",
                      members, comm->size);
    free(members);
}

struct record_op comm_enter(struct comm *comm, enum record_kind kind, int peer)
{
    struct record_op op = {0};

    if (comm->size > 1) {
        if (recorder_wants(&comm->recorded))
            add_to_recorder(comm);
        recorder_enter(&op, &comm->recorded, kind, peer < 0 ? -1 : comm_world_rank(comm, peer), comm->what, comm->of);
    }
    comm->what = comm->of = NULL;
    return op;
}

struct comm_request *comm_entered(struct comm_request *request, const struct record_op *op)
{
    if (request && request != &comm_done)
        request->op = *op;
    else
        recorder_leave(op);
    return request;
}

void comm_label(struct comm *comm, const char *label)
{
    snprintf(comm->label, sizeof comm->label, "%s", label);
    recorder_remove_comm(&comm->recorded);
}

void comm_purpose(struct comm *comm, const char *what, const char *of)
{
    comm->what = what;
    comm->of = of;
}

/* ---- being interrupted ---- */

static struct error interruption;
static atomic_int interrupting; /* 1: being written, 2: there */

void comm_interrupt(const struct error *err)
{
    int none = 0;

    if (!atomic_compare_exchange_strong(&interrupting, &none, 1))
        return;
    interruption = *err;
    atomic_store_explicit(&interrupting, 2, memory_order_release);
}

bool comm_interrupted(struct error *err)
{
    if (atomic_load_explicit(&interrupting, memory_order_acquire) != 2)
        return false;
    *err = interruption;
    return true;
}

static void (*explain)(struct error *err, void *arg);
static void *explain_arg;

void comm_explain_with(void (*with)(struct error *err, void *arg), void *arg)
{
    explain = with;
    explain_arg = arg;
}

void comm_explain(struct error *err)
{
    if (explain)
        explain(err, explain_arg);
}
