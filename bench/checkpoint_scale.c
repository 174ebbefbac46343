/*
 * checkpoint_scale.c - what a checkpoint of many ranks costs apart from its bytes: tiny shards of 1,024, 4,096 and
 * 16,384 simulated ranks, on one machine and without a trainer.
 *
 *   build/bench/checkpoint_scale [DIR [RANKS...]]      DIR: build, RANKS: multiples of 32
 *
 * The model and its tensors are the same for all; tp is 8, pp 4, dp the rest. Each operation is a process of its own, so
 * that its peak of resident memory is known; the files are in the page cache, as they have just been written. "load, one
 * rank" opens the checkpoint and reads the shard of a middle rank of a mesh of half as many ranks: tp 4, pp 2, dp the
 * rest. That it opens the files that it needs, and no others, is checked. What is read is checked against what was
 * written. "reshard" is to that mesh.
 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/file/workers.h"
#include "ckpt/models/rewrite.h"
#include "ckpt/models/units.h"
#include "ckpt/read/checkpoint.h"

enum { KINDS = 3, STEP = 10, WRITERS = 16 };

static const char *const kinds[KINDS] = {"param", "exp_avg", "exp_avg_sq"};
static const struct model_shape shape = {.hidden = 256, .heads = 8, .seq_length = 1024, .vocab = 4096, .layers = 4};

struct run {
    const char *dir; /* of checkpoints */
    char path[4096]; /* of the checkpoint */
    int ranks;
    struct mesh mesh, other;
    int opened; /* by "load, one rank" */
};

static void die(const struct error *err)
{
    exit(error_report(err));
}

static void *need(size_t count, size_t size)
{
    struct error err;
    void *memory = error_calloc(count, size, &err);

    if (!memory)
        die(&err);
    return memory;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- the values -------------------------------------------------------------------------------------------------- */

/* Calls `each` for all elements of a piece, of all kinds, with what their value must be. */
static void for_each_value(const struct ckpt_tensor *tensors, const struct ckpt_piece *piece, float *const *data,
                           void (*each)(float *element, float value))
{
    const struct ckpt_tensor *tensor = &tensors[piece->tensor];

    for (uint64_t i = 0; i < piece->count; i++) {
        struct ckpt_piece one = *piece;
        uint64_t place, last;

        one.first += i;
        one.count = 1;
        piece_extent(&one, tensor, &place, &last);
        for (size_t k = 0; k < KINDS; k++)
            each(&data[k][i], (float)((place * 2654435761u + piece->tensor * KINDS + k) & 0xffffff));
    }
}

static void set_value(float *element, float value)
{
    *element = value;
}

static void check_value(float *element, float value)
{
    struct error err;

    if (*element == value)
        return;
    error_set(&err, CODE_DATA, "wrong values were read");
    die(&err);
}

/* Room for the elements of all pieces: [npieces * KINDS], kind fastest. */
static float **make_data(const struct ckpt_piece *pieces, size_t npieces)
{
    float **data = need(npieces * KINDS + 1, sizeof *data);

    for (size_t p = 0; p < npieces * KINDS; p++)
        data[p] = need(pieces[p / KINDS].count + 1, sizeof **data);
    return data;
}

static void free_data(float **data, size_t npieces)
{
    for (size_t p = 0; p < npieces * KINDS; p++)
        free(data[p]);
    free(data);
}

/* ---- the operations, each in a process of its own ---------------------------------------------------------------- */

static int write_rank(void *arg, int worker, size_t rank, struct error *err)
{
    const struct run *run = arg;
    struct units *units = units_create_whole(&shape, err);
    struct ckpt_save save = {
        .dir = run->dir, .shard = (int)rank, .shards = run->ranks, .kinds = kinds, .nkinds = KINDS, .attempt = "bench"};
    struct ckpt_piece *pieces;
    float **data;
    int result;

    (void)worker;
    if (!units || units_rank_pieces(&shape, &run->mesh, 1, (int)rank, &pieces, &save.npieces, err) < 0)
        return -1;
    data = make_data(pieces, save.npieces);
    for (size_t p = 0; p < save.npieces; p++)
        for_each_value(units->tensors, &pieces[p], &data[p * KINDS], set_value);
    save.tensors = units->tensors;
    save.ntensors = units->ntensors;
    save.pieces = pieces;
    save.sources = (const void *const *)data;
    save.state = (struct ckpt_progress){
        .step = STEP, .loss_scale = 1, .dp = run->mesh.dp, .tp = run->mesh.tp, .pp = run->mesh.pp, .zero = 1};
    result = ckpt_write_shard(&save, err);
    free_data(data, save.npieces);
    free(pieces);
    units_destroy(units);
    return result;
}

static int do_write(struct run *run, struct error *err)
{
    return workers_run(WRITERS, (size_t)run->ranks, write_rank, run, err);
}

static int do_commit(struct run *run, struct error *err)
{
    int result = ckpt_commit(run->dir, STEP, "bench", err);

    return result == 0 ? error_set(err, CODE_INTERNAL, "%s: shards are missing", run->dir) : result;
}

static int run_tool(const struct run *run, const char *command, const char *path, struct error *err)
{
    char tool[4096];

    (void)run;
    snprintf(tool, sizeof tool, "%s/muster-ckpt", BUILD_DIR);
    if (freopen("/dev/null", "w", stdout))
        execl(tool, tool, command, path, NULL);
    return error_errno(err, CODE_IO, "%s", tool);
}

static int do_list(struct run *run, struct error *err)
{
    return run_tool(run, "list", run->dir, err);
}

static int do_show(struct run *run, struct error *err)
{
    return run_tool(run, "show", run->path, err);
}

static int do_verify(struct run *run, struct error *err)
{
    return run_tool(run, "verify", run->path, err);
}

static int read_checked(struct ckpt *ckpt, const struct ckpt_piece *pieces, size_t npieces, struct error *err)
{
    struct units *units = units_create_whole(&shape, err);
    float **data = make_data(pieces, npieces);

    if (!units ||
        ckpt_read(ckpt, units->tensors, units->ntensors, kinds, KINDS, pieces, npieces, (void *const *)data, err) < 0)
        return -1;
    for (size_t p = 0; p < npieces; p++)
        for_each_value(units->tensors, &pieces[p], &data[p * KINDS], check_value);
    free_data(data, npieces);
    units_destroy(units);
    return 0;
}

static int do_load_all(struct run *run, struct error *err)
{
    const struct mesh one = {.dp = 1, .tp = 1, .pp = 1};
    struct ckpt *ckpt = ckpt_open_lazily(run->path, err);
    struct ckpt_piece *pieces;
    size_t npieces;

    if (!ckpt || units_rank_pieces(&shape, &one, 1, 0, &pieces, &npieces, err) < 0)
        return -1;
    return read_checked(ckpt, pieces, npieces, err);
}

/* Whether any of the pieces is in that shard. */
static bool needs_shard(const struct manifest *manifest, int shard, const struct ckpt_piece *pieces, size_t npieces)
{
    const struct manifest_shard *s = &manifest->shard[shard];
    struct overlap walk;

    for (size_t p = 0; p < npieces; p++)
        for (size_t q = 0; q < s->npieces; q++)
            if (pieces[p].tensor == s->pieces[q].tensor &&
                overlap_start(&walk, &pieces[p], &s->pieces[q], manifest->tensors[pieces[p].tensor].ndim))
                return true;
    return false;
}

/* What a rank loads: its 1/dp of every unit of its stage, replicated tensors too. */
static void list_pieces(const struct units *units, const struct mesh *mesh, int rank, struct ckpt_piece **pieces,
                        size_t *npieces)
{
    *pieces = need((size_t)units->nunits * UNIT_MAX_TENSORS, sizeof **pieces);
    *npieces = 0;
    for (int u = 0; u < units->nunits; u++) {
        size_t first, count = unit_shard(units->units[u].count, mesh->dp, mesh_coords(mesh, rank).dp, &first);
        size_t offsets[UNIT_MAX_TENSORS];

        *npieces += units_pieces(units, u, first, count, false, *pieces + *npieces, offsets);
    }
}

static int do_load_one(struct run *run, struct error *err)
{
    struct ckpt *ckpt = ckpt_open_lazily(run->path, err);
    int rank = mesh_world(&run->other) * 3 / 4 + 1; /* the second stage, half of dp, tp 1 */
    struct units *units = units_create(&shape, &run->other, 1, rank, err);
    struct ckpt_piece *pieces;
    size_t npieces;

    if (!ckpt || !units)
        return -1;
    list_pieces(units, &run->other, rank, &pieces, &npieces);
    if (read_checked(ckpt, pieces, npieces, err) < 0)
        return -1;
    for (int s = 0; s < run->ranks; s++) {
        if (atomic_load(&ckpt->checked[s]) != needs_shard(ckpt->manifest, s, pieces, npieces))
            return error_set(err, CODE_INTERNAL, "shard %d is opened, and not needed, or the reverse", s);
        run->opened += atomic_load(&ckpt->checked[s]);
    }
    return 0;
}

/* To the mesh that "load, one rank" is of. */
static int do_reshard(struct run *run, struct error *err)
{
    struct ckpt *ckpt = ckpt_open(run->path, err);
    const struct rewrite_to to = {.mesh = run->other, .chunks = 1};
    char dir[4096];

    snprintf(dir, sizeof dir, "%s/other", run->dir);
    return ckpt ? ckpt_reshard(ckpt, dir, &to, err) : -1;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* Runs `work` in a process and prints a row. Ends the program when it fails. */
static void time_row(struct run *run, const char *label, int (*work)(struct run *run, struct error *err))
{
    int opened[2], status;
    struct rusage usage;
    double start = now(), processor;
    pid_t child;

    if (pipe(opened) < 0 || (child = fork()) < 0)
        exit(CODE_IO);
    if (child == 0) {
        struct error err;

        if (work(run, &err) < 0)
            die(&err);
        _exit(write(opened[1], &run->opened, sizeof run->opened) < 0);
    }
    close(opened[1]);
    if (wait4(child, &status, 0, &usage) < 0 || status != 0)
        exit(CODE_IO);
    start = now() - start;
    processor = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    if (read(opened[0], &run->opened, sizeof run->opened) < 0)
        exit(CODE_IO);
    close(opened[0]);
    printf("%8d  %-16s %9.3f %9.3f %9.3f %9.1f %10.1f", run->ranks, label, start, start * 1000 / run->ranks, processor,
           (double)usage.ru_maxrss / 1024, (double)usage.ru_maxrss / run->ranks);
    if (run->opened)
        printf("   %d files opened", run->opened);
    printf("\n");
    fflush(stdout);
}

static void time_ranks(const char *where, int ranks)
{
    struct run run = {
        .ranks = ranks, .mesh = {.dp = ranks / 32, .tp = 8, .pp = 4}, .other = {.dp = ranks / 16, .tp = 4, .pp = 2}};
    char dir[2048], remove[2100];

    snprintf(dir, sizeof dir, "%s/checkpoint-scale.XXXXXX", where);
    if (!mkdtemp(dir)) {
        struct error err;

        error_errno(&err, CODE_IO, "%s", dir);
        die(&err);
    }
    run.dir = dir;
    ckpt_step_path(run.path, sizeof run.path, dir, STEP);
    time_row(&run, "write", do_write);
    time_row(&run, "commit", do_commit);
    time_row(&run, "list", do_list);
    time_row(&run, "show", do_show);
    time_row(&run, "verify", do_verify);
    time_row(&run, "load, all", do_load_all);
    time_row(&run, "load, one rank", do_load_one);
    run.opened = 0;
    time_row(&run, "reshard", do_reshard);
    snprintf(remove, sizeof remove, "rm -rf '%s'", dir);
    if (system(remove) != 0)
        exit(CODE_IO);
}

int main(int argc, char **argv)
{
    static const char *const some[] = {"1024", "4096", "16384"};
    const char *const *counts = argc > 2 ? (const char *const *)argv + 2 : some;
    int ncounts = argc > 2 ? argc - 2 : 3;
    struct error err;

    for (int i = 0; i < ncounts; i++)
        if (atoi(counts[i]) < 32 || atoi(counts[i]) % 32 != 0)
            return error_set(&err, CODE_USAGE, "see the top of checkpoint_scale.c"), error_report(&err);
    printf("%8s  %-16s %9s %9s %9s %9s %10s\n", "shards", "", "seconds", "per 1000", "processor", "peak MiB",
           "KiB/shard");
    for (int i = 0; i < ncounts; i++)
        time_ranks(argc > 1 ? argv[1] : BUILD_DIR, atoi(counts[i]));
    return 0;
}
