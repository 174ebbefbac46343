#include "srun-plugin/preflight/checks.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "srun-plugin/node/route.h"
#include "plan/hostlist.h"
#include "srun-plugin/preflight/judge.h"

enum { BYTES = 1 << 20, BLOCK = 1 << 14, PINGS = 8, GREETING = 64 };

static const double talk_seconds = 5; /* after all addresses are known; a good node answers in milliseconds */

struct peer {
    char name[ANSWER_NAME_SIZE], address[INET6_ADDRSTRLEN], port[8];
    int rank;
};

/* This node, and its neighbours in the ring. */
struct ring {
    int rank, fd; /* fd: listens for `before`; -1 without an address */
    struct peer before, next;
    double deadline;
};

static void write_greeting(char text[GREETING], int rank)
{
    const char *job = getenv("PMI_JOBID");

    memset(text, 0, GREETING);
    snprintf(text, GREETING, "muster-preflight %s %d", job ? job : "", rank);
}

/* ---- the address of this node ------------------------------------------------------------------------------------ */

/* The next node of the step's list; false without one. */
static bool other_node(const char *name, char *other, size_t size)
{
    const char *text = getenv("SLURM_STEP_NODELIST");
    struct hostlist *list = text ? hostlist_create(text, NULL) : NULL;
    bool found = false;

    for (int i = 0; list && !found && i < list->count; i++)
        if (strcmp(list->names[i], name) == 0 && list->count > 1)
            found = snprintf(other, size, "%s", list->names[(i + 1) % list->count]) > 0;
    hostlist_destroy(list);
    return found;
}

/* If node names do not resolve, the route to srun's node is used. */
static int own_address(const char *name, struct route_address *way, struct error *err)
{
    const char *launch = getenv("SLURM_LAUNCH_NODE_IPADDR");
    char other[ANSWER_NAME_SIZE];

    error_set(err, CODE_IO, "SLURM_STEP_NODELIST and SLURM_LAUNCH_NODE_IPADDR name no other node");
    if ((other_node(name, other, sizeof other) && route_to(other, way, err) == 0) ||
        (launch && route_to(launch, way, err) == 0))
        return 0;
    return error_prefix(err, "no route to another node is known");
}

/* A socket for an address, which is written to *found and to be freed by freeaddrinfo. -1 and errno. */
static int open_socket(const char *address, const char *port, struct addrinfo **found)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};

    *found = NULL;
    if (getaddrinfo(address, port, &hints, found) != 0) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    return socket((*found)->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int open_listener(const char *address, unsigned *port, struct error *err)
{
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    struct addrinfo *own;
    int fd = open_socket(address, "0", &own);

    if (fd < 0 || bind(fd, own->ai_addr, own->ai_addrlen) < 0 || listen(fd, 8) < 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &length) < 0) {
        error_errno(err, CODE_IO, "cannot listen on %s", address);
        if (fd >= 0)
            close(fd);
        fd = -1;
    } else {
        *port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
                                                  : ((struct sockaddr_in *)(void *)&bound)->sin_port);
    }
    if (own)
        freeaddrinfo(own);
    return fd;
}

/* ---- the two ends ------------------------------------------------------------------------------------------------ */

/*
 * Sends BYTES bytes, or with `in` reads and compares them. They depend on the sender (a linear congruential sequence
 * that begins with its rank), so that other data is not mistaken for them. 0; -1 and errno; EPROTO for a wrong byte.
 */
static int move_pattern(int fd, int rank, bool in, double deadline)
{
    uint32_t pattern[BLOCK], got[BLOCK], state = (uint32_t)rank;

    for (size_t done = 0; done < BYTES; done += sizeof pattern) {
        for (size_t i = 0; i < BLOCK; i++)
            pattern[i] = state = state * 1664525U + 1013904223U;
        if ((in ? deadline_read(fd, got, sizeof got, deadline)
                : deadline_write(fd, pattern, sizeof pattern, deadline)) < 0)
            return -1;
        if (in && memcmp(got, pattern, sizeof got) != 0) {
            errno = EPROTO;
            return -1;
        }
    }
    return 0;
}

static int serve_peer(int fd, const struct ring *ring)
{
    char ping[GREETING];

    for (int i = 0; i < PINGS; i++)
        if (deadline_read(fd, ping, sizeof ping, ring->deadline) < 0 ||
            deadline_write(fd, ping, sizeof ping, ring->deadline) < 0)
            return -1;
    return move_pattern(fd, ring->before.rank, true, ring->deadline) < 0
               ? -1
               : move_pattern(fd, ring->rank, false, ring->deadline);
}

/* The neighbour's connection. Others, such as a port scanner's, are closed. */
static int accept_neighbour(const struct ring *ring)
{
    char wanted[GREETING], got[GREETING];

    write_greeting(wanted, ring->before.rank);
    while (deadline_wait(ring->fd, POLLIN, ring->deadline) == 0) {
        int fd = accept4(ring->fd, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0)
            continue;
        if (deadline_read(fd, got, sizeof got, ring->deadline) == 0 && memcmp(got, wanted, sizeof got) == 0)
            return fd;
        close(fd);
    }
    return -1;
}

static void *listen_to_neighbour(void *arg)
{
    const struct ring *ring = arg;
    int fd = accept_neighbour(ring);

    if (fd < 0)
        write_finding("from", "%s listen nobody connected in %.0f s", ring->before.name, talk_seconds);
    else if (serve_peer(fd, ring) < 0)
        write_finding("from", "%s data %s", ring->before.name, strerror(errno));
    else
        write_finding("from", "%s ok", ring->before.name);
    if (fd >= 0)
        close(fd);
    return NULL;
}

static int connect_to(const struct peer *peer, double deadline)
{
    struct addrinfo *there;
    int fd = open_socket(peer->address, peer->port, &there), error = 0;
    socklen_t length = sizeof error;

    if (fd >= 0 && connect(fd, there->ai_addr, there->ai_addrlen) < 0) {
        error = errno;
        if (error == EINPROGRESS &&
            (deadline_wait(fd, POLLOUT, deadline) < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0))
            error = errno;
    }
    if (there)
        freeaddrinfo(there);
    if (fd >= 0 && error) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* Milliseconds of the fastest ping; -1 and errno. */
static double ping_peer(int fd, const char greeting[GREETING], double deadline)
{
    double fastest = 1e9;
    char pong[GREETING];

    for (int i = 0; i < PINGS; i++) {
        double begun = clock_monotonic(), took;

        if (deadline_write(fd, greeting, GREETING, deadline) < 0 || deadline_read(fd, pong, GREETING, deadline) < 0)
            return -1;
        took = clock_monotonic() - begun;
        fastest = took < fastest ? took : fastest;
    }
    return fastest * 1e3;
}

static void talk_to_next(const struct ring *ring)
{
    const struct peer *next = &ring->next;
    double deadline = ring->deadline, latency, begun;
    char greeting[GREETING];
    int fd;

    if (strcmp(next->address, "-") == 0) { /* the next node reports that itself */
        write_finding("to", "%s untried it has no address", next->name);
        return;
    }
    fd = connect_to(next, deadline);
    if (fd < 0) {
        write_finding("to", "%s connect %s port %s: %s", next->name, next->address, next->port, strerror(errno));
        return;
    }
    write_greeting(greeting, ring->rank);
    latency = deadline_write(fd, greeting, sizeof greeting, deadline) < 0 ? -1 : ping_peer(fd, greeting, deadline);
    begun = clock_monotonic();
    if (latency < 0 || move_pattern(fd, ring->rank, false, deadline) < 0 ||
        move_pattern(fd, next->rank, true, deadline) < 0)
        write_finding("to", "%s data %s: %s", next->name, next->address,
                      errno == EPROTO ? "bytes came back wrong" : strerror(errno));
    else
        write_finding("to", "%s ok %.2f %.3f", next->name, 2e-9 * 8 * BYTES / (clock_monotonic() - begun), latency);
    close(fd);
}

/* ---- all together ------------------------------------------------------------------------------------------------ */

static int look_up_peer(struct pmi2 *pmi, int rank, struct peer *peer, struct error *err)
{
    char key[32], value[512];

    snprintf(key, sizeof key, "muster-%d", rank);
    if (pmi2_get(pmi, key, value, sizeof value, err) < 0)
        return -1;
    peer->rank = rank;
    if (sscanf(value, "%255s %45s %7s", peer->name, peer->address, peer->port) != 3)
        return error_set(err, CODE_IO, "PMI2: %s is \"%s\"", key, value);
    return 0;
}

/* Opens ring->fd, and exchanges addresses with all nodes. A node without an address takes part: the others wait. */
static int announce_address(struct pmi2 *pmi, const char *name, struct ring *ring, struct error *err)
{
    struct route_address way = {.address = "-"};
    char key[32], value[512];
    unsigned port = 0;

    if (own_address(name, &way, err) == 0)
        ring->fd = open_listener(way.address, &port, err);
    if (ring->fd < 0)
        write_finding("problem", "its neighbours cannot reach it: %s", err->text);
    snprintf(key, sizeof key, "muster-%d", pmi->rank);
    snprintf(value, sizeof value, "%s %s %u", name, ring->fd < 0 ? "-" : way.address, port);
    if (pmi2_put(pmi, key, value, err) < 0 || pmi2_fence(pmi, err) < 0)
        return error_prefix(err, "not all nodes took part");
    return 0;
}

/* Both neighbours at once: the ring has both. */
static void talk_to_both(struct ring *ring)
{
    bool listens = false;
    pthread_t thread;

    if (ring->fd >= 0)
        listens = pthread_create(&thread, NULL, listen_to_neighbour, ring) == 0;
    talk_to_next(ring);
    if (listens)
        pthread_join(thread, NULL);
}

void check_neighbours(const char *name, double deadline)
{
    struct ring ring = {.fd = -1};
    struct error err = {0};
    struct pmi2 pmi;

    if (pmi2_init(&pmi, deadline, &err) < 0) {
        write_finding("to", "- untried %s", err.text);
        return;
    }
    ring.rank = pmi.rank;
    if (pmi.size == 1) {
        write_finding("to", "- untried one node only");
    } else if (announce_address(&pmi, name, &ring, &err) < 0 ||
               look_up_peer(&pmi, (pmi.rank + 1) % pmi.size, &ring.next, &err) < 0 ||
               look_up_peer(&pmi, (pmi.rank + pmi.size - 1) % pmi.size, &ring.before, &err) < 0) {
        write_finding("to", "- untried %s", err.text);
    } else {
        ring.deadline = clock_monotonic() + talk_seconds;
        if (ring.deadline > deadline)
            ring.deadline = deadline;
        talk_to_both(&ring);
    }
    if (ring.fd >= 0)
        close(ring.fd);
    pmi2_finalize(&pmi);
}
