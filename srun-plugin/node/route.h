/*
 * route.h - the way to the other nodes of a step: which interface the kernel really sends through, and by which address
 * the others reach rank 0's node.
 */
#ifndef MUSTER_SRUN_PLUGIN_ROUTE_H
#define MUSTER_SRUN_PLUGIN_ROUTE_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

/* An address of this node and the interface that has it. */
struct route_address {
    char interface[IF_NAMESIZE];
    char address[INET6_ADDRSTRLEN];
};

/*
 * How this node sends to `peer`, another node's name or address: a UDP socket is connected to it (nothing is sent), and
 * its own address is looked up among the interfaces'. -1 with CODE_IO where the name does not resolve or no route leads
 * there.
 */
int route_to(const char *peer, struct route_address *way, struct error *err);

/* Whether `address` is one of this node's own: then it and its interface are *way. */
bool route_is_own(const char *address, struct route_address *way);

/*
 * The same as route_to from a saved /proc/net/route of a little-endian machine and that machine's addresses, in the
 * order of its interfaces. IPv4 only. The longest prefix wins, then the lowest metric, as in the kernel; policy routing
 * is not seen. -1 with CODE_DATA where the table has no route.
 */
int route_replay(const char *table, const struct route_address *own, size_t count, const char *peer,
                 struct route_address *way, struct error *err);

/*
 * The addresses of a host, as this machine resolves it, into addresses[most]. Returns how many; -1 with CODE_IO where
 * it does not resolve.
 */
int route_resolve(const char *host, char (*addresses)[INET6_ADDRSTRLEN], size_t most, struct error *err);

/* 127.0.0.0/8 and ::1, which only this node reaches. */
bool route_is_loopback(const char *address);

/*
 * By what the ranks of a step reach rank 0's node: `head`, the name that Slurm has for it, unless all of `addresses`,
 * what the name resolves to here, are loopback ones. That is Debian's /etc/hosts (127.0.1.1) on the node itself: rank 0
 * would then listen where nobody hears it. Then it is `own`, the address that this node sends to another node of the
 * step from (route_to), if that is one that others reach. `own` may be NULL. Returns head or own.
 */
const char *route_head(const char *head, char (*addresses)[INET6_ADDRSTRLEN], size_t count, const char *own);

#endif
