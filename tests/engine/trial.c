#include "tests/engine/trial.h"

#include <ftw.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SETS = 32, MOST_OWN_SETS = 11, SET_SIZE = 160 };

/* What all variants share. A spike factor that no loss exceeds, so that its mean is kept; no clip would hide a norm
 * that is wrong, so there is one that always clips. */
static const char base_job[] =
    "model = { layers = 2; hidden = 32; heads = 4; seq_length = 16; vocab = 256; init_std = 0.05; };\n"
    "batch = { global_batch = 9; steps = 20; seed = 11; };\n"
    "optimizer = { lr = 3e-3; min_lr = 3e-4; warmup_steps = 3; decay_steps = 20; weight_decay = 0.1; clip = 0.5;\n"
    "              spike_factor = 10.0; };\n"
    "precision = { loss_scale_start = 8388608.0; loss_scale_window = 4; };\n"
    "checkpoint = { keep = 0; };\n";

struct variant {
    const char *name;
    const char *sets[MOST_OWN_SETS];
};

static const struct variant variants[] = {
    {"gpt-2-layers", {"batch.global_batch=12"}},
    {"gpt-5-layers-documents",
     {"model.layers=5", "model.vocab=259", "model.seq_length=20", "data.reset=document", "data.eod=32"}},
    {"gpt-3-layers-dropout", {"model.layers=3", "model.dropout=0.1", "model.attention_dropout=0.1"}},
    {"gpt-7-layers", {"model.layers=7", "model.hidden=48", "batch.global_batch=11"}},
    {"gpt-1-layer", {"model.layers=1", "model.seq_length=32", "model.hidden=64", "model.dropout=0.2"}},
    {"bert-3-layers", {"model.kind=bert", "model.layers=3", "model.vocab=262", "model.seq_length=32"}},
    {"bert-4-layers-dropout",
     {"model.kind=bert", "model.layers=4", "model.vocab=260", "model.seq_length=32", "model.dropout=0.1",
      "model.attention_dropout=0.1"}},
    {"llama-4-layers",
     {"model.kind=llama", "model.layers=4", "model.heads=8", "model.kv_heads=4", "model.head_size=8", "model.inner=72",
      "model.untied=true", "model.biases=qkv"}},
    {"llama-8-layers-documents",
     {"model.kind=llama", "model.layers=8", "model.heads=8", "model.kv_heads=4", "model.head_size=6",
      "model.qk_norm=true", "model.window=7", "model.vocab=259", "data.reset=document", "data.eod=32"}},
    {"llama-5-layers-dropout",
     {"model.kind=llama", "model.layers=5", "model.heads=4", "model.kv_heads=4", "model.hidden=48",
      "model.rope_theta=500", "model.dropout=0.1", "model.attention_dropout=0.1"}},
};

int trial_variants(void)
{
    return (int)(sizeof variants / sizeof *variants);
}

const char *trial_variant_name(int variant)
{
    return variants[variant].name;
}

int trial_shapes(struct shape shapes[TRIAL_SHAPES])
{
    int n = 0;

    for (int ranks = 1; ranks <= 8; ranks++)
        for (int tp = 1; tp <= 4; tp *= 2)
            for (int pp = 1; pp <= 4; pp *= 2)
                for (int chunks = 1; chunks <= (pp > 1 ? 2 : 1); chunks++)
                    if (ranks % (tp * pp) == 0)
                        shapes[n++] = (struct shape){ranks, tp, pp, chunks};
    return n;
}

struct way trial_way(int index)
{
    return (struct way){
        .zero = index % 4, .recompute = index / 4 % TRIAL_RECOMPUTES, .offload = index / (4 * TRIAL_RECOMPUTES) % 2};
}

static int data_parallel(const struct trial *trial)
{
    return trial->shape.ranks / (trial->shape.tp * trial->shape.pp);
}

void trial_mesh_name(char name[TRIAL_NAME], const struct trial *trial)
{
    const struct shape *s = &trial->shape;

    snprintf(name, TRIAL_NAME, "%s, dp %d x tp %d x pp %d, %d chunk%s, micro-batches of %d, reduced %s, %s",
             variants[trial->variant].name, data_parallel(trial), s->tp, s->pp, s->chunks, s->chunks > 1 ? "s" : "",
             trial->micro_batch, trial->reduce, trial->precision);
}

void trial_name(char name[TRIAL_NAME], const struct trial *trial)
{
    static const char *const recomputes[] = {
        "nothing recomputed",    "norms and activations recomputed",       "attention recomputed",
        "layers recomputed",     "first norms and activations recomputed", "first attention recomputed",
        "first layer recomputed"};
    char mesh[TRIAL_NAME];

    trial_mesh_name(mesh, trial);
    snprintf(name, TRIAL_NAME, "%.100s, ZeRO-%d, %s%s", mesh, trial->way.zero, recomputes[trial->way.recompute],
             trial->way.offload ? ", offloaded" : "");
}

/* ---- the job ---- */

struct sets {
    char text[MOST_SETS][SET_SIZE];
    char *list[MOST_SETS];
    int n;
};

static void add(struct sets *sets, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct sets *sets, const char *format, ...)
{
    va_list arguments;

    if (sets->n == MOST_SETS)
        abort();
    va_start(arguments, format);
    if (vsnprintf(sets->text[sets->n], SET_SIZE, format, arguments) >= SET_SIZE)
        abort();
    va_end(arguments);
    sets->list[sets->n] = sets->text[sets->n];
    sets->n++;
}

void trial_job(struct job *job, const struct trial *trial, const char *dir, const char *ckpt)
{
    static const char *const recomputes[] = {"none", "light", "selective", "full", "light", "selective", "full"};
    const struct variant *variant = &variants[trial->variant];
    bool bert = strncmp(variant->name, "bert", 4) == 0;
    struct sets sets = {.n = 0};
    struct error err;

    for (int i = 0; i < MOST_OWN_SETS && variant->sets[i]; i++)
        add(&sets, "%s", variant->sets[i]);
    add(&sets, "data.train=%s/%s", dir, bert ? "sentences" : "train");
    add(&sets, "data.valid=%s/%s", dir, bert ? "sentences-valid" : "valid");
    add(&sets, "checkpoint.dir=%s", ckpt ? ckpt : "");
    add(&sets, "parallel.tp=%d", trial->shape.tp);
    add(&sets, "parallel.pp=%d", trial->shape.pp);
    add(&sets, "parallel.chunks=%d", trial->shape.chunks);
    add(&sets, "batch.micro_batch=%d", trial->micro_batch);
    add(&sets, "parallel.zero=%d", trial->way.zero);
    add(&sets, "parallel.recompute=%s", recomputes[trial->way.recompute]);
    add(&sets, "parallel.recompute_layers=%d", trial->way.recompute > 3);
    add(&sets, "parallel.offload=%s", trial->way.offload ? "optimizer" : "none");
    add(&sets, "attention=%s", trial->way.offload ? "own" : "auto"); /* on a CPU the same kernels */
    add(&sets, "parallel.reduce=%s", trial->reduce);
    add(&sets, "precision.compute=%s", trial->precision);
    if (job_parse(job, base_job, "trial", sets.list, sets.n, &err) < 0)
        exit(error_report(&err));
}

bool trial_accumulates(const struct trial *trial)
{
    struct job job;
    struct mesh mesh = {data_parallel(trial), trial->shape.tp, trial->shape.pp};
    int n;

    trial_job(&job, trial, "", NULL);
    n = rank_config_share(&job, &mesh, 0, job.batch.global_batch).micro_batches;
    job_destroy(&job);
    return n > 1;
}

/* ---- numbers ---- */

int draw(struct draws *draws, int below)
{
    return (int)(philox_uniform((struct philox_stream){.seed = 3, .site = draws->site}, draws->used++) * below);
}

double worst_difference(const double *a, const double *b, int n)
{
    double worst = 0;

    for (int i = 0; i < n; i++) {
        double difference = fabs(a[i] - b[i]) / fmax(fmax(fabs(a[i]), fabs(b[i])), 1e-30);

        if (!isfinite(a[i]) || !isfinite(b[i]))
            return INFINITY;
        worst = fmax(worst, difference);
    }
    return worst;
}

static FILE *open_numbers(const char *dir, const char *name, const char *mode)
{
    char path[JOB_PATH_SIZE];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, mode);
    if (!file) {
        perror(path);
        exit(CODE_IO);
    }
    return file;
}

void write_numbers(const char *dir, const char *name, const double *numbers, int n)
{
    FILE *file = open_numbers(dir, name, "w");

    for (int i = 0; i < n; i++)
        fprintf(file, "%a\n", numbers[i]);
    if (fclose(file) != 0) {
        perror(name);
        exit(CODE_IO);
    }
}

void read_numbers(const char *dir, const char *name, double *numbers, int n)
{
    FILE *file = open_numbers(dir, name, "r");

    for (int i = 0; i < n; i++)
        if (fscanf(file, "%la", &numbers[i]) != 1) {
            fprintf(stderr, "%s/%s has fewer than %d numbers\n", dir, name, n);
            exit(CODE_DATA);
        }
    fclose(file);
}

/* ---- checkpoints ---- */

static struct ckpt *open_newest(const char *dir)
{
    char path[JOB_PATH_SIZE + 64];
    struct error err;
    struct ckpt *ckpt;
    uint64_t *steps;
    size_t n;

    if (ckpt_list(dir, &steps, &n, &err) < 0)
        exit(error_report(&err));
    if (n == 0) {
        fprintf(stderr, "%s has no checkpoint\n", dir);
        exit(CODE_DATA);
    }
    ckpt_step_path(path, sizeof path, dir, steps[0]);
    free(steps);
    ckpt = ckpt_open(path, &err);
    if (!ckpt)
        exit(error_report(&err));
    return ckpt;
}

struct differences {
    bool scaler;
    int count;
};

static void differ(const char *tensor, const char *kind, const char *reason, void *arg)
{
    struct differences *differences = arg;

    if (!differences->scaler && strcmp(tensor, "state") == 0 && strncmp(kind, "loss_scale", 10) == 0)
        return;
    if (differences->count++ < 3)
        printf("# %s %s: %s\n", tensor, kind, reason);
}

bool same_checkpoint(const char *a, const char *b, bool scaler)
{
    struct ckpt *left = open_newest(a), *right = open_newest(b);
    struct differences differences = {.scaler = scaler};
    struct error err;

    if (ckpt_diff(left, right, differ, &differences, &err) < 0)
        exit(error_report(&err));
    ckpt_close(left);
    ckpt_close(right);
    return differences.count == 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- TAP ---- */

void trial_die(struct comm *world, struct error *err, const char *what)
{
    if (!comm_world_fail(world, err) || comm_rank(world) == 0)
        printf("Bail out! %s: %s\n", what, err->text);
    fflush(stdout);
    exit((int)err->code);
}

bool tap(bool ok, const char *format, ...)
{
    va_list arguments;

    printf("%s - ", ok ? "ok" : "not ok");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
    return ok;
}
