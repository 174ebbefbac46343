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

enum lr_schedule { LR_COSINE, LR_LINEAR, LR_CONSTANT };

/* Sizes of a GPT-2 model. A preset fills them; keys given beside the preset override it. */
struct model_shape {
    int layers;
    int hidden; /* d; a multiple of heads */
    int heads;
    int seq_length; /* s, tokens a sample, and the number of learned positions */
    int vocab;      /* V, unpadded */
};

struct job {
    struct model_shape model; /* "model" group: preset, or layers hidden heads seq_length vocab */
    char preset[32];          /* its name, or "" */
    double init_std;          /* standard deviation of initial weights; output projections get / sqrt(2 layers) */

    struct {
        int tp, pp; /* dp is what the allocation gives: ranks / (tp * pp) */
        int zero;   /* stage */
    } parallel;

    struct {
        int global_batch; /* samples a step; need not be a multiple of anything */
        int micro_batch;  /* samples that one forward and backward holds at a time, at most */
        long steps;       /* the run ends after this many steps */
        uint64_t seed;    /* initial weights and sample order */
    } batch;

    struct {
        double lr, min_lr;
        long warmup_steps; /* lr rises linearly over these */
        long decay_steps;  /* and falls until here; 0 means batch.steps */
        enum lr_schedule schedule;
        double beta1, beta2, eps;
        double weight_decay; /* of matrices only; biases and norms have none */
        double clip;         /* global gradient norm; 0 is off */
    } optimizer;

    struct {
        char train[JOB_PATH_SIZE]; /* prefix of a .bin and .idx made by muster-data */
        char valid[JOB_PATH_SIZE]; /* "" for none */
    } data;

    struct {
        enum dtype compute; /* "fp32" */
    } precision;

    struct {
        char dir[JOB_PATH_SIZE];  /* "" writes none */
        char load[JOB_PATH_SIZE]; /* where to start from while dir has none; "" is initial weights */
        long every;               /* steps between saves; 0 saves at the end and when stopped only */
        int keep;                 /* newest checkpoints kept; 0 keeps all */
    } checkpoint;

    struct {
        long log_every;                /* steps between log lines */
        long eval_every;               /* steps between validations; 0 is never */
        int eval_batches;              /* global batches a validation */
        char metrics[JOB_PATH_SIZE];   /* metrics.jsonl; "" writes none */
        char kill_file[JOB_PATH_SIZE]; /* when this file appears, save and exit 75; "" is off */
        double minutes;                /* save and exit 75 after so many; 0 is off */
        double peak_tflops;            /* of one rank's device, for MFU; 0 measures it at start */
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
 * Visit every key of the table: for the man page's test and for `muster-train --keys`. `type` is "integer", "number" or
 * "string"; `fallback` is the default as the file would have it, or "-" where there is none: data.train has none, nor,
 * without a preset, have the sizes of the model.
 */
void job_each_key(void (*visit)(const char *path, const char *type, const char *fallback, const char *help, void *arg),
                  void *arg);

/* Sizes of a named preset; -1 with CODE_CONFIG and the list of names when there is none such. */
int model_preset(struct model_shape *shape, const char *name, struct error *err);

/* Parameters of a GPT: V*d + s*d + L*(12d^2 + 13d) + 2d, the tied head counted once. */
uint64_t model_parameters(const struct model_shape *shape);

#endif
