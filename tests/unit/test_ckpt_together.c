/* The ranks of a node load together: every bit, every block read once, and one failure for all. */
#include "ckpt/models/units.h"
#include "ckpt/read/checkpoint.h"
#include "tests/cmocka_test.h"
#include "tests/unit/test_ckpt_model.h"
#include "tests/unit/test_ckpt_world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAIRS     12
#define ALL_PAIRS 100
#define MOST      16 /* ranks of a node, each of which has a few threads */

/* What lies behind a header is data. Everything here is linked before libc, so ckpt/ calls this. */
static atomic_int data_reads;

ssize_t pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    if (offset > 0)
        atomic_fetch_add(&data_reads, 1);
    return syscall(SYS_pread64, fd, buffer, bytes, offset);
}

/* What the ranks share, which are threads here. */
struct together_node {
    pthread_barrier_t barrier;
    pthread_mutex_t lock;
    bool failed;
    struct error err;
    void *memory;
    size_t bytes;
};

struct together_rank {
    struct together_node *node;
    int rank, ranks, result;
    struct ckpt *ckpt;
    const struct units *units;
    struct ckpt_piece *pieces;
    size_t npieces;
    void **targets;
    struct error err;
};

static int agree_threads(void *arg, int result, struct error *err)
{
    struct together_node *node = arg;
    bool failed;

    pthread_mutex_lock(&node->lock);
    if (result < 0 && !node->failed) {
        node->failed = true;
        node->err = *err;
    }
    pthread_mutex_unlock(&node->lock);
    pthread_barrier_wait(&node->barrier);
    failed = node->failed;
    pthread_barrier_wait(&node->barrier);
    if (failed)
        *err = node->err;
    return failed ? -1 : 0;
}

static void *read_rank(void *arg)
{
    struct together_rank *r = arg;
    struct ckpt_node node = {r->rank, r->ranks, r->node->memory, r->node->bytes, agree_threads, r->node};

    r->result = ckpt_read_together(r->ckpt, &node, r->units->tensors, r->units->ntensors, state_kinds, MODEL_KINDS,
                                   r->pieces, r->npieces, r->targets, &r->err);
    return NULL;
}

/* Each rank opens the checkpoint with the manifest's text, as the trainer's do. */
static void prepare_rank(struct together_rank *r, const char *path, const struct model_shape *shape,
                         const struct mesh *mesh, int chunks)
{
    size_t bytes;
    char *text = ckpt_manifest_text(path, &bytes, &r->err);

    r->ckpt = text ? ckpt_open_with(path, text, bytes, &r->err) : NULL;
    free(text);
    if (!r->ckpt || units_rank_pieces(shape, mesh, chunks, r->rank, &r->pieces, &r->npieces, &r->err) < 0)
        fail_msg("%s", r->err.text);
    r->targets = calloc(r->npieces * MODEL_KINDS + 1, sizeof *r->targets);
    assert_non_null(r->targets);
    for (size_t i = 0; i < r->npieces * MODEL_KINDS; i++)
        assert_non_null(r->targets[i] = malloc(r->pieces[i / MODEL_KINDS].count * sizeof(float)));
}

static void drop_rank(struct together_rank *r)
{
    for (size_t i = 0; i < r->npieces * MODEL_KINDS; i++)
        free(r->targets[i]);
    free(r->targets);
    free(r->pieces);
    ckpt_close(r->ckpt);
}

static size_t count_blocks(const struct ckpt *ckpt)
{
    size_t blocks = 0;

    for (int s = 0; s < ckpt->manifest->shards; s++)
        blocks += ckpt->manifest->shard[s].layout.blocks;
    return blocks;
}

/* All ranks of the mesh at once; with so many blocks of room less. Fails the test unless they do as expected. */
static void load_together(const char *path, const struct model_shape *shape, const struct mesh *mesh, int chunks,
                          bool cramped, const char *failure)
{
    struct together_node node = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct together_rank ranks[MOST] = {0};
    struct units *units = model_units(shape);
    int count = mesh_world(mesh);
    pthread_t threads[MOST];

    for (int r = 0; r < count; r++) {
        ranks[r] = (struct together_rank){.node = &node, .rank = r, .ranks = count, .units = units};
        prepare_rank(&ranks[r], path, shape, mesh, chunks);
    }
    node.bytes = ckpt_node_bytes(ranks[0].ckpt, count);
    if (cramped)
        node.bytes = node.bytes % (2 * SHARD_BLOCK) + 2 * SHARD_BLOCK; /* windows of one block */
    assert_int_equal(posix_memalign(&node.memory, SHARD_ALIGN, node.bytes), 0);
    memset(node.memory, 0x5a, node.bytes);
    assert_int_equal(pthread_barrier_init(&node.barrier, NULL, (unsigned)count), 0);
    atomic_store(&data_reads, 0);
    for (int r = 0; r < count; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, read_rank, &ranks[r]), 0);
    for (int r = 0; r < count; r++)
        pthread_join(threads[r], NULL);
    if (!failure)
        assert_int_equal(atomic_load(&data_reads), count_blocks(ranks[0].ckpt));
    for (int r = 0; r < count; r++) {
        if (ranks[r].result < 0 && !failure)
            fail_msg("%s", ranks[r].err.text);
        assert_int_equal(ranks[r].result, failure ? -1 : 0);
        if (failure)
            assert_non_null(strstr(ranks[r].err.text, failure));
        for (size_t i = 0; i < ranks[r].npieces * MODEL_KINDS && !failure; i++)
            assert_true(model_is_right(units, &ranks[r].pieces[i / MODEL_KINDS], i % MODEL_KINDS, ranks[r].targets[i]));
        drop_rank(&ranks[r]);
    }
    pthread_barrier_destroy(&node.barrier);
    free(node.memory);
    units_destroy(units);
}

static void every_block_is_read_once(void **state)
{
    const int pairs = getenv("MUSTER_CHECK_FULL") ? ALL_PAIRS : PAIRS;
    uint64_t random = 1924;

    for (int pair = 0; pair < pairs; pair++) {
        struct model_shape shape = draw_model(&random);
        int from_chunks, to_chunks;
        struct mesh from = draw_mesh(&random, &from_chunks), to = draw_mesh(&random, &to_chunks);
        char dir[256], path[600];

        while (mesh_world(&to) > MOST || mesh_world(&to) < 2)
            to = draw_mesh(&random, &to_chunks);
        scratch_create(dir, scratch_fast());
        model_write(&shape, &from, from_chunks, dir);
        ckpt_step_path(path, sizeof path, dir, 5);
        load_together(path, &shape, &to, to_chunks, pair % 2, NULL);
        scratch_destroy(dir);
    }
}

/* Shards of several blocks, of which each of four ranks wants some columns. */
static void columns_of_large_blocks(void **state)
{
    struct model_shape shape = {.layers = 2, .hidden = 512, .heads = 8, .seq_length = 64, .vocab = 4096};
    char dir[256], path[600];

    scratch_create(dir, scratch_fast());
    model_write(&shape, &(struct mesh){.dp = 3, .tp = 1, .pp = 1}, 1, dir);
    ckpt_step_path(path, sizeof path, dir, 5);
    load_together(path, &shape, &(struct mesh){.dp = 1, .tp = 4, .pp = 1}, 1, false, NULL);
    load_together(path, &shape, &(struct mesh){.dp = 2, .tp = 2, .pp = 2}, 1, true, NULL);
    scratch_destroy(dir);
}

static void one_bad_block_fails_all(void **state)
{
    struct model_shape shape = {.layers = 2, .hidden = 64, .heads = 8, .seq_length = 64, .vocab = 400};
    char dir[256], path[600], shard[700], *data;
    size_t bytes;

    scratch_create(dir, scratch_fast());
    model_write(&shape, &(struct mesh){.dp = 3, .tp = 1, .pp = 1}, 1, dir);
    ckpt_step_path(path, sizeof path, dir, 5);
    snprintf(shard, sizeof shard, "%s/shard-00001-of-00003.safetensors", path);
    data = read_file(shard, &bytes);
    data[bytes / 2] ^= 8;
    write_file(shard, data, bytes);
    free(data);
    load_together(path, &shape, &(struct mesh){.dp = 1, .tp = 4, .pp = 1}, 1, true,
                  "shard-00001-of-00003.safetensors: checksum mismatch");
    assert_int_equal(unlink(shard), 0);
    load_together(path, &shape, &(struct mesh){.dp = 1, .tp = 4, .pp = 1}, 1, true,
                  "shard-00001-of-00003.safetensors: No such file");
    scratch_destroy(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_is_read_once),
        cmocka_unit_test(columns_of_large_blocks),
        cmocka_unit_test(one_bad_block_fails_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
