/*
 * The machine loses power: saves are recorded by the shim, and trees are built as a disk could show them after a crash
 * at any moment (replay.h). In each: what was committed is whole, nothing torn is taken for a checkpoint, and the next
 * saves succeed. Then the same with an fsync that does nothing, of any kind: the same look must find losses.
 */
#include "tests/cmocka_test.h"
#include "tests/crash/aftermath.h"
#include "tests/crash/replay.h"
#include "tests/crash/run.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_STEPS 6

/* A history of saves, and how many crashes of it are tried normally and in full. */
struct story {
    struct plan plan;
    bool on_disk;       /* recorded where O_DIRECT works and inode numbers are used again, not on a RAM disk */
    bool staged;        /* through a stage, which is lost with the machine, and muster-ckptd */
    const char *absent; /* a step whose save stays incomplete, before the others; NULL: there is none */
    const char *steps[MAX_STEPS];
    int crashes, crashes_full;
};

static const struct story stories[] = {
    {.plan = {2, 11, false, 2}, .steps = {"10", "20", "30", "40"}, .crashes = 80, .crashes_full = 600},
    {.plan = {3, 12, false, 1},
     .on_disk = true,
     .absent = "10",
     .steps = {"20", "30"},
     .crashes = 60,
     .crashes_full = 400},
    {.plan = {4, 13, false, 0}, .absent = "20", .steps = {"10", "20"}, .crashes = 60, .crashes_full = 300},
    {.plan = {2, 14, true, 1}, .on_disk = true, .steps = {"10", "20"}, .crashes = 10, .crashes_full = 60},
    {.plan = {3, 15, false, 1},
     .staged = true,
     .absent = "20",
     .steps = {"10", "20", "30"},
     .crashes = 60,
     .crashes_full = 400},
};

static void run_saver(const struct story *story, const char *dir, const char *const *environment, bool absent)
{
    const char *argv[20] = {"tests/crash/saver", "--shards"};
    char shards[16], seed[16], keep[16], stage[512], said[1024];
    int n = 2;

    snprintf(shards, sizeof shards, "%d", story->plan.shards);
    snprintf(seed, sizeof seed, "%d", (int)story->plan.seed);
    snprintf(keep, sizeof keep, "%d", story->plan.keep);
    argv[n++] = shards;
    argv[n++] = "--seed";
    argv[n++] = seed;
    argv[n++] = "--keep";
    argv[n++] = keep;
    if (story->plan.large)
        argv[n++] = "--large";
    if (story->staged && !absent) {
        argv[n++] = "--stage";
        argv[n++] = join(stage, dir, "../stage");
    }
    if (absent) {
        argv[n++] = "--absent";
        argv[n++] = "--attempt";
        argv[n++] = "0";
    }
    argv[n++] = dir;
    if (absent)
        argv[n++] = story->absent;
    for (int s = 0; !absent && s < MAX_STEPS && story->steps[s]; s++)
        argv[n++] = story->steps[s];
    if (run_shimmed(argv, environment, said, sizeof said) != 0)
        fail_msg("the saver failed: %s", said);
}

/* Run the story in dir/live and read its log. */
static struct replay *record(const struct story *story, const char *dir, const char *sync)
{
    char live[512], log[512], stage[512], root_of[600], log_of[600], sync_of[32];
    const char *environment[] = {root_of, log_of, NULL, NULL};
    struct stat info;

    join(live, dir, "live");
    join(log, dir, "log");
    assert_int_equal(mkdir(join(stage, dir, "stage"), 0700), 0);
    assert_int_equal(mkdir(live, 0777), 0);
    assert_int_equal(stat(live, &info), 0);
    snprintf(root_of, sizeof root_of, "SHIM_ROOT=%s", live);
    snprintf(log_of, sizeof log_of, "SHIM_LOG=%s", log);
    snprintf(sync_of, sizeof sync_of, "SHIM_SYNC=%s", sync ? sync : "");
    if (sync)
        environment[2] = sync_of;
    if (story->absent)
        run_saver(story, live, environment, true);
    run_saver(story, live, environment, false);
    return replay_create(log, info.st_ino);
}

/* The log has all that was done, or the tree that it makes would differ. */
static void expect_complete(struct replay *replay, const char *dir)
{
    char live[512], all[512], command[1200];
    uint64_t random = 0;

    join(live, dir, "live");
    join(all, dir, "all");
    assert_int_equal(mkdir(all, 0777), 0);
    replay_tree(replay, replay_count(replay), REPLAY_NOTHING_LOST, &random, all);
    snprintf(command, sizeof command, "diff -r '%s' '%s' >&2", live, all);
    assert_int_equal(system(command), 0);
}

struct tally {
    int crashes, promised, findings[LITTER + 1];
    char first[1400];
};

/* One crash. */
static void crash(struct replay *replay, struct aftermath *aftermath, uint64_t seed, struct tally *tally)
{
    uint64_t random = seed, promised;
    size_t moment = world_random(&random, replay_count(replay) + 1);
    enum replay_loss loss = (enum replay_loss)world_random(&random, REPLAY_LOSSES);
    enum finding finding;
    char dir[256];

    scratch_create(dir, scratch_fast());
    replay_tree(replay, moment, loss, &random, dir);
    promised = replay_promised(replay, moment);
    finding = aftermath_go_on(aftermath, dir, promised, seed % 2 == 0);
    if (finding != ALL_WELL && tally->first[0] == '\0')
        snprintf(tally->first, sizeof tally->first, "crash %llu (moment %zu of %zu, loss %d): %s",
                 (unsigned long long)seed, moment, replay_count(replay), (int)loss, aftermath->text);
    tally->crashes++;
    tally->promised += promised != 0;
    tally->findings[finding]++;
    scratch_destroy(dir);
}

static struct tally run_story(const struct story *story, const char *sync)
{
    int crashes = full() ? story->crashes_full : story->crashes;
    struct tally tally = {0};
    struct aftermath aftermath;
    struct replay *replay;
    char dir[256], tool[512];

    aftermath_create(&aftermath, &story->plan);
    scratch_create(dir, story->on_disk ? NULL : scratch_fast());
    replay = record(story, dir, sync);
    expect_complete(replay, dir);
    assert_true(replay_count(replay) > 50);
    aftermath.tool = sync ? NULL : built(tool, "muster-ckpt");
    for (int i = 0; i < crashes; i++)
        crash(replay, &aftermath, story->plan.seed * 100000 + (uint64_t)i, &tally);
    replay_destroy(replay);
    scratch_destroy(dir);
    aftermath_destroy(&aftermath);
    return tally;
}

static void nothing_is_lost(void **state)
{
    const struct story *story = *state;
    struct tally tally = run_story(story, NULL);

    print_message("# %d crashes, %d of them after a commit\n", tally.crashes, tally.promised);
    if (tally.findings[ALL_WELL] != tally.crashes)
        fail_msg("%d of %d crashes end badly; the first: %s", tally.crashes - tally.findings[ALL_WELL], tally.crashes,
                 tally.first);
    assert_true(tally.promised > tally.crashes / 4);
}

/* Without syncs there must be losses, and yet checksums let nothing torn pass. */
static void control(const struct story *story, const char *sync)
{
    struct tally tally = run_story(story, sync);
    int found = tally.findings[LOST] + tally.findings[BROKEN] + tally.findings[STUCK];

    print_message("# of %d crashes: %d lost, %d broken, %d stuck, %d torn and taken for whole\n", tally.crashes,
                  tally.findings[LOST], tally.findings[BROKEN], tally.findings[STUCK], tally.findings[TORN]);
    assert_true(found >= tally.crashes / 20);
    assert_int_equal(tally.findings[TORN], 0);
}

static void control_no_sync(void **state)
{
    control(*state, "none");
}

static void control_no_sync_of_files(void **state)
{
    control(*state, "directories");
}

static void control_no_sync_of_directories(void **state)
{
    control(*state, "files");
}

static void *story_state(size_t s)
{
    return (void *)(uintptr_t)&stories[s];
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"two ranks, four steps", nothing_is_lost, NULL, NULL, story_state(0)},
        {"three ranks, over an incomplete attempt, one kept", nothing_is_lost, NULL, NULL, story_state(1)},
        {"four ranks, over an incomplete attempt at the same step", nothing_is_lost, NULL, NULL, story_state(2)},
        {"shards of several blocks", nothing_is_lost, NULL, NULL, story_state(3)},
        {"through a stage, over an incomplete attempt", nothing_is_lost, NULL, NULL, story_state(4)},
        {"control: no sync", control_no_sync, NULL, NULL, story_state(0)},
        {"control: no sync of files", control_no_sync_of_files, NULL, NULL, story_state(0)},
        {"control: no sync of directories", control_no_sync_of_directories, NULL, NULL, story_state(0)},
        {"control: through a stage, no sync of files", control_no_sync_of_files, NULL, NULL, story_state(4)},
        {"control: through a stage, no sync of directories", control_no_sync_of_directories, NULL, NULL,
         story_state(4)},
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
