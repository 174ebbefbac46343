/* thread.h - starts threads. */
#ifndef MUSTER_COMMON_THREAD_H
#define MUSTER_COMMON_THREAD_H

#include <pthread.h>
#include <signal.h>

/* pthread_create of a thread that gets no signals: they are for the main thread. Returns 0 or an errno. */
static inline int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    int failure;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

#endif
