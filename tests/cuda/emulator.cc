#include "tests/cuda/emulator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/fiber.h"

#define MOST_THREADS 1024

enum state { READY, AT_BARRIER, AT_WARP, RETURNED };

struct thread {
    struct fiber *fiber;
    enum state state;
    struct emulator_site site; /* where it waits */
    struct emulator_place place;
    int index;
    int parity; /* which of the warp's two sets of slots is next */
};

static struct thread threads[MOST_THREADS];
alignas(16) static unsigned char slots[MOST_THREADS / EMULATOR_LANES][2][EMULATOR_LANES * EMULATOR_SLOT];
alignas(128) static unsigned char shared[EMULATOR_SHARED];

static const struct emulator_launch *running;
static struct thread *now;
const struct emulator_place *emulator_here;

static uint64_t seed, random_state;
static bool seeded;

void emulator_seed(uint64_t value)
{
    seed = value;
    random_state = value * 0x9E3779B97F4A7C15u + 1;
    seeded = true;
}

static void seed_from_environment(void)
{
    const char *text = getenv("MUSTER_EMULATOR_SEED");

    emulator_seed(text ? strtoull(text, NULL, 10) : 0);
}

/* xorshift64*, Marsaglia and Vigna */
static unsigned random_below(unsigned n)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (unsigned)((random_state * 0x2545F4914F6CDD1Du) >> 33) % n;
}

static void shuffle(unsigned *order, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        order[i] = i;
    for (unsigned i = n; seed && i > 1; i--) {
        unsigned other = random_below(i), was = order[i - 1];

        order[i - 1] = order[other];
        order[other] = was;
    }
}

/* ---- the thread's side ------------------------------------------------------------------------------------------- */

static void wait_as(enum state state, struct emulator_site site)
{
    struct thread *self = now;

    self->state = state;
    self->site = site;
    fiber_yield(self->fiber);
}

void emulator_barrier(struct emulator_site site)
{
    wait_as(AT_BARRIER, site);
}

const unsigned char *emulator_exchange(const void *mine, size_t bytes, struct emulator_site site)
{
    struct thread *self = now;
    unsigned char *set = slots[self->index / EMULATOR_LANES][self->parity];

    if (bytes > EMULATOR_SLOT)
        abort();
    if (bytes)
        memcpy(set + self->place.lane * EMULATOR_SLOT, mine, bytes);
    self->parity ^= 1;
    wait_as(AT_WARP, site);
    return set;
}

void *emulator_shared(void)
{
    return shared;
}

static void run_thread(void *arg)
{
    (void)arg;
    running->body(running->arg);
    wait_as(RETURNED, {NULL, NULL, 0});
}

/* ---- the block's side -------------------------------------------------------------------------------------------- */

static int thread_count(void)
{
    return (int)(running->threads.x * running->threads.y * running->threads.z);
}

static void start_block(struct uint3 block)
{
    struct dim3 size = running->threads;

    memset(shared, 0xff, running->shared);
    for (int i = 0; i < thread_count(); i++) {
        unsigned index = (unsigned)i;

        threads[i].state = READY;
        threads[i].index = i;
        threads[i].parity = 0;
        threads[i].place = {{index % size.x, index / size.x % size.y, index / size.x / size.y},
                            block,
                            size,
                            running->blocks,
                            index % EMULATOR_LANES};
        fiber_start(threads[i].fiber, run_thread, NULL);
    }
}

/* Most often both are the same constant. */
static bool same_text(const char *a, const char *b)
{
    return a == b || strcmp(a, b) == 0;
}

static bool same_site(struct emulator_site a, struct emulator_site b)
{
    return a.line == b.line && same_text(a.file, b.file) && same_text(a.operation, b.operation);
}

/* All of [first, end) wait in that state, at one place. */
static bool together(int first, int end, enum state state)
{
    for (int i = first; i < end; i++)
        if (threads[i].state != state || !same_site(threads[i].site, threads[first].site))
            return false;
    return true;
}

static void release(int first, int end)
{
    for (int i = first; i < end; i++)
        threads[i].state = READY;
}

/* In random order only some of the warps that could go on do, so that one can run far ahead of another. */
static bool release_warps(void)
{
    int count = thread_count(), warps = count / EMULATOR_LANES;
    unsigned order[MOST_THREADS / EMULATOR_LANES];
    bool any = false;

    shuffle(order, (unsigned)warps);
    for (int i = 0; i < warps; i++) {
        int first = (int)order[i] * EMULATOR_LANES;

        if (!together(first, first + EMULATOR_LANES, AT_WARP) || (seed && any && random_below(2)))
            continue;
        release(first, first + EMULATOR_LANES);
        any = true;
    }
    return any;
}

static bool explain(char *why, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

static bool explain(char *why, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, size, format, args);
    va_end(args);
    return false;
}

/* Two threads that should be at one place and are not. Of one warp, if a warp's operation is being waited for. */
static bool explain_stuck(char *why, size_t size)
{
    struct uint3 block = threads[0].place.block;
    int a = 0, b = 0, first = 0, end = thread_count();

    for (int i = 0; i < end; i++)
        if (threads[i].state == AT_WARP) {
            first = i / EMULATOR_LANES * EMULATOR_LANES;
            end = first + EMULATOR_LANES < end ? first + EMULATOR_LANES : end;
            break;
        }
    for (a = first; a < end && threads[a].state == RETURNED; a++)
        ;
    for (b = first; b < end; b++)
        if (threads[b].state != threads[a].state || !same_site(threads[b].site, threads[a].site))
            break;
    if (b == end)
        return explain(why, size, "%s: block (%u, %u, %u): %s at %s:%d in a warp of %d threads", running->kernel,
                       block.x, block.y, block.z, threads[a].site.operation, threads[a].site.file, threads[a].site.line,
                       end - first);
    if (threads[b].state == RETURNED)
        return explain(why, size, "%s: block (%u, %u, %u): thread %d waits at %s, %s:%d, and thread %d has returned",
                       running->kernel, block.x, block.y, block.z, a, threads[a].site.operation, threads[a].site.file,
                       threads[a].site.line, b);
    return explain(why, size, "%s: block (%u, %u, %u): thread %d waits at %s, %s:%d, and thread %d at %s, %s:%d",
                   running->kernel, block.x, block.y, block.z, a, threads[a].site.operation, threads[a].site.file,
                   threads[a].site.line, b, threads[b].site.operation, threads[b].site.file, threads[b].site.line);
}

struct pass {
    int returned;    /* threads that have */
    bool ran, ready; /* whether some did something, and whether some still could */
};

/* Each thread that can run does, once; but for those of the warps that are held back, a bit each. */
static struct pass run_threads(int count, uint32_t held)
{
    static unsigned order[MOST_THREADS];
    struct pass pass = {};

    shuffle(order, (unsigned)count);
    for (int i = 0; i < count; i++) {
        now = &threads[order[i]];
        emulator_here = &now->place;
        if (now->state == READY && !(held >> (now->index / EMULATOR_LANES) & 1)) {
            fiber_resume(now->fiber);
            pass.ran = true;
        }
        pass.ready = pass.ready || now->state == READY;
        pass.returned += now->state == RETURNED;
    }
    return pass;
}

static uint32_t random_warps(void)
{
    return seed ? random_below(0x7fffffff) : 0;
}

/* In random order, after each barrier some warps stand still until the others can do no more without them. */
static bool run_block(struct uint3 block, char *why, size_t size)
{
    int count = thread_count();
    uint32_t held = random_warps();

    start_block(block);
    for (;;) {
        struct pass pass = run_threads(count, held);

        if (pass.returned == count)
            return true;
        if (release_warps() || pass.ran)
            continue;
        if (pass.ready) {
            held = 0;
            continue;
        }
        if (!together(0, count, AT_BARRIER))
            return explain_stuck(why, size);
        release(0, count);
        held = random_warps();
    }
}

static bool make_fibers(void)
{
    for (int i = 0; i < thread_count(); i++)
        if (!threads[i].fiber && !(threads[i].fiber = fiber_create()))
            return false;
    return true;
}

/* A GPU's own limits; what exceeds them fails there at the launch. */
static bool check_launch(char *why, size_t size)
{
    struct dim3 t = running->threads, b = running->blocks;

    if (t.x == 0 || t.y == 0 || t.z == 0 || (uint64_t)t.x * t.y * t.z > MOST_THREADS || t.z > 64)
        return explain(why, size, "%s: a block of %u x %u x %u threads", running->kernel, t.x, t.y, t.z);
    if (b.x == 0 || b.y == 0 || b.z == 0 || b.x > 0x7fffffff || b.y > 65535 || b.z > 65535)
        return explain(why, size, "%s: a grid of %u x %u x %u blocks", running->kernel, b.x, b.y, b.z);
    if (running->shared > EMULATOR_SHARED)
        return explain(why, size, "%s: %zu bytes of shared memory", running->kernel, running->shared);
    if (!make_fibers())
        return explain(why, size, "%s: no memory for %d fibers", running->kernel, thread_count());
    return true;
}

static bool run_blocks(unsigned *order, unsigned count, char *why, size_t size)
{
    struct dim3 b = running->blocks;

    shuffle(order, count);
    for (unsigned i = 0; i < count; i++) {
        unsigned at = order[i];

        if (!run_block({at % b.x, at / b.x % b.y, at / b.x / b.y}, why, size))
            return false;
    }
    return true;
}

bool emulator_run(const struct emulator_launch *launch, char *why, size_t size)
{
    unsigned count = launch->blocks.x * launch->blocks.y * launch->blocks.z, *order;
    bool done;

    if (!seeded)
        seed_from_environment();
    running = launch;
    if (!check_launch(why, size))
        return false;
    order = static_cast<unsigned *>(malloc(count * sizeof *order));
    if (!order)
        return explain(why, size, "%s: no memory for %u blocks", launch->kernel, count);
    done = run_blocks(order, count, why, size);
    free(order);
    emulator_here = NULL;
    return done;
}
