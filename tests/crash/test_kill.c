/*
 * Every process of a save is killed before every system call it makes: alone, while the others go on, and together with
 * all of them. Whatever is left: what was committed is whole, nothing torn is taken for a checkpoint, and the next
 * saves succeed and leave nothing lying about.
 */
#include "tests/crash/aftermath.h"
#include "tests/crash/run.h"
#include "tests/crash/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_WORDS 16
#define SAMPLE    120 /* kills of each story, if not all */

/* In a command, "DIR" stands for the directory. The plan's options are put in by themselves. */
struct story {
    struct plan plan;
    const char *before[3][MAX_WORDS]; /* commands that are run first, and left alone */
    const char *victim[MAX_WORDS];
    uint64_t promised; /* by the commands before */
};

static const struct story stories[] = {
    {{2, 21, false, 2}, {{"DIR", "10", "20"}}, {"DIR", "30"}, 20},
    {{3, 22, false, 1}, {{"DIR", "10"}, {"--absent", "--attempt", "0", "DIR", "20"}}, {"--recover", "DIR", "20"}, 10},
    {{2, 23, false, 0}, {{"DIR", "10"}, {"--no-commit", "--attempt", "0", "DIR", "20"}}, {"--recover", "DIR"}, 10},
    {{2, 24, false, 1}, {{NULL}}, {"DIR", "10"}, 0},
};

/* The command's words, in a buffer that lasts until the next call. */
static const char *const *command(const struct story *story, const char *const *words, const char *dir)
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
        argv[n++] = strcmp(*words, "DIR") == 0 ? dir : *words;
    argv[n] = NULL;
    return argv;
}

static void run_trace(const struct story *story, const char *const *words, const char *dir, struct trace_kill kill,
                      struct trace *trace)
{
    trace_run(command(story, words, dir), dir, kill, trace);
    if (trace->refused) {
        print_message("# this machine does not allow one process to trace another\n");
        skip();
    }
}

static void prepare(const struct story *story, const char *dir, struct trace *trace)
{
    for (int c = 0; c < 3 && story->before[c][0]; c++) {
        run_trace(story, story->before[c], dir, (struct trace_kill){.process = -1}, trace);
        assert_int_equal(trace->status, 0);
    }
}

static uint64_t newest_promise(const struct story *story, const char *said)
{
    uint64_t newest = story->promised;

    for (const char *line = said; (line = strstr(line, "committed ")); line++)
        if (strtoull(line + 10, NULL, 10) > newest)
            newest = strtoull(line + 10, NULL, 10);
    return newest;
}

/* A template that is not there is copied too. */
static void copy_tree(const char *from, const char *to)
{
    char command_line[1600];

    snprintf(command_line, sizeof command_line, "! [ -e '%s' ] || cp -a '%s' '%s'", from, from, to);
    assert_int_equal(system(command_line), 0);
}

struct tally {
    long kills, missed, promised;
};

static void one_kill(const struct story *story, struct aftermath *aftermath, const char *template,
                     struct trace_kill kill, struct tally *tally)
{
    struct trace trace;
    char base[256], dir[512];
    uint64_t promised;

    scratch_create(base, scratch_fast());
    join(dir, base, "checkpoints");
    copy_tree(template, dir);
    run_trace(story, story->victim, dir, kill, &trace);
    promised = newest_promise(story, trace.said);
    tally->kills += trace.killed;
    tally->missed += !trace.killed;
    tally->promised += promised > story->promised;
    if (aftermath_go_on(aftermath, dir, promised, kill.call % 2 == 0) != ALL_WELL)
        fail_msg("process %d of %d killed%s before call %ld of %ld: %s", kill.process, trace.processes,
                 kill.all ? " with all" : "", kill.call, trace.calls[kill.process], aftermath->text);
    scratch_destroy(base);
}

/* The n-th of all kills there are: each process, each call, alone and with all. */
static struct trace_kill kill_number(const struct trace *dry, long n)
{
    struct trace_kill kill = {.all = n % 2 != 0};

    for (n /= 2; n >= dry->calls[kill.process]; kill.process++)
        n -= dry->calls[kill.process];
    kill.call = n + 1;
    return kill;
}

static void killed_at_any_call(void **state)
{
    const struct story *story = *state;
    uint64_t random = story->plan.seed;
    struct tally tally = {0};
    struct aftermath aftermath;
    struct trace dry;
    char base[256], template[512], dir[512];
    long all = 0, tries;

    aftermath_create(&aftermath, &story->plan);
    scratch_create(base, scratch_fast());
    join(template, base, "template");
    prepare(story, template, &dry);
    join(dir, base, "dry");
    copy_tree(template, dir);
    run_trace(story, story->victim, dir, (struct trace_kill){.process = -1}, &dry);
    assert_int_equal(dry.status, 0);
    for (int p = 0; p < dry.processes; p++)
        all += 2 * dry.calls[p];
    tries = full() || all < SAMPLE ? all : SAMPLE;
    for (long n = 0; n < tries; n++)
        one_kill(story, &aftermath, template,
                 kill_number(&dry, tries == all ? n : (long)world_random(&random, (uint64_t)all)), &tally);
    print_message("# %ld kills of %ld there are, %d processes; %ld after a commit; %ld came too late\n", tally.kills,
                  all, dry.processes, tally.promised, tally.missed);
    assert_true(tally.kills > tries * 3 / 4); /* threads take turns in other ways each time: some calls do not come */
    assert_true(tally.kills > 50);
    scratch_destroy(base);
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
