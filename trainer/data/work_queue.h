/*
 * work_queue.h - threads that encode parcels, which come back in the order in which they were given.
 *
 *     while ((parcel = work_queue_next(queue))) { fill it; work_queue_submit(queue); }
 *     while ((parcel = work_queue_take(queue))) { write it; work_queue_release(queue); }
 *
 * One thread calls these functions. The parcels under way hold some 512 MiB of text at most, or else there is only one.
 */
#ifndef MUSTER_TRAINER_DATA_WORK_QUEUE_H
#define MUSTER_TRAINER_DATA_WORK_QUEUE_H

#include "trainer/data/parcel.h"

#define WORK_THREADS_MOST 1024

struct work_queue;

/* `workers` threads, 1 to WORK_THREADS_MOST; fewer, if the system gives fewer. They get no signals. */
struct work_queue *work_queue_create(int workers, const struct encoding *encoding, struct error *err);
void work_queue_destroy(struct work_queue *queue);

/* An empty parcel to fill; NULL if there is none until one has been taken and released. */
struct parcel *work_queue_next(struct work_queue *queue);

/* Gives the parcel of the last work_queue_next to a thread. */
void work_queue_submit(struct work_queue *queue);

/* The oldest parcel, once it is encoded; NULL if none is under way. */
struct parcel *work_queue_take(struct work_queue *queue);

/* The parcel of the last work_queue_take may be filled again. */
void work_queue_release(struct work_queue *queue);

#endif
