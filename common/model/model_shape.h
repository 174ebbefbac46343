/*
 * model_shape.h - a model as data. What differs between two models is a field of this struct: nothing asks which model
 * it is. model_tensors.h derives the tensors from it.
 */
#ifndef MUSTER_COMMON_MODEL_MODEL_SHAPE_H
#define MUSTER_COMMON_MODEL_MODEL_SHAPE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

/* What the samples are, and the losses. */
enum objective {
    OBJECTIVE_CAUSAL, /* the next token */
    OBJECTIVE_MASKED, /* BERT's: masked tokens, and the order of two sentences */
};

/* The names and shapes of a checkpoint's tensors. */
enum model_layout {
    LAYOUT_GPT2,  /* Hugging Face's GPT-2: [in, out], Q | K | V in one tensor */
    LAYOUT_LLAMA, /* Hugging Face's Llama, Mistral and Qwen: [out, in], a tensor for each matrix */
};

enum model_norm { NORM_LAYER, NORM_RMS };
enum model_activation { ACTIVATION_GELU, ACTIVATION_SWIGLU };
enum model_positions { POSITIONS_LEARNED, POSITIONS_ROTARY };
enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LLAMA3 };
enum model_biases { BIASES_ALL, BIASES_QKV, BIASES_NONE };

/* Keys in the job file set the fields; a preset and a kind set those that are not given. With zeros but for the first
 * five it is a GPT-2. */
struct model_shape {
    int layers;
    int hidden; /* d, the width between blocks */
    int heads;
    int seq_length; /* s, tokens a sample */
    int vocab;      /* V, unpadded */

    /* 0: follows from the above; read them by the functions below */
    int kv_heads;      /* of keys and values, each shared by heads / kv_heads heads of queries; 0: heads */
    int head_size;     /* 0: hidden / heads */
    int inner;         /* the MLP's width; 0: 4 hidden */
    int max_positions; /* that the model is made for; 0: seq_length */

    enum model_norm norm;
    double norm_eps; /* 0: 1e-5 */
    enum model_activation activation;
    enum model_positions positions;
    double rope_theta; /* 0: 10000 */
    enum rope_scaling rope_scaling;
    double rope_factor, rope_low, rope_high; /* of llama3 */
    int rope_original;                       /* of llama3: the positions before the scaling */
    enum model_biases biases;                /* which products have them; norms have them with all */
    bool qk_norm;                            /* a norm of each head's queries and keys */
    int window;                              /* tokens that a token sees, itself included; 0: all before it */
    bool untied;                             /* the projection to the vocabulary has a matrix of its own */

    /* of a kind alone */
    enum model_layout layout;
    int token_types;    /* rows of the embedding of token types; 0: none */
    bool bidirectional; /* attention sees later tokens too, and samples may be padded */
    enum objective objective;
};

/* What makes a kind, in initializers. A GPT-2 has zeros. */
#define BERT_FIELDS .token_types = 2, .bidirectional = true, .objective = OBJECTIVE_MASKED
#define LLAMA_FIELDS                                                                                                   \
    .norm = NORM_RMS, .activation = ACTIVATION_SWIGLU, .positions = POSITIONS_ROTARY, .layout = LAYOUT_LLAMA

static inline int model_head_size(const struct model_shape *m)
{
    return m->head_size ? m->head_size : m->heads ? m->hidden / m->heads : 0;
}

static inline int model_kv_heads(const struct model_shape *m)
{
    return m->kv_heads ? m->kv_heads : m->heads;
}

/* The columns of all heads' queries, and of attention's output; of their keys; and of Q | K | V. */
static inline int model_query_width(const struct model_shape *m)
{
    return m->head_size ? m->heads * m->head_size : m->hidden;
}

static inline int model_key_width(const struct model_shape *m)
{
    return m->kv_heads ? m->kv_heads * model_head_size(m) : model_query_width(m);
}

static inline int model_qkv_width(const struct model_shape *m)
{
    return model_query_width(m) + 2 * model_key_width(m);
}

/* The columns of the MLP's inner values; and of the product before the activation: with a gate, gate | up. */
static inline int model_inner(const struct model_shape *m)
{
    return m->inner ? m->inner : 4 * m->hidden;
}

static inline int model_fc_width(const struct model_shape *m)
{
    return (m->activation == ACTIVATION_SWIGLU ? 2 : 1) * model_inner(m);
}

static inline double model_norm_eps(const struct model_shape *m)
{
    return m->norm_eps > 0 ? m->norm_eps : 1e-5;
}

static inline int model_max_positions(const struct model_shape *m)
{
    return m->max_positions ? m->max_positions : m->seq_length;
}

/* True if something happens to queries and keys between their product and attention. */
static inline bool model_changes_queries(const struct model_shape *m)
{
    return m->qk_norm || m->positions == POSITIONS_ROTARY;
}

/*
 * Rotary positions: angles [seq_length][head_size], for each position the cosines of its head_size / 2 angles, then
 * their sines. Angle i of position p is p f_i, f_i = rope_theta^(-2 i / head_size) (arXiv 2104.09864). With llama3's
 * scaling (Llama 3.1's model card), of the wavelength w = 2 pi / f_i and the original length M: f_i where w < M / high,
 * f_i / factor where w > M / low, and between them a mean of both, in M / w. Computed in fp64, rounded once.
 */
void model_angles(const struct model_shape *shape, float *angles);

/* The largest number of tensor-parallel ranks up to `most` that divides the heads of keys and values, which they share. */
int model_largest_tp(const struct model_shape *shape, int most);

/* -1 with CODE_CONFIG if the trainer cannot compute it: the one place that refuses combinations of fields. */
int model_check(const struct model_shape *shape, struct error *err);

/* The names of the enums' values in a job file, NULL at the end. model_kinds: sets of fields. */
extern const char *const model_kinds[],
    *const model_norms[], *const model_activations[], *const model_position_names[], *const model_rope_scalings[],
                                                                                         *const model_bias_names[];

/* Sets all but the first five fields to those of kind number `kind`. */
void model_set_kind(struct model_shape *shape, int kind);

/* The number of the kind that has this model's layout and objective, which have no key. */
int model_kind_of(const struct model_shape *shape);

/* The same model with its zeros replaced by what they mean, and without the fields that it does not use. */
struct model_shape model_resolve(const struct model_shape *shape);

/* A named preset, and the number of its kind; -1 with CODE_CONFIG and the list of names if there is no such preset. */
int model_preset(struct model_shape *shape, int *kind, const char *name, struct error *err);

#endif
