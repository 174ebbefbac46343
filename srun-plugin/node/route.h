/*
 * route.h - the route to other nodes of a step: the interface that the kernel sends through, and the address by which
 * the others reach rank 0's node.
 */
#ifndef MUSTER_SRUN_PLUGIN_ROUTE_H
#define MUSTER_SRUN_PLUGIN_ROUTE_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

/*
 * An address of this node and the interface that has it. The interface is "" if it is loopback and the address is not
 * (hosts that announce their address by BGP may have it on lo): a library that is told "lo" takes 127.0.0.1.
 */
struct route_address {
    char interface[IF_NAMESIZE];
    char address[INET6_ADDRSTRLEN];
};

/*
 * How this node sends to `peer`, the name or address of another node: connects a UDP socket to it (sends nothing), and
 * looks up the socket's own address among those of the interfaces. -1 with CODE_IO if the name does not resolve or has
 * no route.
 */
int route_to(const char *peer, struct route_address *way, struct error *err);

/* True if `address` is one of this node; then *way has it, and its interface. */
bool route_is_own(const char *address, struct route_address *way);

/*
 * The addresses of a host, as this machine resolves it, into addresses[most]. Returns their number; -1 with CODE_IO if
 * it does not resolve.
 */
int route_resolve(const char *host, char (*addresses)[INET6_ADDRSTRLEN], size_t most, struct error *err);

/* True for 127.0.0.0/8 and ::1, which only this node reaches. */
bool route_is_loopback(const char *address);

/*
 * The name or address by which the ranks of a step reach rank 0's node; called on that node. It is `name`, Slurm's name
 * of the node, unless that resolves here to loopback addresses only (`addresses`), as with Debian's /etc/hosts
 * (127.0.1.1): rank 0 would then listen where no other node reaches it. In that case it is `own`, the address from
 * which this node sends to another node of the step (route_to), unless that is NULL or a loopback address. Returns name
 * or own.
 */
const char *route_master(const char *name, char (*addresses)[INET6_ADDRSTRLEN], size_t count, const char *own);

#endif
