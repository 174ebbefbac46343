/* streams.cc - streams, events, and the thread that is the GPU. */
#include <cuda_runtime_api.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/standin/standin.h"

/* One record of an event; the next is another, perhaps on another stream. */
struct record {
    bool done = false;
    double at = 0; /* milliseconds, when it was */
};

struct CUevent_st {
    std::shared_ptr<record> last; /* NULL until the first */
    bool timed = true;
};

struct item {
    uint64_t number;
    standin_work work;
};

struct CUstream_st {
    std::deque<item> items;
};

/* Never destroyed: the GPU's thread may outlive main. */
static auto &mutex = *new std::mutex;
static auto &changed = *new std::condition_variable; /* something was enqueued, or done */
static auto &streams = *new std::vector<CUstream_st *>;
static uint64_t numbers;
static int waiting; /* host threads that do nothing else */
static std::atomic<int> failure;
static uint64_t seed, state;

static double milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

void standin_fail(int error, const char *format, ...)
{
    int none = cudaSuccess;
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (failure.compare_exchange_strong(none, error))
        fprintf(stderr, "standin: %s\n", text);
}

int standin_error(void)
{
    return failure;
}

/* ---- the GPU ----------------------------------------------------------------------------------------------------- */

static void choose_order(void)
{
    const char *text = getenv("MUSTER_STANDIN_SEED");

    seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000;
    state = seed * 0x9E3779B97F4A7C15u + 1;
    if (!text)
        fprintf(stderr, "standin: MUSTER_STANDIN_SEED=%llu\n", (unsigned long long)seed);
}

/* xorshift64*, Marsaglia and Vigna. Only the GPU's thread draws. */
static unsigned random_below(unsigned below)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (unsigned)((state * 0x2545F4914F6CDD1Du) >> 33) % below;
}

/* In which order streams are looked at. For a while one of them is far ahead of the others, and then another. */
static void arrange(std::vector<CUstream_st *> &order)
{
    static unsigned left, turn;

    order = streams;
    if (seed == 0) {
        std::sort(order.begin(), order.end(), [](const CUstream_st *a, const CUstream_st *b) {
            return !a->items.empty() && (b->items.empty() || a->items.front().number < b->items.front().number);
        });
        return;
    }
    if (left-- == 0) {
        left = random_below(40);
        turn = random_below(5040);
    }
    for (unsigned i = (unsigned)order.size(), rest = turn; i > 1; i--, rest /= i)
        std::swap(order[i - 1], order[rest % i]);
}

/* True if something was done. The mutex is held but while it is. */
static bool run_one(std::unique_lock<std::mutex> &lock)
{
    std::vector<CUstream_st *> order;

    arrange(order);
    for (CUstream_st *stream : order) {
        bool done;

        if (std::find(streams.begin(), streams.end(), stream) == streams.end() || stream->items.empty())
            continue;
        const standin_work &work = stream->items.front().work;

        lock.unlock();
        standin_working(true);
        done = failure != cudaSuccess || work();
        standin_working(false);
        lock.lock();
        if (done)
            stream->items.pop_front();
        changed.notify_all();
        if (done)
            return true;
    }
    return false;
}

/* While nobody waits, work may take its time: then what did not wait for it is wrong. */
static void be_late(std::unique_lock<std::mutex> &lock)
{
    if (seed == 0 || waiting > 0 || random_below(4) > 0)
        return;
    changed.wait_for(lock, std::chrono::microseconds(random_below(400)), [] { return waiting > 0; });
}

static void gpu(void)
{
    std::unique_lock<std::mutex> lock(mutex);

    choose_order();
    for (;;) {
        be_late(lock);
        if (!run_one(lock))
            changed.wait_for(lock, std::chrono::microseconds(50));
    }
}

void standin_enqueue(CUstream_st *stream, standin_work work)
{
    static std::once_flag once;
    std::unique_lock<std::mutex> lock(mutex);

    std::call_once(once, [] { std::thread(gpu).detach(); });
    stream->items.push_back({numbers++, std::move(work)});
    changed.notify_all();
}

void standin_launch(CUstream_st *stream, const std::function<bool(char *why, size_t size)> &run)
{
    standin_enqueue(stream, [run] {
        static size_t kernels;
        char why[512];

        if (++kernels == standin_number("MUSTER_STANDIN_BREAK", 0))
            standin_fail(cudaErrorLaunchFailure, "it breaks");

        if (!run(why, sizeof why))
            standin_fail(cudaErrorLaunchFailure, "%s", why);
        return true;
    });
}

/* ---- what a test would notice ------------------------------------------------------------------------------------ */

/*
 * Whether the caller's caller is the place that is to go on without waiting: MUSTER_STANDIN_FORGET=cudaEventQuery:2 is
 * the second place in the program to call that function, in the order in which they first did.
 */
static bool forgotten(const char *function, void *place)
{
    static std::map<std::string, std::vector<void *>> places;
    const char *text = getenv("MUSTER_STANDIN_FORGET"), *colon = text ? strchr(text, ':') : NULL;
    std::unique_lock<std::mutex> lock(mutex);

    if (!colon || std::string(text, colon) != function)
        return false;
    std::vector<void *> &known = places[function];
    size_t at = std::find(known.begin(), known.end(), place) - known.begin();

    if (at == known.size()) {
        known.push_back(place);
        if (at + 1 == strtoul(colon + 1, NULL, 10))
            fprintf(stderr, "standin: %s is forgotten\n", text);
    }
    return at + 1 == strtoul(colon + 1, NULL, 10);
}
#define FORGOTTEN() forgotten(__func__, __builtin_return_address(0))

/* The host's waits for a stream or an event, which a process says at its end if asked. */
struct counted_waits {
    std::atomic<long> number{0};

    ~counted_waits()
    {
        if (getenv("MUSTER_STANDIN_WAITS"))
            fprintf(stderr, "standin: the host waited %ld times\n", number.load());
    }
};
static counted_waits waits;

/* ---- streams ----------------------------------------------------------------------------------------------------- */

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    std::unique_lock<std::mutex> lock(mutex);

    if (flags != cudaStreamNonBlocking || priority > 0 || priority < -5)
        return KEPT(cudaErrorInvalidValue);
    *stream = new CUstream_st;
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    std::unique_lock<std::mutex> lock(mutex);

    if (failure != cudaSuccess)
        return static_cast<cudaError_t>(failure.load());
    return stream->items.empty() ? cudaSuccess : cudaErrorNotReady;
}

static cudaError_t wait_until(const std::function<bool()> &over)
{
    std::unique_lock<std::mutex> lock(mutex);

    waiting++;
    changed.notify_all();
    changed.wait(lock, over);
    waiting--;
    return static_cast<cudaError_t>(failure.load());
}

static cudaError_t synchronize(cudaStream_t stream)
{
    return wait_until([=] { return stream->items.empty(); });
}

/* What is enqueued goes on, and the stream goes when that is done: here it is waited for. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t status = synchronize(stream);
    std::unique_lock<std::mutex> lock(mutex);

    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    return status;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    waits.number++;
    return FORGOTTEN() ? cudaSuccess : synchronize(stream);
}
}

void standin_wait_for_all(void)
{
    wait_until([] {
        return std::all_of(streams.begin(), streams.end(),
                           [](const CUstream_st *stream) { return stream->items.empty(); });
    });
}

extern "C" {

/* ---- events ------------------------------------------------------------------------------------------------------ */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    if (flags & ~(cudaEventDisableTiming | cudaEventBlockingSync))
        return KEPT(cudaErrorInvalidValue);
    *event = new CUevent_st;
    (*event)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event; /* who waits for it on a stream has its record */
    return static_cast<cudaError_t>(failure.load());
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    std::shared_ptr<record> now = std::make_shared<record>();

    if (failure != cudaSuccess)
        return static_cast<cudaError_t>(failure.load());
    event->last = now;
    standin_enqueue(stream, [now] {
        std::unique_lock<std::mutex> lock(mutex);

        now->done = true;
        now->at = milliseconds();
        return true;
    });
    return cudaSuccess;
}

/* For the record that is the last when this is called, if there is one. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    std::shared_ptr<record> last = event->last;

    if (flags)
        return KEPT(cudaErrorInvalidValue);
    if (FORGOTTEN() || !last)
        return cudaSuccess;
    if (failure != cudaSuccess)
        return static_cast<cudaError_t>(failure.load());
    standin_enqueue(stream, [last] {
        std::unique_lock<std::mutex> lock(mutex);

        return last->done;
    });
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (FORGOTTEN())
        return cudaSuccess;
    std::unique_lock<std::mutex> lock(mutex);

    if (failure != cudaSuccess)
        return static_cast<cudaError_t>(failure.load());
    return !event->last || event->last->done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    std::shared_ptr<record> last = event->last;

    waits.number++;
    if (FORGOTTEN() || !last)
        return cudaSuccess;
    return wait_until([=] { return last->done || failure != cudaSuccess; });
}

cudaError_t cudaEventElapsedTime(float *time, cudaEvent_t first, cudaEvent_t second)
{
    std::unique_lock<std::mutex> lock(mutex);

    if (failure != cudaSuccess)
        return static_cast<cudaError_t>(failure.load());
    if (!first->last || !second->last || !first->timed || !second->timed)
        return KEPT(cudaErrorInvalidResourceHandle);
    if (!first->last->done || !second->last->done)
        return cudaErrorNotReady;
    *time = static_cast<float>(second->last->at - first->last->at);
    return cudaSuccess;
}
}
