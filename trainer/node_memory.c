#include "trainer/node_memory.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trainer/watch/flight_record.h"

struct node_memory {
    struct comm *ranks; /* of the node */
    struct ckpt_node node;
    bool failed_elsewhere;
};

/*
 * The same number on all ranks that may share memory: FNV-1a of the host's name and the namespace of its pids. If two
 * nodes had the same number, mapping would fail, and their ranks would be alone.
 */
static int node_color(void)
{
    char name[256] = "";
    uint64_t hash = 14695981039346656037u;
    int length;

    gethostname(name, sizeof name - 32);
    length = (int)strnlen(name, sizeof name - 32);
    length += snprintf(name + length, 32, " %" PRIu64, process_self().pid_namespace);
    for (int i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 1099511628211u;
    return (int)(hash >> 32 & INT_MAX);
}

static int agree_ranks(void *arg, int result, struct error *err)
{
    struct node_memory *memory = arg;

    if (comm_agree(memory->ranks, result, err) == 0)
        return 0;
    memory->failed_elsewhere = result == 0;
    return -1;
}

bool node_memory_failed_elsewhere(const struct node_memory *memory)
{
    return memory->failed_elsewhere;
}

struct node_memory *node_memory_create(struct comm *world, struct error *err)
{
    struct node_memory *memory = error_calloc(1, sizeof *memory, err);

    if (comm_agree(world, memory ? 0 : -1, err) < 0) {
        free(memory);
        return NULL;
    }
    memory->ranks = comm_split(world, node_color(), comm_rank(world), err);
    if (!memory->ranks) {
        free(memory);
        return NULL;
    }
    comm_label(memory->ranks, "node");
    return memory;
}

static void unmap_memory(struct node_memory *memory)
{
    if (memory->node.memory)
        munmap(memory->node.memory, memory->node.bytes);
    memory->node = (struct ckpt_node){.rank = 0, .ranks = 1};
}

void node_memory_destroy(struct node_memory *memory)
{
    if (!memory)
        return;
    unmap_memory(memory);
    comm_destroy(memory->ranks);
    free(memory);
}

/* Where the lowest rank's memory is for the others; with a number that only this memory begins with. */
struct memory_place {
    int64_t pid, fd;
    uint64_t key;
};

static void *map_memory(int fd, size_t bytes)
{
    void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static void *make_memory(struct memory_place *place, size_t bytes)
{
    int fd = memfd_create("muster-load", MFD_CLOEXEC);
    struct process self = process_self();
    uint64_t *memory = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 ? map_memory(fd, bytes) : NULL;

    *place = (struct memory_place){getpid(), fd, self.started * 1000003 + (uint64_t)self.pid};
    if (memory)
        *memory = place->key;
    return memory;
}

static void *find_memory(const struct memory_place *place, size_t bytes)
{
    char path[64];
    uint64_t *memory;
    int fd;

    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId64, place->pid, place->fd);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    memory = lseek(fd, 0, SEEK_END) == (off_t)bytes ? map_memory(fd, bytes) : NULL;
    close(fd);
    if (!memory || *memory == place->key)
        return memory;
    munmap(memory, bytes);
    return NULL;
}

/* 0, or -1 when a rank was lost. */
static int share_memory(struct node_memory *memory, size_t bytes, struct error *err)
{
    struct memory_place place = {.fd = -1};
    bool first = comm_rank(memory->ranks) == 0;
    void *shared = first ? make_memory(&place, bytes) : NULL;
    struct error alone;
    int result = comm_broadcast(memory->ranks, &place, sizeof place, 0, err);

    if (result == 0 && !first && place.fd >= 0)
        shared = find_memory(&place, bytes);
    memory->node.memory = shared;
    memory->node.bytes = bytes;
    if (result == 0) {
        error_set(&alone, CODE_IO, "the memory of this node's ranks cannot be shared");
        if (comm_agree(memory->ranks, shared ? 0 : -1, &alone) == 0) {
            memory->node.rank = comm_rank(memory->ranks);
            memory->node.ranks = comm_size(memory->ranks);
        } else {
            unmap_memory(memory);
            result = alone.code == CODE_PEER ? -1 : 0;
            if (result < 0)
                *err = alone;
        }
    }
    if (first && place.fd >= 0)
        close((int)place.fd);
    return result;
}

const struct ckpt_node *node_memory_for(struct node_memory *memory, const struct ckpt *ckpt, struct error *err)
{
    int ranks = comm_size(memory->ranks);

    unmap_memory(memory);
    memory->failed_elsewhere = false;
    if (ranks > 1 && share_memory(memory, ckpt_node_bytes(ckpt, ranks), err) < 0)
        return NULL;
    memory->node.agree = agree_ranks;
    memory->node.arg = memory;
    return &memory->node;
}
