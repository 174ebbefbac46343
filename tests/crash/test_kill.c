/*
 * Every process of a save is killed before every system call it makes: alone, while the others go on, and together with
 * all of them. Whatever is left: what was committed is whole, nothing torn is taken for a checkpoint, and the next
 * saves succeed and leave nothing lying about.
 */
#include "tests/cmocka_test.h"
#include "tests/crash/aftermath.h"
#include "tests/crash/run.h"
#include "tests/crash/trace.h"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_WORDS 16
#define SAMPLE    120 /* kills of each story, if not all */
#define TRIES     5   /* of one kill: which of two drainers gets the lock, say, is another one each time */

/*
 * In a command, "DIR" stands for the directory and "STAGE" for one that holds a stage. The plan's options are put in by
 * themselves.
 */
struct story {
    struct plan plan;
    const char *after[MAX_WORDS];     /* what is run after the kill, before anything is looked at */
    const char *before[3][MAX_WORDS]; /* commands that are run first, and left alone */
    const char *victim[MAX_WORDS];
    uint64_t promised; /* committed by the commands before */
    uint64_t staged;   /* or staged */
    uint64_t claimed;  /* the number of the claim by the commands before; the victims claim the next one */
};

#define DRAIN                                                                                                          \
    {                                                                                                                  \
        "--drain", "--stage", "STAGE", "DIR"                                                                           \
    }

static const struct story stories[] = {
    {.plan = {2, 21, false, 2}, .before = {{"DIR", "10", "20"}}, .victim = {"DIR", "30"}, .promised = 20},
    {.plan = {3, 22, false, 1},
     .before = {{"DIR", "10"}, {"--absent", "--attempt", "0", "DIR", "20"}},
     .victim = {"--recover", "DIR", "20"},
     .promised = 10},
    {.plan = {2, 23, false, 0},
     .before = {{"DIR", "10"}, {"--no-commit", "--attempt", "0", "DIR", "20"}},
     .victim = {"--recover", "DIR"},
     .promised = 10},
    {.plan = {2, 24, false, 1}, .victim = {"DIR", "10"}},
    {.plan = {2, 25, false, 2},
     .before = {{"DIR", "10", "20"}},
     .victim = {"--stage", "STAGE", "DIR", "30"},
     .after = DRAIN,
     .promised = 20},
    {.plan = {3, 26, false, 1},
     .before = {{"DIR", "10"}, {"--absent", "--attempt", "0", "DIR", "20"}},
     .victim = {"--stage", "STAGE", "DIR", "20", "30"},
     .after = DRAIN,
     .promised = 10},
    {.plan = {2, 27, false, 0},
     .before = {{"DIR", "10"}, {"--no-drain", "--stage", "STAGE", "DIR", "20"}},
     .victim = DRAIN,
     .after = DRAIN,
     .promised = 10,
     .staged = 20},
    {.plan = {2, 28, false, 2},
     .before = {{"--claim", "1", "DIR", "10", "20"}},
     .victim = {"--claim", "2", "DIR", "30"},
     .promised = 20,
     .claimed = 1},
};

/* Every kill happens in one place, put back each time to what the template has: a stage holds its target's path. */
struct place {
    char base[256], live[512], template[512], dir[512], stage[512];
};

static void place_create(struct place *place)
{
    scratch_create(place->base, scratch_fast());
    join(place->live, place->base, "live");
    join(place->template, place->base, "template");
    join(place->dir, place->live, "checkpoints");
    join(place->stage, place->live, "stage");
    assert_int_equal(mkdir(place->live, 0777), 0);
    assert_int_equal(mkdir(place->stage, 0700), 0);
}

static void place_restore(const struct place *place)
{
    char line[2048];

    snprintf(line, sizeof line, "rm -rf '%s' && cp -a '%s' '%s'", place->live, place->template, place->live);
    assert_int_equal(system(line), 0);
}

/* The command's words, in a buffer that lasts until the next call. */
static const char *const *command(const struct story *story, const char *const *words, const struct place *place)
{
    static char program[512], numbers[3][24];
    static const char *argv[MAX_WORDS + 8];
    int n = 0;

    snprintf(numbers[0], sizeof numbers[0], "%d", story->plan.shards);
    snprintf(numbers[1], sizeof numbers[1], "%d", (int)story->plan.seed);
    snprintf(numbers[2], sizeof numbers[2], "%d", story->plan.keep);
    argv[n++] = built(program, "tests/crash/saver");
    argv[n++] = "--shards";
    argv[n++] = numbers[0];
    argv[n++] = "--seed";
    argv[n++] = numbers[1];
    argv[n++] = "--keep";
    argv[n++] = numbers[2];
    for (; *words; words++)
        argv[n++] = strcmp(*words, "DIR") == 0 ? place->dir : strcmp(*words, "STAGE") == 0 ? place->stage : *words;
    argv[n] = NULL;
    return argv;
}

static void run_trace(const struct story *story, const char *const *words, const struct place *place,
                      struct trace_kill kill, struct trace *trace)
{
    trace_run(command(story, words, place), place->live, kill, trace);
    if (trace->refused) {
        print_message("# this machine does not allow one process to trace another\n");
        skip();
    }
}

static const struct trace_kill nobody = {.process = -1, .twin = -1};

static void prepare(const struct story *story, const struct place *place)
{
    struct trace trace;

    for (int c = 0; c < 3 && story->before[c][0]; c++) {
        run_trace(story, story->before[c], place, nobody, &trace);
        assert_int_equal(trace.status, 0);
    }
    assert_int_equal(rename(place->live, place->template), 0);
}

/* The newest N of "WORD N", 0 if there is none. */
static uint64_t newest_said(const char *said, const char *word)
{
    uint64_t newest = 0;

    for (const char *line = said; (line = strstr(line, word)); line++)
        if (strtoull(line + strlen(word), NULL, 10) > newest)
            newest = strtoull(line + strlen(word), NULL, 10);
    return newest;
}

/* Whether a save is left in the stage. */
static bool stage_has_something(const struct place *place)
{
    char pattern[600];
    glob_t found;
    bool some;

    snprintf(pattern, sizeof pattern, "%s/*/step-*", place->stage);
    some = glob(pattern, 0, NULL, &found) == 0;
    globfree(&found);
    return some;
}

struct tally {
    long kills, missed, promised, adopted;
};

/*
 * Whoever comes after drains what is staged: a save that every rank had staged is then committed, whoever was killed.
 */
static uint64_t drain_after(const struct story *story, const struct place *place, const char *said, struct tally *tally)
{
    uint64_t staged = newest_said(said, "staged "), promised = newest_said(said, "committed ");
    struct trace trace;

    if (staged < story->staged)
        staged = story->staged;
    run_trace(story, story->after, place, nobody, &trace);
    if (staged > promised && trace.status != 0)
        fail_msg("step %llu was staged, and its drain ended with %x", (unsigned long long)staged,
                 (unsigned)trace.status);
    if (stage_has_something(place))
        fail_msg("the stage is drained, and a save is still in it");
    tally->adopted += staged > promised;
    return staged > promised ? staged : promised;
}

static int count_owners(const struct place *place)
{
    char pattern[600];
    glob_t found;
    int count;

    snprintf(pattern, sizeof pattern, "%s/owner-*", place->dir);
    count = glob(pattern, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    globfree(&found);
    return count;
}

/* There is one owner, and it is whoever said so; and whoever comes after can become the owner. */
static void take_over(const struct story *story, const struct place *place, const char *said)
{
    struct ckpt_claim owner;
    struct error err = {0};
    uint64_t told = newest_said(said, "owner ");
    const char *first = strstr(said, "owner ");

    if (first && strstr(first + 1, "owner "))
        fail_msg("two processes became the owner: %s", said);
    if (ckpt_recover(place->dir, &err) < 0 || ckpt_claim_read(place->dir, &owner, &err) != 1)
        fail_msg("no owner: %s", err.text);
    if (owner.number < story->claimed || owner.number > story->claimed + 1 || owner.number < told)
        fail_msg("the owner is %llu, after %s", (unsigned long long)owner.number, said);
    owner.accepts = ++owner.number;
    if (ckpt_claim_take(place->dir, &owner, &err) != 1)
        fail_msg("nobody can take over: %s", err.text);
    if (count_owners(place) != 1)
        fail_msg("%d owner files are left", count_owners(place));
    ckpt_claim_clear(&owner);
}

/* Returns whether the call was reached. */
static bool one_kill(const struct story *story, struct aftermath *aftermath, const struct place *place,
                     struct trace_kill kill, struct tally *tally)
{
    struct trace trace;
    uint64_t promised;

    place_restore(place);
    run_trace(story, story->victim, place, kill, &trace);
    promised = newest_said(trace.said, "committed ");
    tally->kills += trace.killed;
    tally->promised += promised > 0;
    if (story->after[0])
        promised = drain_after(story, place, trace.said, tally);
    if (story->claimed > 0)
        take_over(story, place, trace.said);
    if (promised < story->promised)
        promised = story->promised;
    if (aftermath_go_on(aftermath, place->dir, promised, kill.call % 2 == 0) != ALL_WELL)
        fail_msg("process %d of %d %s%s before call %ld, it made %ld: %s", trace.victim, trace.processes,
                 trace.killed ? "killed" : "not killed", kill.all ? " with all" : "", kill.call,
                 trace.calls[trace.victim], aftermath->text);
    return trace.killed;
}

/*
 * Every save through a stage has a process of each rank, then two drainers. One of these gets the lock and makes nearly
 * all of the story's calls: on a busy machine for a hundred runs the first, and then the second.
 */
static int twin_of(const struct story *story, int process)
{
    int drainers = story->plan.shards, place = (process - 1) % (drainers + 2);
    bool drains = story->after[0] && story->staged == 0 && process > 0 && place >= drainers;

    return !drains ? process : place == drainers ? process + 1 : process - 1;
}

/* The n-th of all kills there are: each process, each call, alone and with all. */
static struct trace_kill kill_number(const struct story *story, const struct trace *dry, long n)
{
    struct trace_kill kill = {.all = n % 2 != 0};

    for (n /= 2; n >= dry->calls[kill.process]; kill.process++)
        n -= dry->calls[kill.process];
    kill.call = n + 1;
    kill.twin = twin_of(story, kill.process);
    return kill;
}

static void killed_at_any_call(void **state)
{
    const struct story *story = *state;
    uint64_t random = story->plan.seed;
    struct tally tally = {0};
    struct aftermath aftermath;
    struct place place;
    struct trace dry;
    long all = 0, wanted;

    aftermath_create(&aftermath, &story->plan);
    place_create(&place);
    prepare(story, &place);
    place_restore(&place);
    run_trace(story, story->victim, &place, nobody, &dry);
    assert_int_equal(dry.status, 0);
    for (int p = 0; p < dry.processes; p++)
        all += 2 * dry.calls[p];
    wanted = full() || all < SAMPLE ? all : SAMPLE;
    for (long n = 0; n < wanted; n++) {
        long number = wanted == all ? n : (long)world_random(&random, (uint64_t)all);
        int tries = 0;

        while (!one_kill(story, &aftermath, &place, kill_number(story, &dry, number), &tally) && ++tries < TRIES)
            ;
        tally.missed += tries == TRIES;
    }
    print_message("# %ld kills of %ld there are, %d processes; %ld after a commit; %ld drained after; %ld never came\n",
                  tally.kills, all, dry.processes, tally.promised, tally.adopted, tally.missed);
    assert_true(tally.kills > wanted / 2);
    assert_true(tally.kills > 50);
    assert_true(!story->after[0] || tally.adopted > 0);
    scratch_destroy(place.base);
    aftermath_destroy(&aftermath);
}

static void *story_state(size_t s)
{
    return (void *)(uintptr_t)&stories[s];
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"a save that prunes, two ranks", killed_at_any_call, NULL, NULL, story_state(0)},
        {"a save over an incomplete attempt, three ranks", killed_at_any_call, NULL, NULL, story_state(1)},
        {"the recovery of an attempt", killed_at_any_call, NULL, NULL, story_state(2)},
        {"the first save", killed_at_any_call, NULL, NULL, story_state(3)},
        {"a staged save, two ranks, two drainers", killed_at_any_call, NULL, NULL, story_state(4)},
        {"two staged saves over an incomplete attempt, three ranks", killed_at_any_call, NULL, NULL, story_state(5)},
        {"two that take a directory over, and a save under that claim", killed_at_any_call, NULL, NULL, story_state(7)},
        {"a drainer that adopts", killed_at_any_call, NULL, NULL, story_state(6)},
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
