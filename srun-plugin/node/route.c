#include "srun-plugin/node/route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "srun-plugin/node/sysfs.h"

#define PORT_DISCARD "9" /* never sent to */

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

/* The address that the kernel would send from; -1 and errno if it has no route. */
static int find_source(const struct addrinfo *peer, char address[INET6_ADDRSTRLEN])
{
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    int fd = socket(peer->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), saved, status = -1;

    if (fd < 0)
        return -1;
    if (connect(fd, peer->ai_addr, peer->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)&own, &length) == 0)
        status = print_address((const struct sockaddr *)&own, address, INET6_ADDRSTRLEN);
    saved = errno;
    close(fd);
    errno = saved;
    return status;
}

static bool find_interface(const char *own, char *interface)
{
    char *addresses = sysfs_text("/", "addresses"), wanted[INET6_ADDRSTRLEN + 2];
    const char *at, *line;

    snprintf(wanted, sizeof wanted, " %s/", own);
    at = addresses ? strstr(addresses, wanted) : NULL;
    if (at) {
        line = memrchr(addresses, '\n', (size_t)(at - addresses));
        line = line ? line + 1 : addresses;
        snprintf(interface, IF_NAMESIZE, "%.*s", (int)(at - line), line);
    }
    free(addresses);
    return at;
}

/* Of an alias, such as "lo:1", too. */
static bool is_loopback_interface(const char *name)
{
    struct ifreq item = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool loopback;

    snprintf(item.ifr_name, sizeof item.ifr_name, "%s", name);
    loopback = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &item) == 0 && (item.ifr_flags & IFF_LOOPBACK);
    if (fd >= 0)
        close(fd);
    return loopback;
}

bool route_is_own(const char *own, struct route_address *way)
{
    if (!find_interface(own, way->interface))
        return false;
    if (!route_is_loopback(own) && is_loopback_interface(way->interface))
        way->interface[0] = '\0';
    snprintf(way->address, sizeof way->address, "%s", own);
    return true;
}

static int look_up(const char *host, struct addrinfo **list, struct error *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
    int rc = getaddrinfo(host, PORT_DISCARD, &hints, list);

    return rc == 0 ? 0 : error_set(err, CODE_IO, "%s does not resolve: %s", host, gai_strerror(rc));
}

int route_to(const char *peer, struct route_address *way, struct error *err)
{
    char source[INET6_ADDRSTRLEN];
    struct addrinfo *list;
    int status = -1;

    if (look_up(peer, &list, err) < 0)
        return -1;
    for (const struct addrinfo *i = list; i && status < 0; i = i->ai_next)
        status = find_source(i, source);
    if (status < 0)
        error_errno(err, CODE_IO, "no route to %s", peer);
    freeaddrinfo(list);
    if (status == 0 && !route_is_own(source, way))
        status = error_set(err, CODE_IO, "no interface has the address %s", source);
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

const char *route_master(const char *name, char (*addresses)[INET6_ADDRSTRLEN], size_t count, const char *own)
{
    if (count == 0 || !own || route_is_loopback(own))
        return name;
    for (size_t i = 0; i < count; i++)
        if (!route_is_loopback(addresses[i]))
            return name;
    return own;
}
