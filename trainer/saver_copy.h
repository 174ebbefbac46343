/*
 * saver_copy.h - this rank's shard on its way into the stage (ckpt_stage_shard): at once, where training changes what
 * is copied; or in a thread beside it, where that is a mirror of the state in host memory (engine_capture), which
 * nothing changes until the next capture.
 *
 * Nothing here is collective, and nothing communicates: whether a copy is over is each rank's own affair, and what
 * follows from it is for the ranks to agree on. While a copy is under way its stage may be asked whether it is drained,
 * and no more (stage.h).
 */
#ifndef MUSTER_TRAINER_SAVER_COPY_H
#define MUSTER_TRAINER_SAVER_COPY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "ckpt/stage/stage.h"
#include "trainer/engine.h"

/* All zeros: none is under way. Not to be moved while one is. */
struct saver_copy {
    struct engine_part part; /* the caller's to create before, and to destroy after */
    struct ckpt_stage *stage;
    bool under_way; /* from saver_copy_start to saver_copy_wait; the caller's thread alone looks at it */
    bool threaded;
    pthread_t thread;
    atomic_bool over;
    int result;
    struct error err;
};

/*
 * Copy copy->part.save into the stage; beside: in a thread, to which no signal is delivered. Where no thread can be
 * had, and where not beside, it is over on return.
 */
void saver_copy_start(struct saver_copy *copy, struct ckpt_stage *stage, bool beside);

/* Whether saver_copy_wait would not wait. */
bool saver_copy_is_over(const struct saver_copy *copy);

/* Wait for it. What ckpt_stage_shard returned, with its *err. */
int saver_copy_wait(struct saver_copy *copy, struct error *err);

#endif
