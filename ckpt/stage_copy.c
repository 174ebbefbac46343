#include "config.h"

#include "ckpt/stage_copy.h"
#include "common/crc32c.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define SOURCE_CACHED ((size_t)16 << 10) /* fits a first-level cache beside what else is there */
#define MAX_THREADS   64

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

/*
 * memcpy with stores that do not read their target's lines into the cache. While they are on their way, the run of the
 * source that comes next is fetched: memory would be idle during its checksum otherwise. (To fetch beyond its end is
 * harmless.)
 */
static void store(unsigned char *to, const unsigned char *from, size_t bytes)
{
#ifdef __SSE2__
    size_t head = -(uintptr_t)to & 15;

    if (bytes >= 64 + head) {
        memcpy(to, from, head);
        to += head;
        from += head;
        bytes -= head;
        for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
            _mm_prefetch((const char *)from + SOURCE_CACHED, _MM_HINT_T0);
            __m128i a = _mm_loadu_si128((const __m128i *)from), b = _mm_loadu_si128((const __m128i *)(from + 16));
            __m128i c = _mm_loadu_si128((const __m128i *)(from + 32)),
                    d = _mm_loadu_si128((const __m128i *)(from + 48));

            _mm_stream_si128((__m128i *)to, a);
            _mm_stream_si128((__m128i *)(to + 16), b);
            _mm_stream_si128((__m128i *)(to + 32), c);
            _mm_stream_si128((__m128i *)(to + 48), d);
        }
    }
#endif
    memcpy(to, from, bytes);
}

static uint32_t copy_run(unsigned char *to, const unsigned char *from, size_t bytes, uint32_t crc)
{
    static const unsigned char zeros[LAYOUT_ALIGN];

    while (bytes > 0) {
        size_t most = from ? SOURCE_CACHED : sizeof zeros, run = bytes < most ? bytes : most;
        const unsigned char *source = from ? from : zeros;

        crc = crc32c(crc, source, run);
        store(to, source, run);
        to += run;
        bytes -= run;
        if (from)
            from += run;
    }
    return crc;
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

        crc =
            copy_run(copy->to + at, source ? source + (at - copy->segments[s].offset) : NULL, (size_t)(stop - at), crc);
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
#ifdef __SSE2__
    _mm_sfence();
#endif
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
