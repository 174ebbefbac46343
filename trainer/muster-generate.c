/*
 * muster-generate.c - text from a checkpoint of a byte-level model: what a person looks at to see whether it has
 * learned.
 *
 * The context is at most seq_length tokens; when it is full, its older half is dropped. What lies behind the last token
 * does not matter, because attention is causal.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "ckpt/ckpt.h"
#include "common/job.h"
#include "common/option.h"
#include "common/philox.h"
#include "trainer/choose_device.h"
#include "trainer/feed.h"
#include "trainer/rank_config.h"

/* Vocabularies are padded, to be divided by the ranks of tp or for speed; no tokenizer has as few as this. */
#define MOST_VOCAB 512

static const char usage[] =
    "usage: muster-generate [--prompt TEXT] [--tokens N] [--temperature T] [--seed S] [--device D] CHECKPOINT\n"
    "       muster-generate --version | --help\n"
    "\n"
    "Prints the prompt and N (200) bytes that the model goes on with. CHECKPOINT is a step-N directory, or the "
    "directory\n"
    "that holds them: then the newest that can be read. Temperature 0 takes the likeliest byte each time; the default\n"
    "is 0.8. The same seed gives the same text. D is auto (a GPU where there is one), cpu or cuda.\n";

struct options {
    const char *path, *prompt;
    long tokens;
    double temperature;
    uint64_t seed;
    enum device_choice device;
};

struct generator {
    struct job job;
    struct device *dev;
    struct comm *self;
    struct rank_config *config;
    struct context context;
    struct tensor tensor;
    struct zero *zero;
    struct model *model;
    struct feed *feed;
    int32_t *tokens; /* [seq_length] */
    int length;
    float *logits; /* [vocab] */
};

/* ---- loading ---- */

static struct ckpt *open_checkpoint(const char *path, struct error *err)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    struct ckpt *ckpt = NULL;
    char at[JOB_PATH_SIZE + 64];

    snprintf(at, sizeof at, "%s/manifest.json", path);
    if (access(at, F_OK) == 0 || ckpt_list(path, &steps, &count, err) < 0)
        return ckpt_open(path, err);
    if (count == 0)
        error_set(err, CODE_DATA,
                  access(path, F_OK) < 0
                      ? "%s: No such file or directory"
                      : "%s: no checkpoint (no manifest.json in it) and no directory of checkpoints (no step-* in it)",
                  path);
    for (size_t i = 0; i < count && !ckpt; i++) {
        ckpt_step_path(at, sizeof at, path, steps[i]);
        ckpt = ckpt_open(at, err);
        if (!ckpt && err->code == CODE_CONFIG) /* not broken, but of another release: no older one may pass for it */
            break;
        if (!ckpt && i + 1 < count)
            fprintf(stderr, "muster-generate: %s; trying the one before it\n", err->text);
    }
    free(steps);
    return ckpt;
}

/* All parameters in one call: the checkpoint then reads and verifies each of its blocks once. */
static int read_parameters(struct generator *g, struct ckpt *ckpt, struct error *err)
{
    static const char *const kinds[] = {"param"};
    size_t offsets[UNIT_MAX_TENSORS], n = 0;
    const struct units *units = g->config->units;
    struct ckpt_piece *pieces = calloc(units->ntensors, sizeof *pieces);
    void **targets = calloc(units->ntensors, sizeof *targets);
    int result = -1;

    if (!pieces || !targets) {
        error_set(err, CODE_IO, "out of memory for a list of %zu tensors", units->ntensors);
        goto out;
    }
    for (int unit = 0; unit < units->nunits; unit++) {
        size_t got = units_pieces(units, unit, 0, units->units[unit].count, false, pieces + n, offsets);

        for (size_t i = 0; i < got; i++)
            targets[n++] = zero_master(g->zero, unit) + offsets[i];
    }
    result = ckpt_read(ckpt, units->tensors, units->ntensors, kinds, 1, pieces, n, targets, err);
    if (result == 0)
        result = zero_loaded(g->zero, err);
out:
    free(pieces);
    free(targets);
    return result;
}

/* The model on one rank in fp32, whatever it was trained on. */
static int create_model(struct generator *g, enum device_choice device, struct error *err)
{
    const struct mesh mesh = {.dp = 1, .tp = 1, .pp = 1};
    struct device_traits traits;

    g->job.parallel.tp = g->job.parallel.pp = g->job.parallel.chunks = 1;
    g->job.batch.micro_batch = 1;
    g->job.precision.compute = DTYPE_F32;
    g->job.parallel.offload = OFFLOAD_NONE;
    g->dev = choose_device(device, err);
    if (!g->dev)
        return -1;
    traits = device_traits(g->dev, DTYPE_F32);
    g->config = rank_config_create(&g->job, &mesh, 0, false, &traits, err);
    g->self = g->config ? comm_alone_create(err) : NULL;
    if (!g->self || tensor_create(&g->tensor, g->dev, g->self, DTYPE_F32, 0, 0, 0, err) < 0)
        return -1;
    g->context = g->config->context;
    g->context.dev = g->dev;
    g->context.k = device_kernels(g->dev);
    g->context.tp = &g->tensor;
    g->zero =
        zero_create(g->dev, &(struct zero_comms){g->self, NULL, g->self}, g->config->units, &g->config->zero, err);
    g->model = g->zero ? model_create(&g->context, g->config->units, g->zero, &g->config->model, err) : NULL;
    g->feed = g->model ? feed_create(g->dev, &g->job.model, 1, err) : NULL;
    return g->feed ? 0 : -1;
}

static int load(struct generator *g, const struct options *o, struct error *err)
{
    struct ckpt *ckpt = open_checkpoint(o->path, err);
    const struct model_shape *shape = &g->job.model;
    int result = -1;

    if (!ckpt)
        return -1;
    if (job_parse(&g->job, ckpt_job_text(ckpt), ckpt_path(ckpt), NULL, 0, err) < 0)
        goto out;
    if (shape->kind != MODEL_GPT) {
        error_set(err, CODE_DATA, "%s is of a BERT, which does not write text", ckpt_path(ckpt));
        goto out;
    }
    if (shape->vocab > MOST_VOCAB) {
        error_set(err, CODE_DATA,
                  "%s: its vocabulary of %d tokens is not bytes, which are 256, or up to %d with room to spare: "
                  "muster-generate has no tokenizer",
                  ckpt_path(ckpt), shape->vocab, MOST_VOCAB);
        goto out;
    }
    if (create_model(g, o->device, err) < 0)
        goto out;
    g->tokens = calloc((size_t)shape->seq_length, sizeof *g->tokens);
    g->logits = calloc((size_t)shape->vocab, sizeof *g->logits);
    if (!g->tokens || !g->logits) {
        error_set(err, CODE_IO, "out of memory");
        goto out;
    }
    result = read_parameters(g, ckpt, err);
out:
    ckpt_close(ckpt);
    return result;
}

static void unload(struct generator *g)
{
    feed_destroy(g->feed);
    model_destroy(g->model);
    zero_destroy(g->zero);
    tensor_destroy(&g->tensor);
    comm_destroy(g->self);
    device_destroy(g->dev);
    rank_config_destroy(g->config);
    job_destroy(&g->job);
    free(g->tokens);
    free(g->logits);
}

/* ---- generating ---- */

static void append(struct generator *g, int32_t token)
{
    int seq = g->job.model.seq_length;

    if (g->length == seq) {
        int kept = seq / 2;

        memmove(g->tokens, g->tokens + (seq - kept), (size_t)kept * sizeof *g->tokens);
        g->length = kept;
    }
    g->tokens[g->length++] = token;
}

static int likeliest(const float *logits, int vocab)
{
    int best = 0;

    for (int i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* One token from softmax(logits / temperature), by a uniform number in [0, 1). */
static int sample(const float *logits, int vocab, double temperature, double uniform)
{
    int best = likeliest(logits, vocab);
    double total = 0, at = 0;

    if (temperature <= 0)
        return best;
    for (int i = 0; i < vocab; i++)
        total += exp((logits[i] - logits[best]) / temperature);
    for (int i = 0; i < vocab; i++) {
        at += exp((logits[i] - logits[best]) / temperature) / total;
        if (uniform < at)
            return i;
    }
    return best;
}

static int generate(struct generator *g, const struct options *o, struct error *err)
{
    int bytes = g->job.model.vocab < 256 ? g->job.model.vocab : 256;
    struct philox_stream stream = {.seed = o->seed, .site = philox_site("generate")};
    struct batch batch = {.samples = 1, .most = 1, .seq_length = g->job.model.seq_length, .tokens = g->tokens};
    struct micro_batch mb = {.samples = 1};

    for (const char *at = o->prompt; *at; at++) {
        if ((unsigned char)*at >= bytes)
            return error_set(err, CODE_USAGE, "--prompt has a byte %d; with model.vocab = %d the model knows 0 to %d",
                             (unsigned char)*at, g->job.model.vocab, g->job.model.vocab - 1);
        append(g, (unsigned char)*at);
    }
    fputs(o->prompt, stdout);
    for (long i = 0; i < o->tokens; i++) {
        int token;

        batch.targets = batch.tokens; /* nobody looks at them */
        mb.tokens = feed_batch(g->feed, &batch)->tokens;
        model_forward(g->model, 0, 0, &mb);
        model_logits(g->model, &mb, 0, g->length - 1, g->logits);
        if (device_status(g->dev, err) < 0)
            return -1;
        token = sample(g->logits, bytes, o->temperature, philox_uniform(stream, (uint64_t)i));
        append(g, token);
        if (putchar(token) == EOF || fflush(stdout) != 0)
            return error_errno(err, CODE_IO, "cannot write to standard output");
    }
    putchar('\n');
    return 0;
}

/* ---- the command line ---- */

static int bad_usage(const char *what, const char *word)
{
    fprintf(stderr, "muster-generate: %s%s; muster-generate --help shows how\n", what, word);
    return CODE_USAGE;
}

static bool parse_number(const char *text, double least, double *value)
{
    char *end;

    *value = strtod(text, &end);
    return end != text && !*end && isfinite(*value) && *value >= least;
}

static bool parse_whole(const char *text, unsigned long most, unsigned long *value)
{
    char *end;

    errno = 0;
    *value = strtoul(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && errno == 0 && *value <= most;
}

static bool parse_device(const char *text, enum device_choice *device)
{
    static const char *const names[] = {[DEVICE_AUTO] = "auto", [DEVICE_CPU] = "cpu", [DEVICE_CUDA] = "cuda"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            *device = (enum device_choice)i;
            return true;
        }
    return false;
}

/* -1: go on; otherwise the exit code. */
static int parse_options(struct options *o, int argc, char **argv)
{
    static const struct option longopts[] = {
        {"prompt", required_argument, NULL, 'p'},
        {"tokens", required_argument, NULL, 'n'},
        {"temperature", required_argument, NULL, 't'},
        {"seed", required_argument, NULL, 's'},
        {"device", required_argument, NULL, 'd'},
        {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    unsigned long whole;
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":hV", longopts, NULL)) != -1) {
        switch (option) {
        case 'p':
            o->prompt = optarg;
            break;
        case 'n':
        case 's':
            if (!parse_whole(optarg, option == 'n' ? LONG_MAX : ULONG_MAX, &whole))
                return bad_usage(option == 'n' ? "--tokens takes a whole number of at least 0, and not "
                                               : "--seed takes a whole number of at least 0, and not ",
                                 optarg);
            if (option == 'n')
                o->tokens = (long)whole;
            else
                o->seed = whole;
            break;
        case 't':
            if (!parse_number(optarg, 0, &o->temperature))
                return bad_usage("--temperature takes a number of at least 0, and not ", optarg);
            break;
        case 'd':
            if (!parse_device(optarg, &o->device))
                return bad_usage("a device is auto, cpu or cuda, and not ", optarg);
            break;
        case 'V':
            puts("muster-generate " VERSION);
            return CODE_OK;
        case 'h':
            fputs(usage, stdout);
            return CODE_OK;
        case ':':
            return bad_usage("a value is missing after ", argv[optind - 1]);
        default:
            return bad_usage("unknown option ", option_refused(argv));
        }
    }
    if (optind + 1 != argc)
        return bad_usage(optind >= argc ? "which checkpoint?" : "one checkpoint at a time", "");
    if (!o->prompt[0])
        return bad_usage("--prompt must not be empty", "");
    o->path = argv[optind];
    return -1;
}

int main(int argc, char **argv)
{
    struct options options = {.prompt = "\n", .tokens = 200, .temperature = 0.8, .seed = 1};
    struct generator generator = {0};
    struct error err = {0};
    int code = parse_options(&options, argc, argv);

    if (code >= 0)
        return error_output(code);
    code =
        load(&generator, &options, &err) < 0 || generate(&generator, &options, &err) < 0 ? error_report(&err) : CODE_OK;
    unload(&generator);
    return error_output(code);
}
