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
#include "srun-plugin/place/hostlist.h"
#include "srun-plugin/preflight/answer.h"
#include "srun-plugin/preflight/deadline.h"
#include "srun-plugin/preflight/pmi2.h"
#include "srun-plugin/node/route.h"

enum { BYTES = 1 << 20, PINGS = 8, GREETING = 64 };

static const double talk_seconds = 5; /* after all addresses are known; a good node answers in milliseconds */

struct peer {
    char name[ANSWER_NAME_SIZE], address[INET6_ADDRSTRLEN], port[8];
    int rank;
};

struct listener {
    int fd;
    struct peer before;
    int rank;
    double deadline;
};

/* Bytes that depend on the sender (splitmix64), so that other data is not mistaken for them. */
static void fill_message(unsigned char *data, int rank)
{
    uint64_t state = (uint64_t)rank + 1;

    for (size_t i = 0; i < BYTES; i += sizeof state) {
        uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
        memcpy(data + i, &z, sizeof z);
    }
}

static void greeting_of(char text[GREETING], int rank)
{
    const char *job = getenv("PMI_JOBID");

    memset(text, 0, GREETING);
    snprintf(text, GREETING, "muster-preflight %s %d", job ? job : "", rank);
}

/* ---- the address of this node ---------------------------------------------------------------------------------------- */

/* Another node of the step: the next of the list. */
static bool other_node(const char *name, char *other, size_t size)
{
    const char *text = getenv("SLURM_STEP_NODELIST");
    struct hostlist *list = text ? hostlist_create(text, NULL) : NULL;
    bool found = false;

    for (int i = 0; list && !found && i < list->count; i++)
        if (strcmp(list->names[i], name) == 0 && list->count > 1) {
            snprintf(other, size, "%s", list->names[(i + 1) % list->count]);
            found = true;
        }
    hostlist_destroy(list);
    return found;
}

/* If node names do not resolve, the route to srun's node is used. */
static int own_address(const char *name, struct route_address *way, struct error *err)
{
    const char *launch = getenv("SLURM_LAUNCH_NODE_IPADDR");
    char other[ANSWER_NAME_SIZE];

    error_set(err, CODE_IO, "SLURM_STEP_NODELIST and SLURM_LAUNCH_NODE_IPADDR name no other node");
    if (other_node(name, other, sizeof other) && route_to(other, way, err) == 0)
        return 0;
    if (launch && route_to(launch, way, err) == 0)
        return 0;
    return error_prefix(err, "no route to another node is known");
}

static int open_listener(const char *address, unsigned *port, struct error *err)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *own = NULL;
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    int fd;

    if (getaddrinfo(address, "0", &hints, &own) != 0)
        return error_set(err, CODE_IO, "%s is no address", address);
    fd = socket(own->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
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
    freeaddrinfo(own);
    return fd;
}

/* ---- the two ends ------------------------------------------------------------------------------------------------ */

/* 0; -1 and errno; EPROTO when a byte is wrong. */
static int read_pattern(int fd, int rank, double deadline)
{
    unsigned char *got = malloc(BYTES), *wanted = malloc(BYTES);
    int rc = -1;

    if (got && wanted && deadline_read(fd, got, BYTES, deadline) == 0) {
        fill_message(wanted, rank);
        rc = memcmp(got, wanted, BYTES) == 0 ? 0 : -1;
        errno = EPROTO;
    }
    free(got);
    free(wanted);
    return rc;
}

static int write_pattern(int fd, int rank, double deadline)
{
    unsigned char *data = malloc(BYTES);
    int rc = -1;

    if (data) {
        fill_message(data, rank);
        rc = deadline_write(fd, data, BYTES, deadline);
    }
    free(data);
    return rc;
}

static int serve_peer(int fd, const struct listener *self)
{
    char ping[GREETING];

    for (int i = 0; i < PINGS; i++)
        if (deadline_read(fd, ping, sizeof ping, self->deadline) < 0 ||
            deadline_write(fd, ping, sizeof ping, self->deadline) < 0)
            return -1;
    return read_pattern(fd, self->before.rank, self->deadline) < 0 ? -1 : write_pattern(fd, self->rank, self->deadline);
}

/* The neighbour's connection. Others, such as a port scanner's, are closed. */
static int accept_neighbour(const struct listener *self)
{
    char wanted[GREETING], got[GREETING];

    greeting_of(wanted, self->before.rank);
    while (deadline_wait(self->fd, POLLIN, self->deadline) == 0) {
        int fd = accept4(self->fd, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0)
            continue;
        if (deadline_read(fd, got, sizeof got, self->deadline) == 0 && memcmp(got, wanted, sizeof got) == 0)
            return fd;
        close(fd);
    }
    return -1;
}

static void *listen_to_neighbour(void *arg)
{
    const struct listener *self = arg;
    int fd = accept_neighbour(self);

    if (fd < 0)
        write_finding("from", "%s listen nobody connected in %.0f s", self->before.name, talk_seconds);
    else if (serve_peer(fd, self) < 0)
        write_finding("from", "%s data %s", self->before.name, strerror(errno));
    else
        write_finding("from", "%s ok", self->before.name);
    if (fd >= 0)
        close(fd);
    return NULL;
}

static int connect_to(const struct peer *peer, double deadline)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *there = NULL;
    int fd = -1, error = 0;
    socklen_t length = sizeof error;

    if (getaddrinfo(peer->address, peer->port, &hints, &there) != 0) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    fd = socket(there->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, there->ai_addr, there->ai_addrlen) < 0) {
        error = errno;
        if (error == EINPROGRESS)
            error =
                deadline_wait(fd, POLLOUT, deadline) < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0
                    ? errno
                    : error;
    }
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

static void talk_to(const struct peer *next, int rank, double deadline)
{
    int fd = connect_to(next, deadline);
    char greeting[GREETING];
    double latency, begun;

    if (fd < 0) {
        write_finding("to", "%s connect %s port %s: %s", next->name, next->address, next->port, strerror(errno));
        return;
    }
    greeting_of(greeting, rank);
    latency = deadline_write(fd, greeting, sizeof greeting, deadline) < 0 ? -1 : ping_peer(fd, greeting, deadline);
    begun = clock_monotonic();
    if (latency < 0 || write_pattern(fd, rank, deadline) < 0 || read_pattern(fd, next->rank, deadline) < 0)
        write_finding("to", "%s data %s: %s", next->name, next->address,
                      errno == EPROTO ? "bytes came back wrong" : strerror(errno));
    else
        write_finding("to", "%s ok %.2f %.3f", next->name, 2e-9 * 8 * BYTES / (clock_monotonic() - begun), latency);
    close(fd);
}

/* ---- all together ------------------------------------------------------------------------------------------------ */

static int look_up_peer(struct pmi2 *pmi, int rank, struct peer *peer, double deadline, struct error *err)
{
    char key[32], value[512];

    snprintf(key, sizeof key, "muster-%d", rank);
    if (pmi2_get(pmi, key, value, sizeof value, deadline, err) < 0)
        return -1;
    peer->rank = rank;
    if (sscanf(value, "%255s %45s %7s", peer->name, peer->address, peer->port) != 3)
        return error_set(err, CODE_IO, "PMI2: %s is \"%s\"", key, value);
    return 0;
}

/* Both at once: the ring has both. A next node without an address reports that itself. */
static void talk_to_both(const struct peer *next, struct listener *listener)
{
    bool listening = false;
    pthread_t thread;

    if (listener->fd >= 0)
        listening = pthread_create(&thread, NULL, listen_to_neighbour, listener) == 0;
    if (strcmp(next->address, "-") == 0)
        write_finding("to", "%s untried it has no address", next->name);
    else
        talk_to(next, listener->rank, listener->deadline);
    if (listening)
        pthread_join(thread, NULL);
}

/* A node without an address takes part in the fence too: the others wait for it. */
static int announce_address(struct pmi2 *pmi, const char *name, double deadline, struct error *err)
{
    struct route_address way = {.address = "-"};
    char key[32], value[512];
    unsigned port = 0;
    int fd = -1;

    if (own_address(name, &way, err) == 0)
        fd = open_listener(way.address, &port, err);
    if (fd < 0)
        write_finding("problem", "its neighbours cannot reach it: %s", err->text);
    snprintf(key, sizeof key, "muster-%d", pmi->rank);
    snprintf(value, sizeof value, "%s %s %u", name, fd < 0 ? "-" : way.address, port);
    if (pmi2_put(pmi, key, value, deadline, err) < 0 || pmi2_fence(pmi, deadline, err) < 0) {
        write_finding("to", "- untried not all nodes took part: %s", err->text);
        if (fd >= 0)
            close(fd);
        return -2;
    }
    return fd;
}

void check_neighbours(const char *name, double deadline)
{
    struct error err = {0};
    struct listener listener;
    struct peer next;
    struct pmi2 pmi;
    int fd;

    if (pmi2_init(&pmi, deadline, &err) < 0) {
        write_finding("to", "- untried %s", err.text);
        return;
    }
    if (pmi.size == 1) {
        write_finding("to", "- untried one node only");
        pmi2_finalize(&pmi, deadline);
        return;
    }
    fd = announce_address(&pmi, name, deadline, &err);
    if (fd == -2)
        return;
    listener = (struct listener){.fd = fd, .rank = pmi.rank, .deadline = clock_monotonic() + talk_seconds};
    if (listener.deadline > deadline)
        listener.deadline = deadline;
    if (look_up_peer(&pmi, (pmi.rank + 1) % pmi.size, &next, deadline, &err) < 0 ||
        look_up_peer(&pmi, (pmi.rank + pmi.size - 1) % pmi.size, &listener.before, deadline, &err) < 0)
        write_finding("to", "- untried %s", err.text);
    else
        talk_to_both(&next, &listener);
    if (fd >= 0)
        close(fd);
    pmi2_finalize(&pmi, deadline);
}
