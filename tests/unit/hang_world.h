/*
 * hang_world.h - made-up ranks that hang: records as the recorder would have left them, without processes. Time is a
 * count of nanoseconds that every action moves on.
 */
#ifndef MUSTER_TESTS_UNIT_HANG_WORLD_H
#define MUSTER_TESTS_UNIT_HANG_WORLD_H

#include "trainer/watch/hang.h"

enum { WORLD, DP, TP, FORWARD, BACKWARD, AXES }; /* slots of a rank's communicators */

struct hang_world {
    int size, dp, tp, pp;
    int64_t now;
    struct hang_rank *ranks;
};

/* All running and computing, two ranks a host: n1, n2, ... Ends the test when out of memory. */
struct hang_world hang_world(int dp, int tp, int pp);
void hang_world_free(struct hang_world *world);

/* peer is a rank of the world; -1 for collectives. */
struct record_op hang_world_enter(struct hang_world *world, int rank, int comm, enum record_kind kind, int peer,
                                  const char *purpose);
void hang_world_wait(struct hang_world *world, int rank, const struct record_op *op);
void hang_world_leave(struct hang_world *world, int rank, const struct record_op *op);

/* In one: it is over at once. */
void hang_world_do(struct hang_world *world, int rank, int comm, enum record_kind kind, const char *purpose);

/* Every record is taken, so many seconds after the last action. */
void hang_world_take(struct hang_world *world, double seconds);

#endif
