/*
 * links.h - TCP connections between the ranks, by which a rank sees that another's process or node is lost.
 *
 * The kernel of a rank's node closes the connection when the process ends, for whatever reason. It still answers
 * keepalive probes for a process that is stopped, suspended or swapped out. So a connection that was closed means that
 * the process has ended; one that timed out, after 7 seconds, that its node is dead or cut off. No file system,
 * launcher or other process takes part.
 *
 * The connections form a tree: each rank connects to its parent, (rank - 1) / LINKS_FANOUT. A rank tells its neighbors
 * in the tree when it raises the alarm and, before it closes a connection, that it is ending.
 */
#ifndef MUSTER_TRAINER_WATCH_LINKS_H
#define MUSTER_TRAINER_WATCH_LINKS_H

#include <netinet/in.h>
#include <stdint.h>

#include "common/error.h"
#include "trainer/watch/hang.h"

enum { LINKS_FANOUT = 8, LINK_ADDRESSES = 8 };

/* Where a rank listens; exchanged between all ranks at the start. */
struct link_address {
    struct in6_addr addresses[LINK_ADDRESSES]; /* of its node; IPv4 addresses are mapped */
    uint32_t naddresses, port;
    uint64_t token; /* a secret of the run's processes: a connection begins with it */
};

struct links;

/* Listens. NULL with CODE_IO. For every other function here, NULL is a rank without links. */
struct links *links_create(int world, int rank, struct link_address *own, struct error *err);
void links_destroy(struct links *links);

/* Connects to the parent. When all ranks have done so, links_accept accepts the children. CODE_PEER. */
int links_connect(struct links *links, const struct link_address *parent, struct error *err);
int links_accept(struct links *links, struct error *err);

int links_parent(int rank); /* 0 for rank 0 */

enum link_message { LINK_ALARM = 'a', LINK_ENDING = 'e' };

/* To all neighbors, without waiting. */
void links_tell(struct links *links, enum link_message message);

enum links_news {
    LINKS_QUIET,
    LINKS_CUT,   /* a connection has timed out */
    LINKS_ALARM, /* a neighbor has raised the alarm, or its process has ended without announcing it */
};

/* The worst that has happened until now. Of ranks[world], which may be NULL, those whose process has ended without
 * announcing it become HANG_DEAD. */
enum links_news links_poll(struct links *links, struct hang_rank *ranks);

#endif
