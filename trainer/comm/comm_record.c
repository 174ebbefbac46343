/* comm_record.c - records operations for the flight recorder. */
#include <stdio.h>
#include <stdlib.h>

#include "trainer/comm/comm_impl.h"

static const int *members_of(const struct comm *comm)
{
    return comm->host ? comm->host->members : comm->members;
}

int comm_world_rank(const struct comm *comm, int rank)
{
    return members_of(comm) ? members_of(comm)[rank] : rank;
}

static void add_to_recorder(struct comm *comm)
{
    int *members = malloc((size_t)comm->size * sizeof *members);

    if (!members)
        return;
    for (int rank = 0; rank < comm->size; rank++)
        members[rank] = comm_world_rank(comm, rank);
    recorder_add_comm(&comm->recorded,
                      comm->label[0]     ? comm->label
                      : members_of(comm) ? "group"
                                         : "world",
                      members, comm->size);
    free(members);
}

struct record_op comm_record_enter(struct comm *comm, enum record_kind kind, int peer)
{
    struct record_op op = {0};

    if (comm->size > 1) {
        if (recorder_must_add_comm(&comm->recorded))
            add_to_recorder(comm);
        recorder_enter(&op, &comm->recorded, kind, peer < 0 ? -1 : comm_world_rank(comm, peer), comm->purpose_unit,
                       comm->purpose_data);
    }
    comm->purpose_unit = comm->purpose_data = NULL;
    return op;
}

struct comm_request *comm_record_started(struct comm_request *request, const struct record_op *op)
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

void comm_purpose(struct comm *comm, const char *unit, const char *data)
{
    comm->purpose_unit = unit;
    comm->purpose_data = data;
}
