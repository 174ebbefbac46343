/* Checkpoints of one mesh read by the ranks of another, and written anew for it: every bit, and in bounded memory. */
#include "ckpt/models/units.h"
#include "tests/cmocka_test.h"
#include "tests/unit/test_ckpt_model.h"
#include "tests/unit/test_ckpt_world.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL_PAIRS   200
#define FEW_PAIRS   25
#define RESHARD_KIB (300L << 10)

/* What a rank reads: the pieces that it saves (ZeRO 1 to 3), or all that it holds (ZeRO 0). malloc'ed. */
static size_t rank_reads(const struct model_shape *shape, const struct mesh *mesh, int chunks, int rank, bool all,
                         struct ckpt_piece **pieces)
{
    struct mesh wide = *mesh;
    size_t count;
    struct error err;

    /* Without its share of dp, a rank saves all that tp and pp give it. */
    if (all) {
        rank = mesh_coords(mesh, rank).pp * mesh->tp + mesh_coords(mesh, rank).tp;
        wide.dp = 1;
    }
    if (units_rank_pieces(shape, &wide, chunks, rank, pieces, &count, &err) < 0)
        fail_msg("%s", err.text);
    return count;
}

static void rank_expects(struct ckpt *ckpt, const struct units *units, const struct ckpt_piece *pieces, size_t count)
{
    void **targets = calloc(count * MODEL_KINDS + 1, sizeof *targets);
    struct error err;

    assert_non_null(targets);
    for (size_t i = 0; i < count * MODEL_KINDS; i++)
        assert_non_null(targets[i] = malloc(pieces[i / MODEL_KINDS].count * sizeof(float))); /* exactly */
    if (ckpt_read(ckpt, units->tensors, units->ntensors, state_kinds, MODEL_KINDS, pieces, count, targets, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < count * MODEL_KINDS; i++) {
        assert_true(model_is_right(units, &pieces[i / MODEL_KINDS], i % MODEL_KINDS, targets[i]));
        free(targets[i]);
    }
    free(targets);
}

/* Every rank of the mesh loads, each with a checkpoint of its own opened. */
static void loads_on(const char *path, const struct model_shape *shape, const struct mesh *mesh, int chunks)
{
    struct units *units = model_units(shape);

    for (int rank = 0; rank < mesh_world(mesh); rank++) {
        struct error err;
        struct ckpt *ckpt = ckpt_open_lazily(path, &err);
        struct ckpt_piece *pieces;
        size_t count = rank_reads(shape, mesh, chunks, rank, rank % 3 == 0, &pieces);

        if (!ckpt)
            fail_msg("%s", err.text);
        rank_expects(ckpt, units, pieces, count);
        free(pieces);
        ckpt_close(ckpt);
    }
    units_destroy(units);
}

/* The two have the same shards with the same bytes of tensors. */
static void same_shards(const char *a, const char *b, int shards)
{
    for (int i = 0; i < shards; i++) {
        char one[512], two[512];
        size_t none, nbytes;
        char *x, *y;

        snprintf(one, sizeof one, "%s/step-00000005/shard-%05d-of-%05d.safetensors", a, i, shards);
        snprintf(two, sizeof two, "%s/step-00000005/shard-%05d-of-%05d.safetensors", b, i, shards);
        x = read_file(one, &none);
        y = read_file(two, &nbytes);
        assert_int_equal(none, nbytes);
        assert_memory_equal(x, y, nbytes);
        free(x);
        free(y);
    }
}

static void any_mesh_becomes_any_other(void **state)
{
    const int pairs = getenv("MUSTER_CHECK_FULL") ? ALL_PAIRS : FEW_PAIRS;
    uint64_t random = 2024;

    for (int pair = 0; pair < pairs; pair++) {
        struct model_shape shape = draw_model(&random);
        int from_chunks, to_chunks;
        struct mesh from = draw_mesh(&random, &from_chunks), to = draw_mesh(&random, &to_chunks);
        char dir[256], a[512], b[512], c[512], path[600];
        struct ckpt *source;
        struct error err;

        scratch_create(dir, scratch_fast());
        model_write(&shape, &from, from_chunks, join(a, dir, "a"));
        model_write(&shape, &to, to_chunks, join(c, dir, "c"));
        ckpt_step_path(path, sizeof path, a, 5);
        loads_on(path, &shape, &to, to_chunks);

        source = ckpt_open(path, &err);
        assert_non_null(source);
        if (ckpt_reshard(source, join(b, dir, "b"), &(struct rewrite_to){to, to_chunks, 2, NULL, NULL}, &err) < 0)
            fail_msg("%s", err.text);
        ckpt_close(source);
        assert_true(model_matches(&shape, b, 5, NULL, false));
        same_shards(b, c, mesh_world(&to)); /* what a save on that mesh would have written */
        scratch_destroy(dir);
    }
}

static void state_and_chunks_are_kept(void **state)
{
    struct model_shape shape = {.layers = 5, .hidden = 12, .heads = 2, .seq_length = 8, .vocab = 20};
    const struct mesh from = {1, 1, 2}, to = {2, 2, 2};
    char dir[256], a[512], b[512], c[512], path[600];
    struct ckpt *source, *made;
    struct error err;

    scratch_create(dir, scratch_fast());
    model_write(&shape, &from, 2, join(a, dir, "a"));
    model_write(&shape, &to, 2, join(c, dir, "c"));
    ckpt_step_path(path, sizeof path, a, 5);
    source = ckpt_open(path, &err);
    assert_non_null(source);
    assert_int_equal(ckpt_reshard(source, join(b, dir, "b"), &(struct rewrite_to){to, 0, 3, NULL, NULL}, &err), 0);
    same_shards(b, c, 8); /* the job file says chunks = 2 */
    ckpt_step_path(path, sizeof path, b, 5);
    made = ckpt_open(path, &err);
    assert_non_null(made);
    assert_string_equal(ckpt_job_text(made), ckpt_job_text(source));
    assert_int_equal(ckpt_progress(made)->consumed_samples, 40);
    assert_int_equal(ckpt_progress(made)->seed, 9);
    assert_int_equal(ckpt_progress(made)->dp * 100 + ckpt_progress(made)->tp * 10 + ckpt_progress(made)->zero, 223);

    /* It is there now; and what cannot be is said. */
    assert_int_equal(ckpt_reshard(source, b, &(struct rewrite_to){to, 0, 3, NULL, NULL}, &err), -1);
    assert_int_equal(err.code, CODE_USAGE);
    assert_non_null(strstr(err.text, "has step 5 already"));
    assert_int_equal(ckpt_reshard(source, join(b, dir, "d"), &(struct rewrite_to){.mesh = {1, 4, 1}}, &err), -1);
    assert_non_null(strstr(err.text, "tp = 4 does not divide the model's 2 heads"));
    ckpt_close(made);
    ckpt_close(source);
    scratch_destroy(dir);
}

static int read_zeros(void *arg, const struct ckpt_tensor *tensors, size_t ntensors, size_t kind,
                      const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    for (size_t p = 0; p < npieces; to += pieces[p++].count)
        memset(to, 0, pieces[p].count * sizeof *to);
    return 0;
}

/* Its model is that of its job file, and of no other tensors. */
static void another_models_job_file_is_refused(void **state)
{
    static const struct {
        const char *model, *error;
    } others[] = {
        {"layers = 2; hidden = 12; heads = 3; seq_length = 8; vocab = 21;",
         "tensor \"wte.weight\" has the wrong shape"},
        {"layers = 3; hidden = 12; heads = 3; seq_length = 8; vocab = 20;", "tensor \"h.2.ln_1.weight\" is missing"},
        {"layers = 1; hidden = 12; heads = 3; seq_length = 8; vocab = 20;", "28 tensors, there should be 16"},
        {"layers = 2; hidden = 12; heads = 3; seq_length = 8; vocab = 20; kind = \"bert\";",
         "tensor \"wtt.weight\" is missing"},
        {"layers = 2; hidden = 12; width = 3; seq_length = 8; vocab = 20;", "its model is not known: its job file:1: "},
    };
    char dir[256], a[512], b[512], path[600], text[256];
    struct rewrite rewrite = {.name = "test",
                              .dir = a,
                              .shape = {.layers = 2, .hidden = 12, .heads = 3, .seq_length = 8, .vocab = 20},
                              .to = {.mesh = {1, 1, 1}},
                              .kinds = state_kinds,
                              .nkinds = 1,
                              .job_text = text,
                              .read = read_zeros};
    struct error err;

    scratch_create(dir, scratch_fast());
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct ckpt *source;

        snprintf(text, sizeof text, "model = { %s }; data = { train = \"-\"; };", others[i].model);
        snprintf(path, sizeof path, "%zu", i);
        join(a, dir, path);
        assert_int_equal(rewrite_run(&rewrite, &err), 0);
        ckpt_step_path(path, sizeof path, a, 0);
        source = ckpt_open(path, &err);
        assert_non_null(source);
        assert_int_equal(ckpt_reshard(source, join(b, dir, "b"), &(struct rewrite_to){.mesh = {2, 1, 1}}, &err), -1);
        assert_int_equal(err.code, CODE_DATA);
        if (!strstr(err.text, others[i].error))
            fail_msg("%s", err.text);
        ckpt_close(source);
    }
    scratch_destroy(dir);
}

/* A shard that is damaged fails the whole of it, and leaves nothing that looks like a checkpoint. */
static void a_broken_source_makes_nothing(void **state)
{
    struct model_shape shape = {.layers = 2, .hidden = 24, .heads = 2, .seq_length = 8, .vocab = 300};
    const struct mesh from = {2, 1, 1}, to = {3, 1, 1};
    char dir[256], a[512], b[512], path[600], shard[700], *data;
    struct ckpt *source;
    struct error err;
    uint64_t *steps;
    size_t bytes, count;

    scratch_create(dir, scratch_fast());
    model_write(&shape, &from, 1, join(a, dir, "a"));
    ckpt_step_path(path, sizeof path, a, 5);
    source = ckpt_open_lazily(path, &err);
    assert_non_null(source);
    snprintf(shard, sizeof shard, "%s/shard-00001-of-00002.safetensors", path);
    data = read_file(shard, &bytes);
    data[bytes - 5] ^= 4;
    write_file(shard, data, bytes);
    free(data);
    assert_int_equal(ckpt_reshard(source, join(b, dir, "b"), &(struct rewrite_to){to, 0, 0, NULL, NULL}, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    assert_non_null(strstr(err.text, "shard-00001-of-00002.safetensors: checksum mismatch"));
    assert_int_equal(ckpt_list(b, &steps, &count, &err), 0);
    assert_int_equal(count, 0);
    free(steps);
    assert_int_equal(ckpt_recover(b, &err), 0);

    /* Cut short after it was opened: seen when it is touched. */
    assert_int_equal(truncate(shard, (off_t)bytes - 4096), 0);
    assert_int_equal(ckpt_reshard(source, b, &(struct rewrite_to){to, 0, 0, NULL, NULL}, &err), -1);
    assert_non_null(strstr(err.text, "truncated"));
    ckpt_close(source);
    source = ckpt_open_lazily(path, &err);
    assert_non_null(source);
    assert_int_equal(ckpt_verify(source, 2, NULL, NULL, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    ckpt_close(source);
    assert_null(ckpt_open(path, &err));
    scratch_destroy(dir);
}

/* 730 MB of state through the program, which must not hold it. */
static void memory_is_bounded(void **state)
{
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* its shadow is counted too */
#else
    const struct model_shape shape = {.layers = 12, .hidden = 512, .heads = 8, .seq_length = 1024, .vocab = 50257};
    char dir[256], a[512], b[512];
    struct rusage used;
    int status;
    pid_t child;

    if (getenv("MUSTER_TEST_EMULATED")) {
        print_message("# an emulator keeps what the program frees\n");
        skip();
    }
    scratch_create(dir, NULL);
    model_write(&shape, &(struct mesh){2, 2, 1}, 1, join(a, dir, "a"));
    join(b, dir, "b");
    child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout))
            execl(built_program("muster-ckpt"), "muster-ckpt", "reshard", "-q", "--to", "dp=3,tp=4", a, b,
                  (char *)NULL);
        _exit(127);
    }
    assert_int_equal(wait4(child, &status, 0, &used), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    if (used.ru_maxrss > RESHARD_KIB)
        fail_msg("%ld KiB resident to reshard, at most %ld are allowed", used.ru_maxrss, RESHARD_KIB);
    scratch_destroy(dir);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mesh_becomes_any_other),
        cmocka_unit_test(state_and_chunks_are_kept),
        cmocka_unit_test(another_models_job_file_is_refused),
        cmocka_unit_test(a_broken_source_makes_nothing),
        cmocka_unit_test(memory_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
