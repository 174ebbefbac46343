/* Stages, attempts and checkpoints of another release, in a format that this one does not know: left as they are. */
#include "config.h"

#include "ckpt/write/attempt.h"
#include "ckpt/stage/stage_dir.h"
#include "tests/cmocka_test.h"
#include "tests/unit/ckpt_good.h"
#include "tests/unit/ckpt_stage_world.h"

#include <sys/stat.h>
#include <unistd.h>

#define SAVE_NAME "step-00000020.new.partial"
#define PART      "shard-00000-of-00002.json"

static uint64_t seed = 99;

/* ---- stages ---- */

struct foreign {
    const char *mark; /* of the stage's format; "": none */
    const char *says;
};

static const struct foreign foreigns[] = {
    {"4 9.1", ": stage format 4 is unknown (made by muster 9.1; this is muster "},
    {"2 0.0.9", ": stage format 2 is unknown (made by muster 0.0.9; this is muster "},
    {"x", ": stage format 0 is unknown (made by muster of another release; this is muster "},
    {"", ": stage format 0 is unknown (made by muster of another release; this is muster "},
};

static char snapshot_text[2][1 << 16];

/* The names and contents of all that is in the stage but for what is the drainer's own. */
static const char *snapshot(const char *stage, int which)
{
    char command[1024];
    size_t bytes;
    FILE *pipe;

    snprintf(command, sizeof command,
             "cd %s && { find step-* format | sort; find step-* -type f | sort | xargs -r md5sum; }", stage);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    bytes = fread(snapshot_text[which], 1, sizeof snapshot_text[which] - 1, pipe);
    snapshot_text[which][bytes] = '\0';
    pclose(pipe);
    return snapshot_text[which];
}

struct log {
    int left;
    char text[1400]; /* the last line that names this release */
};

static void take_line(const char *line, bool failure, void *arg)
{
    struct log *log = arg;

    log->left += failure && strstr(line, "left as it is: ");
    if (strstr(line, "muster " PACKAGE_VERSION))
        snprintf(log->text, sizeof log->text, "%s", line);
}

static void expect_untouched(const char *stage, const char *when)
{
    if (strcmp(snapshot(stage, 1), snapshot_text[0]) != 0)
        fail_msg("%s: before\n%safter\n%s", when, snapshot_text[0], snapshot_text[1]);
}

/* It must be logged once, with both versions. */
static void leave(const struct foreign *foreign, const char *stage, bool once, double limit)
{
    struct log log = {0};
    struct ckpt_drain_options options = {.once = once, .seconds = limit, .log = take_line, .log_arg = &log};
    struct error err;

    assert_int_equal(ckpt_drain(stage, &options, &err), CKPT_DRAIN_LEFT);
    if (log.left != 1 || !strstr(log.text, foreign->says))
        fail_msg("%d lines, the last is \"%s\"", log.left, log.text);
}

/* It is not drained or reclaimed, and no run of its job begins. */
static void a_stage_is_left(void **state)
{
    for (size_t i = 0; i < sizeof foreigns / sizeof *foreigns; i++) {
        const struct foreign *foreign = &foreigns[i];
        struct ckpt_stage_config next = {.job = "1", .run = "b"};
        struct ckpt_stage_name *names;
        char stage[256];
        struct world world;
        struct node node;
        struct error err;
        size_t count;

        node_begin(&node, &world, &seed, 2, false);
        snprintf(stage, sizeof stage, "%s", ckpt_stage_directory(node.stage));
        node_stage(&node, 20, "new");
        ckpt_stage_destroy(node.stage);
        node.stage = NULL;
        shell("rm '%s/" STAGE_FORMAT "'", stage);
        if (foreign->mark[0])
            shell("ln -s '%s' '%s/" STAGE_FORMAT "'", foreign->mark, stage);
        snapshot(stage, 0);
        leave(foreign, stage, true, 60);
        leave(foreign, stage, false, 0.1);
        assert_int_equal(ckpt_reclaim(stage, 0, NULL, NULL, &err), 0);
        expect_untouched(stage, "drained and reclaimed");
        next.root = node.root;
        assert_int_equal(ckpt_stage_earlier(&next, &names, &count, &err), -1);
        assert_int_equal(err.code, CODE_CONFIG);
        assert_non_null(strstr(err.text, foreign->says));
        node_destroy(&node);
    }
}

/* A stage's directory without target.json: a drainer died while it removed it. */
static void what_died_while_it_was_removed_goes(void **state)
{
    char stage[256];
    struct world world;
    struct node node;

    node_begin(&node, &world, &seed, 2, false);
    snprintf(stage, sizeof stage, "%s", ckpt_stage_directory(node.stage));
    shell("mkdir '%s/" SAVE_NAME "'", stage);
    ckpt_stage_destroy(node.stage);
    node.stage = NULL;
    {
        struct ckpt_drain_options options = {.once = true, .seconds = 60};
        struct error err;

        assert_int_equal(ckpt_drain(stage, &options, &err), CKPT_DRAIN_DONE);
    }
    assert_int_equal(access(stage, F_OK), -1);
    node_destroy(&node);
}

/* ---- a directory of checkpoints ---- */

static void write_attempt(struct node *node, uint64_t step, const char *attempt, int shards)
{
    struct error err;

    for (int s = 0; s < shards; s++) {
        struct ckpt_save save = world_save(node->world, node->topology, s, node->target, step, attempt);

        if (ckpt_write_shard(&save, &err) < 0)
            fail_msg("%s", err.text);
    }
}

/* As another release would write it: with a member that we do not know. */
static void make_unknown(const struct node *node, const char *file)
{
    char path[512];

    good_edit(join(path, node->target, file), "\"job\":", "\"later\":1,\"job\":", true);
}

static bool is_there(const struct node *node, const char *name)
{
    char path[512];

    return access(join(path, node->target, name), F_OK) == 0;
}

static void checkpoints_are_never_removed(void **state)
{
    struct world world;
    struct node node;
    struct error err;
    struct ckpt *ckpt;
    char path[512];

    node_create(&node, &world, &seed, 2, false);
    for (uint64_t step = 10; step <= 40; step += 10)
        world_write(&world, node.topology, node.target, step, "a");
    make_unknown(&node, "step-00000010/manifest.json");
    make_unknown(&node, "step-00000040/manifest.json");
    /* What a commit of theirs has not tidied yet. */
    write_file(join(path, node.target, "step-00000040/" PART), "{}", 2);
    assert_int_equal(ckpt_recover(node.target, &err), 0);
    assert_true(is_there(&node, "step-00000040/" PART));
    assert_int_equal(ckpt_prune(node.target, 1, 0, &err), 0);
    assert_true(is_there(&node, "step-00000010") && is_there(&node, "step-00000030") &&
                is_there(&node, "step-00000040"));
    assert_false(is_there(&node, "step-00000020"));
    ckpt_step_path(path, sizeof path, node.target, 40);
    ckpt = ckpt_open(path, &err);
    assert_null(ckpt);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_int_equal(ckpt_remove(node.target, 40, true, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "step-00000040/manifest.json: member \"later\" is unknown (written by muster"));
    assert_true(is_there(&node, "step-00000040/manifest.json"));
    node_destroy(&node);
}

static void attempts_are_never_removed(void **state)
{
    struct directory parent;
    struct world world;
    struct node node;
    struct error err;

    node_create(&node, &world, &seed, 2, false);
    write_attempt(&node, 10, "theirs", 2);
    make_unknown(&node, "step-00000010.theirs.partial/" PART);
    assert_int_equal(ckpt_recover(node.target, &err), -1); /* newer than all that could be loaded */
    assert_int_equal(err.code, CODE_CONFIG);
    world_write(&world, node.topology, node.target, 10, "ours");
    assert_true(is_there(&node, "step-00000010.theirs.partial/" PART));
    world_write(&world, node.topology, node.target, 20, "ours");
    write_attempt(&node, 30, "ours", 1);
    assert_int_equal(ckpt_prune(node.target, 1, 0, &err), 0);
    assert_true(is_there(&node, "step-00000010.theirs.partial/" PART));
    assert_int_equal(ckpt_recover(node.target, &err), 0);
    assert_int_equal(directory_open(&parent, NULL, node.target, &err), 0);
    assert_int_equal(attempt_abandon(&parent, 10, "theirs", "why", &err), -1);
    make_unknown(&node, "step-00000030.ours.partial/" PART);
    assert_int_equal(attempt_abandon(&parent, 30, "ours", "why", &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_true(is_there(&node, "step-00000030.ours.partial/" PART));
    assert_int_equal(ckpt_recover(node.target, &err), 0); /* it is not complete: no news are in it */
    directory_close(&parent);
    node_destroy(&node);
}

/* The step that is staged was committed by another release: the copy in memory stays until somebody knows. */
static void what_is_staged_stays_where_the_target_is_unknown(void **state)
{
    static const char says[] = "step-00000020/manifest.json: member \"later\" is unknown";
    struct log log = {0};
    struct ckpt_drain_options options = {.once = true, .log = take_line, .log_arg = &log};
    char stage[256];
    struct world world;
    struct node node;
    struct error err;

    node_create(&node, &world, &seed, 2, false);
    world_write(&world, node.topology, node.target, 20, "theirs");
    make_unknown(&node, "step-00000020/manifest.json");
    node_open(&node, "1", 2, "a");
    snprintf(stage, sizeof stage, "%s", ckpt_stage_directory(node.stage));
    node_stage(&node, 20, "new");
    ckpt_stage_destroy(node.stage);
    node.stage = NULL;
    snapshot(stage, 0);
    assert_int_equal(ckpt_drain(stage, &options, &err), CKPT_DRAIN_LEFT);
    if (!strstr(log.text, says) || !strstr(log.text, "muster " PACKAGE_VERSION))
        fail_msg("\"%s\"", log.text);
    expect_untouched(stage, "drained");
    node_destroy(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_is_left),
        cmocka_unit_test(what_died_while_it_was_removed_goes),
        cmocka_unit_test(checkpoints_are_never_removed),
        cmocka_unit_test(attempts_are_never_removed),
        cmocka_unit_test(what_is_staged_stays_where_the_target_is_unknown),
    };

    return cmocka_run_group_tests_name("ckpt_form", tests, NULL, NULL);
}
