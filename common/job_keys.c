#include <float.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/job.h"
#include "common/job_impl.h"

#define FIELD(member)   .offset = offsetof(struct job, member), .size = sizeof(((struct job *)NULL)->member)
#define RANGE(low, top) .least = (low), .most = (top)

/* Larger than any run needs, and small enough that no product of sizes and no count overflows. */
#define MANY_STEPS 1e12
#define MANY       1e6
#define LARGE      1e30

#define BELOW_1 (1 - DBL_EPSILON / 2)

/* In the order of the enums. */
static const char *const kinds[] = {"gpt", "bert", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const reduces[] = {"auto", "step", "micro_batch", NULL};
static const char *const offloads[] = {"none", "optimizer", NULL};
static const char *const recomputes[] = {"none", "selective", "full", NULL};
static const char *const schedules[] = {"cosine", "linear", "constant", "wsd", NULL};
static const char *const precisions[] = {"fp32", "bf16", "fp16", NULL};
static const char *const reduce_types[] = {"fp32", "compute", NULL}; /* job_check.c converts this to a dtype */

const struct job_key job_keys[] = {
    {"model.preset", JOB_KEY_STRING, FIELD(preset), .fallback = "\"\"",
     .help = "name of a set of sizes; keys beside it override it"},
    {"model.layers", JOB_KEY_INT, FIELD(model.layers), RANGE(1, 4096), .help = "transformer blocks"},
    {"model.hidden", JOB_KEY_INT, FIELD(model.hidden), RANGE(1, 65536),
     .help = "width of the model; a multiple of heads"},
    {"model.heads", JOB_KEY_INT, FIELD(model.heads), RANGE(1, 4096), .help = "attention heads a block"},
    {"model.seq_length", JOB_KEY_INT, FIELD(model.seq_length), RANGE(1, 1 << 20),
     .help = "tokens a sample, and the number of learned positions"},
    {"model.vocab", JOB_KEY_INT, FIELD(model.vocab), RANGE(2, 1 << 24),
     .help = "number of different tokens; 256 for bytes, 50257 for GPT-2's"},
    {"model.kind", JOB_KEY_CHOICE, FIELD(model.kind), .choices = kinds, .fallback = "\"gpt\"",
     .help = "what the model is: GPT-2, or BERT; a preset says its own"},
    {"model.dropout", JOB_KEY_NUMBER, FIELD(dropout.hidden), RANGE(0, BELOW_1), .rule = "at least 0 and less than 1",
     .fallback = "0.0", .help = "probability of dropout after the embeddings, attention and MLP"},
    {"model.attention_dropout", JOB_KEY_NUMBER, FIELD(dropout.attention), RANGE(0, BELOW_1),
     .rule = "at least 0 and less than 1", .fallback = "0.0",
     .help = "probability of dropout of attention's probabilities"},
    {"model.init_std", JOB_KEY_NUMBER, FIELD(init_std), RANGE(DBL_MIN, 1), .rule = "more than 0 and at most 1",
     .fallback = "0.02", .help = "standard deviation of initial weights"},

    {"device", JOB_KEY_CHOICE, FIELD(device), .choices = devices, .fallback = "\"auto\"",
     .help = "where a rank computes: a GPU, or the CPU"},

    {"parallel.tp", JOB_KEY_INT, FIELD(parallel.tp), RANGE(1, 1024), .fallback = "1",
     .help = "ranks that share each layer's matrices"},
    {"parallel.pp", JOB_KEY_INT, FIELD(parallel.pp), RANGE(1, 1024), .fallback = "1",
     .help = "pipeline stages that share the layers"},
    {"parallel.zero", JOB_KEY_INT, FIELD(parallel.zero), RANGE(0, 3), .fallback = "1",
     .help = "ZeRO stage: 1 shares out the optimizer state, 2 the gradients too, 3 the parameters too"},
    {"parallel.chunks", JOB_KEY_INT, FIELD(parallel.chunks), RANGE(1, 64), .fallback = "1",
     .help = "parts of the model that a pipeline stage has; more than 1 is the interleaved schedule"},
    {"parallel.reduce", JOB_KEY_CHOICE, FIELD(parallel.reduce), .choices = reduces, .fallback = "\"auto\"",
     .help = "when gradients are summed over data-parallel ranks"},
    {"parallel.offload", JOB_KEY_CHOICE, FIELD(parallel.offload), .choices = offloads, .fallback = "\"none\"",
     .help = "what is kept in host memory"},
    {"parallel.recompute", JOB_KEY_CHOICE, FIELD(parallel.recompute), .choices = recomputes, .fallback = "\"none\"",
     .help = "what the backward pass computes again instead of keeping it"},
    {"parallel.recompute_layers", JOB_KEY_INT, FIELD(parallel.recompute_layers), RANGE(0, 4096), .fallback = "0",
     .help = "recompute only the first so many layers of a stage; 0 is all"},

    {"batch.global_batch", JOB_KEY_INT, FIELD(batch.global_batch), RANGE(1, MANY), .fallback = "8",
     .help = "samples a step, over all ranks"},
    {"batch.micro_batch", JOB_KEY_INT, FIELD(batch.micro_batch), RANGE(1, MANY), .fallback = "1",
     .help = "samples a rank holds at a time; more is faster and takes more memory; changes no result"},
    {"batch.steps", JOB_KEY_LONG, FIELD(batch.steps), RANGE(1, MANY_STEPS), .fallback = "1000",
     .help = "the run ends after this many steps"},
    {"batch.seed", JOB_KEY_U64, FIELD(batch.seed), RANGE(0, 0x1p53 - 1), .fallback = "1234",
     .help = "key of initial weights, sample order, dropout and masking"},
    {"batch.rampup_start", JOB_KEY_INT, FIELD(batch.rampup_start), RANGE(0, MANY), .fallback = "0",
     .help = "samples of the first step, from which the batch grows to global_batch; 0 is no ramp-up"},
    {"batch.rampup_increment", JOB_KEY_INT, FIELD(batch.rampup_increment), RANGE(0, MANY), .fallback = "0",
     .help = "samples that the batch grows by at a time"},
    {"batch.rampup_samples", JOB_KEY_U64, FIELD(batch.rampup_samples), RANGE(0, 0x1p53 - 1), .fallback = "0",
     .help = "samples consumed when the batch has its full size"},

    {"optimizer.lr", JOB_KEY_NUMBER, FIELD(optimizer.lr), RANGE(DBL_MIN, 1e3), .rule = "more than 0 and at most 1000",
     .fallback = "3e-4", .help = "peak learning rate"},
    {"optimizer.min_lr", JOB_KEY_NUMBER, FIELD(optimizer.min_lr), RANGE(0, 1e3), .fallback = "0.0",
     .help = "learning rate after the decay"},
    {"optimizer.warmup_steps", JOB_KEY_LONG, FIELD(optimizer.warmup_steps), RANGE(0, MANY_STEPS), .fallback = "0",
     .help = "steps over which the learning rate rises linearly from 0"},
    {"optimizer.decay_steps", JOB_KEY_LONG, FIELD(optimizer.decay_steps), RANGE(0, MANY_STEPS), .fallback = "0",
     .help = "step at which the learning rate reaches min_lr; 0 is batch.steps"},
    {"optimizer.schedule", JOB_KEY_CHOICE, FIELD(optimizer.schedule), .choices = schedules, .fallback = "\"cosine\"",
     .help = "how the learning rate falls after the warm-up"},
    {"optimizer.cooldown_steps", JOB_KEY_LONG, FIELD(optimizer.cooldown_steps), RANGE(0, MANY_STEPS), .fallback = "0",
     .help = "of schedule \"wsd\": steps of the fall to min_lr, which ends at decay_steps"},
    {"optimizer.beta1", JOB_KEY_NUMBER, FIELD(optimizer.beta1), RANGE(0, BELOW_1), .rule = "at least 0 and less than 1",
     .fallback = "0.9", .help = "Adam's decay of the mean of gradients"},
    {"optimizer.beta2", JOB_KEY_NUMBER, FIELD(optimizer.beta2), RANGE(0, BELOW_1), .rule = "at least 0 and less than 1",
     .fallback = "0.95", .help = "Adam's decay of the mean of squared gradients"},
    {"optimizer.eps", JOB_KEY_NUMBER, FIELD(optimizer.eps), RANGE(DBL_MIN, 1), .rule = "more than 0 and at most 1",
     .fallback = "1e-8", .help = "Adam's epsilon"},
    {"optimizer.weight_decay", JOB_KEY_NUMBER, FIELD(optimizer.weight_decay), RANGE(0, 1e3), .fallback = "0.1",
     .help = "decoupled weight decay of matrices; biases and norms have none"},
    {"optimizer.clip", JOB_KEY_NUMBER, FIELD(optimizer.clip), RANGE(0, LARGE), .fallback = "1.0",
     .help = "largest global gradient norm; 0 is off"},
    {"optimizer.spike_factor", JOB_KEY_NUMBER, FIELD(optimizer.spike_factor), RANGE(0, LARGE), .fallback = "0.0",
     .help = "skip a step whose loss is more than this times the running mean; 0 is off"},
    {"optimizer.most_skipped", JOB_KEY_INT, FIELD(optimizer.most_skipped), RANGE(1, MANY), .fallback = "10",
     .help = "give up after so many skipped steps in a row"},

    {"data.train", JOB_KEY_STRING, FIELD(data.train), .help = "prefix of a .bin and .idx made by muster-data"},
    {"data.valid", JOB_KEY_STRING, FIELD(data.valid), .fallback = "\"\"", .help = "the same for validation"},
    {"data.cls", JOB_KEY_INT, FIELD(data.cls), RANGE(-1, 1 << 24), .fallback = "-1",
     .help = "BERT: the token that begins a sample; -1 is vocab - 4"},
    {"data.sep", JOB_KEY_INT, FIELD(data.sep), RANGE(-1, 1 << 24), .fallback = "-1",
     .help = "BERT: the token that ends a sentence; -1 is vocab - 3"},
    {"data.mask", JOB_KEY_INT, FIELD(data.mask), RANGE(-1, 1 << 24), .fallback = "-1",
     .help = "BERT: the token that hides another; -1 is vocab - 2"},
    {"data.pad", JOB_KEY_INT, FIELD(data.pad), RANGE(-1, 1 << 24), .fallback = "-1",
     .help = "BERT: the token that fills a sample up; -1 is vocab - 1"},
    {"data.mask_probability", JOB_KEY_NUMBER, FIELD(data.mask_probability), RANGE(DBL_MIN, BELOW_1),
     .rule = "more than 0 and less than 1", .fallback = "0.15", .help = "BERT: part of the tokens that is predicted"},
    {"data.short_probability", JOB_KEY_NUMBER, FIELD(data.short_probability), RANGE(0, 1), .fallback = "0.1",
     .help = "BERT: part of the samples that are of a random shorter length"},

    {"precision.compute", JOB_KEY_CHOICE, FIELD(precision.compute), .choices = precisions, .fallback = "\"fp32\"",
     .help = "type of activations and matrix products"},
    {"precision.reduce", JOB_KEY_CHOICE, FIELD(precision.reduce), .choices = reduce_types, .fallback = "\"fp32\"",
     .help = "type in which gradients are summed between ranks"},
    {"precision.tf32", JOB_KEY_BOOL, FIELD(precision.tf32), .fallback = "false",
     .help = "GPUs may round the factors of fp32 products to TF32"},
    {"precision.loss_scale", JOB_KEY_NUMBER, FIELD(precision.loss_scale), RANGE(0, LARGE), .fallback = "0.0",
     .help = "constant factor of the loss; 0 is dynamic with fp16 and none otherwise"},
    {"precision.loss_scale_start", JOB_KEY_NUMBER, FIELD(precision.loss_scale_start), RANGE(DBL_MIN, LARGE),
     .rule = "more than 0 and at most 1e30", .fallback = "4294967296.0",
     .help = "dynamic loss scale of the first step"},
    {"precision.loss_scale_min", JOB_KEY_NUMBER, FIELD(precision.loss_scale_min), RANGE(DBL_MIN, LARGE),
     .rule = "more than 0 and at most 1e30", .fallback = "1.0", .help = "least dynamic loss scale"},
    {"precision.loss_scale_window", JOB_KEY_INT, FIELD(precision.loss_scale_window), RANGE(1, MANY), .fallback = "1000",
     .help = "steps in a row without overflow after which the loss scale doubles"},
    {"precision.loss_scale_hysteresis", JOB_KEY_INT, FIELD(precision.loss_scale_hysteresis), RANGE(1, MANY),
     .fallback = "2", .help = "overflows before the loss scale halves"},

    {"checkpoint.dir", JOB_KEY_STRING, FIELD(checkpoint.dir), .fallback = "\"\"",
     .help = "directory of checkpoints, on a file system that all nodes share; \"\" writes none"},
    {"checkpoint.load", JOB_KEY_STRING, FIELD(checkpoint.load), .fallback = "\"\"",
     .help = "directory of checkpoints to start from while checkpoint.dir has none; \"\" starts from initial weights"},
    {"checkpoint.every", JOB_KEY_LONG, FIELD(checkpoint.every), RANGE(0, MANY_STEPS), .fallback = "0",
     .help = "steps between saves; 0 saves at the end and when stopped only"},
    {"checkpoint.keep", JOB_KEY_INT, FIELD(checkpoint.keep), RANGE(0, MANY), .fallback = "2",
     .help = "newest checkpoints kept; 0 keeps all"},
    {"checkpoint.keep_every", JOB_KEY_LONG, FIELD(checkpoint.keep_every), RANGE(0, MANY_STEPS), .fallback = "0",
     .help = "checkpoints at multiples of this many steps are kept for good; 0 is none"},
    {"checkpoint.stage", JOB_KEY_STRING, FIELD(checkpoint.stage), .fallback = "\"/dev/shm\"",
     .help = "directory of each node where a save waits to be drained; \"\" writes straight to checkpoint.dir"},
    {"checkpoint.staged", JOB_KEY_INT, FIELD(checkpoint.staged), RANGE(1, 16), .fallback = "2",
     .help = "saves that may wait in checkpoint.stage at once"},
    {"checkpoint.partner", JOB_KEY_BOOL, FIELD(checkpoint.partner), .fallback = "false",
     .help = "each node also keeps a copy of its neighbour's staged shards"},
    {"checkpoint.drain_mib", JOB_KEY_INT, FIELD(checkpoint.drain_mib), RANGE(0, MANY), .fallback = "0",
     .help = "MiB a second that a node drains at most; 0 is as fast as it can"},
    {"checkpoint.last_seconds", JOB_KEY_INT, FIELD(checkpoint.last_seconds), RANGE(0, MANY), .fallback = "600",
     .help = "seconds that a run waits at its start and end for a checkpoint.dir that cannot be written"},

    {"report.log_every", JOB_KEY_LONG, FIELD(report.log_every), RANGE(1, MANY_STEPS), .fallback = "10",
     .help = "steps between log lines"},
    {"report.eval_every", JOB_KEY_LONG, FIELD(report.eval_every), RANGE(0, MANY_STEPS), .fallback = "0",
     .help = "steps between validations; 0 is never"},
    {"report.eval_batches", JOB_KEY_INT, FIELD(report.eval_batches), RANGE(1, MANY), .fallback = "10",
     .help = "global batches a validation"},
    {"report.metrics", JOB_KEY_STRING, FIELD(report.metrics), .fallback = "\"\"",
     .help = "file of metrics, a JSON object a line; \"\" writes none"},
    {"report.kill_file", JOB_KEY_STRING, FIELD(report.kill_file), .fallback = "\"\"",
     .help = "when this file appears, save and stop; \"\" is off"},
    {"report.minutes", JOB_KEY_NUMBER, FIELD(report.minutes), RANGE(0, MANY), .fallback = "0.0",
     .help = "save and stop after this many minutes; 0 is off"},
    {"report.peak_tflops", JOB_KEY_NUMBER, FIELD(report.peak_tflops), RANGE(0, MANY), .fallback = "0.0",
     .help = "peak TFLOP/s of one rank's device, for MFU; 0 measures it at start"},
    {"report.hang_seconds", JOB_KEY_NUMBER, FIELD(report.hang_seconds), RANGE(0, MANY), .fallback = "600.0",
     .help = "stop, and name the rank that is late, when a collective takes longer; 0 is off"},
    {"report.straggler_factor", JOB_KEY_NUMBER, FIELD(report.straggler_factor), RANGE(0, MANY), .fallback = "1.5",
     .help = "name a rank whose steps take more than this times the median; 0 is off"},
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
    switch (type) {
    case JOB_KEY_INT:
    case JOB_KEY_LONG:
    case JOB_KEY_U64:
        return "integer";
    case JOB_KEY_NUMBER:
        return "number";
    case JOB_KEY_BOOL:
        return "boolean";
    case JOB_KEY_STRING:
    case JOB_KEY_CHOICE:
        break;
    }
    return "string";
}

void job_each_key(void (*visit)(const char *path, const char *type, const char *fallback, const char *help, void *arg),
                  void *arg)
{
    for (int k = 0; k < job_key_count; k++)
        visit(job_keys[k].path, job_key_type_name(job_keys[k].type), job_keys[k].fallback ? job_keys[k].fallback : "-",
              job_keys[k].help, arg);
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

#define VALUE_SIZE (JOB_PATH_SIZE + 2)

/*
 * The groups whose keys affect training, and the keys in them that do not: initial weights are made once, another seed
 * is refused, and the others change only how the same numbers are computed. batch.steps depends on the schedule.
 */
static const char *const groups[] = {"model.", "batch.", "optimizer.", "data.", "precision."};
static const char *const others[] = {
    "model.preset", "model.init_std",   "batch.micro_batch",
    "batch.steps",  "batch.seed",       "optimizer.most_skipped",
    "data.valid",   "precision.reduce", "precision.loss_scale_start",
};

static bool affects_training(const struct job_key *key)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(key->path, others[i]) == 0)
            return false;
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (strncmp(key->path, groups[i], strlen(groups[i])) == 0)
            return true;
    return false;
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
    if (!affects_training(key))
        return false;
    if (key->type == JOB_KEY_STRING)
        return strcmp(field_of(a, key), field_of(b, key)) != 0;
    return memcmp(field_of(a, key), field_of(b, key), key->size) != 0;
}

/* In the job file's syntax. */
static void print_value(char *text, const struct job *job, const struct job_key *key)
{
    const void *field = field_of(job, key);

    switch (key->type) {
    case JOB_KEY_INT:
        snprintf(text, VALUE_SIZE, "%d", *(const int *)field);
        break;
    case JOB_KEY_LONG:
        snprintf(text, VALUE_SIZE, "%ld", *(const long *)field);
        break;
    case JOB_KEY_U64:
        snprintf(text, VALUE_SIZE, "%" PRIu64, *(const uint64_t *)field);
        break;
    case JOB_KEY_NUMBER:
        snprintf(text, VALUE_SIZE, "%.9g", *(const double *)field);
        break;
    case JOB_KEY_BOOL:
        snprintf(text, VALUE_SIZE, "%s", *(const bool *)field ? "true" : "false");
        break;
    case JOB_KEY_CHOICE: /* all enums are ints */
        snprintf(text, VALUE_SIZE, "\"%s\"", key->choices[*(const int *)field]);
        break;
    case JOB_KEY_STRING:
        snprintf(text, VALUE_SIZE, "\"%s\"", (const char *)field);
        break;
    }
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
