/*
 * local_ranks.h - the ranks of this node, this rank among them: their records and processes.
 *
 * These are the ranks of this host whose records this process can read and whose processes it can see. Containers on
 * one host may hide them from each other: then the host has several such sets of ranks, and each counts as a node.
 */
#ifndef MUSTER_TRAINER_WATCH_LOCAL_RANKS_H
#define MUSTER_TRAINER_WATCH_LOCAL_RANKS_H

#include "trainer/watch/hang.h"
#include "trainer/watch/links.h"

struct local_ranks;

/* Where a rank runs; exchanged between all ranks at the start. */
struct rank_location {
    char host[HANG_HOST_SIZE]; /* the node's name */
    struct process process;
    int64_t record;           /* its flight record's descriptor (record_map) */
    struct link_address link; /* where it listens (links.h) */
};

/* all[world] is borrowed. No rank may close its record's descriptor until every rank has returned from this. */
struct local_ranks *local_ranks_create(const struct rank_location *all, int world, int rank, struct record_file *own,
                                       struct error *err);
void local_ranks_destroy(struct local_ranks *local);

/* True if this rank is the publisher. */
bool local_ranks_publisher(const struct local_ranks *local);

/* True if the process of any of them has ended without announcing it. */
bool local_ranks_any_dead(const struct local_ranks *local);

/* True if all of them have ended, are ending, or are in abort. */
bool local_ranks_all_ending(const struct local_ranks *local);

/* True if any of them has raised the alarm, or knows the cause. */
bool local_ranks_alarm(const struct local_ranks *local);
bool local_ranks_cause(const struct local_ranks *local, struct record_cause *cause);

/* A snapshot: hang_rank[world], each with its host. Local ranks have their records and states; ranks of other nodes are
 * HANG_SILENT. NULL when out of memory. */
struct hang_rank *local_ranks_snapshot(const struct local_ranks *local, struct error *err);

/* Sends SIGCONT to the stopped ones, so that they can read the cause and end too. */
void local_ranks_continue(const struct local_ranks *local);

#endif
