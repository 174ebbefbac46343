/*
 * job.h - the job file (libconfig): everything a run is told, as one typed struct.
 *
 * One table in job_keys.c holds every key's path, type, range and default; the parser, `muster-train --check`, the
 * plugin's check in srun and the test that holds muster.cfg(5) to the code all walk that table. A wrong key, type,
 * value or combination is one line, "FILE:LINE: what is wrong; what would be right", with CODE_CONFIG.
 */
#ifndef MUSTER_COMMON_JOB_H
#define MUSTER_COMMON_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "common/dtype.h"
#include "common/error.h"

#define JOB_PATH_SIZE 1024

enum model_kind { MODEL_GPT, MODEL_BERT };
enum lr_schedule { LR_COSINE, LR_LINEAR, LR_CONSTANT, LR_WSD };
enum reduce_when { REDUCE_AUTO, REDUCE_STEP, REDUCE_MICRO_BATCH };
enum offload { OFFLOAD_NONE, OFFLOAD_OPTIMIZER };
enum device_choice { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };

/* Sizes of a GPT-2, or of a BERT. A preset fills them; keys given beside the preset override it. */
struct model_shape {
    int layers;
    int hidden; /* d; a multiple of heads */
    int heads;
    int seq_length; /* s, tokens a sample, and the number of learned positions */
    int vocab;      /* V, unpadded */
    enum model_kind kind;
};

struct job {
    struct model_shape model; /* "model" group: preset, or layers hidden heads seq_length vocab kind */
    char preset[32];          /* its name, or "" */
    double init_std;          /* standard deviation of initial weights; output projections get / sqrt(2 layers) */

    struct {
        double hidden;    /* "model.dropout": of embeddings and of what a block adds to the residual stream */
        double attention; /* "model.attention_dropout": of attention's probabilities */
    } dropout;

    enum device_choice device; /* where a rank computes */

    struct {
        int tp, pp;               /* dp is what the allocation gives: ranks / (tp * pp) */
        int zero;                 /* stage */
        int chunks;               /* virtual stages that a pipeline rank has; more than 1 is the interleaved schedule */
        enum reduce_when reduce;  /* when gradients are summed over dp; job_load leaves no REDUCE_AUTO */
        enum offload offload;     /* what lies in host memory */
        enum recompute recompute; /* what the backward pass computes again */
        int recompute_layers;     /* only the first so many layers of a stage; 0 is all */
    } parallel;

    struct {
        int global_batch;        /* samples a step; need not be a multiple of anything */
        int micro_batch;         /* samples that one forward and backward holds at a time, at most */
        long steps;              /* the run ends after this many steps */
        uint64_t seed;           /* initial weights and sample order */
        int rampup_start;        /* samples of the first step; 0 is no ramp-up, then the next two are 0 too */
        int rampup_increment;    /* the batch grows by so many; divides global_batch - rampup_start */
        uint64_t rampup_samples; /* samples consumed when it is global_batch */
    } batch;

    struct {
        double lr, min_lr;
        long warmup_steps; /* lr rises linearly over these */
        long decay_steps;  /* and falls until here; 0 means batch.steps */
        enum lr_schedule schedule;
        long cooldown_steps; /* of LR_WSD: the last so many before decay_steps, in which it falls */
        double beta1, beta2, eps;
        double weight_decay; /* of matrices only; biases and norms have none */
        double clip;         /* global gradient norm; 0 is off */
        double spike_factor; /* a step whose loss is more than this times the running mean is skipped; 0 is off */
        int most_skipped;    /* steps skipped in a row before the run gives up */
    } optimizer;

    struct {
        char train[JOB_PATH_SIZE]; /* prefix of a .bin and .idx made by muster-data */
        char valid[JOB_PATH_SIZE]; /* "" for none */
        int cls, sep, mask, pad;   /* tokens of BERT; for a GPT as given, which may be -1 */
        double mask_probability;   /* of a token of BERT's to be predicted */
        double short_probability;  /* of a sample of BERT's to be of a random shorter length */
    } data;

    struct {
        enum dtype compute;        /* of activations, and of the parameters that products are made with */
        enum dtype reduce;         /* in which gradients are summed between ranks: fp32, or the same as compute */
        bool tf32;                 /* GPUs may make fp32 products in TF32 */
        double loss_scale;         /* constant; 0 is dynamic with fp16, and none (1) otherwise */
        double loss_scale_start;   /* of the dynamic scale, as the next three */
        double loss_scale_min;     /* it never falls below this */
        int loss_scale_window;     /* good steps in a row after which it doubles */
        int loss_scale_hysteresis; /* overflows before it halves */
    } precision;

    struct {
        char dir[JOB_PATH_SIZE];   /* "" writes none */
        char load[JOB_PATH_SIZE];  /* where to start from while dir has none; "" is initial weights */
        long every;                /* steps between saves; 0 saves at the end and when stopped only */
        int keep;                  /* newest checkpoints kept; 0 keeps all */
        long keep_every;           /* steps whose multiples are kept for good; 0 is none */
        char stage[JOB_PATH_SIZE]; /* directory of the node where a save waits to be drained; "" writes straight */
        int staged;                /* saves that may wait there at once */
        bool partner;              /* each node also keeps its neighbour's staged shards */
        int drain_mib;             /* MiB a second that a node drains at most; 0 is no limit */
        int last_seconds;          /* that a run waits at its start and end for a checkpoint.dir that fails */
    } checkpoint;

    struct {
        long log_every;                /* steps between log lines */
        long eval_every;               /* steps between validations; 0 is never */
        int eval_batches;              /* global batches a validation */
        char metrics[JOB_PATH_SIZE];   /* metrics.jsonl; "" writes none */
        char kill_file[JOB_PATH_SIZE]; /* when this file appears, save and exit 75; "" is off */
        double minutes;                /* save and exit 75 after so many; 0 is off */
        double peak_tflops;            /* of one rank's device, for MFU; 0 measures it at start */
        double hang_seconds;           /* a collective that takes longer is a hang; 0 is never */
        double straggler_factor;       /* a rank whose steps take more than this times the median is named; 0 is off */
    } report;

    /*
     * The job file as read, and after it a line "#! --set path=value" for each override. Such a line, anywhere in a job
     * file, is obeyed as the option is, so that the text alone makes the same job again. Owned by the struct.
     */
    char *text;
};

/*
 * Reads and checks a job file. `set` holds `nset` overrides "path=value" that win over the file, the last over the
 * others (their errors name them as "--set path=value"). A value is written as in the file; strings need no quotes.
 * Relative paths in the file stay relative to the process's working directory.
 * On failure *job needs no destroying.
 */
int job_load(struct job *job, const char *path, char *const *set, int nset, struct error *err);

/* The same for text already in memory, such as the job file that a checkpoint holds; `name` stands for the file in
 * errors. */
int job_parse(struct job *job, const char *text, const char *name, char *const *set, int nset, struct error *err);

void job_destroy(struct job *job);

/*
 * Visit every key of the table: for the man page's test and for `muster-train --keys`. `type` is "integer", "number",
 * "boolean" or "string"; `fallback` is the default as the file would have it, or "-" where there is none: data.train
 * has none, nor, without a preset, have the sizes of the model.
 */
void job_each_key(void (*visit)(const char *path, const char *type, const char *fallback, const char *help, void *arg),
                  void *arg);

/*
 * Visit every variable of the group "environment", which `srun --muster` sets in every rank unless the user has. `line`
 * is that of the file. -1 for want of memory only.
 */
int job_each_variable(const struct job *job, void (*visit)(const char *name, const char *value, int line, void *arg),
                      void *arg, struct error *err);

/*
 * Visit every key in which two jobs differ and by which what is learned differs: of the model, the batch, the
 * optimizer, the data and the precision. Values are as the job file would have them.
 */
void job_each_difference(const struct job *a, const struct job *b,
                         void (*visit)(const char *path, const char *in_a, const char *in_b, void *arg), void *arg);

/* Sizes of a named preset; -1 with CODE_CONFIG and the list of names when there is none such. */
int model_preset(struct model_shape *shape, const char *name, struct error *err);

/*
 * Parameters, the tied head counted once. Of a GPT:
 *
 *   V*d + s*d + L*(12d^2 + 13d) + 2d               embedding, positions, blocks, last LayerNorm
 *
 * A BERT (Megatron's, with a last LayerNorm as the blocks are pre-LN) has besides
 *
 *   2*d                                            token types
 *   d^2 + d + 2d + V                               masked-token head: dense, LayerNorm, bias of the tied decoder
 *   d^2 + d + 2*d + 2                              pooler, and the sentence-order head
 */
uint64_t model_parameters(const struct model_shape *shape);

#endif
