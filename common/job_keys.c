#include <float.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/job.h"
#include "common/job_impl.h"
#include "common/text.h"

#define FIELD(member)   .offset = offsetof(struct job, member), .size = sizeof(((struct job *)NULL)->member)
#define RANGE(low, top) .least = (low), .most = (top)

/* Rows of keys whose path is also the member of struct job: "parallel.zero" is job->parallel.zero. default_text: the
 * default in the job file's syntax, NULL for none. */
#define PLAIN(member, kind, initial, text)                                                                             \
    .path = #member, .type = JOB_KEY_##kind, FIELD(member), .default_text = initial, .help = text
#define FILES(member, kind, which, initial, text)                                                                      \
    .path = #member, .type = JOB_KEY_##kind, FIELD(member), .files = which, .default_text = initial, .help = text
#define CHOICE(member, names, initial, text)                                                                           \
    .path = #member, .type = JOB_KEY_CHOICE, FIELD(member), .choices = names, .default_text = initial, .help = text
#define NUMERIC(member, kind, initial, low, top, text)                                                                 \
    .path = #member, .type = JOB_KEY_##kind, FIELD(member), RANGE(low, top), .default_text = initial, .help = text
#define RULED(member, kind, initial, low, top, range, text)                                                            \
    .path = #member, .type = JOB_KEY_##kind, FIELD(member), RANGE(low, top), .rule = range, .default_text = initial,   \
    .help = text

/* Larger than any run needs, and small enough that no product of sizes and no count overflows. */
#define MANY_STEPS 1e12
#define MANY       1e6
#define LARGE      1e30

#define BELOW_1 (1 - DBL_EPSILON / 2)

/* In the order of the enums. */
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const attentions[] = {"auto", "own", "cudnn", NULL};
static const char *const reduces[] = {"auto", "step", "micro_batch", NULL};
static const char *const changes[] = {"refuse", "accept", NULL};
static const char *const meshes[] = {"given", "auto", NULL};
static const char *const resets[] = {"none", "document", NULL};
static const char *const schedules[] = {"cosine", "linear", "constant", "wsd", NULL};
const char *const job_offloads[] = {"none", "optimizer", NULL};
const char *const job_recomputes[] = {"none", "light", "selective", "full", NULL};
const char *const job_precisions[] = {"fp32", "bf16", "fp16", NULL};
static const char *const reduce_types[] = {"fp32", "compute", NULL}; /* job_check.c converts this to a dtype */

const struct job_key job_keys[] = {
    {"model.preset", JOB_KEY_STRING, FIELD(preset), .default_text = "\"\"",
     .help = "name of a set of sizes; keys beside it override it"},
    {NUMERIC(model.layers, INT, NULL, 1, 4096, "transformer blocks")},
    {NUMERIC(model.hidden, INT, NULL, 1, 65536, "width of the model; a multiple of heads")},
    {NUMERIC(model.heads, INT, NULL, 1, 4096, "attention heads a block")},
    {NUMERIC(model.seq_length, INT, NULL, 1, 1 << 20, "tokens a sample, and the number of learned positions")},
    {NUMERIC(model.vocab, INT, NULL, 2, 1 << 24, "number of different tokens; 256 for bytes, 50257 for GPT-2's")},
    {"model.kind", JOB_KEY_CHOICE, FIELD(kind), .choices = model_kinds, .default_text = "\"gpt\"",
     .help = "kind of the model: GPT-2, BERT or the Llama family; a preset sets it"},
    {NUMERIC(model.kv_heads, INT, NULL, 1, 4096, "heads of keys and values; a divisor of heads")},
    {NUMERIC(model.head_size, INT, NULL, 1, 1024, "columns of a head, where they are not hidden / heads")},
    {NUMERIC(model.inner, INT, NULL, 1, 1 << 20, "the MLP's width")},
    {NUMERIC(model.max_positions, INT, NULL, 1, 1 << 24, "positions that the model is made for")},
    {CHOICE(model.norm, model_norms, NULL, "LayerNorm or RMSNorm")},
    {RULED(model.norm_eps, NUMBER, NULL, DBL_MIN, 1, "more than 0 and at most 1", "what a norm adds to the variance")},
    {CHOICE(model.activation, model_activations, NULL, "the MLP's: GELU, or a product gated by SiLU")},
    {CHOICE(model.positions, model_position_names, NULL, "an embedding, or rotations of queries and keys")},
    {RULED(model.rope_theta, NUMBER, NULL, 1, 1e12, NULL, "base of the rotations' wavelengths")},
    {CHOICE(model.rope_scaling, model_rope_scalings, NULL, "how rotations are stretched to more positions")},
    {RULED(model.rope_factor, NUMBER, NULL, 1, 1e6, NULL, "llama3's: by how much the slow rotations are slowed")},
    {RULED(model.rope_low, NUMBER, NULL, 1e-6, 1e6, NULL, "llama3's low_freq_factor")},
    {RULED(model.rope_high, NUMBER, NULL, 1e-6, 1e6, NULL, "llama3's high_freq_factor")},
    {NUMERIC(model.rope_original, INT, NULL, 1, 1 << 24, "llama3's: positions before the scaling")},
    {CHOICE(model.biases, model_bias_names, NULL, "which products have them: all, Q, K and V, or none")},
    {PLAIN(model.qk_norm, BOOL, NULL, "a norm of each head's queries and keys, as in Qwen3")},
    {NUMERIC(model.window, INT, NULL, 0, 1 << 24, "tokens that attention sees; 0: all")},
    {PLAIN(model.untied, BOOL, NULL, "the projection to the vocabulary has a matrix of its own")},
    {"model.dropout", JOB_KEY_NUMBER, FIELD(dropout.hidden), RANGE(0, BELOW_1), .rule = "at least 0 and less than 1",
     .default_text = "0.0", .help = "probability of dropout after the embeddings, attention and MLP"},
    {"model.attention_dropout", JOB_KEY_NUMBER, FIELD(dropout.attention), RANGE(0, BELOW_1),
     .rule = "at least 0 and less than 1", .default_text = "0.0",
     .help = "probability of dropout of attention's probabilities"},
    {"model.init_std", JOB_KEY_NUMBER, FIELD(init_std), RANGE(DBL_MIN, 1), .rule = "more than 0 and at most 1",
     .default_text = "0.02", .help = "standard deviation of initial weights"},
    {"model.init_depth", JOB_KEY_BOOL, FIELD(init_depth), .default_text = "true",
     .help = "products before residual sums begin with init_std / sqrt(2 layers)"},

    {CHOICE(device, devices, "\"auto\"", "where a rank computes: a GPU, or the CPU")},
    {CHOICE(attention, attentions, "\"auto\"",
            "attention kernels of a GPU: cuDNN's where they are faster, muster's own, or cuDNN's wherever possible")},

    {CHOICE(parallel.mesh, meshes, "\"given\"", "\"auto\" chooses the mesh for the ranks that a start has")},
    {FILES(parallel.machine, STRING, JOB_FILES_PLAIN, "\"\"", "of mesh \"auto\": the machine, by name or as a file")},
    {NUMERIC(parallel.tp, INT, "1", 1, 1024, "ranks that share each layer's matrices")},
    {NUMERIC(parallel.pp, INT, "1", 1, 1024, "pipeline stages that share the layers")},
    {NUMERIC(parallel.zero, INT, "1", 0, 3,
             "ZeRO stage: 1 shards the optimizer state, 2 also the gradients, 3 also the parameters")},
    {NUMERIC(parallel.chunks, INT, "1", 1, 64,
             "parts of the model that a pipeline stage has; more than 1 is the interleaved schedule")},
    {CHOICE(parallel.reduce, reduces, "\"auto\"", "when gradients are summed over data-parallel ranks")},
    {CHOICE(parallel.offload, job_offloads, "\"none\"", "what is kept in host memory")},
    {CHOICE(parallel.recompute, job_recomputes, "\"none\"",
            "what the backward pass computes again instead of keeping it")},
    {NUMERIC(parallel.recompute_layers, INT, "0", 0, 4096,
             "the number of layers of a stage, from its first, that recompute; 0: all")},

    {NUMERIC(batch.global_batch, INT, "8", 1, MANY, "samples a step, over all ranks")},
    {NUMERIC(batch.micro_batch, INT, "1", 1, MANY,
             "samples a rank holds at a time; more is faster and takes more memory; results differ by rounding only")},
    {NUMERIC(batch.steps, LONG, "1000", 1, MANY_STEPS, "the run ends after this many steps")},
    {NUMERIC(batch.seed, U64, "1234", 0, 0x1p53 - 1, "key of initial weights, sample order, dropout and masking")},
    {NUMERIC(batch.rampup_start, INT, "0", 0, MANY,
             "samples of the first step, from which the batch grows to global_batch; 0 is no ramp-up")},
    {NUMERIC(batch.rampup_increment, INT, "0", 0, MANY, "samples that the batch grows by at a time")},
    {NUMERIC(batch.rampup_samples, U64, "0", 0, 0x1p53 - 1, "samples consumed when the batch has its full size")},

    {RULED(optimizer.lr, NUMBER, "3e-4", DBL_MIN, 1e3, "more than 0 and at most 1000", "peak learning rate")},
    {NUMERIC(optimizer.min_lr, NUMBER, "0.0", 0, 1e3, "learning rate after the decay")},
    {NUMERIC(optimizer.warmup_steps, LONG, "0", 0, MANY_STEPS,
             "steps over which the learning rate rises linearly from 0")},
    {NUMERIC(optimizer.decay_steps, LONG, "0", 0, MANY_STEPS,
             "step at which the learning rate reaches min_lr; 0 is batch.steps")},
    {CHOICE(optimizer.schedule, schedules, "\"cosine\"", "how the learning rate falls after the warm-up")},
    {NUMERIC(optimizer.cooldown_steps, LONG, "0", 0, MANY_STEPS,
             "of schedule \"wsd\": steps of the fall to min_lr, which ends at decay_steps")},
    {RULED(optimizer.beta1, NUMBER, "0.9", 0, BELOW_1, "at least 0 and less than 1",
           "Adam's decay of the mean of gradients")},
    {RULED(optimizer.beta2, NUMBER, "0.95", 0, BELOW_1, "at least 0 and less than 1",
           "Adam's decay of the mean of squared gradients")},
    {RULED(optimizer.eps, NUMBER, "1e-8", DBL_MIN, 1, "more than 0 and at most 1", "Adam's epsilon")},
    {NUMERIC(optimizer.weight_decay, NUMBER, "0.1", 0, 1e3,
             "decoupled weight decay of matrices; biases and norms have none")},
    {NUMERIC(optimizer.clip, NUMBER, "1.0", 0, LARGE, "largest global gradient norm; 0 is off")},
    {NUMERIC(optimizer.spike_factor, NUMBER, "0.0", 0, LARGE,
             "skip a step whose loss is more than this times the running mean; 0 is off")},
    {NUMERIC(optimizer.most_skipped, INT, "10", 1, MANY, "give up after so many skipped steps in a row")},

    {FILES(data.train, DATA, JOB_FILES_PLAIN, NULL,
           "prefix of a .bin and .idx made by muster-data, or several with weights")},
    {FILES(data.valid, DATA, JOB_FILES_PLAIN, "\"\"", "the same for validation")},
    {FILES(data.tokenizer, STRING, JOB_FILES_PLAIN, "\"\"",
           "tokenizer that checkpoint.dir keeps; \"\" is PREFIX.tokenizer of the first training set, if there is one")},
    {CHOICE(data.changed, changes, "\"refuse\"",
            "a data set that was replaced since the checkpoint: \"accept\" trains with it")},
    {CHOICE(data.reset, resets, "\"none\"", "GPT: where attention and positions begin anew within a sample")},
    {NUMERIC(data.eod, INT, "-1", -1, 1 << 24, "GPT: the token that ends a document; -1 is the tokenizer's")},
    {NUMERIC(data.cls, INT, "-1", -1, 1 << 24, "BERT: the token that begins a sample; -1 is vocab - 4")},
    {NUMERIC(data.sep, INT, "-1", -1, 1 << 24, "BERT: the token that ends a sentence; -1 is vocab - 3")},
    {NUMERIC(data.mask, INT, "-1", -1, 1 << 24, "BERT: the token that hides another; -1 is vocab - 2")},
    {NUMERIC(data.pad, INT, "-1", -1, 1 << 24, "BERT: the token that fills a sample up; -1 is vocab - 1")},
    {RULED(data.mask_probability, NUMBER, "0.15", DBL_MIN, BELOW_1, "more than 0 and less than 1",
           "BERT: part of the tokens that is predicted")},
    {NUMERIC(data.short_probability, NUMBER, "0.1", 0, 1,
             "BERT: part of the samples that are of a random shorter length")},

    {CHOICE(precision.compute, job_precisions, "\"fp32\"", "type of activations and matrix products")},
    {CHOICE(precision.reduce, reduce_types, "\"fp32\"", "type in which gradients are summed between ranks")},
    {CHOICE(precision.gradients, reduce_types, "\"fp32\"", "type in which sums of gradients are kept")},
    {PLAIN(precision.tf32, BOOL, "false", "GPUs may round the factors of fp32 products to TF32")},
    {NUMERIC(precision.loss_scale, NUMBER, "0.0", 0, LARGE,
             "constant factor of the loss; 0 is dynamic with fp16 and none otherwise")},
    {RULED(precision.loss_scale_start, NUMBER, "4294967296.0", DBL_MIN, LARGE, "more than 0 and at most 1e30",
           "dynamic loss scale of the first step")},
    {RULED(precision.loss_scale_min, NUMBER, "1.0", DBL_MIN, LARGE, "more than 0 and at most 1e30",
           "least dynamic loss scale")},
    {NUMERIC(precision.loss_scale_window, INT, "1000", 1, MANY,
             "steps in a row without overflow after which the loss scale doubles")},
    {NUMERIC(precision.loss_scale_hysteresis, INT, "2", 1, MANY, "overflows before the loss scale halves")},

    {FILES(checkpoint.dir, STRING, JOB_FILES_PATTERNS, "\"\"",
           "directory of checkpoints, on a file system that all nodes share; \"\" writes none")},
    {FILES(checkpoint.load, STRING, JOB_FILES_PATTERNS, "\"\"",
           "directory of checkpoints to start from while checkpoint.dir has none; \"\" starts from initial weights")},
    {FILES(checkpoint.init, STRING, JOB_FILES_PATTERNS, "\"\"",
           "checkpoint, directory of them or Hugging Face folder whose weights alone to start from")},
    {NUMERIC(checkpoint.every, LONG, "0", 0, MANY_STEPS,
             "steps between saves; 0 saves at the end and when stopped only")},
    {NUMERIC(checkpoint.keep, INT, "2", 0, MANY, "newest checkpoints kept; 0 keeps all")},
    {NUMERIC(checkpoint.keep_every, LONG, "0", 0, MANY_STEPS,
             "the first checkpoint at or after each multiple of this many steps is kept for good; 0 is none")},
    {FILES(
        checkpoint.stage, STRING, JOB_FILES_PLAIN, "\"auto\"",
        "directory of each node where a save waits to be drained; \"auto\" is /dev/shm, or what srun --muster found; "
        "\"\" writes straight to checkpoint.dir")},
    {NUMERIC(checkpoint.staged, INT, "2", 1, 16, "saves that may wait in checkpoint.stage at once")},
    {PLAIN(checkpoint.partner, BOOL, "false", "each node also keeps a copy of its neighbour's staged shards")},
    {NUMERIC(checkpoint.drain_mib, INT, "0", 0, MANY,
             "MiB a second that a node drains at most; 0 is as fast as it can")},
    {NUMERIC(checkpoint.last_seconds, INT, "600", 0, MANY,
             "seconds that a run waits at its start and end for a checkpoint.dir that cannot be written")},

    {NUMERIC(report.log_every, LONG, "10", 1, MANY_STEPS, "steps between log lines")},
    {NUMERIC(report.eval_every, LONG, "0", 0, MANY_STEPS, "steps between validations; 0 is never")},
    {NUMERIC(report.eval_batches, INT, "10", 1, MANY, "global batches a validation")},
    {FILES(report.metrics, STRING, JOB_FILES_PATTERNS, "\"\"",
           "file of metrics, a JSON object a line; \"\" writes none")},
    {FILES(report.tensorboard, STRING, JOB_FILES_PATTERNS, "\"\"",
           "directory of TensorBoard's event files; \"\" writes none")},
    {FILES(report.prometheus, STRING, JOB_FILES_PATTERNS, "\"\"",
           "directory of a text file for Prometheus; \"\" writes none")},
    {FILES(report.kill_file, STRING, JOB_FILES_PATTERNS, "\"\"", "when this file appears, save and stop; \"\" is off")},
    {NUMERIC(report.minutes, NUMBER, "0.0", 0, MANY, "save and stop after this many minutes; 0 is off")},
    {NUMERIC(report.peak_tflops, NUMBER, "0.0", 0, MANY,
             "peak TFLOP/s of one rank's device, for MFU; 0 measures it at start")},
    {NUMERIC(report.hang_seconds, NUMBER, "600.0", 0, MANY,
             "stop, and name the late rank, if a rank waits for another for longer; 0 is off")},
    {NUMERIC(report.straggler_factor, NUMBER, "1.5", 0, MANY,
             "name a rank whose steps take more than this times the median; 0 is off")},
};

const int job_key_count = sizeof job_keys / sizeof job_keys[0];
_Static_assert(sizeof job_keys / sizeof job_keys[0] <= JOB_KEY_MAX, "raise JOB_KEY_MAX");

int job_key_find(const char *path)
{
    for (int k = 0; k < job_key_count; k++)
        if (strcmp(job_keys[k].path, path) == 0)
            return k;
    return -1;
}

bool job_key_is_group(const char *path)
{
    size_t length = strlen(path);

    for (int k = 0; k < job_key_count; k++)
        if (strncmp(job_keys[k].path, path, length) == 0 && job_keys[k].path[length] == '.')
            return true;
    return false;
}

const char *job_key_type_name(enum job_key_type type)
{
    static const char *const names[] = {
        [JOB_KEY_INT] = "integer",   [JOB_KEY_LONG] = "integer", [JOB_KEY_U64] = "integer",
        [JOB_KEY_NUMBER] = "number", [JOB_KEY_BOOL] = "boolean", [JOB_KEY_STRING] = "string",
        [JOB_KEY_CHOICE] = "string", [JOB_KEY_DATA] = "string",
    };

    return names[type];
}

void job_each_key(void (*visit)(const char *path, const char *type, const char *default_text, const char *help,
                                void *arg),
                  void *arg)
{
    for (int k = 0; k < job_key_count; k++)
        visit(job_keys[k].path, job_key_type_name(job_keys[k].type),
              job_keys[k].default_text ? job_keys[k].default_text : "-", job_keys[k].help, arg);
}

/* ---- advice about unknown keys ----------------------------------------------------------------------------------- */

#define NAME_MAX_LENGTH 63

static int smaller_cost(int a, int b)
{
    return a < b ? a : b;
}

/* Edits that turn a into b: insert, delete, replace, or swap neighbours (optimal string alignment). */
static int edit_distance(const char *a, const char *b)
{
    int cost[NAME_MAX_LENGTH + 1][NAME_MAX_LENGTH + 1];
    int na = (int)strnlen(a, NAME_MAX_LENGTH), nb = (int)strnlen(b, NAME_MAX_LENGTH);

    for (int i = 0; i <= na; i++)
        cost[i][0] = i;
    for (int j = 0; j <= nb; j++)
        cost[0][j] = j;
    for (int i = 1; i <= na; i++) {
        for (int j = 1; j <= nb; j++) {
            int here = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

            here = smaller_cost(here, smaller_cost(cost[i - 1][j], cost[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                here = smaller_cost(here, cost[i - 2][j - 2] + 1);
            cost[i][j] = here;
        }
    }
    return cost[na][nb];
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

/* The group that has no keys in the table, because the user chooses its names. */
#define VARIABLES "environment"

/* The key or group nearest to `path`, or "" if none is near. The right name in a wrong group has distance 0. */
static void nearest_name(const char *path, char *name, size_t size)
{
    int best = 2 + (int)strlen(last_part(path)) / 3;

    name[0] = '\0';
    for (int k = 0; k < job_key_count; k++) {
        const char *key = job_keys[k].path;
        char group[NAME_MAX_LENGTH + 1];
        int distance = strcmp(last_part(key), last_part(path)) == 0 ? 0 : edit_distance(path, key);

        if (distance < best) {
            best = distance;
            snprintf(name, size, "%s", key);
        }
        snprintf(group, sizeof group, "%.*s", (int)strcspn(key, "."), key);
        distance = edit_distance(path, group);
        if (distance < best) {
            best = distance;
            snprintf(name, size, "%s", group);
        }
    }
    if (edit_distance(path, VARIABLES) < best)
        snprintf(name, size, VARIABLES);
}

/* Names of the keys in the group of the first `length` bytes of `prefix`; with length 0, names of the groups. */
static void list_names(const char *prefix, size_t length, char *list, size_t size)
{
    size_t used = 0;
    const char *previous = "";
    size_t previous_length = 0;

    list[0] = '\0';
    for (int k = 0; k < job_key_count && used < size; k++) {
        const char *key = job_keys[k].path;
        const char *part;
        size_t part_length;

        if (length && (strncmp(key, prefix, length) != 0 || key[length] != '.'))
            continue;
        part = length ? key + length + 1 : key;
        part_length = strcspn(part, ".");
        if (part_length == previous_length && strncmp(part, previous, part_length) == 0)
            continue;
        used += (size_t)snprintf(list + used, size - used, "%s%.*s", used ? ", " : "", (int)part_length, part);
        previous = part;
        previous_length = part_length;
    }
}

void job_key_advice(const char *path, char *advice, size_t size)
{
    size_t group = (size_t)(last_part(path) - path);
    char name[NAME_MAX_LENGTH + 1], list[400], parent[NAME_MAX_LENGTH + 1];

    nearest_name(path, name, sizeof name);
    snprintf(parent, sizeof parent, "%.*s", group ? (int)group - 1 : 0, path);
    if (job_key_is_group(path)) {
        list_names(path, strlen(path), list, sizeof list);
        snprintf(advice, size, "it is a group, which has: %s", list);
    } else if (name[0]) {
        snprintf(advice, size, "did you mean '%s'?", name);
    } else if (group && job_key_is_group(parent)) {
        list_names(parent, strlen(parent), list, sizeof list);
        snprintf(advice, size, "'%s' has: %s", parent, list);
    } else {
        list_names("", 0, list, sizeof list);
        snprintf(advice, size, "there are: %s, " VARIABLES, list);
    }
}

/* ---- differences between jobs ------------------------------------------------------------------------------------ */

#define VALUE_SIZE (JOB_DATA_SIZE + 2)

/*
 * Changes of attention and of keys in these groups are logged at resume, except of the keys in `unlogged`:
 *
 *   model.preset     the sizes that it sets are compared as keys of their own
 *   model.init_std   acts only at the first start
 *   batch.seed       another one is refused
 *   batch.steps      values_differ logs it if the learning rate depends on it
 *   data.changed     changes no sample by itself
 *   data.tokenizer   changes no sample; another one than that in checkpoint.dir is refused
 *   the others       do not change the result
 */
static const char *const logged_groups[] = {"model.", "attention", "batch.", "optimizer.", "data.", "precision.", NULL};
static const char *const unlogged[] = {
    "model.preset",
    "model.init_std",
    "model.init_depth",
    "batch.micro_batch",
    "batch.steps",
    "batch.seed",
    "optimizer.most_skipped",
    "data.valid",
    "data.tokenizer",
    "data.changed",
    "precision.reduce",
    "precision.gradients",
    "precision.loss_scale_start",
};

static bool is_logged(const struct job_key *key)
{
    for (size_t i = 0; i < sizeof unlogged / sizeof unlogged[0]; i++)
        if (strcmp(key->path, unlogged[i]) == 0)
            return false;
    return text_begins_with(key->path, logged_groups);
}

/* Without decay_steps the learning rate falls until the run ends. */
static bool decays_until_end(const struct job *job)
{
    return job->optimizer.decay_steps == 0 && job->optimizer.schedule != LR_CONSTANT;
}

static const void *field_of(const struct job *job, const struct job_key *key)
{
    return (const char *)job + key->offset;
}

static bool values_differ(const struct job *a, const struct job *b, const struct job_key *key)
{
    if (strcmp(key->path, "batch.steps") == 0)
        return a->batch.steps != b->batch.steps && (decays_until_end(a) || decays_until_end(b));
    if (!is_logged(key))
        return false;
    if (key->type == JOB_KEY_STRING || key->type == JOB_KEY_DATA)
        return strcmp(field_of(a, key), field_of(b, key)) != 0;
    return memcmp(field_of(a, key), field_of(b, key), key->size) != 0;
}

/* The number that is read back is the same. */
static void print_number(char *text, double number)
{
    snprintf(text, VALUE_SIZE, "%.9g", number);
    if (strtod(text, NULL) != number)
        snprintf(text, VALUE_SIZE, "%.17g", number);
}

/* In the job file's syntax. */
static void print_value(char *text, const struct job *job, const struct job_key *key)
{
    const void *field = field_of(job, key);

    if (key->type == JOB_KEY_INT)
        snprintf(text, VALUE_SIZE, "%d", *(const int *)field);
    else if (key->type == JOB_KEY_LONG)
        snprintf(text, VALUE_SIZE, "%ld", *(const long *)field);
    else if (key->type == JOB_KEY_U64)
        snprintf(text, VALUE_SIZE, "%" PRIu64, *(const uint64_t *)field);
    else if (key->type == JOB_KEY_NUMBER)
        print_number(text, *(const double *)field);
    else if (key->type == JOB_KEY_BOOL)
        snprintf(text, VALUE_SIZE, "%s", *(const bool *)field ? "true" : "false");
    else /* a string, or a choice: all enums are ints */
        snprintf(text, VALUE_SIZE, "\"%s\"",
                 key->type == JOB_KEY_CHOICE ? key->choices[*(const int *)field] : (const char *)field);
}

void job_each_difference(const struct job *a, const struct job *b,
                         void (*visit)(const char *path, const char *in_a, const char *in_b, void *arg), void *arg)
{
    char in_a[VALUE_SIZE], in_b[VALUE_SIZE];

    for (int k = 0; k < job_key_count; k++) {
        if (!values_differ(a, b, &job_keys[k]))
            continue;
        print_value(in_a, a, &job_keys[k]);
        print_value(in_b, b, &job_keys[k]);
        visit(job_keys[k].path, in_a, in_b, arg);
    }
}

void job_each_model_difference(const struct model_shape *a, const struct model_shape *b,
                               void (*visit)(const char *path, const char *in_a, const char *in_b, void *arg),
                               void *arg)
{
    const struct job of_a = {.model = model_resolve(a), .kind = model_kind_of(a)};
    const struct job of_b = {.model = model_resolve(b), .kind = model_kind_of(b)};

    job_each_difference(&of_a, &of_b, visit, arg);
}

static void add_key(const char *path, const char *default_value, const char *value, void *arg)
{
    char *text = arg;
    size_t used = strlen(text);

    (void)default_value;
    snprintf(text + used, JOB_MODEL_SIZE - used, " %s = %s;", strchr(path, '.') + 1, value);
}

void job_model_text(char text[JOB_MODEL_SIZE], const struct model_shape *m)
{
    struct model_shape plain = *m;
    int kind = model_kind_of(m);

    model_set_kind(&plain, kind);
    plain.max_positions = m->positions == POSITIONS_ROTARY ? -1 : 0; /* which differs */
    snprintf(text, JOB_MODEL_SIZE, "model = { %s%s%slayers = %d; hidden = %d; heads = %d; seq_length = %d; vocab = %d;",
             kind ? "kind = \"" : "", kind ? model_kinds[kind] : "", kind ? "\"; " : "", m->layers, m->hidden, m->heads,
             m->seq_length, m->vocab);
    job_each_model_difference(&plain, m, add_key, text);
    strcat(text, " };\n");
}

void job_each_decisive(const struct job *job, void (*visit)(const char *path, const char *value, void *arg), void *arg)
{
    char value[VALUE_SIZE];

    for (int k = 0; k < job_key_count; k++) {
        if (strcmp(job_keys[k].path, "batch.steps") == 0 ? !decays_until_end(job) : !is_logged(&job_keys[k]))
            continue;
        print_value(value, job, &job_keys[k]);
        visit(job_keys[k].path, value, arg);
    }
}
