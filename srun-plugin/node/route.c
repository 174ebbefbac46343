#include "srun-plugin/node/route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "srun-plugin/node/sysfs.h"

#define PORT_DISCARD "9" /* never sent to */

/* ---- this machine ------------------------------------------------------------------------------------------------ */

static int print_address(const struct sockaddr *address, char *text, size_t size)
{
    const void *bytes;

    if (address->sa_family == AF_INET)
        bytes = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
    else if (address->sa_family == AF_INET6)
        bytes = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    else
        return -1;
    return inet_ntop(address->sa_family, bytes, text, (socklen_t)size) ? 0 : -1;
}

/* The address that the kernel would send from, and its interface if it is of IPv4; -1 and errno where it has no route.
 */
static int ask_way(const struct addrinfo *peer, struct route_address *way)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    int fd = socket(peer->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), saved, status = -1;

    if (fd < 0)
        return -1;
    if (connect(fd, peer->ai_addr, peer->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)&own, &length) == 0)
        status = print_address((const struct sockaddr *)&own, way->address, sizeof way->address);
    if (status == 0 && own.ss_family == AF_INET)
        sysfs_interface(fd, ((const struct sockaddr_in *)(const void *)&own)->sin_addr, way->interface);
    saved = errno;
    close(fd);
    errno = saved;
    return status;
}

bool route_is_own(const char *own, struct route_address *way)
{
    char *addresses = sysfs_text("/", "addresses"), wanted[INET6_ADDRSTRLEN + 2];
    const char *at, *line;

    snprintf(wanted, sizeof wanted, " %s/", own);
    at = addresses ? strstr(addresses, wanted) : NULL;
    if (at) {
        line = memrchr(addresses, '\n', (size_t)(at - addresses));
        line = line ? line + 1 : addresses;
        snprintf(way->interface, sizeof way->interface, "%.*s", (int)(at - line), line);
        snprintf(way->address, sizeof way->address, "%s", own);
    }
    free(addresses);
    return at;
}

static int look_up(const char *host, struct addrinfo **list, struct error *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
    int rc = getaddrinfo(host, PORT_DISCARD, &hints, list);

    return rc == 0 ? 0 : error_set(err, CODE_IO, "%s does not resolve: %s", host, gai_strerror(rc));
}

int route_to(const char *peer, struct route_address *way, struct error *err)
{
    struct route_address asked = {.interface = ""};
    struct addrinfo *list;
    int status = -1;

    if (look_up(peer, &list, err) < 0)
        return -1;
    for (const struct addrinfo *i = list; i && status < 0; i = i->ai_next)
        status = ask_way(i, &asked);
    if (status < 0)
        error_errno(err, CODE_IO, "no route to %s", peer);
    freeaddrinfo(list);
    if (status == 0 && asked.interface[0])
        *way = asked;
    else if (status == 0 && !route_is_own(asked.address, way))
        status = error_set(err, CODE_IO, "no interface has the address %s", asked.address);
    return status;
}

int route_resolve(const char *host, char (*addresses)[INET6_ADDRSTRLEN], size_t most, struct error *err)
{
    struct addrinfo *list;
    size_t count = 0;

    if (look_up(host, &list, err) < 0)
        return -1;
    for (const struct addrinfo *i = list; i && count < most; i = i->ai_next)
        if (print_address(i->ai_addr, addresses[count], sizeof addresses[count]) == 0)
            count++;
    freeaddrinfo(list);
    return (int)count;
}

/* ---- a saved machine --------------------------------------------------------------------------------------------- */

struct route {
    char interface[IF_NAMESIZE];
    uint32_t destination, mask; /* in the host's order */
    unsigned flags, metric;
};

#define FLAG_UP     0x0001u
#define FLAG_REJECT 0x0200u

/* One line of /proc/net/route, where addresses are the bytes of a little-endian machine's memory. */
static bool read_route(const char *line, struct route *route)
{
    unsigned destination, mask;

    if (sscanf(line, "%15s %8x %*x %4x %*d %*d %u %8x", route->interface, &destination, &route->flags, &route->metric,
               &mask) != 5)
        return false;
    route->destination = __builtin_bswap32(destination);
    route->mask = __builtin_bswap32(mask);
    return true;
}

static bool leads_to(const struct route *route, uint32_t peer)
{
    return (route->flags & FLAG_UP) && (peer & route->mask) == route->destination;
}

static bool is_better(const struct route *route, const struct route *best)
{
    if (route->mask != best->mask)
        return route->mask > best->mask;
    return route->metric < best->metric;
}

static bool find_route(const char *table, uint32_t peer, struct route *best)
{
    bool found = false;

    while (*table) {
        struct route route;

        if (read_route(table, &route) && leads_to(&route, peer) && (!found || is_better(&route, best))) {
            *best = route;
            found = true;
        }
        table += strcspn(table, "\n");
        table += *table == '\n';
    }
    return found && !(best->flags & FLAG_REJECT);
}

int route_replay(const char *table, const struct route_address *own, size_t count, const char *peer,
                 struct route_address *way, struct error *err)
{
    struct in_addr address;
    struct route route;

    if (inet_pton(AF_INET, peer, &address) != 1)
        return error_set(err, CODE_DATA, "\"%s\" is no IPv4 address", peer);
    for (size_t i = 0; i < count; i++) /* the kernel looks here, in its local table, first */
        if (strcmp(own[i].address, peer) == 0) {
            *way = own[i];
            return 0;
        }
    if (!find_route(table, ntohl(address.s_addr), &route))
        return error_set(err, CODE_DATA, "no route to %s", peer);
    for (size_t i = 0; i < count; i++)
        if (strcmp(own[i].interface, route.interface) == 0 && strchr(own[i].address, '.')) {
            *way = own[i];
            return 0;
        }
    return error_set(err, CODE_DATA, "the route to %s is through %s, which has no address", peer, route.interface);
}

/* ---- rank 0's node ----------------------------------------------------------------------------------------------- */

bool route_is_loopback(const char *address)
{
    struct in_addr four;
    struct in6_addr six;

    if (inet_pton(AF_INET, address, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, address, &six) != 1)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

const char *route_head(const char *head, char (*addresses)[INET6_ADDRSTRLEN], size_t count, const char *own)
{
    if (count == 0 || !own || route_is_loopback(own))
        return head;
    for (size_t i = 0; i < count; i++)
        if (!route_is_loopback(addresses[i]))
            return head;
    return own;
}
