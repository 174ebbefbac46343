/*
 * neighbours.h - the ranks of this host: those whose records this process can read and whose processes it can see. The
 * lowest running one, the speaker, publishes the records of all of them, stopped and dead ones too.
 */
#ifndef MUSTER_TRAINER_WATCH_NEIGHBOURS_H
#define MUSTER_TRAINER_WATCH_NEIGHBOURS_H

#include "trainer/watch/hang.h"

/* Exchanged between all ranks at the start. */
struct neighbour {
    char host[HANG_HOST_SIZE];
    struct process process;
    uint64_t device; /* record_device: containers of one host may each have a /dev/shm of their own */
};

struct neighbour neighbour_self(const char *host, const struct record_file *own);

struct neighbours;

/* all[world] is copied. No record may be unlinked until every rank has returned from this. */
struct neighbours *neighbours_create(const struct neighbour *all, int world, int rank, struct record_file *own,
                                     struct error *err);
void neighbours_destroy(struct neighbours *neighbours);

/* True if this rank is the lowest running one of its host. */
bool neighbours_speaker(const struct neighbours *neighbours);

/* A rank of this host whose process ended without announcing it; -1 for none. */
int neighbours_dead(const struct neighbours *neighbours);

/* True if all of them have ended, in any way. */
bool neighbours_left(const struct neighbours *neighbours);

/* True if any of them has raised the alarm, or has a verdict. */
bool neighbours_alarm(const struct neighbours *neighbours);
bool neighbours_verdict(const struct neighbours *neighbours, char text[static RECORD_VERDICT_SIZE]);

/* Fills in their records and states, marks them in `chosen`, and fills in the hosts of all ranks. */
void neighbours_take(const struct neighbours *neighbours, struct hang_rank *ranks, bool *chosen);

/* True if each host of the world has a rank among `spoken`. */
bool neighbours_complete(const struct neighbours *neighbours, const bool *spoken);

/* Sends SIGCONT to the stopped ones, so that they can read the verdict and end too. */
void neighbours_wake(const struct neighbours *neighbours);

#endif
