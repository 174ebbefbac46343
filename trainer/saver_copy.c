#include "trainer/saver_copy.h"

#include <signal.h>

static void *copy_shard(void *arg)
{
    struct saver_copy *copy = arg;

    copy->result = ckpt_stage_shard(copy->stage, &copy->part.save, &copy->err);
    atomic_store(&copy->over, true);
    return NULL;
}

/* Signals are the trainer's business: none is delivered to the thread, nor to those that it starts. */
static bool start_thread(struct saver_copy *copy)
{
    sigset_t all, before;
    bool started;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&copy->thread, NULL, copy_shard, copy) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void saver_copy_start(struct saver_copy *copy, struct ckpt_stage *stage, bool beside)
{
    copy->stage = stage;
    copy->under_way = true;
    atomic_store(&copy->over, false);
    copy->threaded = beside && start_thread(copy);
    if (!copy->threaded)
        copy_shard(copy);
}

bool saver_copy_is_over(const struct saver_copy *copy)
{
    return atomic_load(&copy->over);
}

int saver_copy_wait(struct saver_copy *copy, struct error *err)
{
    if (copy->threaded)
        pthread_join(copy->thread, NULL);
    copy->under_way = copy->threaded = false;
    if (copy->result != 0)
        *err = copy->err;
    return copy->result;
}
