/*
 * job.h - the job file (libconfig): the configuration of a run as one typed struct.
 *
 * One table in job_keys.c holds every key's path, type, range and default. The parser, `muster-train --check`, the
 * plugin's check in srun and the test of muster.cfg(5) all use it. A wrong key, type, value or combination is reported
 * in one line, "FILE:LINE: what is wrong; what would be right", with CODE_CONFIG.
 */
#ifndef MUSTER_COMMON_JOB_H
#define MUSTER_COMMON_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "common/attention_choice.h"
#include "common/dtype.h"
#include "common/error.h"
#include "common/model/model_shape.h"

#define JOB_PATH_SIZE 1024
#define JOB_DATA_SIZE 16384 /* a blend with all its prefixes */
#define JOB_KEY_MAX   128

enum lr_schedule { LR_COSINE, LR_LINEAR, LR_CONSTANT, LR_WSD };
enum reduce_when { REDUCE_AUTO, REDUCE_STEP, REDUCE_MICRO_BATCH };
enum offload { OFFLOAD_NONE, OFFLOAD_OPTIMIZER };
enum device_choice { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
enum recompute { RECOMPUTE_NONE, RECOMPUTE_LIGHT, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
enum data_changed { CHANGED_REFUSE, CHANGED_ACCEPT };
enum mesh_choice { MESH_GIVEN, MESH_AUTO };
enum document_reset { RESET_NONE, RESET_DOCUMENT };

/* Their names in a job file, in the order of the enums; precisions: of enum dtype. */
extern const char *const job_offloads[], *const job_recomputes[], *const job_precisions[];

struct job {
    struct model_shape model; /* "model" group: of preset and kind, where keys do not say otherwise */
    int kind;                 /* "model.kind", whose fields are in `model`: an index into model_kinds */
    char preset[32];          /* the preset's name, or "" */
    double init_std;          /* standard deviation of initial weights */
    bool init_depth;          /* products before residual sums use it / sqrt(2 layers) */

    struct {
        double hidden;    /* "model.dropout": of embeddings and of a block's outputs before the residual sums */
        double attention; /* "model.attention_dropout": of attention's probabilities */
    } dropout;

    enum device_choice device;       /* where a rank computes */
    enum attention_choice attention; /* the kernels of attention on a GPU */

    struct {
        enum mesh_choice mesh;       /* MESH_AUTO: plan/auto.h chooses its keys that are not given */
        char machine[JOB_PATH_SIZE]; /* for MESH_AUTO: a name or file of plan/cluster.h; "": not known */
        int tp, pp;                  /* dp follows from the allocation: ranks / (tp * pp) */
        int zero;                    /* ZeRO stage, 0 to 3 (trainer/parallel/zero.h) */
        int chunks;                  /* virtual stages of a pipeline rank; more than 1 is the interleaved schedule */
        enum reduce_when reduce;     /* when gradients are summed over dp; job_load leaves no REDUCE_AUTO */
        enum offload offload;        /* state that is held in host memory */
        enum recompute recompute;    /* activations that the backward pass recomputes */
        int recompute_layers;        /* layers of a pipeline stage, from its first, that recompute; 0: all */
    } parallel;

    struct {
        int global_batch;        /* samples a step; need not be a multiple of anything */
        int micro_batch;         /* most samples of one forward and backward pass */
        long steps;              /* the run ends after this many steps */
        uint64_t seed;           /* initial weights and sample order */
        int rampup_start;        /* samples of the first step; 0 is no ramp-up, then the next two are 0 too */
        int rampup_increment;    /* samples that the batch grows by at a time; divides global_batch - rampup_start */
        uint64_t rampup_samples; /* consumed samples at which the batch is global_batch */
    } batch;

    struct {
        double lr, min_lr;
        long warmup_steps; /* the rate rises linearly to lr over these steps */
        long decay_steps;  /* the rate falls until this step; 0 means batch.steps */
        enum lr_schedule schedule;
        long cooldown_steps; /* for LR_WSD: steps of its fall, which ends at decay_steps */
        double beta1, beta2, eps;
        double weight_decay; /* of matrices, embeddings included; biases and norms have none */
        double clip;         /* global gradient norm; 0 is off */
        double spike_factor; /* a step whose loss is more than this times the running mean is skipped; 0 is off */
        int most_skipped;    /* skipped steps in a row after which the run fails */
    } optimizer;

    struct {
        char train[JOB_DATA_SIZE];     /* prefix of a .bin and .idx made by muster-data, or a blend (job_data.h) */
        char valid[JOB_DATA_SIZE];     /* the same; "" for none */
        char tokenizer[JOB_PATH_SIZE]; /* for tokenizer_open; "": PREFIX.tokenizer of the first set, if it exists */
        enum data_changed changed;     /* a set that was replaced since the checkpoint (blend.h) */
        enum document_reset reset;     /* whether a GPT's documents are separated within a sample (samples.h) */
        int eod;                       /* a GPT's token that ends a document; -1: the tokenizer's, if any */
        int cls, sep, mask, pad;       /* BERT's special tokens; for a GPT as in the file, possibly -1 */
        double mask_probability;       /* BERT: fraction of the tokens that are predicted */
        double short_probability;      /* BERT: fraction of the samples that have a random shorter length */
    } data;

    struct {
        enum dtype compute;        /* of activations, and of parameters in matrix products */
        enum dtype reduce;         /* of gradients summed between ranks: fp32, or the same as compute */
        enum dtype gradients;      /* of the sums of gradients that a rank keeps: fp32, or the same as compute */
        bool tf32;                 /* GPUs may make fp32 products in TF32 */
        double loss_scale;         /* constant; 0 is dynamic with fp16, and none (1) otherwise */
        double loss_scale_start;   /* initial dynamic scale */
        double loss_scale_min;     /* least dynamic scale */
        int loss_scale_window;     /* good steps in a row after which the dynamic scale doubles */
        int loss_scale_hysteresis; /* overflows before the dynamic scale halves */
    } precision;

    struct {
        char dir[JOB_PATH_SIZE];   /* "" writes none */
        char load[JOB_PATH_SIZE];  /* to start from if dir has no checkpoint; "" is none */
        char init[JOB_PATH_SIZE];  /* the same, with its weights alone; load and init "" are initial weights */
        long every;                /* steps between saves; 0 saves at the end and when stopped only */
        int keep;                  /* newest checkpoints kept; 0 keeps all */
        long keep_every;           /* the first at or after each multiple of it is kept for good; 0 is none */
        char stage[JOB_PATH_SIZE]; /* directory on each node for staged saves, or "auto"; "" writes directly to dir */
        int staged;                /* most staged saves at once */
        bool partner;              /* each node also keeps its neighbour's staged shards */
        int drain_mib;             /* MiB a second that a node drains at most; 0 is no limit */
        int last_seconds;          /* seconds that a run waits at its start and end for a checkpoint.dir that fails */
    } checkpoint;

    struct {
        long log_every;                  /* steps between log lines */
        long eval_every;                 /* steps between validations; 0 is never */
        int eval_batches;                /* global batches a validation */
        char metrics[JOB_PATH_SIZE];     /* metrics.jsonl; "" writes none */
        char tensorboard[JOB_PATH_SIZE]; /* directory of event files; "" writes none */
        char prometheus[JOB_PATH_SIZE];  /* directory of node_exporter's text files; "" writes none */
        char kill_file[JOB_PATH_SIZE];   /* when this file appears, save and exit 75; "" is off */
        double minutes;                  /* save and exit 75 after this many; 0 is off */
        double peak_tflops;              /* of one rank's device, for MFU; 0 measures it at start */
        double hang_seconds;             /* when a rank waits this long for another, the run hangs; 0: never */
        double straggler_factor; /* a rank whose steps take more than this times the median is logged; 0 is off */
    } report;

    bool given[JOB_KEY_MAX]; /* job_gives */

    /*
     * The text of the job file, followed by a line "#! --set path=value" for each override (full_text in job.c). Such
     * lines in a job file are applied like the option, so that this text alone gives the same job. Owned by the struct.
     */
    char *text;
};

/*
 * Reads and checks a job file. `set` holds `nset` overrides "path=value", which replace the file's values. If several
 * are for one key, the last one counts. Errors name them as "--set path=value". A value is written as in the file;
 * strings need no quotes. Relative paths in the file are relative to the process's working directory; one that only a
 * shell would expand ("~/ck", "$SCRATCH/ck") is refused. On failure *job needs no destroying.
 */
int job_load(struct job *job, const char *path, char *const *set, int nset, struct error *err);

/* The same for text in memory, such as the job file in a checkpoint; errors name the file `name`. Its paths are not
 * checked. */
int job_parse(struct job *job, const char *text, const char *name, char *const *set, int nset, struct error *err);

void job_destroy(struct job *job); /* does nothing to zeros, and when *job could not be read */

/* Whether the file or an override gives the key. If not, it has its default, or a value that follows from others. */
bool job_gives(const struct job *job, const char *path);

/* Adds overrides to a job that was read from the file `name`: "path=value path=value", at most 1 KiB, no blanks in the
 * values. On failure *job is as it was. */
int job_override(struct job *job, const char *name, const char *sets, struct error *err);

/*
 * Replaces the patterns of sbatch --output in the paths that differ between the runs of a sweep: checkpoint.dir,
 * checkpoint.load and init, report.metrics, tensorboard, prometheus and kill_file. %j is SLURM_JOB_ID, %A
 * SLURM_ARRAY_JOB_ID, %a SLURM_ARRAY_TASK_ID, %x SLURM_JOB_NAME, %% a percent sign; in %4a the 4 is the least number of
 * digits. job->text keeps the patterns. CODE_CONFIG if a variable is not set or has a slash, or if a path becomes too long.
 */
int job_expand_paths(struct job *job, struct error *err);

/*
 * checkpoint.stage = "auto": a directory where slurmd's epilog finds what a killed job has staged. A job may have a
 * /dev/shm of its own, which slurmd does not see: job_container/tmpfs, namespace/tmpfs, a container. So slurmd writes
 * down the directories that its epilog searches (stage= of the plugin) with their device and inode, and the plugin
 * hands that text to the tasks in MUSTER_STAGE: "/dev/shm=1b.1:/local/nvme=fd01.80". The user may set it too: a
 * directory without "=" is taken as it is.
 */
#define JOB_STAGE_VARIABLE "MUSTER_STAGE"
#define JOB_STAGE_AUTO     "auto"

/* The text for directories "DIR:DIR..." as this process sees them; those that it does not see are left out. False if
 * the text is longer than `size`. */
bool job_stage_describe(const char *dirs, char *text, size_t size);

/*
 * Chooses the directory to stage in: `stage` itself. For "auto" it is the first directory of the text that has the same
 * device and inode in this process and can be written to, else /dev/shm. Returns false if the epilog is known not to
 * see the directory. If the text is NULL, nothing is known.
 */
bool job_stage_choose(const char *stage, const char *text, char root[JOB_PATH_SIZE]);

/*
 * Visits every key of the table, for the man page's test and for `muster-train --keys`. `type` is "integer", "number",
 * "boolean" or "string"; `default_text` is the default in the file's syntax, or "-" for none: data.train and the sizes
 * of the model have none.
 */
void job_each_key(void (*visit)(const char *path, const char *type, const char *default_text, const char *help,
                                void *arg),
                  void *arg);

/*
 * Visits every variable of the group "environment", which `srun --muster` sets in every rank unless the user has set
 * it. `line` is its line in the file. -1 where `visit` returns that, and when out of memory: job_parse has checked the
 * text.
 */
typedef int job_variable_visit(const char *name, const char *value, int line, void *arg, struct error *err);
int job_each_variable(const struct job *job, job_variable_visit *visit, void *arg, struct error *err);

/* True if Slurm or muster sets the variable, which identifies a rank: no job file and no fabric profile may set it. */
bool job_reserves_variable(const char *name);

/*
 * Visits the keys that affect training and differ between two jobs: of the model, the batch, the optimizer, the data,
 * the precision, and attention. Values are in the job file's syntax. At resume trainer/run_start.c logs them.
 */
void job_each_difference(const struct job *a, const struct job *b,
                         void (*visit)(const char *path, const char *in_a, const char *in_b, void *arg), void *arg);

/* The same of two models alone, whatever key or default a value is from. */
void job_each_model_difference(const struct model_shape *a, const struct model_shape *b,
                               void (*visit)(const char *path, const char *in_a, const char *in_b, void *arg),
                               void *arg);

/*
 * Writes the model group of a job file, "model = { layers = 12; ... };\n": the five sizes, and each key whose value is
 * not the default of the model's kind. With rotary positions also max_positions: it stays when seq_length changes.
 */
#define JOB_MODEL_SIZE 1024
void job_model_text(char text[JOB_MODEL_SIZE], const struct model_shape *model);

/* Visits the keys of a job that job_each_difference compares; with batch.steps if the learning rate depends on it. */
void job_each_decisive(const struct job *job, void (*visit)(const char *path, const char *value, void *arg), void *arg);

#endif
