/*
 * model_shape.h - a model as data. What differs between two models is a field of this struct: nothing asks which model
 * it is. model_tensors.h derives the tensors from it.
 */
#ifndef MUSTER_COMMON_MODEL_MODEL_SHAPE_H
#define MUSTER_COMMON_MODEL_MODEL_SHAPE_H

#include <stdbool.h>

#include "common/error.h"

/* What the samples are, and the losses. */
enum objective {
    OBJECTIVE_CAUSAL, /* the next token */
    OBJECTIVE_MASKED, /* BERT's: masked tokens, and the order of two sentences */
};

/* A preset sets it; keys in the job file override the preset. With zeros but for the first five it is a GPT-2. */
struct model_shape {
    int layers;
    int hidden; /* d, the width between blocks */
    int heads;
    int seq_length; /* s, tokens a sample, and the number of learned positions */
    int vocab;      /* V, unpadded */

    /* 0: follows from the above; read them by the functions below */
    int kv_heads;  /* of keys and values; 0: heads */
    int head_size; /* 0: hidden / heads */
    int inner;     /* the MLP's width; 0: 4 hidden */

    int token_types;    /* rows of the embedding of token types; 0: none */
    bool no_positions;  /* no learned positions */
    bool no_biases;     /* neither norms nor products have biases */
    bool untied;        /* the projection to the vocabulary has a matrix of its own */
    bool bidirectional; /* attention sees later tokens too, and samples may be padded */
    enum objective objective;
};

static inline int model_head_size(const struct model_shape *m)
{
    return m->head_size ? m->head_size : m->hidden / m->heads;
}

/* The columns of all heads' queries, and of attention's output. */
static inline int model_query_width(const struct model_shape *m)
{
    return m->head_size ? m->heads * m->head_size : m->hidden;
}

/* Q | K | V */
static inline int model_qkv_width(const struct model_shape *m)
{
    return model_query_width(m) + 2 * (m->kv_heads ? m->kv_heads * model_head_size(m) : model_query_width(m));
}

static inline int model_inner(const struct model_shape *m)
{
    return m->inner ? m->inner : 4 * m->hidden;
}

/* -1 with CODE_CONFIG if the trainer cannot compute it: the one place that refuses values of fields. */
int model_check(const struct model_shape *shape, struct error *err);

/* The names of sets of fields, NULL at the end: of the key model.kind. */
extern const char *const model_kinds[];

/* Sets all but the first five fields to those of kind number `kind`. */
void model_set_kind(struct model_shape *shape, int kind);

/* A named preset, and the number of its kind; -1 with CODE_CONFIG and the list of names if there is no such preset. */
int model_preset(struct model_shape *shape, int *kind, const char *name, struct error *err);

#endif
