/* queue.c - operations wait until somebody waits for them; transfers until somebody asks for them. */
#include <stdlib.h>

#include "kernels/far/far.h"

/* What the CPU holds for its operations counts as this device's. */
static void count_workspace(struct device *dev)
{
    struct far *far = device_far(dev);
    size_t now = device_workspace_bytes(far->near);

    dev->bytes_used[MEMORY_DEVICE] += now - far->workspace;
    far->workspace = now;
    if (dev->bytes_peak[MEMORY_DEVICE] < dev->bytes_used[MEMORY_DEVICE])
        dev->bytes_peak[MEMORY_DEVICE] = dev->bytes_used[MEMORY_DEVICE];
}

/* Room for one element more; the device fails when there is none. */
static void *room(struct device *dev, void *list, size_t n, size_t *most, size_t size)
{
    size_t wanted = *most ? 2 * *most : 256;
    void *larger;

    if (n < *most)
        return list;
    larger = realloc(list, wanted * size);
    if (!larger) {
        device_fail(dev, CODE_IO, "cpu-far: out of memory for a queue of %zu operations", wanted);
        return list;
    }
    *most = wanted;
    return larger;
}

void far_enqueue(struct device *dev, const struct far_entry *entry)
{
    struct far *far = device_far(dev);

    if (dev->failed)
        return;
    far->entries = room(dev, far->entries, far->nentries, &far->most_entries, sizeof *far->entries);
    if (!dev->failed)
        far->entries[far->nentries++] = *entry;
    if (far->before)
        far_wait(dev);
}

/* Transfers up to this ticket are done; they keep their order. */
static void run_transfers(struct far *far, uint64_t ticket)
{
    size_t done = 0;

    while (done < far->ntransfers && far->first_ticket + done <= ticket) {
        const struct far_transfer *t = &far->transfers[done++];

        far->near->kernels.copy(far->near, t->y, t->x, t->bytes);
    }
    for (size_t i = done; i < far->ntransfers; i++)
        far->transfers[i - done] = far->transfers[i];
    far->ntransfers -= done;
    far->first_ticket += done;
}

void far_wait(struct device *dev)
{
    struct far *far = device_far(dev);
    struct error err;

    if (far->before && !dev->failed)
        far->before(dev);
    for (size_t i = 0; i < far->nentries && !dev->failed; i++) {
        const struct far_entry *entry = &far->entries[i];

        if (entry->run)
            entry->run(far->near, entry);
        else
            run_transfers(far, entry->is.ticket);
        if (device_status(far->near, &err) < 0)
            device_fail(dev, err.code, "%s", err.text);
    }
    far->nentries = 0;
    if (far->after && !dev->failed) {
        far->after(dev);
        if (device_status(far->near, &err) < 0)
            device_fail(dev, err.code, "%s", err.text);
    }
    count_workspace(dev);
}

uint64_t far_transfer(struct device *dev, void *y, const void *x, size_t bytes)
{
    struct far *far = device_far(dev);
    struct far_transfer transfer = {
        .y = far_any_operand(dev, "transfer", y), .x = far_any_operand(dev, "transfer", x), .bytes = bytes};
    uint64_t ticket;

    if (dev->failed)
        return 0;
    far->transfers = room(dev, far->transfers, far->ntransfers, &far->most_transfers, sizeof *far->transfers);
    if (dev->failed)
        return 0;
    far->transfers[far->ntransfers++] = transfer;
    ticket = far->first_ticket + far->ntransfers - 1;
    if (far->early)
        far_transfer_wait(dev, ticket);
    return ticket;
}

void far_transfer_join(struct device *dev, uint64_t ticket)
{
    far_enqueue(dev, &(struct far_entry){.is.ticket = ticket});
}

/* All that was enqueued is done first: what comes behind a transfer need not have waited for it. */
void far_transfer_wait(struct device *dev, uint64_t ticket)
{
    far_wait(dev);
    if (!dev->failed)
        run_transfers(device_far(dev), ticket);
}
