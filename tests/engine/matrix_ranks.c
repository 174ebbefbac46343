/*
 * matrix_ranks.c - the meshes of the matrix that have as many ranks as this was started on, one after the other in the
 * same processes. A TAP line each: that all ways at that mesh have the losses of the single process, 20 steps within
 * 1e-5, the same validation loss, and among themselves the same bits, losses and checkpoint.
 *
 *   matrix_ranks DIR reference    on one rank, first: the single process's losses into DIR
 *   matrix_ranks DIR              data is in DIR: train, valid, sentences, sentences-valid
 *
 * Every shape has two meshes of the default matrix, which go through the variants and sizes of micro-batch in turn.
 * Each of them has three ways, drawn with a fixed seed, or two where many ranks share the cores; with MUSTER_CHECK_FULL
 * in the environment it is all of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/trial.h"
#include "trainer/saver.h"

enum { STEPS = 20, NUMBERS = STEPS + 1, MICRO_BATCHES = 3, TURNS = 2, MANY = 4 };
#define TOLERANCE 1e-5

static const char *dir;
static struct comm *world;
static struct error err;

/* Losses of all steps, and of a validation batch; leaves a checkpoint where ckpt is given. */
static void run(const struct trial *trial, const char *ckpt, double numbers[NUMBERS])
{
    char name[TRIAL_NAME];
    struct job job;
    struct engine *e;
    struct step_result result;
    struct loss_sums valid = {0};

    trial_name(name, trial);
    trial_job(&job, trial, dir, ckpt);
    e = engine_create(&job, world, &err);
    if (!e || engine_initialize(e, &err) < 0)
        trial_die(world, &err, name);
    for (int i = 0; i < STEPS; i++) {
        if (engine_step(e, &result, &err) < 0)
            trial_die(world, &err, name);
        numbers[i] = result.loss.all;
    }
    if (engine_evaluate(e, (uint64_t)job.batch.global_batch, job.batch.global_batch, &valid, &err) < 0 || (ckpt && engine_save(e, NULL, &err) < 0))
        trial_die(world, &err, name);
    numbers[STEPS] = loss_mean(&valid).all;
    engine_destroy(e);
    job_destroy(&job);
}

static void make_references(void)
{
    for (int variant = 0; variant < trial_variants(); variant++) {
        struct trial trial = {variant, {1, 1, 1, 1}, 4, {0}, "auto", "fp32"};
        double numbers[NUMBERS];

        run(&trial, NULL, numbers);
        write_numbers(dir, trial_variant_name(variant), numbers, NUMBERS);
    }
}

static bool check_way(const struct trial *trial, bool first, double base[NUMBERS])
{
    double numbers[NUMBERS], reference[NUMBERS], worst;
    char name[TRIAL_NAME], ckpt[2][JOB_PATH_SIZE];
    bool ok = true;

    snprintf(ckpt[0], sizeof ckpt[0], "%s/base", dir);
    snprintf(ckpt[1], sizeof ckpt[1], "%s/other", dir);
    run(trial, ckpt[!first], numbers);
    if (comm_rank(world) != 0)
        return true;
    trial_name(name, trial);
    read_numbers(dir, trial_variant_name(trial->variant), reference, NUMBERS);
    worst = worst_difference(numbers, reference, NUMBERS);
    if (!(worst <= TOLERANCE)) {
        printf("# %s: differs from the single process by %g\n", name, worst);
        ok = false;
    }
    if (first) {
        memcpy(base, numbers, sizeof numbers);
    } else {
        if (memcmp(base, numbers, sizeof numbers) != 0) {
            printf("# %s: differs from the first way by %g\n", name, worst_difference(numbers, base, NUMBERS));
            ok = false;
        }
        if (!same_checkpoint(ckpt[0], ckpt[1], true)) {
            printf("# %s: another checkpoint than the first way's\n", name);
            ok = false;
        }
        remove_tree(ckpt[1]);
    }
    return ok;
}

static bool check_mesh(struct trial *trial, bool full)
{
    struct draws draws = {.site = (uint32_t)(trial->variant * 1000 + trial->shape.ranks * 100 + trial->shape.tp * 20 +
                                             trial->shape.pp * 4 + trial->shape.chunks)};
    char name[TRIAL_NAME], base_dir[JOB_PATH_SIZE];
    double base[NUMBERS];
    int ways = full ? TRIAL_WAYS : trial->shape.ranks > MANY ? 2 : 3;
    bool ok = true;

    /* With one micro-batch all stages reduce at the same moment, whatever "auto" makes of it. */
    trial->precision = "fp32";
    trial->reduce = "auto";
    if (trial_accumulates(trial))
        trial->reduce = draw(&draws, 2) ? "step" : "micro_batch";
    for (int i = 0; i < ways; i++) {
        trial->way = trial_way(full ? i : draw(&draws, TRIAL_WAYS));
        ok &= check_way(trial, i == 0, base);
    }
    trial_mesh_name(name, trial);
    if (comm_rank(world) == 0) {
        snprintf(base_dir, sizeof base_dir, "%s/base", dir);
        remove_tree(base_dir);
        tap(ok, "%s", name);
    }
    return ok;
}

static bool check_all(bool full)
{
    struct shape shapes[TRIAL_SHAPES];
    int nshapes = trial_shapes(shapes), combinations = trial_variants() * MICRO_BATCHES;
    bool ok = true;

    for (int s = 0; s < nshapes; s++)
        for (int i = 0; i < (full ? combinations : TURNS); i++) {
            int turn = full ? i : s * TURNS + i;
            struct trial trial = {.shape = shapes[s]};

            trial.variant = turn % trial_variants();
            trial.micro_batch = 1 + turn % MICRO_BATCHES;
            if (shapes[s].ranks == comm_size(world))
                ok &= check_mesh(&trial, full);
        }
    return ok;
}

int main(int argc, char **argv)
{
    bool ok = true;

    if (argc < 2)
        return CODE_USAGE;
    dir = argv[1];
    world = comm_world_create(&err);
    if (!world)
        return error_report(&err);
    if (argc > 2)
        make_references();
    else
        ok = check_all(getenv("MUSTER_CHECK_FULL") != NULL);
    comm_destroy(world);
    return ok ? 0 : 1;
}
