/*
 * whole_model.h - a model of random weights on one process, as the trainer has it: for the decoder's test and bench/,
 * which compare its forward pass with the decoder's.
 */
#ifndef MUSTER_TESTS_UNIT_WHOLE_MODEL_H
#define MUSTER_TESTS_UNIT_WHOLE_MODEL_H

#include "trainer/rank_config.h"

struct whole_model {
    struct job job;
    struct device *dev;
    struct device_traits traits;
    struct rank_config *config;
    struct comm *alone;
    struct tp_group tp;
    struct zero *zero;
    struct model *model;
    void **params; /* [nunits]: zero_param of each unit */
};

/* job: the text of a job file. *whole begins as zeros, and is to be destroyed also after a failure. */
int whole_model_create(struct whole_model *whole, const char *job, const char *device, struct error *err);
void whole_model_destroy(struct whole_model *whole);

/* The forward pass over one sample [seq_length]. The logits of what follows a token are then model_logits'. */
void whole_model_forward(struct whole_model *whole, const int32_t *tokens);

#endif
