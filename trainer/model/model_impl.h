/* model_impl.h - what model.c and model_buffers.c share. */
#ifndef MUSTER_TRAINER_MODEL_MODEL_IMPL_H
#define MUSTER_TRAINER_MODEL_MODEL_IMPL_H

#include "trainer/model/block.h"
#include "trainer/model/model.h"

struct chunk {
    struct model_chunk is;
    enum recompute *recompute;       /* [layers] */
    struct block_activations **acts; /* [slots][layers] */
    void **inputs, **outputs;        /* [ninputs], [noutputs] */
    int ninputs, noutputs;
};

struct model {
    const struct context *c;
    const struct units *units;
    struct zero *zero;
    struct model_config config;
    struct chunk chunks[MODEL_MAX_CHUNKS];
    struct block_scratch scratch;
    struct model_head head;
    void *gradients[MODEL_GRADIENTS];
    char *kept, *shared, *workspace; /* the memory of all of these */
    char *host;                      /* and what the host reads; NULL unless the device is discrete */
};

struct model_layouts {
    struct buffer_layout kept, shared, workspace, host;
};

/*
 * Places everything in four buffers: `kept` from forward to backward, `shared` for recomputed activations, `workspace`
 * for the current operation, and `host` in host memory. With NULL bases it only counts.
 */
void model_place(struct model *m, struct model_layouts *from);

/* The lists that model_place fills; -1 when out of memory. */
int model_create_lists(struct model *m, struct error *err);
void model_destroy_lists(struct model *m);

#endif
