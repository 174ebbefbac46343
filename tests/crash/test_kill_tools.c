/*
 * Kills beyond a save (test_kill.c): muster-ckpt while it reshards, imports, removes and prunes; and ranks of two nodes
 * while one keeps a copy of the other's shard. What was whole stays whole, nothing half-made is taken for a checkpoint,
 * and the same command, or the next save, succeeds and leaves nothing behind.
 */
#include "tests/cmocka_test.h"
#include "tests/crash/aftermath.h"
#include "tests/crash/run.h"
#include "tests/crash/trace.h"
#include "tests/unit/test_ckpt_model.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_WORDS 14
#define SAMPLE    16 /* kills of each story, if not all */

static const struct plan plan = {2, 28, false, 0};
static const struct model_shape shape = {.hidden = 32, .heads = 4, .seq_length = 16, .vocab = 64, .layers = 2};
static const struct trace_kill nobody = {.process = -1, .twin = -1};

/* Every kill happens in `live`, put back each time to what `template` has: see make_template. */
struct place {
    char base[256], live[512], template[512];
    struct aftermath aftermath;
};

struct story {
    const char *name;
    const char *victim[MAX_WORDS]; /* a program and its words; "@x" stands for x in `live` */
    /* What must hold afterwards. `words`: the victim's, `said`: by it, `n`: the kill's number. */
    void (*look)(struct place *place, const char *const *words, const char *said, long n);
    bool promises; /* some of the killed have said "staged" before */
};

static const char *const *expand_words(const char *const *words, const struct place *place)
{
    static char paths[MAX_WORDS][1024], program[512];
    static const char *argv[MAX_WORDS + 1];
    int n = 0;

    for (argv[n++] = built(program, words[0]); words[n]; n++) {
        snprintf(paths[n], sizeof paths[n], "%s/%s", place->live, words[n] + 1);
        argv[n] = words[n][0] == '@' ? paths[n] : words[n];
    }
    argv[n] = NULL;
    return argv;
}

static void run_words(const char *const *words, const struct place *place, struct trace_kill kill, struct trace *trace)
{
    trace_run(expand_words(words, place), place->live, kill, trace);
    if (trace->refused) {
        print_message("# this machine does not allow one process to trace another\n");
        skip();
    }
}

/* from: a GPT's step 5 of four ranks; hf: the same, exported; saves: steps 10 and 20 of the plan; stage: empty. */
static void make_template(struct place *place)
{
    static const char *const export[] = {"muster-ckpt", "export", "--quiet", "--format=hf", "@from", "@hf", NULL};
    static const char *const save[] = {"tests/crash/saver", "--seed", "28", "@saves", "10", "20", NULL};
    const struct mesh mesh = {.dp = 2, .tp = 1, .pp = 2};
    struct trace trace;
    char path[512];

    scratch_create(place->base, scratch_fast());
    join(place->live, place->base, "live");
    join(place->template, place->base, "template");
    assert_int_equal(mkdir(place->live, 0777), 0);
    assert_int_equal(mkdir(join(path, place->live, "stage"), 0700), 0);
    model_write(&shape, &mesh, 1, join(path, place->live, "from"));
    run_words(export, place, nobody, &trace);
    assert_int_equal(trace.status, 0);
    run_words(save, place, nobody, &trace);
    assert_int_equal(trace.status, 0);
    assert_int_equal(rename(place->live, place->template), 0);
}

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

/* Reshard and import write into `to`: there is nothing or a whole checkpoint; the command, given again, completes it. */
static void look_rewritten(struct place *place, const char *const *words, const char *said, long n)
{
    bool imports = strcmp(words[1], "import") == 0;
    char to[512], from[512];
    uint64_t step = imports ? 0 : 5, *steps;
    struct trace trace;
    struct error err;
    size_t count;

    (void)said, (void)n;
    join(to, place->live, "to");
    join(from, place->live, "from");
    assert_int_equal(ckpt_list(to, &steps, &count, &err), 0);
    free(steps);
    assert_true(count == 0 || model_matches(&shape, to, step, NULL, imports));
    run_words(words, place, nobody, &trace);
    assert_int_equal(trace.status, W_EXITCODE(count == 0 ? CODE_OK : CODE_USAGE, 0)); /* it has the step already */
    assert_true(model_matches(&shape, to, step, NULL, imports));
    assert_true(model_matches(&shape, from, 5, NULL, false));
    shell("! ls -d '%s'/*.partial '%s'/.trash/* 2>/dev/null | grep -q .", to, to);
}

static void go_on(struct place *place, uint64_t promised, long n)
{
    char saves[512];

    if (aftermath_go_on(&place->aftermath, join(saves, place->live, "saves"), promised, n % 4 < 2) != ALL_WELL)
        fail_msg("kill %ld: %s", n, place->aftermath.text);
}

/* Rm and prune remove step 10. */
static void look_removed(struct place *place, const char *const *words, const char *said, long n)
{
    (void)words, (void)said;
    go_on(place, 20, n);
}

/* Of a step that every rank had staged, and the next rank has a copy, losing the first node loses nothing. */
static void look_copied(struct place *place, const char *const *words, const char *said, long n)
{
    static const char *const drain[] = {"tests/crash/saver", "--seed", "28",     "--nodes", "--drain",
                                        "--stage",           "@stage", "@saves", NULL};
    uint64_t staged = strstr(said, "staged 40") ? 40 : strstr(said, "staged 30") ? 30 : 0;
    struct trace trace;

    (void)words;
    if (n % 3 != 0)
        shell("rm -rf '%s/stage/node-0'", place->live);
    run_words(drain, place, nobody, &trace);
    if (staged == 40 && trace.status != 0)
        fail_msg("kill %ld: all is staged and copied, and the drain ends with %x", n, (unsigned)trace.status);
    go_on(place, staged ? staged : 20, n);
}

/* ---- the kills --------------------------------------------------------------------------------------------------- */

static const struct story stories[] = {
    {"muster-ckpt reshard", {"muster-ckpt", "reshard", "--quiet", "--to=tp=2", "@from", "@to"}, look_rewritten, false},
    {"muster-ckpt import",
     {"muster-ckpt", "import", "--quiet", "--format=hf", "--to=dp=2", "@hf", "@to"},
     look_rewritten,
     false},
    {"muster-ckpt rm", {"muster-ckpt", "rm", "@saves/step-00000010"}, look_removed, false},
    {"muster-ckpt prune", {"muster-ckpt", "prune", "--keep=1", "@saves"}, look_removed, false},
    {"a copy of a shard on its way to another node",
     {"tests/crash/saver", "--seed", "28", "--nodes", "--no-drain", "--stage", "@stage", "@saves", "30", "40"},
     look_copied,
     true},
};

/* The n-th of all kills there are: each process, each call, alone and with all. */
static struct trace_kill kill_number(const struct trace *dry, long n)
{
    struct trace_kill kill = {.all = n % 2 != 0};

    for (n /= 2; n >= dry->calls[kill.process]; kill.process++)
        n -= dry->calls[kill.process];
    kill.call = n + 1;
    kill.twin = kill.process;
    return kill;
}

static void killed_at_any_call(void **state)
{
    const struct story *story = *state;
    long all = 0, wanted = 0, killed = 0, promised = 0;
    uint64_t random = plan.seed;
    struct place place;
    struct trace trace, dry;

    aftermath_create(&place.aftermath, &plan);
    make_template(&place);
    for (long n = -1; n < 0 || n < wanted; n++) { /* the first one, without a kill, counts the calls */
        long number = n < 0 ? -1 : wanted == all ? n : (long)world_random(&random, (uint64_t)all);

        shell("rm -rf '%s' && cp -a '%s' '%s'", place.live, place.template, place.live);
        run_words(story->victim, &place, n < 0 ? nobody : kill_number(&dry, number), &trace);
        killed += trace.killed;
        promised += trace.killed && strstr(trace.said, "staged ");
        if (n < 0) {
            assert_int_equal(trace.status, 0);
            dry = trace;
            for (int p = 0; p < dry.processes; p++)
                all += 2 * dry.calls[p];
            wanted = full() || all < SAMPLE ? all : SAMPLE;
        }
        story->look(&place, story->victim, trace.said, number);
    }
    print_message("# %ld kills of %ld there are, %d processes; %ld after all was staged\n", killed, all, dry.processes,
                  promised);
    assert_true(killed > wanted / 2); /* threads share the work differently each time: some calls never come */
    assert_true(promised > 0 || !story->promises);
    scratch_destroy(place.base);
    aftermath_destroy(&place.aftermath);
}

int main(void)
{
    struct CMUnitTest tests[sizeof stories / sizeof *stories] = {0};

    for (size_t s = 0; s < sizeof stories / sizeof *stories; s++)
        tests[s] = (struct CMUnitTest){stories[s].name, killed_at_any_call, NULL, NULL, (void *)(uintptr_t)&stories[s]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
