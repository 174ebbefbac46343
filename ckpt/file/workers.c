#include "ckpt/file/workers.h"

#include "common/thread.h"

struct pool {
    int (*work)(void *arg, int worker, size_t item, struct error *err);
    void *arg;
    size_t count;

    pthread_mutex_t lock; /* for all below */
    int workers;
    size_t next, failed;
    int result;
    struct error error;
};

static void *run_items(void *arg)
{
    struct pool *pool = arg;
    int worker;

    pthread_mutex_lock(&pool->lock);
    worker = pool->workers++;
    while (pool->result == 0 && pool->next < pool->count) {
        size_t item = pool->next++;
        struct error err = {0};
        int result;

        pthread_mutex_unlock(&pool->lock);
        result = pool->work(pool->arg, worker, item, &err);
        pthread_mutex_lock(&pool->lock);
        /* A failure counts more than the interruption that it may cause in other items. */
        if (result != 0 && (pool->result == 0 || (result < 0 && (pool->result > 0 || item < pool->failed)))) {
            pool->result = result;
            pool->failed = item;
            pool->error = err;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

int workers_run(int threads, size_t count, int (*work)(void *arg, int worker, size_t item, struct error *err),
                void *arg, struct error *err)
{
    struct pool pool = {.work = work, .arg = arg, .count = count, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t others[WORKERS_MOST];
    int started = 0;

    if (threads > WORKERS_MOST)
        threads = WORKERS_MOST;
    while (started + 1 < threads && (size_t)started + 1 < count &&
           thread_start(&others[started], run_items, &pool) == 0)
        started++;
    run_items(&pool);
    while (started > 0)
        pthread_join(others[--started], NULL);
    if (pool.result < 0 && err)
        *err = pool.error;
    return pool.result;
}

void workers_progress_add(struct workers_progress *progress, uint64_t done)
{
    pthread_mutex_lock(&progress->lock);
    progress->done += done;
    if (progress->report)
        progress->report(progress->done, progress->total, progress->arg);
    pthread_mutex_unlock(&progress->lock);
}
