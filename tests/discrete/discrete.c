/* discrete.c - memory, queue and table of the "cpu-discrete" device (discrete.h). */
#include "tests/discrete/discrete.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/*
 * An address is given out once only: access to freed memory always faults, by a pending transfer too. Memory is taken
 * where it is touched; an emulator (tests/cross) takes some for every page of the range.
 */
#define RANGE    ((size_t)1 << (getenv("MUSTER_TEST_EMULATED") ? 32 : 38))
#define BOUNDARY ((size_t)4096) /* between allocations, so that pages can be given back */
#define POISON   0xff           /* NaN, in every type of a float */

/* Before the contents of an allocation, and before host memory. */
struct header {
    size_t bytes;
} __attribute__((aligned(64)));

static int open_memory(struct discrete *d, struct error *err)
{
    for (int i = 0; i < DISCRETE_RANGES; i++) {
        int access = i == DISCRETE_DEVICE ? PROT_NONE : PROT_READ | PROT_WRITE;
        void *at = mmap(NULL, RANGE, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (at == MAP_FAILED)
            return error_errno(err, CODE_IO, "cpu-discrete device: %zu GiB of addresses", RANGE >> 30);
        d->range[i] = at;
    }
    return 0;
}

static void close_memory(struct discrete *d)
{
    for (int i = 0; i < DISCRETE_RANGES; i++)
        if (d->range[i])
            munmap(d->range[i], RANGE);
}

static void *discrete_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err)
{
    struct discrete *d = device_discrete(dev);
    enum discrete_range range = space == MEMORY_HOST ? DISCRETE_HOST : DISCRETE_DEVICE;
    size_t at = d->used[range], room = (sizeof(struct header) + bytes + BOUNDARY - 1) / BOUNDARY * BOUNDARY;
    struct header *header =
        (struct header *)(d->range[range == DISCRETE_HOST ? DISCRETE_HOST : DISCRETE_CONTENTS] + at);

    if (bytes > RANGE || room > RANGE - at) {
        error_set(err, CODE_IO,
                  "%.1f GiB of %s memory requested; the cpu-discrete device has %.1f GiB of addresses left",
                  (double)bytes / 0x1p30, space == MEMORY_HOST ? "host" : "device", (double)(RANGE - at) / 0x1p30);
        return NULL;
    }
    d->used[range] += room;
    header->bytes = bytes;
    memset(header + 1, POISON, bytes);
    return d->range[range] + at + sizeof *header;
}

static size_t discrete_free(struct device *dev, enum memory space, void *pointer)
{
    struct discrete *d = device_discrete(dev);
    char *first = d->range[space == MEMORY_HOST ? DISCRETE_HOST : DISCRETE_DEVICE];
    char *contents = d->range[space == MEMORY_HOST ? DISCRETE_HOST : DISCRETE_CONTENTS];
    size_t at = (size_t)((char *)pointer - first) - sizeof(struct header);
    size_t bytes = ((struct header *)(contents + at))->bytes;

    discrete_wait(dev);
    if (mmap(contents + at, (sizeof(struct header) + bytes + BOUNDARY - 1) / BOUNDARY * BOUNDARY, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        device_fail(dev, CODE_INTERNAL, "cpu-discrete: memory cannot be freed");
    return bytes;
}

static bool is_within(const struct discrete *d, enum discrete_range range, const void *at)
{
    return (const char *)at >= d->range[range] && (const char *)at < d->range[range] + d->used[range];
}

void *discrete_any_operand(struct device *dev, const char *name, const void *at)
{
    const struct discrete *d = device_discrete(dev);

    if (!at)
        return NULL;
    if (is_within(d, DISCRETE_DEVICE, at))
        return d->range[DISCRETE_CONTENTS] + ((const char *)at - d->range[DISCRETE_DEVICE]);
    if (is_within(d, DISCRETE_HOST, at))
        return (void *)at;
    device_fail(dev, CODE_INTERNAL, "cpu-discrete: %s: an operand is not in the device's memory", name);
    return NULL;
}

void *discrete_operand(struct device *dev, const char *name, const void *at)
{
    if (at && is_within(device_discrete(dev), DISCRETE_HOST, at)) {
        device_fail(dev, CODE_INTERNAL, "cpu-discrete: %s: an operand is in host memory", name);
        return NULL;
    }
    return discrete_any_operand(dev, name, at);
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

/* The CPU's workspace counts as this device's. */
static void count_workspace(struct device *dev)
{
    struct discrete *d = device_discrete(dev);
    size_t now = d->cpu->workspace;

    dev->bytes_used[MEMORY_DEVICE] += now - dev->workspace;
    dev->workspace = now;
    if (dev->bytes_peak[MEMORY_DEVICE] < dev->bytes_used[MEMORY_DEVICE])
        dev->bytes_peak[MEMORY_DEVICE] = dev->bytes_used[MEMORY_DEVICE];
}

/* Room for one more element; without memory the device fails. */
static void *reserve_entry(struct device *dev, void *list, size_t n, size_t *most, size_t size)
{
    size_t wanted = *most ? 2 * *most : 256;
    void *larger;

    if (n < *most)
        return list;
    larger = realloc(list, wanted * size);
    if (!larger) {
        device_fail(dev, CODE_IO, "cpu-discrete: out of memory for a queue of %zu operations", wanted);
        return list;
    }
    *most = wanted;
    return larger;
}

void discrete_enqueue(struct device *dev, const struct discrete_entry *entry)
{
    struct discrete *d = device_discrete(dev);

    if (dev->failed)
        return;
    d->entries = reserve_entry(dev, d->entries, d->nentries, &d->most_entries, sizeof *d->entries);
    if (!dev->failed)
        d->entries[d->nentries++] = *entry;
    if (d->before)
        discrete_wait(dev);
}

/* Runs the transfers up to this ticket, in order. */
static void run_transfers(struct discrete *d, uint64_t ticket)
{
    size_t done = 0;

    while (done < d->ntransfers && d->first_ticket + done <= ticket) {
        const struct discrete_transfer *t = &d->transfers[done++];

        d->cpu->kernels.copy(d->cpu, t->y, t->x, t->bytes);
    }
    for (size_t i = done; i < d->ntransfers; i++)
        d->transfers[i - done] = d->transfers[i];
    d->ntransfers -= done;
    d->first_ticket += done;
}

void discrete_wait(struct device *dev)
{
    struct discrete *d = device_discrete(dev);
    struct error err;

    if (d->before && !dev->failed)
        d->before(dev);
    for (size_t i = 0; i < d->nentries && !dev->failed; i++) {
        const struct discrete_entry *entry = &d->entries[i];

        if (entry->run)
            entry->run(d->cpu, entry);
        else
            run_transfers(d, entry->is.ticket);
        if (device_status(d->cpu, &err) < 0)
            device_fail(dev, err.code, "%s", err.text);
    }
    d->nentries = 0;
    if (d->after && !dev->failed) {
        d->after(dev);
        if (device_status(d->cpu, &err) < 0)
            device_fail(dev, err.code, "%s", err.text);
    }
    count_workspace(dev);
}

/* The queue runs first: an operation enqueued after a transfer does not wait for it. */
static void discrete_transfer_wait(struct device *dev, uint64_t ticket)
{
    discrete_wait(dev);
    if (!dev->failed)
        run_transfers(device_discrete(dev), ticket);
}

static uint64_t discrete_transfer(struct device *dev, void *y, const void *x, size_t bytes)
{
    struct discrete *d = device_discrete(dev);
    struct discrete_transfer transfer = {
        .y = discrete_any_operand(dev, "transfer", y), .x = discrete_any_operand(dev, "transfer", x), .bytes = bytes};
    uint64_t ticket;

    if (dev->failed)
        return 0;
    d->transfers = reserve_entry(dev, d->transfers, d->ntransfers, &d->most_transfers, sizeof *d->transfers);
    if (dev->failed)
        return 0;
    d->transfers[d->ntransfers++] = transfer;
    ticket = d->first_ticket + d->ntransfers - 1;
    if (d->early)
        discrete_transfer_wait(dev, ticket);
    return ticket;
}

static void discrete_transfer_join(struct device *dev, uint64_t ticket)
{
    discrete_enqueue(dev, &(struct discrete_entry){.is.ticket = ticket});
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

static int discrete_open(struct device *dev, int threads, struct error *err)
{
    const char *transfers = getenv("MUSTER_TEST_TRANSFERS");
    struct discrete *d = calloc(1, sizeof *d);

    dev->state = d;
    if (!d)
        return error_errno(err, CODE_IO, "cpu-discrete device");
    d->first_ticket = 1;
    d->early = transfers && strcmp(transfers, "early") == 0;
    if (open_memory(d, err) < 0)
        return -1;
    d->cpu = device_open(&backend_cpu, 0, threads, err);
    if (!d->cpu)
        return -1;
    dev->threads = d->cpu->threads;
    dev->kernels = discrete_kernels;
    snprintf(dev->description, sizeof dev->description, "cpu-discrete: %.110s", device_describe(d->cpu));
    return 0;
}

static void discrete_close(struct device *dev)
{
    struct discrete *d = device_discrete(dev);

    if (!d)
        return;
    if (d->cpu)
        discrete_transfer_wait(dev, UINT64_MAX); /* faults if its memory was freed meanwhile */
    device_destroy(d->cpu);
    close_memory(d);
    free(d->entries);
    free(d->transfers);
    free(d);
}

static void discrete_trim(struct device *dev)
{
    struct discrete *d = device_discrete(dev);

    discrete_wait(dev);
    d->cpu->backend->trim(d->cpu);
    dev->bytes_used[MEMORY_DEVICE] -= dev->workspace;
    dev->workspace = 0;
}

static bool discrete_widens(const struct device *dev, enum dtype dtype)
{
    const struct device *cpu = ((const struct discrete *)dev->state)->cpu;

    return device_traits(cpu, dtype).widens;
}

const struct backend backend_discrete = {
    .kind = "cpu-discrete",
    .open = discrete_open,
    .close = discrete_close,
    .wait = discrete_wait,
    .alloc = discrete_alloc,
    .free = discrete_free,
    .trim = discrete_trim,
    .widens = discrete_widens,
    .discrete = true,
    .transfer = discrete_transfer,
    .transfer_join = discrete_transfer_join,
    .transfer_wait = discrete_transfer_wait,
};
