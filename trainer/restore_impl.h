/* restore_impl.h - what restore.c and restore_weights.c share. Private to them. */
#ifndef MUSTER_TRAINER_RESTORE_IMPL_H
#define MUSTER_TRAINER_RESTORE_IMPL_H

#include "ckpt/models/hf.h"
#include "trainer/engine.h"

/* Whether the checkpoint's model is the job's in every key that RESTORE_WEIGHTS compares; CODE_CONFIG names the first
 * that differs. */
int restore_check_weights(const struct engine *engine, const struct ckpt *ckpt, struct error *err);

/* engine_restore of a Hugging Face folder. Collective. */
int restore_folder(struct engine *engine, const char *path, struct error *err);

#endif
