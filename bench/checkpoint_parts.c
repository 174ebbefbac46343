/*
 * checkpoint_parts.c - the parts of a checkpoint's life, one a run, timed: what bench/checkpoint makes its table of.
 *
 *   bench/checkpoint_parts bytes BYTES                    of the smallest GPT with as many bytes of state
 *   bench/checkpoint_parts memcpy BYTES THREADS           copy so many bytes of memory that has been touched
 *   bench/checkpoint_parts save BYTES RANKS DIR STEP      ckpt_write_shard of every rank at once, and the commit
 *   bench/checkpoint_parts stage BYTES RANKS DIR STEP ROOT  ckpt_stage_shard of every rank at once, room reserved
 *                                                           before
 *   bench/checkpoint_parts load BYTES RANKS DIR STEP      ckpt_read_together of all ranks, into another topology
 *   bench/checkpoint_parts run COMMAND...                 any program; its peak resident memory too
 *   bench/checkpoint_parts until PATH COMMAND...          any program, until PATH is there
 *
 * Prints the seconds, and of `run` then the KiB. Ranks are threads, those that stage are processes, which copy with one
 * thread each. The state is that of a GPT, 12 bytes a parameter,
 * written as RANKS data-parallel ranks do and read as RANKS tensor-parallel ranks do, who check what they have read.
 */
#include "config.h"

#include "ckpt/models/units.h"
#include "ckpt/stage/stage.h"
#include "common/job.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KINDS = 3, MAX_RANKS = 64 };

static const char *const kinds[KINDS] = {"param", "exp_avg", "exp_avg_sq"};

struct rank {
    int index, ranks;
    const char *dir;
    uint64_t step;
    struct mesh mesh;
    const struct units *units;
    const char *job_text;
    struct ckpt_piece *pieces;
    size_t npieces;
    float **data; /* [npieces * KINDS] */
    struct error err;
    int result;
};

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void die(const struct error *err)
{
    exit(error_report(err));
}

static void *need(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    struct error err;

    if (!memory) {
        error_errno(&err, CODE_IO, "%zu x %zu bytes", count, size);
        die(&err);
    }
    return memory;
}

/* Differs from element to element and is not long to compute. */
static float value(size_t tensor, size_t kind, uint64_t place)
{
    return (float)((place * 2654435761u + tensor * KINDS + kind) & 0xffffff);
}

/* Each call of `each` on a thread of its own; the seconds until the last is done. */
static double on_threads(struct rank *ranks, int count, void *(*each)(void *))
{
    pthread_t threads[MAX_RANKS];
    double start = now();

    for (int r = 0; r < count; r++)
        if (pthread_create(&threads[r], NULL, each, &ranks[r]) != 0)
            abort();
    for (int r = 0; r < count; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < count; r++)
        if (ranks[r].result < 0)
            die(&ranks[r].err);
    return now() - start;
}

/* ---- the state --------------------------------------------------------------------------------------------------- */

/* A GPT of that many bytes of state, more or less. */
static struct model_shape model_of(uint64_t bytes)
{
    struct model_shape shape = {.hidden = 2048, .heads = 16, .seq_length = 1024, .vocab = 16384, .layers = 1};

    while (shape.layers < 4096 && model_parameters(&shape) * 4 * KINDS < bytes)
        shape.layers++;
    return shape;
}

static uint64_t bytes_of(uint64_t bytes)
{
    struct model_shape shape = model_of(bytes);

    return model_parameters(&shape) * 4 * KINDS;
}

/* What a value is made of: where the piece's element `i` lies in the whole tensor, and how many follow it there. */
static uint64_t place_of(const struct ckpt_tensor *tensor, const struct ckpt_piece *piece, uint64_t i, uint64_t *run)
{
    uint64_t at = piece->first + i, width = piece->shape[tensor->ndim - 1], place = 0, scale = 1;

    *run = width - at % width < piece->count - i ? width - at % width : piece->count - i;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        place += (piece->start[d] + at % piece->shape[d]) * scale;
        scale *= tensor->shape[d];
        at /= piece->shape[d];
    }
    return place;
}

/* Calls `each` for all of a rank's elements, a run that is contiguous in the tensor at a time. */
static void for_each_run(struct rank *rank,
                         void (*each)(float *data, size_t tensor, size_t kind, uint64_t place, uint64_t count))
{
    for (size_t p = 0; p < rank->npieces; p++)
        for (size_t k = 0; k < KINDS; k++)
            for (uint64_t i = 0, run; i < rank->pieces[p].count; i += run) {
                uint32_t t = rank->pieces[p].tensor;
                uint64_t place = place_of(&rank->units->tensors[t], &rank->pieces[p], i, &run);

                each(rank->data[p * KINDS + k] + i, t, k, place, run);
            }
}

static void fill(float *data, size_t tensor, size_t kind, uint64_t place, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        data[i] = value(tensor, kind, place + i);
}

static void wipe(float *data, size_t tensor, size_t kind, uint64_t place, uint64_t count)
{
    (void)tensor, (void)kind, (void)place;
    for (uint64_t i = 0; i < count; i++)
        data[i] = -1;
}

/* A page's first read after fork() is slow; a trainer's pages are long in use when it saves. */
static void touch(float *data, size_t tensor, size_t kind, uint64_t place, uint64_t count)
{
    static volatile float sink;

    (void)tensor, (void)kind, (void)place;
    for (uint64_t i = 0; i < count; i += 4096 / sizeof *data)
        sink = data[i];
    (void)sink;
}

static void check(float *data, size_t tensor, size_t kind, uint64_t place, uint64_t count)
{
    struct error err;

    for (uint64_t i = 0; i < count; i++)
        if (data[i] != value(tensor, kind, place + i)) {
            error_set(&err, CODE_DATA, "wrong values in tensor %zu", tensor);
            die(&err);
        }
}

/* What each rank of a mesh has; every page is there before the clock starts. */
static void make_ranks(struct rank *ranks, int count, uint64_t bytes, bool reader, char **where)
{
    struct model_shape shape = model_of(bytes);
    struct mesh mesh = {.dp = reader ? 1 : count, .tp = reader ? count : 1, .pp = 1};
    struct units *units = units_create(&shape, &mesh, 1, 0, &ranks->err);
    static char text[JOB_MODEL_SIZE + 64];

    if (!units)
        die(&ranks->err);
    job_model_text(text, &shape);
    strcat(text, "data = { train = \"none\"; };\n");
    for (int r = 0; r < count; r++) {
        struct rank *rank = &ranks[r];

        *rank = (struct rank){.index = r,
                              .ranks = count,
                              .dir = where[0],
                              .step = strtoull(where[1], NULL, 10),
                              .mesh = mesh,
                              .units = units,
                              .job_text = text};
        if (units_rank_pieces(&shape, &mesh, 1, r, &rank->pieces, &rank->npieces, &rank->err) < 0)
            die(&rank->err);
        rank->data = need(rank->npieces * KINDS, sizeof *rank->data);
        for (size_t p = 0; p < rank->npieces * KINDS; p++)
            rank->data[p] = need(rank->pieces[p / KINDS].count + 1, sizeof(float));
        for_each_run(rank, reader ? wipe : fill);
    }
}

/* ---- the parts --------------------------------------------------------------------------------------------------- */

static struct ckpt_save save_of(const struct rank *rank)
{
    return (struct ckpt_save){
        .dir = rank->dir,
        .shard = rank->index,
        .shards = rank->ranks,
        .tensors = rank->units->tensors,
        .ntensors = rank->units->ntensors,
        .kinds = kinds,
        .nkinds = KINDS,
        .pieces = rank->pieces,
        .npieces = rank->npieces,
        .sources = (const void *const *)rank->data,
        .state = {.step = rank->step, .loss_scale = 1, .dp = rank->mesh.dp, .tp = rank->mesh.tp, .pp = 1, .zero = 1},
        .job_text = rank->job_text,
        .attempt = "bench"};
}

static void *save_rank(void *arg)
{
    struct rank *rank = arg;
    struct ckpt_save save = save_of(rank);

    rank->result = ckpt_write_shard(&save, &rank->err);
    if (rank->result == 0)
        rank->result = ckpt_commit(rank->dir, rank->step, "bench", &rank->err);
    return NULL;
}

/* A rank's process: everything is ready at the first barrier, and staged at the second. */
static void stage_rank(struct rank *rank, const char *root, pthread_barrier_t *barrier)
{
    struct ckpt_stage_config config = {.root = root, .job = "bench", .run = "a", .local = rank->ranks, .threads = 1};
    struct ckpt_save save = save_of(rank);
    struct error err = {0};
    struct ckpt_stage *stage = ckpt_stage_open(&config, &err);
    int result = stage ? ckpt_stage_reserve(stage, &save, &err) : -1;

    for_each_run(rank, touch);
    pthread_barrier_wait(barrier);
    if (result == 0)
        result = ckpt_stage_shard(stage, &save, &err);
    pthread_barrier_wait(barrier);
    if (result != 0)
        die(&err);
    ckpt_stage_destroy(stage);
    _exit(0);
}

/* What the ranks of a node share when they load. */
static struct {
    pthread_barrier_t barrier;
    char *text; /* of the manifest */
    size_t bytes;
    void *memory;
} shared;

/* ckpt_node.agree: a rank that fails ends the program. */
static int agree_ranks(void *arg, int result, struct error *err)
{
    (void)arg;
    if (result < 0)
        die(err);
    pthread_barrier_wait(&shared.barrier);
    return 0;
}

/* Ends the program if memory is short. */
static void *map_pages(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct error err;

    if (memory != MAP_FAILED)
        return memory;
    error_errno(&err, CODE_IO, "%zu bytes", bytes);
    die(&err);
    return NULL;
}

/* As in trainer/restore.c: the first rank reads the manifest, and all read the data together. */
static void *load_rank(void *arg)
{
    struct rank *rank = arg;
    struct ckpt_node node = {.rank = rank->index, .ranks = rank->ranks, .agree = agree_ranks};
    char path[4096];
    struct ckpt *ckpt;

    ckpt_step_path(path, sizeof path, rank->dir, rank->step);
    if (rank->index == 0 && !(shared.text = ckpt_manifest_text(path, &shared.bytes, &rank->err)))
        die(&rank->err);
    pthread_barrier_wait(&shared.barrier);
    ckpt = ckpt_open_with(path, shared.text, shared.bytes, &rank->err);
    if (!ckpt)
        die(&rank->err);
    node.bytes = ckpt_node_bytes(ckpt, rank->ranks);
    if (rank->index == 0)
        shared.memory = map_pages(node.bytes);
    pthread_barrier_wait(&shared.barrier);
    node.memory = shared.memory;
    rank->result = ckpt_read_together(ckpt, &node, rank->units->tensors, rank->units->ntensors, kinds, KINDS,
                                      rank->pieces, rank->npieces, (void *const *)rank->data, &rank->err);
    ckpt_close(ckpt);
    return NULL;
}

static double bench_save(uint64_t bytes, int count, char **where)
{
    static struct rank ranks[MAX_RANKS];

    make_ranks(ranks, count, bytes, false, where);
    return on_threads(ranks, count, save_rank);
}

static double bench_stage(uint64_t bytes, int count, char **where)
{
    static struct rank ranks[MAX_RANKS];
    pthread_barrier_t *barrier = mmap(NULL, sizeof *barrier, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attributes;
    double start;
    int status;

    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (barrier == MAP_FAILED || pthread_barrier_init(barrier, &attributes, (unsigned)count + 1) != 0)
        abort();
    make_ranks(ranks, count, bytes, false, where);
    for (int r = 0; r < count; r++)
        if (fork() == 0)
            stage_rank(&ranks[r], where[2], barrier);
    pthread_barrier_wait(barrier);
    start = now();
    pthread_barrier_wait(barrier);
    start = now() - start;
    while (wait(&status) > 0)
        if (status != 0)
            exit(CODE_IO);
    return start;
}

static double bench_load(uint64_t bytes, int count, char **where)
{
    static struct rank ranks[MAX_RANKS];
    double seconds;

    if (pthread_barrier_init(&shared.barrier, NULL, (unsigned)count) != 0)
        abort();
    make_ranks(ranks, count, bytes, true, where);
    seconds = on_threads(ranks, count, load_rank);
    for (int r = 0; r < count; r++)
        for_each_run(&ranks[r], check);
    return seconds;
}

struct copy {
    char *to;
    const char *from;
    size_t bytes;
};

static void *copy_part(void *arg)
{
    struct copy *copy = arg;

    memcpy(copy->to, copy->from, copy->bytes);
    return NULL;
}

static double bench_memcpy(uint64_t bytes, int count)
{
    char *from = need(bytes, 1), *to = need(bytes, 1);
    pthread_t threads[MAX_RANKS];
    struct copy copies[MAX_RANKS];
    double start;

    memset(from, 1, bytes);
    memset(to, 2, bytes);
    start = now();
    for (int r = 0; r < count; r++) {
        uint64_t first = bytes * (unsigned)r / (unsigned)count;

        copies[r] = (struct copy){to + first, from + first, bytes * (unsigned)(r + 1) / (unsigned)count - first};
        if (pthread_create(&threads[r], NULL, copy_part, &copies[r]) != 0)
            abort();
    }
    for (int r = 0; r < count; r++)
        pthread_join(threads[r], NULL);
    start = now() - start;
    if (memcmp(from, to, bytes) != 0)
        abort();
    return start;
}

static int bench_run(char **argv)
{
    double start = now();
    struct rusage usage;
    pid_t child = fork();
    int status;

    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout))
            _exit(127);
        execvp(argv[0], argv);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) < 0 || status != 0)
        return 1;
    printf("%.6f %ld\n", now() - start, usage.ru_maxrss);
    return 0;
}

/* What comes after PATH is there, as the freeing of memory, is not counted. */
static int bench_until(const char *path, char **argv)
{
    double start = now(), found = 0;
    pid_t child = fork();
    int status = 1;

    if (child == 0) {
        execvp(argv[0], argv);
        _exit(127);
    }
    while (child > 0 && waitpid(child, &status, WNOHANG) == 0) {
        if (found == 0 && access(path, F_OK) == 0)
            found = now();
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    if (status != 0 || found == 0)
        return 1;
    printf("%.6f\n", found - start);
    return 0;
}

int main(int argc, char **argv)
{
    struct error err;
    uint64_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    int count = argc > 3 ? atoi(argv[3]) : 0;

    if (argc > 2 && strcmp(argv[1], "run") == 0)
        return bench_run(argv + 2);
    if (argc > 3 && strcmp(argv[1], "until") == 0)
        return bench_until(argv[2], argv + 3);
    if (bytes > 0 && argc == 3 && strcmp(argv[1], "bytes") == 0)
        printf("%" PRIu64 "\n", bytes_of(bytes));
    else if (bytes > 0 && count >= 1 && count <= MAX_RANKS && argc == 4 && strcmp(argv[1], "memcpy") == 0)
        printf("%.6f\n", bench_memcpy(bytes, count));
    else if (bytes > 0 && count >= 1 && count <= MAX_RANKS && argc == 6 && strcmp(argv[1], "save") == 0)
        printf("%.6f\n", bench_save(bytes, count, argv + 4));
    else if (bytes > 0 && count >= 1 && count <= MAX_RANKS && argc == 7 && strcmp(argv[1], "stage") == 0)
        printf("%.6f\n", bench_stage(bytes, count, argv + 4));
    else if (bytes > 0 && count >= 1 && count <= MAX_RANKS && argc == 6 && strcmp(argv[1], "load") == 0)
        printf("%.6f\n", bench_load(bytes, count, argv + 4));
    else
        return error_set(&err, CODE_USAGE, "see the top of checkpoint_parts.c"), error_report(&err);
    return 0;
}
