/*
 * neighbours.h - the ranks of this host: those whose records this process can read and whose processes it can see. The
 * lowest of them that runs speaks for all, so that a stopped or dead rank is spoken for too.
 */
#ifndef MUSTER_TRAINER_WATCH_NEIGHBOURS_H
#define MUSTER_TRAINER_WATCH_NEIGHBOURS_H

#include "trainer/watch/hang.h"

/* What every rank tells all others at the start. */
struct neighbour {
    char host[HANG_HOST_SIZE];
    struct process process;
    uint64_t device; /* record_device: containers of one host may each have a /dev/shm of their own */
};

struct neighbour neighbour_self(const char *host, const struct record_file *own);

struct neighbours;

/* all[world] is copied. Everyone's record must be there, until every rank has returned from this. */
struct neighbours *neighbours_create(const struct neighbour *all, int world, int rank, struct record_file *own,
                                     struct error *err);
void neighbours_destroy(struct neighbours *neighbours);

/* Whether this rank is the lowest of its host that runs. */
bool neighbours_speaker(const struct neighbours *neighbours);

/* A rank of this host whose process is gone although it did not say that it would end; -1 for none. */
int neighbours_dead(const struct neighbours *neighbours);

/* Whether all of them have ended, in whatever way. */
bool neighbours_left(const struct neighbours *neighbours);

bool neighbours_alarm(const struct neighbours *neighbours);                                          /* any of them */
bool neighbours_verdict(const struct neighbours *neighbours, char text[static RECORD_VERDICT_SIZE]); /* any of them */

/* Their records and states, and which ranks they are. The hosts of all ranks are filled in. */
void neighbours_take(const struct neighbours *neighbours, struct hang_rank *ranks, bool *chosen);

/* Whether each host of the world has a rank among `spoken`. */
bool neighbours_complete(const struct neighbours *neighbours, const bool *spoken);

/* SIGCONT to those that are stopped, so that they can learn how it ended and end too. */
void neighbours_wake(const struct neighbours *neighbours);

#endif
