#include "config.h"

#include "ckpt/file/workers.h"

#include <pthread.h>
#include <signal.h>

void workers_run(int count, void *(*work)(void *arg), void *arg)
{
    pthread_t others[WORKERS_MOST];
    sigset_t all, before;
    int started = 0;

    if (count > WORKERS_MOST)
        count = WORKERS_MOST;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < count - 1 && pthread_create(&others[started], NULL, work, arg) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work(arg);
    while (started > 0)
        pthread_join(others[--started], NULL);
}
