/* workers.h - a list of items on several threads at once, for work that waits for disks or memory; its progress. */
#ifndef MUSTER_CKPT_FILE_WORKERS_H
#define MUSTER_CKPT_FILE_WORKERS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define WORKERS_MOST 256

/*
 * Call `work` for items 0 to count - 1, in order, on up to `threads` threads (1 to WORKERS_MOST), the caller's among
 * them. `worker`, below the smaller of threads and WORKERS_MOST, is the thread's number: for buffers of its own. When a
 * call returns other than 0, no more items are started. Returns 0; or -1 with the error of the first item that returned
 * that; or else what the first item returned that was not 0. If the system gives fewer threads, fewer do the work.
 * Signals are not delivered to the new threads.
 */
int workers_run(int threads, size_t count, int (*work)(void *arg, int worker, size_t item, struct error *err),
                void *arg, struct error *err);

/* The progress of work that several threads share. */
struct workers_progress {
    void (*report)(uint64_t done, uint64_t total, void *arg); /* called from one thread at a time; may be NULL */
    void *arg;
    uint64_t total, done;
    pthread_mutex_t lock; /* PTHREAD_MUTEX_INITIALIZER */
};

void workers_progress_add(struct workers_progress *progress, uint64_t done);

#endif
