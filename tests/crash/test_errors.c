/*
 * The disk refuses: the first, second, third ... call of each kind fails, once or from then on, until a save gets
 * through without. A save either fails with one line that names the path, and with a full disk the room that was
 * wanted, or has committed; what was committed before is never harmed, and the next save succeeds. A drain that fails
 * keeps what is staged, and the next drain commits it.
 */
#include "tests/cmocka_test.h"
#include "tests/crash/aftermath.h"
#include "tests/crash/run.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct plan plan = {2, 31, false, 2};

#define SAMPLE_EVERY 9 /* of the calls that read, which are many */

struct failure {
    const char *call, *how;
};

static const struct failure failures[] = {
    {"open", "ENOSPC"},      {"open", "EDQUOT"},      {"open", "EIO"},       {"mkdir", "ENOSPC"},
    {"mkdir", "EDQUOT"},     {"mkdir", "EIO"},        {"symlink", "ENOSPC"}, {"symlink", "EIO"},
    {"write", "ENOSPC"},     {"write", "EDQUOT"},     {"write", "EIO"},      {"write", "short"},
    {"fallocate", "ENOSPC"}, {"fallocate", "EDQUOT"}, {"fallocate", "EIO"},  {"ftruncate", "ENOSPC"},
    {"ftruncate", "EIO"},    {"fsync", "ENOSPC"},     {"fsync", "EDQUOT"},   {"fsync", "EIO"},
    {"close", "ENOSPC"},     {"close", "EDQUOT"},     {"close", "EIO"},      {"rename", "ENOSPC"},
    {"rename", "EDQUOT"},    {"rename", "EIO"},       {"unlink", "EIO"},     {"open", "EACCES"},
    {"open", "EROFS"},       {"mkdir", "EROFS"},      {"rename", "ESTALE"},  {"fsync", "ENOTCONN"},
    {"look", "EIO"},         {"look", "ENOTCONN"},    {"read", "EIO"},       {"list", "EIO"},
    {"stat", "EIO"},         {"stat", "ENOTCONN"},
};

/* Calls that change nothing. */
static bool only_reads(const struct failure *failure)
{
    return strstr("look read list stat", failure->call) != NULL;
}

static bool is_full(const struct failure *failure)
{
    return strcmp(failure->how, "ENOSPC") == 0 || strcmp(failure->how, "EDQUOT") == 0;
}

/*
 * One line, naming something beneath dir; and what was wanted, if it was data that found no room. A drainer's is its
 * log, which may have a line for each thing that failed.
 */
static void check_line(const struct failure *failure, const char *dir, const char *said, bool staged, const char *where)
{
    size_t length = strlen(said);

    if (length == 0 || said[length - 1] != '\n' || (!staged && strchr(said, '\n') != said + length - 1))
        fail_msg("%s: must be one line: \"%s\"", where, said);
    if (!strstr(said, dir))
        fail_msg("%s: does not name a path: %s", where, said);
    if (is_full(failure) && (strcmp(failure->call, "write") == 0 || strcmp(failure->call, "fallocate") == 0) &&
        !(strstr(said, "bytes needed") && strstr(said, " free")))
        fail_msg("%s: does not say what was wanted and what is free: %s", where, said);
}

/* What a save that succeeds may say: that it could not make room beside it. Nothing else tells of that. */
static void check_success(const char *dir, const char *said, const char *where)
{
    const char *line = strstr(said, "removing old checkpoints failed: ");

    if (said[0] && (!line || !strstr(line, dir) || strchr(said, '\n') != said + strlen(said) - 1))
        fail_msg("%s: succeeds and says: %s", where, said);
}

struct tally {
    int hits, failed;
};

/* Returns whether the call was reached. */
static bool one_error(const struct failure *failure, int n, bool lasting, bool staged, struct aftermath *aftermath,
                      struct tally *tally)
{
    static const char drainer[] = "SHIM_PROGRAM=muster-ckptd"; /* not the saver, which looks at the end too */
    char base[256], dir[512], stage[512], hit[512], root_of[600], fail_of[64], hit_of[600], said[4096], where[128];
    const char *environment[] = {root_of, fail_of, hit_of, only_reads(failure) && staged ? drainer : NULL, NULL},
               *quiet[] = {NULL};
    const char *before[] = {"tests/crash/saver", "--serial", "--seed", "31", "--keep", "2", dir, "10", "20", NULL};
    const char *straight[] = {"tests/crash/saver", "--serial", "--seed", "31", "--keep", "2", dir, "30", NULL};
    const char *through[] = {"tests/crash/saver", "--serial", "--seed", "31", "--keep", "2",
                             "--stage",           stage,      dir,      "30", NULL};
    const char *again[] = {"tests/crash/saver", "--drain", "--stage", stage, dir, NULL};
    enum finding finding;
    bool reached;
    int status;

    scratch_create(base, scratch_fast());
    join(dir, base, "checkpoints");
    join(hit, base, "hit");
    assert_int_equal(mkdir(join(stage, base, "stage"), 0700), 0);
    snprintf(where, sizeof where, "%s no. %d fails with %s%s", failure->call, n, failure->how,
             lasting ? ", and all later" : "");
    snprintf(root_of, sizeof root_of, "SHIM_ROOT=%s", dir);
    snprintf(fail_of, sizeof fail_of, "SHIM_FAIL=%s:%d:%s%s", failure->call, n, failure->how, lasting ? "+" : "");
    snprintf(hit_of, sizeof hit_of, "SHIM_HIT=%s", hit);
    assert_int_equal(run_shimmed(before, quiet, said, sizeof said), 0);
    status = run_shimmed(staged ? through : straight, environment, said, sizeof said);
    reached = access(hit, F_OK) == 0;
    if (!WIFEXITED(status))
        fail_msg("%s: killed by signal %d", where, WTERMSIG(status));
    if (status == 0)
        check_success(dir, said, where);
    if (status != 0) {
        check_line(failure, dir, said, staged, where);
        if (!reached)
            fail_msg("%s: nothing failed, and yet: %s", where, said);
    }
    if (staged && status != 0) { /* the only copy is still there, and the next drain brings it home */
        if (WEXITSTATUS(status) != CODE_STOPPED)
            fail_msg("%s: exit %d and not 75: %s", where, WEXITSTATUS(status), said);
        if (run_shimmed(again, quiet, said, sizeof said) != 0)
            fail_msg("%s: the drain after it fails: %s", where, said);
    }
    finding = aftermath_go_on(aftermath, dir, staged || status == 0 ? 30 : 20, n % 2 == 0);
    if (finding != ALL_WELL)
        fail_msg("%s, exit %d: %s", where, WEXITSTATUS(status), aftermath->text);
    tally->hits += reached;
    tally->failed += status != 0;
    scratch_destroy(base);
    return reached;
}

static void every_call_fails(bool staged)
{
    struct aftermath aftermath;

    aftermath_create(&aftermath, &plan);
    for (size_t f = 0; f < sizeof failures / sizeof *failures; f++) {
        int n = 1, every = only_reads(&failures[f]) && !full() ? SAMPLE_EVERY : 1;
        struct tally tally = {0};

        for (; one_error(&failures[f], n, false, staged, &aftermath, &tally); n += every)
            assert_true(n < 500);
        for (int m = 1; m < n; m += every)
            one_error(&failures[f], m, true, staged, &aftermath, &tally);
        print_message("# %s %s: %d failures, %d saves gave up\n", failures[f].call, failures[f].how, tally.hits,
                      tally.failed);
        assert_true(tally.hits > 0 || (!staged && strcmp(failures[f].call, "symlink") == 0));
    }
    aftermath_destroy(&aftermath);
}

static void every_call_of_a_save_fails(void **state)
{
    every_call_fails(false);
}

static void every_call_of_a_drain_fails(void **state)
{
    every_call_fails(true);
}

/* A drain without a trainer, as in an epilog: the call fails once, on the stage. Returns whether it was reached. */
static bool one_stage_error(const char *call, int n, struct aftermath *aftermath)
{
    char base[256], dir[512], stage[512], hit[512], root_of[600], fail_of[64], hit_of[600], said[4096], where[128];
    const char *environment[] = {root_of, fail_of, hit_of, "SHIM_PROGRAM=muster-ckptd", NULL}, *quiet[] = {NULL};
    const char *before[] = {"tests/crash/saver", "--serial", "--seed", "31", "--keep", "2", dir, "20", NULL};
    const char *only[] = {"tests/crash/saver", "--serial", "--seed",     "31", "--keep", "2",
                          "--stage",           stage,      "--no-drain", dir,  "30",     NULL};
    const char *drain[] = {"tests/crash/saver", "--drain", "--stage", stage, dir, NULL};
    bool reached;
    int status;

    scratch_create(base, scratch_fast());
    join(dir, base, "checkpoints");
    join(hit, base, "hit");
    assert_int_equal(mkdir(join(stage, base, "stage"), 0700), 0);
    snprintf(where, sizeof where, "%s no. %d of the stage fails", call, n);
    snprintf(root_of, sizeof root_of, "SHIM_ROOT=%s", stage);
    snprintf(fail_of, sizeof fail_of, "SHIM_FAIL=%s:%d:EIO", call, n);
    snprintf(hit_of, sizeof hit_of, "SHIM_HIT=%s", hit);
    assert_int_equal(run_shimmed(before, quiet, said, sizeof said), 0);
    assert_int_equal(run_shimmed(only, quiet, said, sizeof said), 0);
    status = run_shimmed(drain, environment, said, sizeof said);
    reached = access(hit, F_OK) == 0;
    if (status != 0 && run_shimmed(drain, quiet, said, sizeof said) != 0)
        fail_msg("%s: the drain after it fails: %s", where, said);
    if (aftermath_go_on(aftermath, dir, 30, n % 2 == 0) != ALL_WELL)
        fail_msg("%s, exit %d: %s", where, WEXITSTATUS(status), aftermath->text);
    scratch_destroy(base);
    return reached;
}

static void every_look_at_the_stage_fails(void **state)
{
    static const char *const calls[] = {"look", "read", "list", "stat"};
    struct aftermath aftermath;

    aftermath_create(&aftermath, &plan);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (int n = 1; one_stage_error(calls[c], n, &aftermath); n++)
            assert_true(n < 500);
    aftermath_destroy(&aftermath);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_of_a_save_fails),
        cmocka_unit_test(every_call_of_a_drain_fails),
        cmocka_unit_test(every_look_at_the_stage_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
