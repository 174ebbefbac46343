/*
 * reshard_ranks.c - saved under one mesh, loaded under another: pairs drawn with a fixed seed over shapes, ZeRO stages,
 * precisions, chunks, offload, recompute and models.
 *
 *   reshard_ranks DIR save        the pairs whose writer has as many ranks as this: some steps, a checkpoint into DIR,
 *                                 and the losses of the steps after it
 *   reshard_ranks DIR reference   on one rank: the losses that a single process goes on with from each checkpoint, in
 *                                 the reader's precision
 *   reshard_ranks DIR load        the pairs whose reader has as many ranks, a TAP line each: the state is saved again
 *                                 at once, and no bit may differ; then the next losses must be those of the single
 *                                 process, and in fp32 those of the run that was not interrupted
 *
 * The master copy is fp32 in every precision, so that a change of precision changes no bit of it. The loss scale is
 * fp16's alone: it is compared where both are fp16.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/trial.h"
#include "trainer/saver.h"

enum { PAIRS = 100, ALL_PAIRS = 1000, BEFORE = 4, AFTER = 5 };

static const char *dir;
static struct comm *world;
static struct error err;

struct pair {
    char name[32];
    struct trial writer, reader;
};

/*
 * Against the single process in the same precision. In 16 bits a sum that is rounded in another order may fall on the
 * other side of half a step, 2^-9 of an activation in bf16 and 2^-12 in fp16; a loss is a mean over some hundred
 * predictions of a few such steps.
 */
static double tolerance(const char *precision)
{
    if (strcmp(precision, "bf16") == 0)
        return 2e-3;
    return strcmp(precision, "fp16") == 0 ? 3e-4 : 1e-5;
}

static void draw_trial(struct trial *trial, int variant, struct draws *draws)
{
    static const char *const precisions[] = {"fp32", "fp32", "bf16", "fp16"};
    static const char *const reduces[] = {"auto", "step", "micro_batch"};
    struct shape shapes[TRIAL_SHAPES];
    int n = trial_shapes(shapes);

    *trial = (struct trial){.variant = variant};
    trial->shape = shapes[draw(draws, n)];
    trial->micro_batch = 1 + draw(draws, 4);
    trial->way = trial_way(draw(draws, TRIAL_WAYS));
    trial->reduce = reduces[draw(draws, 3)];
    trial->precision = precisions[draw(draws, 4)];
}

static struct pair draw_pair(int number)
{
    struct draws draws = {.site = 1000000 + (uint32_t)number};
    struct pair pair;

    snprintf(pair.name, sizeof pair.name, "pair-%d", number);
    draw_trial(&pair.writer, number % trial_variants(), &draws);
    draw_trial(&pair.reader, number % trial_variants(), &draws);
    return pair;
}

static void path_of(char path[JOB_PATH_SIZE], const struct pair *pair, const char *suffix)
{
    snprintf(path, JOB_PATH_SIZE, "%s/%s%s", dir, pair->name, suffix);
}

static struct engine *start(struct job *job, const struct trial *trial, const char *ckpt)
{
    char name[TRIAL_NAME];
    struct engine *e;

    trial_name(name, trial);
    trial_job(job, trial, dir, ckpt);
    e = engine_create(job, world, &err);
    if (!e)
        trial_die(world, &err, name);
    return e;
}

static void take_steps(struct engine *e, int n, double *losses)
{
    struct step_result result;

    for (int i = 0; i < n; i++) {
        if (engine_step(e, &result, &err) < 0)
            trial_die(world, &err, "a step");
        losses[i] = result.loss.all;
    }
}

static void save(const struct pair *pair)
{
    char ckpt[JOB_PATH_SIZE], file[64];
    double losses[BEFORE + AFTER];
    struct job job;
    struct engine *e;

    path_of(ckpt, pair, "");
    e = start(&job, &pair->writer, ckpt);
    if (engine_initialize(e, &err) < 0)
        trial_die(world, &err, pair->name);
    take_steps(e, BEFORE, losses);
    if (engine_save(e, NULL, &err) < 0)
        trial_die(world, &err, pair->name);
    take_steps(e, AFTER, losses);
    if (comm_rank(world) == 0) {
        snprintf(file, sizeof file, "%s.losses", pair->name);
        write_numbers(dir, file, losses, AFTER);
    }
    engine_destroy(e);
    job_destroy(&job);
}

static void say_skipped(const char *why)
{
    printf("# %s\n", why);
}

/* The losses after the pair's checkpoint; with `again` a directory that the state is saved into before them. */
static void go_on(const struct pair *pair, const struct trial *trial, const char *again, double losses[AFTER])
{
    char ckpt[JOB_PATH_SIZE];
    struct job job;
    struct engine *e;

    path_of(ckpt, pair, "");
    e = start(&job, trial, again);
    if (engine_restore(e, ckpt, RESTORE_OTHER, say_skipped, &err) < 0 || (again && engine_save(e, NULL, &err) < 0))
        trial_die(world, &err, pair->name);
    take_steps(e, AFTER, losses);
    engine_destroy(e);
    job_destroy(&job);
}

static void refer(const struct pair *pair)
{
    struct trial alone = {.variant = pair->reader.variant,
                          .shape = {1, 1, 1, 1},
                          .micro_batch = 4,
                          .reduce = "auto",
                          .precision = pair->reader.precision};
    double losses[AFTER];
    char file[64];

    go_on(pair, &alone, NULL, losses);
    snprintf(file, sizeof file, "%s.reference", pair->name);
    write_numbers(dir, file, losses, AFTER);
}

static bool follows(const struct pair *pair, const char *suffix, const double losses[AFTER], double most)
{
    double other[AFTER], worst;
    char file[64];

    snprintf(file, sizeof file, "%s%s", pair->name, suffix);
    read_numbers(dir, file, other, AFTER);
    worst = worst_difference(losses, other, AFTER);
    if (worst <= most)
        return true;
    printf("# %s: losses differ by %g\n", file, worst);
    return false;
}

static bool load(const struct pair *pair)
{
    char ckpt[JOB_PATH_SIZE], again[JOB_PATH_SIZE], from[TRIAL_NAME], to[TRIAL_NAME];
    const char *old = pair->writer.precision, *new = pair->reader.precision;
    double losses[AFTER];
    bool ok = true;

    path_of(ckpt, pair, "");
    path_of(again, pair, ".again");
    go_on(pair, &pair->reader, again, losses);
    if (comm_rank(world) != 0)
        return true;
    trial_name(from, &pair->writer);
    trial_name(to, &pair->reader);
    ok &= same_checkpoint(ckpt, again, strcmp(old, new) == 0);
    ok &= follows(pair, ".reference", losses, tolerance(new));
    if (strcmp(old, "fp32") == 0 && strcmp(new, "fp32") == 0)
        ok &= follows(pair, ".losses", losses, tolerance(new));
    remove_tree(again);
    return tap(ok, "%s to %s", from, to);
}

int main(int argc, char **argv)
{
    int pairs = getenv("MUSTER_CHECK_FULL") ? ALL_PAIRS : PAIRS;
    bool ok = true;

    if (argc < 3)
        return CODE_USAGE;
    dir = argv[1];
    world = comm_world_create(&err);
    if (!world)
        return error_report(&err);
    for (int i = 0; i < pairs; i++) {
        struct pair pair = draw_pair(i);

        if (strcmp(argv[2], "save") == 0 && pair.writer.shape.ranks == comm_size(world))
            save(&pair);
        else if (strcmp(argv[2], "reference") == 0)
            refer(&pair);
        else if (strcmp(argv[2], "load") == 0 && pair.reader.shape.ranks == comm_size(world))
            ok &= load(&pair);
    }
    comm_destroy(world);
    return ok ? 0 : 1;
}
