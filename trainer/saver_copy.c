/* saver_copy.c - copies the rank's shard into its node's stage, in a thread if training is to go on meanwhile. */
#include "common/thread.h"
#include "trainer/saver_impl.h"

static void *copy_shard(void *arg)
{
    struct saver_stage *s = arg;

    s->result = ckpt_stage_shard(s->handle, s->save, &s->error);
    atomic_store(&s->done, true);
    return NULL;
}

void saver_stage_copy(struct saver_stage *s, const struct ckpt_save *save, bool in_thread)
{
    s->save = save;
    atomic_store(&s->done, false);
    s->threaded = in_thread && thread_start(&s->thread, copy_shard, s) == 0;
    if (!s->threaded)
        copy_shard(s);
}

bool saver_stage_is_copying(const struct saver_stage *s)
{
    return s && s->save;
}

bool saver_stage_copy_done(const struct saver_stage *s)
{
    return atomic_load(&s->done);
}

int saver_stage_wait(struct saver_stage *s, struct error *err)
{
    if (s->threaded)
        pthread_join(s->thread, NULL);
    s->threaded = false;
    s->save = NULL;
    if (s->result != 0)
        *err = s->error;
    return s->result;
}
