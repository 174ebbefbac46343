#include "config.h"

#include "ckpt/stage_copy.h"
#include "common/crc32c.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 64

struct segment *stage_segments(const struct ckpt_save *save, const struct layout *layout, size_t *count)
{
    struct segment *segments = malloc((save->nkinds * (save->npieces + 1) + 1) * sizeof *segments);
    uint64_t offset;
    size_t n = 0;

    if (!segments)
        return NULL;
    for (size_t k = 0; k < save->nkinds; k++) {
        offset = k * layout->stride;
        for (size_t p = 0; p < save->npieces; p++) {
            if (save->pieces[p].count == 0)
                continue;
            segments[n++] = (struct segment){offset, save->sources[p * save->nkinds + k]};
            offset += save->pieces[p].count * 4;
        }
        if (k + 1 < save->nkinds && offset < (k + 1) * layout->stride)
            segments[n++] = (struct segment){offset, NULL};
    }
    segments[n++] = (struct segment){layout->data_bytes, NULL};
    *count = n;
    return segments;
}

static uint32_t zeros(unsigned char *to, size_t bytes, uint32_t crc)
{
    memset(to, 0, bytes);
    return crc32c(crc, to, bytes);
}

struct copy {
    unsigned char *to;
    const struct segment *segments;
    size_t count;
    const struct layout *layout;
    uint32_t *crcs;
    atomic_uint_fast64_t next;
};

/* The last segment that begins at or before the offset. */
static size_t find(const struct copy *copy, uint64_t offset)
{
    size_t low = 0, high = copy->count - 1;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (copy->segments[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void copy_block(const struct copy *copy, uint64_t block)
{
    uint64_t at = block * LAYOUT_BLOCK, end = at + layout_block_bytes(copy->layout, block);
    uint32_t crc = 0;

    for (size_t s = find(copy, at); at < end; s++) {
        uint64_t stop = copy->segments[s + 1].offset < end ? copy->segments[s + 1].offset : end;
        const unsigned char *source = copy->segments[s].source;

        crc = source ? crc32c_copy(crc, copy->to + at, source + (at - copy->segments[s].offset), (size_t)(stop - at))
                     : zeros(copy->to + at, (size_t)(stop - at), crc);
        at = stop;
    }
    copy->crcs[block] = crc;
}

static void *copy_blocks(void *arg)
{
    struct copy *copy = arg;
    uint64_t block;

    while ((block = atomic_fetch_add(&copy->next, 1)) < copy->layout->blocks)
        copy_block(copy, block);
    return NULL;
}

void stage_copy(unsigned char *to, const struct segment *segments, size_t count, const struct layout *layout,
                int threads, uint32_t *crcs)
{
    struct copy copy = {.to = to, .segments = segments, .count = count, .layout = layout, .crcs = crcs};
    pthread_t thread[MAX_THREADS];
    sigset_t all, before;
    int started = 0;

    /* Signals are the trainer's business: none is delivered to these threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started + 1 < threads && started < MAX_THREADS && (uint64_t)started + 1 < layout->blocks &&
           pthread_create(&thread[started], NULL, copy_blocks, &copy) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    copy_blocks(&copy);
    for (int t = 0; t < started; t++)
        pthread_join(thread[t], NULL);
}
