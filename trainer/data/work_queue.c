#include "trainer/data/parcel.h"

#include <stdlib.h>
#include <string.h>

#include "common/thread.h"

#define BYTES_MOST ((size_t)512 << 20) /* of text under way */

struct work_slot {
    struct parcel parcel;
    bool done;
};

struct work_thread {
    pthread_t id;
    struct work_queue *queue;
    struct parcel_worker *worker;
};

/* Parcels have numbers; number n is in slot n % depth. taken <= claimed <= filled <= taken + depth. */
struct work_queue {
    struct work_slot *slots;
    struct work_thread *threads;
    int depth, running;
    uint64_t filled, claimed, taken;
    size_t bytes; /* of text under way */
    bool stop;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
};

static void *run_worker(void *arg)
{
    struct work_thread *thread = arg;
    struct work_queue *q = thread->queue;

    pthread_mutex_lock(&q->lock);
    for (;;) {
        struct work_slot *slot;

        while (!q->stop && q->claimed == q->filled)
            pthread_cond_wait(&q->work, &q->lock);
        if (q->stop)
            break;
        slot = &q->slots[q->claimed++ % (uint64_t)q->depth];
        pthread_mutex_unlock(&q->lock);
        parcel_encode(thread->worker, &slot->parcel);
        pthread_mutex_lock(&q->lock);
        slot->done = true;
        pthread_cond_signal(&q->done);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static int start_threads(struct work_queue *q, int workers, const struct encoding *encoding, struct error *err)
{
    int failure = 0;

    for (int i = 0; i < workers && failure == 0; i++) {
        struct work_thread *thread = &q->threads[i];

        thread->queue = q;
        thread->worker = parcel_worker_create(encoding, err);
        if (!thread->worker)
            break;
        failure = thread_start(&thread->id, run_worker, thread);
        if (failure == 0)
            q->running++;
        else
            parcel_worker_destroy(thread->worker);
    }
    if (failure && q->running == 0)
        return error_set(err, CODE_IO, "cannot start a thread: %s", strerror(failure));
    return q->running > 0 ? 0 : -1;
}

struct work_queue *work_queue_create(int workers, const struct encoding *encoding, struct error *err)
{
    struct work_queue *q = error_calloc(1, sizeof *q, err);

    if (!q)
        return NULL;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_cond_init(&q->done, NULL);
    q->depth = 2 * workers + 2;
    q->slots = error_calloc((size_t)q->depth, sizeof *q->slots, err);
    q->threads = q->slots ? error_calloc((size_t)workers, sizeof *q->threads, err) : NULL;
    if (!q->threads || start_threads(q, workers, encoding, err) < 0) {
        work_queue_destroy(q);
        return NULL;
    }
    return q;
}

void work_queue_destroy(struct work_queue *q)
{
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_broadcast(&q->work);
    pthread_mutex_unlock(&q->lock);
    for (int i = 0; i < q->running; i++) {
        pthread_join(q->threads[i].id, NULL);
        parcel_worker_destroy(q->threads[i].worker);
    }
    for (int i = 0; i < q->depth && q->slots; i++)
        parcel_free(&q->slots[i].parcel);
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->done);
    free(q->slots);
    free(q->threads);
    free(q);
}

/* filled, taken and bytes change only in the caller's thread. */

struct parcel *work_queue_next(struct work_queue *q)
{
    if (q->filled == q->taken + (uint64_t)q->depth || (q->bytes > BYTES_MOST && q->filled > q->taken))
        return NULL;
    return &q->slots[q->filled % (uint64_t)q->depth].parcel;
}

void work_queue_submit(struct work_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->bytes += q->slots[q->filled % (uint64_t)q->depth].parcel.text.count;
    q->filled++;
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
}

struct parcel *work_queue_take(struct work_queue *q)
{
    struct work_slot *slot = &q->slots[q->taken % (uint64_t)q->depth];

    if (q->taken == q->filled)
        return NULL;
    pthread_mutex_lock(&q->lock);
    while (!slot->done)
        pthread_cond_wait(&q->done, &q->lock);
    pthread_mutex_unlock(&q->lock);
    return &slot->parcel;
}

void work_queue_release(struct work_queue *q)
{
    struct work_slot *slot = &q->slots[q->taken % (uint64_t)q->depth];

    pthread_mutex_lock(&q->lock);
    q->bytes -= slot->parcel.text.count;
    slot->done = false;
    q->taken++;
    pthread_mutex_unlock(&q->lock);
    parcel_clear(&slot->parcel);
    if (slot->parcel.text.room > 16 * PARCEL_SIZE) { /* of a long piece, which is seldom */
        parcel_free(&slot->parcel);
        slot->parcel = (struct parcel){0};
    }
}
