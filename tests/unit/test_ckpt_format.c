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
    const char *name; /* of the case */
    const char *make; /* a command line in the save's directory; or NULL */
    const char *file, *old, *new;
    const char *says;
};

static const struct foreign foreigns[] = {
    {.name = "a later stage",
     .file = STAGE_TARGET,
     .old = "\"version\":2,\"muster\":\"",
     .new = "\"version\":3,\"muster\":\"9.",
     .says = "/target.json: format version 3 is unknown (written by muster 9."},
    {.name = "another format", .file = STAGE_TARGET, .old = "muster-stage", .new = "x", .says = "format \"x\""},
    {.name = "one member more",
     .file = STAGE_TARGET,
     .old = "\"local\":",
     .new = "\"nodes\":4,\"local\":",
     .says = "/target.json: member \"nodes\" is unknown (written by muster "},
    {.name = "a renamed member", .file = STAGE_TARGET, .old = "\"local\"", .new = "\"here\"", .says = "\"here\""},
    {.name = "a missing member",
     .file = STAGE_TARGET,
     .old = "\"local\":2,",
     .new = "",
     .says = "\"local\" is missing"},
    {.name = "no number", .file = STAGE_TARGET, .old = "\"version\":2,", .new = "", .says = "\"version\" is missing"},
    {.name = "another type", .file = STAGE_TARGET, .old = "\"local\":2", .new = "\"local\":[2]", .says = "\"local\""},
    {.name = "no JSON", .file = STAGE_TARGET, .old = "{", .new = "target: ", .says = "/target.json: not JSON"},
    {.name = "a later part",
     .file = PART,
     .old = "\"version\":1,\"muster\":\"",
     .new = "\"version\":2,\"muster\":\"9.",
     .says = "/" PART ": format version 2 is unknown (written by muster 9."},
    {.name = "a part with one member more",
     .file = PART,
     .old = "\"host\":",
     .new = "\"rack\":1,\"host\":",
     .says = "member \"rack\" is unknown"},
    {.name = "a part with a member without a name",
     .file = PART,
     .old = "\"host\":",
     .new = "\"\":1,\"host\":",
     .says = "member \"\" is unknown"},
    {.name = "a part with a member of two known names",
     .file = PART,
     .old = "\"kinds\":",
     .new = "\"job kinds\":1,\"kinds\":",
     .says = "member \"job kinds\" is unknown"},
    {.name = "a part whose checksum is elsewhere",
     .make = "sed -i 's/\"version\":1/\"was\":1/' " PART,
     .file = PART,
     .old = "{\"crc32c\":\"",
     .new = "{\"version\":2,\"sum\":\"",
     .says = "must begin with"},
    {.name = "a drained part",
     .make = "mv " PART " shard-00000-of-00002.drained && rm shard-00000-of-00002.safetensors",
     .file = "shard-00000-of-00002.drained",
     .old = "\"kinds\":",
     .new = "\"sorts\":",
     .says = "member \"sorts\" is unknown"},
    {.name = "a partner's part",
     .make = "mkdir partner && cp shard-00000* partner",
     .file = "partner/" PART,
     .old = "\"job\":",
     .new = "\"jobs\":",
     .says = "partner/" PART ": member \"jobs\""},
    {.name = "another layout", .make = "cp -r . ../generation-20", .says = "generation-20: is unknown to muster"},
};

static char snapshot_text[2][1 << 16];

/* The names, sizes and contents of all that is in the stage but for what is the drainer's own. */
static const char *snapshot(const char *stage, int which)
{
    char command[1024];
    size_t bytes;
    FILE *pipe;

    snprintf(command, sizeof command,
             "cd %s && { find step-* generation-* partner 2>/dev/null | sort; "
             "find step-* generation-* -type f 2>/dev/null | sort | xargs -r md5sum; }",
             stage);
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

    log->left += failure && strstr(line, " is left as it is: ");
    if (strstr(line, "muster " PACKAGE_VERSION))
        snprintf(log->text, sizeof log->text, "%s", line);
}

static void expect_untouched(const struct foreign *foreign, const char *stage, const char *when)
{
    if (strcmp(snapshot(stage, 1), snapshot_text[0]) != 0)
        fail_msg("%s, %s: before\n%safter\n%s", foreign->name, when, snapshot_text[0], snapshot_text[1]);
}

/* Drain it; returns ckpt_drain's result. It must be logged once, with the file and both versions. */
static int drain(const struct foreign *foreign, const char *stage, bool once, double limit)
{
    struct log log = {0};
    struct ckpt_drain_options options = {.once = once, .seconds = limit, .log = take_line, .log_arg = &log};
    struct error err;
    int result = ckpt_drain(stage, &options, &err);

    if (result < 0)
        fail_msg("%s: %s", foreign->name, err.text);
    if (log.left != 1 || !strstr(log.text, foreign->says) || !strstr(log.text, "muster " PACKAGE_VERSION))
        fail_msg("%s: %d lines, the last is \"%s\"", foreign->name, log.left, log.text);
    return result;
}

static void damage(const struct foreign *foreign, const char *stage)
{
    char path[512];

    if (foreign->make)
        shell("cd '%s/" SAVE_NAME "' && %s", stage, foreign->make);
    if (foreign->file) {
        snprintf(path, sizeof path, "%.300s/" SAVE_NAME "/%s", stage, foreign->file);
        good_edit(path, foreign->old, foreign->new, strcmp(foreign->file, STAGE_TARGET) != 0);
    }
}

/* Drained once, for a while, when no run uses it; opened by a run. What stands beside it is drained all the same. */
static void a_stage_is_left(void **state)
{
    for (size_t i = 0; i < sizeof foreigns / sizeof *foreigns; i++) {
        const struct foreign *foreign = &foreigns[i];
        bool other = !foreign->file; /* the directory that was copied is known itself */
        struct ckpt_stage_config config = {.job = "1", .local = 2, .first = true};
        char stage[256];
        struct world world;
        struct node node;
        struct error err;

        node_create(&node, &world, &seed, 2, false);
        config.root = node.root;
        node_open(&node, "1", 2, false);
        snprintf(stage, sizeof stage, "%s", ckpt_stage_directory(node.stage));
        node_stage(&node, 10, "old");
        node_stage(&node, 20, "new");
        damage(foreign, stage);
        if (other)
            shell("rm -r '%s/" SAVE_NAME "'", stage);
        ckpt_stage_destroy(node.stage);
        node.stage = NULL;
        assert_int_equal(drain(foreign, stage, true, 60), CKPT_DRAIN_LEFT);
        world_expect(&world, node.topology, node.target, 10);
        assert_int_equal(count_entries(node.target), 2); /* that, and "latest" */
        shell("test ! -e '%s'/step-00000010*", stage);
        snapshot(stage, 0);
        if (!other && !strstr(snapshot_text[0], "target.json"))
            fail_msg("%s: gone: %s", foreign->name, snapshot_text[0]);
        assert_int_equal(drain(foreign, stage, false, 0.1), CKPT_DRAIN_LEFT);
        expect_untouched(foreign, stage, "drained for a while");
        assert_int_equal(drain(foreign, stage, false, 0), CKPT_DRAIN_LEFT);
        expect_untouched(foreign, stage, "drained when no run uses it");
        assert_null(ckpt_stage_open(&config, &err));
        assert_int_equal(err.code, CODE_CONFIG);
        assert_non_null(strstr(err.text, foreign->says));
        expect_untouched(foreign, stage, "opened by a run");
        node_destroy(&node);
    }
}

/* A run of format 1 is still there: it has no name, and gives a save up by an empty file. */
static void a_run_of_format_1_gives_a_save_up(void **state)
{
    struct ckpt_drain_options options = {.once = true, .seconds = 60};
    char path[512];
    struct world world;
    struct node node;
    struct error err;

    for (int run = 0; run < 2; run++) {
        node_create(&node, &world, &seed, 2, false);
        node_open(&node, "1", 2, run > 0); /* a run with a name knows no such file */
        node_stage(&node, 20, "new");
        snprintf(path, sizeof path, "%.300s/" SAVE_NAME "/replaced", ckpt_stage_directory(node.stage));
        write_file(path, "", 0);
        assert_int_equal(ckpt_drain(ckpt_stage_directory(node.stage), &options, &err), CKPT_DRAIN_DONE);
        assert_false(ckpt_stage_has(node.stage, 20));
        assert_int_equal(access(join(path, node.target, "step-00000020"), F_OK), run > 0 ? 0 : -1);
        node_destroy(&node);
    }
}

/* A stage's directory without target.json: who was making it has died. */
static void what_died_while_it_was_made_goes(void **state)
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
    struct foreign foreign = {.name = "target", .says = "step-00000020/manifest.json: member \"later\" is unknown"};
    struct log log = {0};
    struct ckpt_drain_options options = {.once = true, .log = take_line, .log_arg = &log};
    char stage[256];
    struct world world;
    struct node node;
    struct error err;

    node_create(&node, &world, &seed, 2, false);
    world_write(&world, node.topology, node.target, 20, "theirs");
    make_unknown(&node, "step-00000020/manifest.json");
    node_open(&node, "1", 2, false);
    snprintf(stage, sizeof stage, "%s", ckpt_stage_directory(node.stage));
    node_stage(&node, 20, "new");
    ckpt_stage_destroy(node.stage);
    node.stage = NULL;
    snapshot(stage, 0);
    assert_int_equal(ckpt_drain(stage, &options, &err), CKPT_DRAIN_LEFT);
    if (!strstr(log.text, foreign.says) || !strstr(log.text, "muster " PACKAGE_VERSION))
        fail_msg("\"%s\"", log.text);
    expect_untouched(&foreign, stage, "drained");
    node_destroy(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_is_left),
        cmocka_unit_test(a_run_of_format_1_gives_a_save_up),
        cmocka_unit_test(what_died_while_it_was_made_goes),
        cmocka_unit_test(checkpoints_are_never_removed),
        cmocka_unit_test(attempts_are_never_removed),
        cmocka_unit_test(what_is_staged_stays_where_the_target_is_unknown),
    };

    return cmocka_run_group_tests_name("ckpt_form", tests, NULL, NULL);
}
