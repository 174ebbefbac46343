#include "trainer/watch/links.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"

/* Seconds, and milliseconds. */
enum {
    KEEPALIVE_IDLE = 2,
    KEEPALIVE_INTERVAL = 1,
    KEEPALIVE_COUNT = 5,
    UNANSWERED_MS = 7000,
    CONNECT_MS = 1500, /* for each address */
    HELLO_MS = 1000,
    ACCEPT_SECONDS = 5,
    BACKLOG = 64,
};

enum link_state { LINK_OPEN, LINK_ENDED, LINK_TIMED_OUT, LINK_DEAD }; /* ENDED: announced */

struct rank_link {
    int rank, fd;
    enum link_state state;
};

struct links {
    int world, rank, listener;
    struct link_address own;
    pthread_mutex_t lock; /* over what follows */
    bool alarm;           /* a neighbor has raised it */
    int count;
    struct rank_link links[1 + LINKS_FANOUT];
};

/* The first bytes of a connection. */
struct hello {
    uint64_t token;
    int64_t rank;
};

int links_parent(int rank)
{
    return (rank - 1) / LINKS_FANOUT;
}

/* ---- addresses ---- */

static bool map_address(struct in6_addr *out, const struct sockaddr *address)
{
    if (address && address->sa_family == AF_INET6) {
        *out = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        return !IN6_IS_ADDR_LINKLOCAL(out);
    }
    if (!address || address->sa_family != AF_INET)
        return false;
    *out = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(&out->s6_addr[12], &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    return true;
}

/* Those of the loopback interface only if there are no others. */
static void list_addresses(struct link_address *own)
{
    struct ifaddrs *list = NULL;

    own->naddresses = 0;
    if (getifaddrs(&list) < 0)
        return;
    for (unsigned loopback = 0; loopback <= IFF_LOOPBACK && own->naddresses == 0; loopback += IFF_LOOPBACK)
        for (struct ifaddrs *at = list; at && own->naddresses < LINK_ADDRESSES; at = at->ifa_next)
            if (at->ifa_flags & IFF_UP && (at->ifa_flags & IFF_LOOPBACK) == loopback &&
                map_address(&own->addresses[own->naddresses], at->ifa_addr))
                own->naddresses++;
    freeifaddrs(list);
}

static bool has_address(const struct link_address *where, const struct in6_addr *address)
{
    for (uint32_t i = 0; i < where->naddresses; i++)
        if (memcmp(&where->addresses[i], address, sizeof *address) == 0)
            return true;
    return false;
}

/* A kernel may be without IPv6. Returns the length. */
static socklen_t fill_address(struct sockaddr_storage *out, const struct in6_addr *address, uint32_t port)
{
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;

    memset(out, 0, sizeof *out);
    if (!IN6_IS_ADDR_V4MAPPED(address)) {
        *v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = *address};
        return sizeof *v6;
    }
    *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    memcpy(&v4->sin_addr, &address->s6_addr[12], 4);
    return sizeof *v4;
}

/* ---- connecting ---- */

/* Listens on all addresses of the node: of both families, else of IPv4. */
static int open_listener(struct link_address *own)
{
    const struct in6_addr any[] = {IN6ADDR_ANY_INIT, {.s6_addr = {[10] = 0xff, [11] = 0xff}}};
    struct sockaddr_storage bound;

    for (int i = 0; i < 2; i++) {
        socklen_t length = fill_address(&bound, &any[i], 0), size = sizeof bound;
        int fd = socket(bound.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (i == 0)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
        if (bind(fd, (struct sockaddr *)&bound, length) == 0 && listen(fd, BACKLOG) == 0 &&
            getsockname(fd, (struct sockaddr *)&bound, &size) == 0) {
            own->port = ntohs(((struct sockaddr_in *)&bound)->sin_port); /* at the same place in sockaddr_in6 */
            return fd;
        }
        close(fd);
    }
    return -1;
}

struct links *links_create(int world, int rank, struct link_address *own, struct error *err)
{
    struct links *l = error_calloc(1, sizeof *l, err);

    memset(own, 0, sizeof *own);
    if (!l)
        return NULL;
    l->world = world;
    l->rank = rank;
    pthread_mutex_init(&l->lock, NULL);
    list_addresses(own);
    l->listener = open_listener(own);
    if (l->listener < 0 || getrandom(&own->token, sizeof own->token, 0) != sizeof own->token) {
        error_errno(err, CODE_IO, "a connection between ranks");
        links_destroy(l);
        return NULL;
    }
    l->own = *own;
    return l;
}

void links_destroy(struct links *l)
{
    if (!l)
        return;
    for (int i = 0; i < l->count; i++)
        close(l->links[i].fd);
    if (l->listener >= 0)
        close(l->listener);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void add_link(struct links *l, int rank, int fd)
{
    const int settings[][2] = {{TCP_KEEPIDLE, KEEPALIVE_IDLE},
                               {TCP_KEEPINTVL, KEEPALIVE_INTERVAL},
                               {TCP_KEEPCNT, KEEPALIVE_COUNT},
                               {TCP_USER_TIMEOUT, UNANSWERED_MS},
                               {TCP_NODELAY, 1}};

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        setsockopt(fd, IPPROTO_TCP, settings[i][0], &settings[i][1], sizeof(int));
    l->links[l->count++] = (struct rank_link){.rank = rank, .fd = fd};
}

/* -1 with errno. */
static int connect_to(const struct in6_addr *address, uint32_t port)
{
    const struct timeval time = {CONNECT_MS / 1000, CONNECT_MS % 1000 * 1000};
    struct sockaddr_storage to;
    socklen_t length = fill_address(&to, address, port);
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), failure;

    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, length) == 0)
        return fd;
    failure = errno == EINPROGRESS ? ETIMEDOUT : errno;
    close(fd);
    errno = failure;
    return -1;
}

/*
 * Both nodes may have the same addresses on some interfaces, such as container bridges: these are not tried, unless
 * the two ranks share a node and have no others.
 */
static int connect_to_rank(const struct link_address *own, const struct link_address *parent)
{
    bool other_node = false;
    int fd = -1;

    for (uint32_t i = 0; i < parent->naddresses; i++)
        other_node |= !has_address(own, &parent->addresses[i]);
    errno = EADDRNOTAVAIL;
    for (uint32_t i = 0; i < parent->naddresses && fd < 0; i++)
        if (!other_node || !has_address(own, &parent->addresses[i]))
            fd = connect_to(&parent->addresses[i], parent->port);
    return fd;
}

int links_connect(struct links *l, const struct link_address *parent, struct error *err)
{
    struct hello hello = {.token = parent->token};
    int fd;

    if (!l)
        return -1; /* links_create has set *err */
    if (l->rank == 0)
        return 0;
    fd = connect_to_rank(&l->own, parent);
    if (fd < 0)
        return error_errno(err, CODE_PEER, "rank %d cannot connect to rank %d by TCP", l->rank, links_parent(l->rank));
    add_link(l, links_parent(l->rank), fd);
    hello.rank = l->rank;
    if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello)
        return 0;
    return error_errno(err, CODE_PEER, "rank %d cannot send to rank %d by TCP", l->rank, links_parent(l->rank));
}

/* Other programs may connect to any port: a peer that does not begin with the token is not a rank. */
static void accept_one(struct links *l)
{
    int fd = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC);
    const struct timeval time = {.tv_usec = HELLO_MS * 1000 - 1};
    struct hello hello;

    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    if (recv(fd, &hello, sizeof hello, MSG_WAITALL) != sizeof hello || hello.token != l->own.token || hello.rank < 1 ||
        hello.rank >= l->world || links_parent((int)hello.rank) != l->rank || l->count == 1 + LINKS_FANOUT)
        close(fd);
    else
        add_link(l, (int)hello.rank, fd);
}

int links_accept(struct links *l, struct error *err)
{
    int64_t first = (int64_t)l->rank * LINKS_FANOUT + 1, end = first + LINKS_FANOUT;
    int wanted = (l->rank > 0) + (int)(end < l->world ? LINKS_FANOUT : first < l->world ? l->world - first : 0);
    struct pollfd ready = {.fd = l->listener, .events = POLLIN};
    double deadline = clock_monotonic() + ACCEPT_SECONDS;

    for (double left = ACCEPT_SECONDS; left > 0 && l->count < wanted; left = deadline - clock_monotonic())
        if (poll(&ready, 1, (int)(left * 1000) + 1) > 0)
            accept_one(l);
    close(l->listener);
    l->listener = -1;
    if (l->count == wanted)
        return 0;
    return error_set(err, CODE_PEER, "rank %d has TCP connections to %d other ranks instead of %d", l->rank, l->count,
                     wanted);
}

/* ---- while the run goes on ---- */

void links_tell(struct links *l, enum link_message message)
{
    const char byte = (char)message;

    for (int i = 0; l && i < l->count; i++)
        (void)!send(l->links[i].fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT); /* a lost peer need not be notified */
}

/* What a neighbor said before its connection was closed is read first. */
static void read_link(struct links *l, struct rank_link *link)
{
    char messages[8];

    while (link->state == LINK_OPEN) {
        ssize_t got = recv(link->fd, messages, sizeof messages, MSG_DONTWAIT);

        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0)
            link->state = got == 0 || errno == ECONNRESET ? LINK_DEAD : LINK_TIMED_OUT;
        for (ssize_t i = 0; i < got; i++)
            if (messages[i] == LINK_ENDING)
                link->state = LINK_ENDED;
            else
                l->alarm = true;
    }
}

enum links_news links_poll(struct links *l, struct hang_rank *ranks)
{
    enum links_news news = LINKS_QUIET;

    if (!l)
        return news;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->count; i++) {
        struct rank_link *link = &l->links[i];

        read_link(l, link);
        if (link->state == LINK_DEAD)
            news = LINKS_ALARM;
        else if (link->state == LINK_TIMED_OUT && news == LINKS_QUIET)
            news = LINKS_CUT;
        if (link->state == LINK_DEAD && ranks && ranks[link->rank].state != HANG_ENDING)
            ranks[link->rank].state = HANG_DEAD;
    }
    if (l->alarm)
        news = LINKS_ALARM;
    pthread_mutex_unlock(&l->lock);
    return news;
}
