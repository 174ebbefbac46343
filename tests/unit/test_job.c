/* The job file: what is accepted, what it means, and that text, table and manual agree. */
#include <sys/stat.h>
#include <unistd.h>

#include "common/job.h"
#include "common/job_data.h"
#include "common/job_impl.h"
#include "tests/unit/test_files.h"
#include "tests/unit/test_job_broken.h"

static const char least[] = "model = { preset = \"gpt-tiny\"; };\n"
                            "data = { train = \"corpus\"; };\n";

static void parse(struct job *job, const char *text, const char *const *set, int nset)
{
    struct error err;

    if (job_parse(job, text, "test.cfg", (char *const *)set, nset, &err) < 0)
        fail_msg("%s", err.text);
}

static void what_is_not_given_has_its_default(void **state)
{
    struct job job;

    parse(&job, least, NULL, 0);
    assert_int_equal(job.model.layers, 4);
    assert_int_equal(job.model.seq_length, 128);
    assert_string_equal(job.preset, "gpt-tiny");
    assert_true(job.init_std == 0.02);
    assert_int_equal(job.parallel.tp, 1);
    assert_int_equal(job.parallel.pp, 1);
    assert_int_equal(job.parallel.zero, 1);
    assert_int_equal(job.attention, ATTENTION_AUTO);
    assert_int_equal(job.batch.steps, 1000);
    assert_int_equal(job.batch.seed, 1234);
    assert_true(job.optimizer.lr == 3e-4 && job.optimizer.beta2 == 0.95 && job.optimizer.eps == 1e-8);
    assert_int_equal(job.optimizer.schedule, LR_COSINE);
    assert_int_equal(job.precision.compute, DTYPE_F32);
    assert_int_equal(job.precision.reduce, DTYPE_F32);
    assert_true(job.precision.loss_scale == 0 && job.precision.loss_scale_start == 0x1p32);
    assert_int_equal(job.model.objective, OBJECTIVE_CAUSAL);
    assert_true(job.dropout.hidden == 0 && job.dropout.attention == 0);
    assert_int_equal(job.parallel.chunks, 1);
    assert_int_equal(job.parallel.offload, OFFLOAD_NONE);
    assert_int_equal(job.parallel.recompute, RECOMPUTE_NONE);
    assert_true(job.report.hang_seconds == 600 && job.report.straggler_factor == 1.5);
    assert_string_equal(job.data.train, "corpus");
    assert_string_equal(job.data.valid, "");
    assert_string_equal(job.checkpoint.dir, "");
    assert_int_equal(job.report.log_every, 10);
    assert_string_equal(job.text, least);
    job_destroy(&job);
}

static void expand(struct job *job, const char *dir)
{
    struct error err;

    snprintf(job->checkpoint.dir, sizeof job->checkpoint.dir, "%s", dir);
    if (job_expand_paths(job, &err) < 0)
        fail_msg("%s", err.text);
}

static void paths_get_the_values_of_their_patterns(void **state)
{
    char path[JOB_PATH_SIZE];
    struct error err;
    struct job job;

    setenv("SLURM_JOB_ID", "1234", 1);
    setenv("SLURM_ARRAY_JOB_ID", "1230", 1);
    setenv("SLURM_ARRAY_TASK_ID", "7", 1);
    setenv("SLURM_JOB_NAME", "sweep", 1);
    parse(&job, least, NULL, 0);
    expand(&job, "a/%A_%a/%x.%j");
    assert_string_equal(job.checkpoint.dir, "a/1230_7/sweep.1234");
    assert_string_equal(job.report.metrics, "");
    expand(&job, "%3a%%%2j%5x");
    assert_string_equal(job.checkpoint.dir, "007%1234sweep");
    snprintf(path, sizeof path, "%01021d%%a", 0);
    expand(&job, path);
    assert_int_equal(strlen(job.checkpoint.dir), 1022);
    snprintf(job.checkpoint.dir, sizeof job.checkpoint.dir, "%01020d%%j", 0);
    assert_int_equal(job_expand_paths(&job, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    strcpy(job.checkpoint.dir, "%a");
    unsetenv("SLURM_ARRAY_TASK_ID");
    assert_int_equal(job_expand_paths(&job, &err), -1);
    assert_string_equal(err.text,
                        "checkpoint.dir: %a is the index of an array task, but SLURM_ARRAY_TASK_ID is not set");
    strcpy(job.checkpoint.dir, "%x");
    setenv("SLURM_JOB_NAME", "../other", 1);
    assert_int_equal(job_expand_paths(&job, &err), -1);
    job_destroy(&job);
}

/* A job may have other directories of these names than slurmd. */
static void the_stage_is_one_that_slurmd_sees(void **state)
{
    char base[] = "/tmp/muster-stage-XXXXXX", first[64], second[64], both[160], text[1024], root[JOB_PATH_SIZE];

    assert_non_null(mkdtemp(base));
    snprintf(first, sizeof first, "%s/first", base);
    snprintf(second, sizeof second, "%s/second", base);
    snprintf(both, sizeof both, "/nowhere:%s:%s", first, second);
    assert_int_equal(mkdir(first, 0700) | mkdir(second, 0700), 0);
    assert_true(job_stage_describe(both, text, sizeof text));
    assert_false(job_stage_describe(both, root, 40));
    assert_true(job_stage_choose("auto", text, root));
    assert_string_equal(root, first);
    assert_int_equal(rmdir(first), 0);
    assert_true(job_stage_choose("auto", text, root));
    assert_string_equal(root, second);
    assert_true(job_stage_choose(second, text, root)); /* the user's choice, which slurmd sees, or does not */
    assert_false(job_stage_choose(base, text, root));
    assert_string_equal(root, base);
    assert_int_equal(rmdir(second), 0);
    assert_false(job_stage_choose("auto", text, root));
    assert_string_equal(root, "/dev/shm");
    assert_true(job_stage_choose("auto", base, root));
    assert_string_equal(root, base);
    assert_true(job_stage_choose("auto", NULL, root));
    assert_string_equal(root, "/dev/shm");
    assert_true(job_stage_choose(base, "", root));
    assert_string_equal(root, base);
    rmdir(base);
}

static void what_is_given_is_kept(void **state)
{
    struct job job;

    parse(
        &job,
        "model: { layers = 3; hidden = 96; heads = 6; seq_length = 64; vocab = 1000; init_std = 0.01; }\n"
        "parallel = { zero = 0; };\n"
        "batch = { global_batch = 12, micro_batch = 5, steps = 5000000000, seed = 4294967297L };\n"
        "optimizer = { lr = 1; min_lr = .5; schedule = \"linear\"; clip = 0; warmup_steps = 3; decay_steps = 9; };\n"
        "data = { train = \"a\" \"b\"; valid = \"v\"; };\n"
        "checkpoint = { dir = \"/c\"; every = 7; keep = 0; };\n"
        "report = { eval_every = 2; metrics = \"m 0x10 010 @include\"; minutes = 1.5; peak_tflops = 2; }; # 0x10 010\n"
        "/* 0x10\n * 010 */ // 0x10",
        NULL, 0);
    assert_int_equal(job.model.layers, 3);
    assert_int_equal(job.model.hidden, 96);
    assert_int_equal(job.model.heads, 6);
    assert_int_equal(job.model.seq_length, 64);
    assert_int_equal(job.model.vocab, 1000);
    assert_int_equal(job.parallel.zero, 0);
    assert_int_equal(job.batch.global_batch, 12);
    assert_int_equal(job.batch.micro_batch, 5);
    assert_true(job.batch.steps == 5000000000);
    assert_true(job.batch.seed == 4294967297);
    assert_true(job.optimizer.lr == 1 && job.optimizer.min_lr == 0.5 && job.optimizer.clip == 0);
    assert_int_equal(job.optimizer.schedule, LR_LINEAR);
    assert_string_equal(job.data.train, "ab");
    assert_string_equal(job.checkpoint.dir, "/c");
    assert_int_equal(job.checkpoint.keep, 0);
    assert_string_equal(job.report.metrics, "m 0x10 010 @include");
    assert_true(job.report.minutes == 1.5 && job.report.peak_tflops == 2);
    job_destroy(&job);
}

static void sizes_beside_a_preset_override_it(void **state)
{
    struct job job;

    parse(&job, "data = { train = \"t\"; }; model = { vocab = 256; preset = \"gpt-125m\"; };", NULL, 0);
    assert_int_equal(job.model.vocab, 256);
    assert_int_equal(job.model.hidden, 768);
    job_destroy(&job);
}

static void overrides_win_and_the_last_wins_most(void **state)
{
    const char *set[] = {"batch.steps=5",          "batch.steps = 6", "data.train=2024", "data.valid=\"a = b\"",
                         "model.preset=gpt-125m",  "optimizer.lr=1",  "report.metrics=", "optimizer.schedule=constant",
                         "checkpoint.dir=/x#y = z"};
    struct job job;

    parse(&job, "model = { preset = \"gpt-tiny\"; }; data = { train = \"t\"; }; report = { metrics = \"m\"; };", set,
          9);
    assert_int_equal(job.batch.steps, 6);
    assert_string_equal(job.data.train, "2024");
    assert_string_equal(job.data.valid, "a = b");
    assert_int_equal(job.model.layers, 12);
    assert_true(job.optimizer.lr == 1);
    assert_string_equal(job.report.metrics, "");
    assert_int_equal(job.optimizer.schedule, LR_CONSTANT);
    assert_string_equal(job.checkpoint.dir, "/x#y = z");
    job_destroy(&job);
}

/* What a checkpoint keeps is the text alone. Byte for byte the same struct must come from it, however often. */
static void text_makes_the_same_job_again(void **state)
{
    static const char *const texts[] = {
        "model = { preset = \"gpt-tiny\"; }; data = { train = \"t\"; };", /* no newline at its end */
        "model = { preset = \"gpt-tiny\"; };\r\ndata = { train = \"t\"; };\r\n#! --set batch.seed=8\r\n",
        "model = { preset = \"gpt-tiny\"; }; data = { train = \"t\"; }; /* never closed",
        "model = { preset = \"gpt-tiny\"; }; data = { train = \"t\"; }; # comment",
    };
    const char *set[] = {"optimizer.lr=0.1234567890123456789", "batch.seed=77", "data.valid= \"x\\ty\" ",
                         "data.train=a b "};
    const char *more[] = {"batch.seed=78"};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct job first, second, third;
        char *text;

        parse(&first, texts[i], set, 4);
        assert_int_equal(first.batch.seed, 77);
        assert_string_equal(first.data.valid, "x\ty");
        parse(&second, first.text, NULL, 0);
        assert_string_equal(first.text, second.text);
        parse(&third, second.text, more, 1);
        assert_int_equal(third.batch.seed, 78);
        job_destroy(&third);
        text = first.text;
        first.text = second.text;
        assert_memory_equal(&first, &second, sizeof first);
        first.text = text;
        job_destroy(&first);
        job_destroy(&second);
    }
}

/* What a key that has no meaning by itself is set to, and what must be set beside it. */
static const struct {
    const char *path, *value, *beside[4];
} particular[] = {
    {"model.preset", "gpt-125m", {0}},
    {"model.kind", "bert", {"data.cls=0", "data.sep=1", "data.mask=2", "data.pad=3"}},
    {"model.heads", "8", {0}},
    {"model.kv_heads", "1", {"model.kind=llama"}},
    {"model.activation", "gelu", {"model.kind=llama", "model.biases=all"}},
    {"model.rope_scaling",
     "llama3",
     {"model.rope_factor=8", "model.rope_low=1", "model.rope_high=4", "model.rope_original=8"}},
    {"model.qk_norm", "true", {"model.kind=llama"}},
    {"model.untied", "true", {0}},
    {"model.biases", "qkv", {"model.kind=llama"}},
    {"model.init_depth", "false", {0}},
    {"parallel.tp", "2", {0}},
    {"parallel.zero", "0", {0}}, /* "auto" of parallel.reduce is the same for 0 and 1 */
    {"parallel.reduce", "micro_batch", {0}},
    {"parallel.chunks", "2", {"parallel.pp=2"}},
    {"parallel.recompute_layers", "64", {"parallel.recompute=full"}},
    {"batch.micro_batch", "2", {0}},
    {"batch.rampup_start", "4", {"batch.rampup_start=2", "batch.rampup_increment=2", "batch.rampup_samples=10"}},
    {"batch.rampup_increment", "3", {"batch.rampup_start=2", "batch.rampup_increment=2", "batch.rampup_samples=10"}},
    {"batch.rampup_samples", "64", {"batch.rampup_start=2", "batch.rampup_increment=2", "batch.rampup_samples=10"}},
    {"optimizer.min_lr", "1e-6", {0}},
    {"optimizer.cooldown_steps", "64", {"optimizer.schedule=wsd", "optimizer.cooldown_steps=1"}},
    {"data.eod", "7", {0}},
    {"precision.reduce", "compute", {"precision.compute=bf16"}},
    {"precision.gradients", "compute", {"precision.compute=bf16"}},
    {"checkpoint.staged", "4", {0}},
    {"checkpoint.partner", "true", {0}},
    {"precision.tf32", "true", {0}},
    {"report.eval_every", "64", {"data.valid=v"}},
    {"report.tensorboard", "d", {"report.metrics=m"}},
    {"report.prometheus", "d", {"report.metrics=m"}},
};

/* Each row of the table must reach a field of its own: set one key at a time and see which bytes change. */
static void every_key_reaches_its_own_field(void **state)
{
    static const char text[] = "model = { layers = 1; hidden = 128; heads = 2; seq_length = 8; vocab = 32; };\n"
                               "data = { train = \"t\"; }; checkpoint = { dir = \"d\"; };";

    for (int k = 0; k < job_key_count; k++) {
        const struct job_key *key = &job_keys[k];
        struct job before, after;
        char set[128];
        const char *sets[5];
        const char *value = key->choices ? key->choices[1] : "64";
        int beside = 0;

        if (!key->choices && key->type == JOB_KEY_NUMBER && key->most <= 1)
            value = "0.125";
        for (size_t i = 0; i < sizeof particular / sizeof particular[0]; i++) {
            if (strcmp(key->path, particular[i].path) != 0)
                continue;
            value = particular[i].value;
            while (beside < 4 && particular[i].beside[beside]) {
                sets[beside] = particular[i].beside[beside];
                beside++;
            }
        }
        snprintf(set, sizeof set, "%s=%s", key->path, value);
        sets[beside] = set;
        parse(&before, text, sets, beside);
        parse(&after, text, sets, beside + 1);
        job_destroy(&before);
        job_destroy(&after);
        assert_true(job_gives(&after, key->path));
        memset(before.given, 0, sizeof before.given);
        memset(after.given, 0, sizeof after.given);
        assert_memory_not_equal((char *)&before + key->offset, (char *)&after + key->offset, key->size);
        memset((char *)&before + key->offset, 0, key->size);
        memset((char *)&after + key->offset, 0, key->size);
        before.text = after.text = NULL;
        if (strcmp(key->path, "model.kind") == 0)
            after.model = before.model; /* the kind's fields */
        assert_memory_equal(&before, &after, sizeof before);
    }
}

/* What other keys or the preset say is there when the job is loaded; nobody else works it out. */
static void choices_that_stand_for_others_are_resolved(void **state)
{
    static const char bert[] = "model = { preset = \"bert-tiny\"; }; data = { train = \"t\"; };";
    static const struct {
        int zero;
        enum reduce_when when;
    } rows[] = {{0, REDUCE_STEP}, {1, REDUCE_STEP}, {2, REDUCE_MICRO_BATCH}, {3, REDUCE_MICRO_BATCH}};
    const char *types[] = {"precision.compute=fp16", "precision.reduce=compute", "precision.gradients=compute"};
    struct job job;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char set[32];
        const char *sets[] = {set, "parallel.reduce=step"};

        snprintf(set, sizeof set, "parallel.zero=%d", rows[i].zero);
        parse(&job, least, sets, 1);
        assert_int_equal(job.parallel.reduce, rows[i].when);
        job_destroy(&job);
        parse(&job, least, sets, 2);
        assert_int_equal(job.parallel.reduce, REDUCE_STEP);
        job_destroy(&job);
    }
    for (int n = 0; n <= 3; n++) {
        parse(&job, least, types, n);
        assert_int_equal(job.precision.compute, n > 0 ? DTYPE_F16 : DTYPE_F32);
        assert_int_equal(job.precision.reduce, n > 1 ? DTYPE_F16 : DTYPE_F32);
        assert_int_equal(job.precision.gradients, n > 2 ? DTYPE_F16 : DTYPE_F32);
        job_destroy(&job);
    }
    parse(&job, bert, (const char *[]){"data.mask=7"}, 1);
    assert_int_equal(job.model.objective, OBJECTIVE_MASKED);
    assert_int_equal(job.data.cls, 256);
    assert_int_equal(job.data.sep, 257);
    assert_int_equal(job.data.mask, 7);
    assert_int_equal(job.data.pad, 259);
    job_destroy(&job);
    parse(&job, bert, (const char *[]){"model.kind=gpt"}, 1);
    assert_int_equal(job.model.objective, OBJECTIVE_CAUSAL);
    job_destroy(&job);
}

/* ---- blends ------------------------------------------------------------------------------------------------------ */

static void blends_are_stored_as_one_string(void **state)
{
    static const struct {
        const char *value, *stored;
        int sets;
    } rows[] = {
        {"\"web\"", "web", 1},
        {"\"my web\"", "my web", 1},
        {"\"2024\"", "2024", 1},
        {"\"0.5 web\"", "web", 1},
        {"\"0.70 web  0.3\\tcode\"", "0.7 web 0.3 code", 2},
        {"\"7 web 3 code 1e-2 maths\"", "7 web 3 code 0.01 maths", 3},
        {"( { data = \"web\"; weight = 0.7; }, { weight = 3; data = \"a/code\"; } )", "0.7 web 3 a/code", 2},
        {"( { data = \"web\"; weight = 0.1234567890123456; }, { data = \"b\"; weight = 50000; } )",
         "0.1234567890123456 web 50000 b", 2},
        {"( { data = \"web\"; weight = 2; } )", "web", 1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512], override[512], *set = override;
        struct job_data data;
        struct job job;
        struct error err;

        snprintf(text, sizeof text, "model = { preset = \"gpt-tiny\"; };\ndata = { train = \"t\"; valid = %s; };\n",
                 rows[i].value);
        snprintf(override, sizeof override, "data.train=%s", rows[i].value);
        if (job_parse(&job, text, "blend.cfg", &set, 1, &err) < 0)
            fail_msg("%s", err.text);
        assert_string_equal(job.data.train, rows[i].stored);
        assert_string_equal(job.data.valid, rows[i].stored);
        assert_int_equal(job_data_parse(&data, job.data.train, &err), 0);
        assert_int_equal(data.count, rows[i].sets);
        job_destroy(&job);
    }
}

static void examples_are_good_jobs(void **state)
{
    const char *const names[] = {"gpt-tiny", "gpt-125m", "gpt-13b", "bert-345m"};

    for (size_t i = 0; i < 4; i++) {
        char path[600];
        struct job job;
        struct error err;

        snprintf(path, sizeof path, "%s/etc/%s.cfg", getenv("top_srcdir"), names[i]);
        if (job_load(&job, path, NULL, 0, &err) < 0)
            fail_msg("%s", err.text);
        assert_string_equal(job.preset, names[i]);
        assert_int_equal(job.precision.compute, i == 0 ? DTYPE_F32 : DTYPE_BF16); /* for GPUs, but the first */
        job_destroy(&job);
    }
}

struct manual {
    char *text;
    int missing;
};

static void find_in_manual(const char *path, const char *type, const char *fallback, const char *help, void *arg)
{
    struct manual *manual = arg;
    char line[256];

    if (strcmp(fallback, "-") != 0)
        snprintf(line, sizeof line, "\n*%s* (%s, default %s)\n", path, type, fallback);
    else
        snprintf(line, sizeof line, "\n*%s* (%s, no default)\n", path, type);
    if (!strstr(manual->text, line)) {
        print_error("muster.cfg(5) lacks the line: %s", line + 1);
        manual->missing++;
    }
    assert_int_not_equal(strlen(help), 0);
}

static void the_manual_has_every_key_type_and_default(void **state)
{
    struct manual manual = {.text = read_source("doc/muster.cfg.5.scd")};

    job_each_key(find_in_manual, &manual);
    for (int k = 0; k < job_key_count; k++)
        for (int i = 0; job_keys[k].choices && job_keys[k].choices[i]; i++)
            assert_non_null(strstr(manual.text, job_keys[k].choices[i]));
    assert_int_equal(manual.missing, 0);
    free(manual.text);
}

static int note_variable(const char *name, const char *value, int line, void *arg, struct error *err)
{
    char *text = arg;
    size_t used = strlen(text);

    (void)err;
    snprintf(text + used, 256 - used, "%d: %s=%s\n", line, name, value);
    return 0;
}

static void the_environment_has_no_keys_of_its_own(void **state)
{
    static const char text[] = "model = { preset = \"gpt-tiny\"; };\n"
                               "environment = {\n"
                               "    NCCL_DEBUG = \"INFO\";\n"
                               "    NCCL_NET = \"AWS Libfabric\"; NCCL_EMPTY = \"\";\n"
                               "};\n"
                               "data = { train = \"corpus\"; };\n";
    char found[256] = "";
    struct job job;

    parse(&job, text, NULL, 0);
    assert_int_equal(job_each_variable(&job, note_variable, found, NULL), 0);
    assert_string_equal(found, "3: NCCL_DEBUG=INFO\n4: NCCL_NET=AWS Libfabric\n4: NCCL_EMPTY=\n");
    job_destroy(&job);
    found[0] = '\0';
    parse(&job, least, NULL, 0);
    assert_int_equal(job_each_variable(&job, note_variable, found, NULL), 0);
    assert_string_equal(found, "");
    job_destroy(&job);
}

static void note_difference(const char *path, const char *in_a, const char *in_b, void *arg)
{
    strcat(strcat(strcat(strcat(strcat(strcat(arg, path), " "), in_a), " "), in_b), "\n");
}

/* `set` beside the least job, against it. */
static void differ(const char *const *set, int nset, const char *expected)
{
    struct job a, b;
    char text[1024] = "";

    parse(&a, least, NULL, 0);
    parse(&b, least, set, nset);
    job_each_difference(&a, &b, note_difference, text);
    assert_string_equal(text, expected);
    job_destroy(&a);
    job_destroy(&b);
}

static void differences_are_those_that_what_is_learned_depends_on(void **state)
{
    static const char *const none[] = {"parallel.zero=3",
                                       "batch.micro_batch=2",
                                       "checkpoint.dir=x",
                                       "report.log_every=1",
                                       "device=cpu",
                                       "precision.reduce=compute",
                                       "model.init_std=0.01",
                                       "batch.seed=1",
                                       "optimizer.most_skipped=3",
                                       "data.changed=accept",
                                       "precision.gradients=compute"};
    static const char *const some[] = {"optimizer.lr=1e-3", "optimizer.schedule=linear", "batch.global_batch=16",
                                       "batch.steps=2000",  "precision.compute=bf16",    "model.dropout=0.1",
                                       "data.train=other",  "precision.tf32=true",       "data.reset=document",
                                       "attention=cudnn"};
    static const char *const constant[] = {"optimizer.decay_steps=1000", "batch.steps=2000"};

    differ(NULL, 0, "");
    differ(none, 11, "");
    differ(some, 10,
           "model.dropout 0 0.1\nattention \"auto\" \"cudnn\"\nbatch.global_batch 8 16\nbatch.steps 1000 "
           "2000\noptimizer.lr 0.0003 0.001\n"
           "optimizer.schedule \"cosine\" \"linear\"\ndata.train \"corpus\" \"other\"\n"
           "data.reset \"none\" \"document\"\n"
           "precision.compute \"fp32\" \"bf16\"\nprecision.tf32 false true\n");
    differ(constant, 2, "batch.steps 1000 2000\noptimizer.decay_steps 0 1000\n");
}

static void destroying_nothing_is_harmless(void **state)
{
    struct job job = {0};

    job_destroy(NULL);
    job_destroy(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_given_has_its_default),
        cmocka_unit_test(paths_get_the_values_of_their_patterns),
        cmocka_unit_test(what_is_given_is_kept),
        cmocka_unit_test(sizes_beside_a_preset_override_it),
        cmocka_unit_test(overrides_win_and_the_last_wins_most),
        cmocka_unit_test(text_makes_the_same_job_again),
        cmocka_unit_test(every_key_reaches_its_own_field),
        cmocka_unit_test(choices_that_stand_for_others_are_resolved),
        cmocka_unit_test(blends_are_stored_as_one_string),
        cmocka_unit_test(examples_are_good_jobs),
        cmocka_unit_test(every_broken_file_has_its_message),
        cmocka_unit_test(every_broken_override_has_its_message),
        cmocka_unit_test(unreadable_files_are_named),
        cmocka_unit_test(every_path_that_a_shell_would_expand_is_refused),
        cmocka_unit_test(a_byte_order_mark_is_no_part_of_a_job_file),
        cmocka_unit_test(mutations_never_crash),
        cmocka_unit_test(the_manual_has_every_key_type_and_default),
        cmocka_unit_test(the_environment_has_no_keys_of_its_own),
        cmocka_unit_test(differences_are_those_that_what_is_learned_depends_on),
        cmocka_unit_test(destroying_nothing_is_harmless),
        cmocka_unit_test(the_stage_is_one_that_slurmd_sees),
    };

    return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
