/* The programs as their users see them: muster-ckptd's exit codes and signals, and what muster-ckpt status says. */
#include "config.h"

#include "tests/cmocka_test.h"
#include "tests/unit/ckpt_good.h"
#include "tests/unit/ckpt_stage_world.h"

#include <signal.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed = 5;

/* muster-ckptd in the background. */
static pid_t start(const char *cap, const char *stage)
{
    const char *path = built_program("muster-ckptd");
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        execl(path, path, "-q", "--cap", cap, stage, (char *)NULL);
        _exit(127);
    }
    return child;
}

static void command_lines(void **state)
{
    char mine[] = "/tmp/muster-mine.XXXXXX";

    assert_int_equal(run_program("muster-ckptd", "--help"), 0);
    says("Usage: muster-ckptd");
    assert_int_equal(run_program("muster-ckptd", "--version"), 0);
    assert_int_equal(run_program("muster-ckptd", "%s", ""), 64);
    assert_int_equal(run_program("muster-ckptd", "--cap none /x"), 64);
    assert_int_equal(run_program("muster-ckptd", "-j 0 /x"), 64);
    assert_int_equal(run_program("muster-ckptd", "--seconds -1 /x"), 64);
    assert_int_equal(run_program("muster-ckptd", "--once /there/is/no/stage"), 0);
    assert_int_equal(run_program("muster-ckptd", "--once /tmp"), 74);
    says("mode 0700");
    assert_int_equal(run_program("muster-ckptd", "--child=abc --once /x"), 64);
    assert_non_null(mkdtemp(mine));
    assert_int_equal(run_program("muster-ckptd", "--once %s", mine), 64); /* no stage: nothing of it is removed */
    assert_int_equal(rmdir(mine), 0);
}

/* A job has begun and saved nothing: the drainer is there, and has not said who it is. */
static void drainer_without_a_save(const char *stage)
{
    pid_t child = start("1", stage);

    do {
        usleep(10000);
        assert_int_equal(run_program("muster-ckpt", "status %s", stage), 0);
    } while (strstr(output, "no drainer"));
    says(" drains it\n");
    assert_int_equal(kill(child, SIGTERM), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void once(void **state)
{
    struct world world;
    struct node node;
    const char *stage;

    node_begin(&node, &world, &seed, 3, false);
    stage = ckpt_stage_directory(node.stage);
    drainer_without_a_save(stage);
    node_stage(&node, 30, "a");
    assert_int_equal(run_program("muster-ckpt", "status %s", stage), 0);
    says("no drainer");
    says("step 30");
    says("staged");
    assert_int_equal(run_program("muster-ckptd", "--once %s", stage), 0);
    says("step 30 (a): committed");
    world_expect(&world, node.topology, node.target, 30);
    assert_int_equal(run_program("muster-ckpt", "status --json %s", stage), 0);
    says("\"state\": \"committed\"");
    assert_non_null(strstr(output, node.target));
    node_destroy(&node);
}

/* The target is a file: the save stays, everyone is told why, and it is committed when that is put right. */
static void a_target_that_is_none(void **state)
{
    struct world world;
    struct node node;
    char before[256], file[512];
    const char *stage;
    char *line;

    node_begin(&node, &world, &seed, 1, false);
    stage = ckpt_stage_directory(node.stage);
    memcpy(before, node.target, sizeof before);
    write_file(join(file, node.target, "file"), "x", 1);
    strcpy(node.target, file);
    node_stage(&node, 30, "a");
    assert_int_equal(run_program("muster-ckptd", "-q --once %s", stage), 75);
    line = strchr(output, '\n');
    assert_true(line && line[1] == '\0'); /* one line, with what is left, where and why */
    says(stage);
    says(": 1 save (step 30), ");
    says("Not a directory");
    assert_int_equal(run_program("muster-ckpt", "status %s", stage), 0);
    says("staged");
    says("Not a directory");
    /* With a time it goes on trying. */
    assert_int_equal(run_program("muster-ckptd", "-q --once --seconds 0.5 %s", stage), 75);
    says("is tried again: ");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkdir(file, 0777), 0);
    assert_int_equal(run_program("muster-ckptd", "--once %s", stage), 0);
    world_expect(&world, node.topology, file, 30);
    scratch_destroy(file);
    memcpy(node.target, before, sizeof before);
    node_destroy(&node);
}

static void wait_drained(struct node *node, bool drained)
{
    for (int tries = 0; node_has_drainer(node) != drained && tries < 2000; tries++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(node_has_drainer(node), drained);
}

/* TERM ends it with 75 in the middle of a slow drain; KILL at once; time is up; and each time another goes on. */
static void stopped_and_killed(void **state)
{
    struct world world;
    struct node node;
    const char *stage;
    pid_t child;
    int status;

    node_begin(&node, &world, &seed, 2, true);
    stage = ckpt_stage_directory(node.stage);
    node_stage(&node, 30, "a");
    child = start("1", stage);
    wait_drained(&node, true);
    assert_int_equal(run_program("muster-ckptd", "--once %s", stage), 0); /* a second one has nothing to do */
    assert_false(node_wait(&node, 0));
    kill(child, SIGTERM);
    status = child_wait(child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 75);
    child = start("1", stage);
    wait_drained(&node, true);
    child_kill(child);
    wait_drained(&node, false);
    assert_int_equal(run_program("muster-ckptd", "-q --once --cap 0.5 --seconds 0.2 %s", stage), 75);
    assert_int_equal(run_program("muster-ckptd", "--once %s", stage), 0);
    world_expect(&world, node.topology, node.target, 30);
    node_destroy(&node);
}

/* Not committed because of other nodes, and nothing is left here: 76. */
static void what_other_nodes_did(void **state)
{
    struct ckpt_staged_shard staged;
    struct world world;
    struct node node, other;
    struct error err;

    node_begin_pair(&node, &other, &world, &seed, false);
    node_stage(&node, 30, "a");
    assert_int_equal(run_program("muster-ckptd", "-q --once %s", ckpt_stage_directory(node.stage)), 76);
    says("step 30 (a): failed: other nodes' shards are missing");
    assert_true(node_wait(&node, 0));
    node_stage(&node, 31, "b");
    node_stage(&other, 31, "b");
    assert_int_equal(ckpt_stage_lend(other.stage, &staged, &err), 0);
    ((unsigned char *)(uintptr_t)staged.data)[staged.bytes - 1] ^= 4;
    assert_int_equal(run_program("muster-ckptd", "-q --once %s", ckpt_stage_directory(other.stage)), 74);
    assert_int_equal(run_program("muster-ckptd", "-q --once %s", ckpt_stage_directory(node.stage)), 76);
    says("step 31 (b): failed: given up by another node: ");
    ckpt_stage_destroy(other.stage);
    node_destroy(&node);
}

/* Starts muster-ckptd for a run, has the run end after a while, and waits for its end; what it prints is in `output`.
 * */
static void drain_until_run_ends(struct node *node, const char *meanwhile)
{
    char command[2048];
    int ends[2];
    FILE *pipe;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    dup2(ends[0], STDIN_FILENO);
    snprintf(command, sizeof command, "%s --child %s 2>&1", built_program("muster-ckptd"),
             ckpt_stage_directory(node->stage));
    pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(system(meanwhile), 0);
    ckpt_stage_destroy(node->stage);
    node->stage = NULL;
    close(ends[0]);
    close(ends[1]);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    pclose(pipe);
}

/* The run ends while the target fails: goes on as with --once, and logs once what is left. */
static void a_run_ends(void **state)
{
    struct world world;
    struct node node;
    char file[512], before[256];
    const char *line;

    node_begin(&node, &world, &seed, 1, false);
    memcpy(before, node.target, sizeof before);
    write_file(join(file, node.target, "file"), "x", 1);
    strcpy(node.target, file);
    node_stage(&node, 30, "a");
    drain_until_run_ends(&node, "sleep 0.5");
    line = strstr(output, ": left in ");
    assert_non_null(line);
    assert_null(strstr(line + 1, ": left in "));
    memcpy(node.target, before, sizeof before);
    node_destroy(&node);
}

/* The target works again just before the run ends: that is not left for the end of a pause. */
static void a_run_ends_and_all_is_tried_once_more(void **state)
{
    struct world world;
    struct node node;
    char command[2048], file[512];

    node_begin(&node, &world, &seed, 1, false);
    write_file(join(file, node.target, "file"), "x", 1);
    strcpy(node.target, file);
    node_stage(&node, 30, "a");
    /* The pauses are 0.25, 0.5, 1 and 2 s: it works again at the beginning of the last. */
    snprintf(command, sizeof command, "sleep 2; rm %s; mkdir %s; sleep 0.2", file, file);
    drain_until_run_ends(&node, command);
    assert_null(strstr(output, ": left in "));
    world_expect(&world, node.topology, node.target, 30);
    scratch_destroy(node.target);
    *strrchr(node.target, '/') = '\0';
    node_destroy(&node);
}

/* The run has ended before its muster-ckptd begins. */
static void a_run_that_has_ended(void **state)
{
    struct world world;
    struct node node;
    char stage[512];

    node_begin(&node, &world, &seed, 1, false);
    node_stage(&node, 30, "a");
    snprintf(stage, sizeof stage, "%s", ckpt_stage_directory(node.stage));
    ckpt_stage_destroy(node.stage);
    node.stage = NULL;
    assert_int_equal(run_program("muster-ckptd", "--child %s </dev/null", stage), 0);
    world_expect(&world, node.topology, node.target, 30);
    node_destroy(&node);
}

/* The run ends and another node's shard is missing: it ends without waiting for that. */
static void a_run_ends_and_others_have_the_rest(void **state)
{
    struct world world;
    struct node node;
    char stage[512];

    node_create(&node, &world, &seed, 2, false);
    node.stride = 2;
    node_open(&node, "1", 2, "a");
    node_stage(&node, 30, "a");
    snprintf(stage, sizeof stage, "%s", ckpt_stage_directory(node.stage));
    drain_until_run_ends(&node, "sleep 0.5");
    says("a node that still has the save commits it when they arrive");
    assert_int_equal(access(stage, F_OK), -1);
    node_destroy(&node);
}

/* With --once --seconds, as in an epilog: what another process drains is not said to be drained before it is. */
static void a_second_one_with_time_waits(void **state)
{
    struct world world;
    struct node node;
    const char *stage;
    pid_t child;

    node_begin(&node, &world, &seed, 2, true);
    stage = ckpt_stage_directory(node.stage);
    node_stage(&node, 30, "a");
    child = start("1", stage);
    wait_drained(&node, true);
    assert_int_equal(run_program("muster-ckptd", "-q --once --seconds 0.2 %s", stage), 75);
    says("another process still drains");
    kill(child, SIGTERM);
    assert_int_equal(run_program("muster-ckptd", "--once --seconds 60 %s", stage), 0);
    assert_int_equal(WEXITSTATUS(child_wait(child)), 75);
    world_expect(&world, node.topology, node.target, 30);
    node_destroy(&node);
}

/* What this node had is drained and another node's shard is missing: said to be so without the drainer's own word. */
static void drained_without_a_status(void **state)
{
    struct world world;
    struct node node;
    char file[512];
    const char *stage;

    node_create(&node, &world, &seed, 2, false);
    node.stride = 2;
    node_open(&node, "1", 2, "a");
    stage = ckpt_stage_directory(node.stage);
    node_stage(&node, 30, "a");
    assert_int_equal(run_program("muster-ckptd", "-q --once --seconds 0.5 %s", stage), 75);
    assert_int_equal(run_program("muster-ckpt", "status %s", stage), 0);
    says(" drained ");
    assert_int_equal(unlink(join(file, stage, "status.json")), 0);
    assert_int_equal(run_program("muster-ckpt", "status %s", stage), 0);
    says(" drained ");
    node_destroy(&node);
}

/* All of the job's processes were killed: what is whole is committed, the rest dropped, the stage removed. */
static void the_epilog(void **state)
{
    struct world world;
    struct node node;
    struct ckpt_save save;
    struct error err;
    char stage[512];

    node_begin(&node, &world, &seed, 2, false);
    snprintf(stage, sizeof stage, "%s", ckpt_stage_directory(node.stage));
    node_stage(&node, 30, "a");
    save = world_save(&world, node.topology, 0, node.target, 31, "b");
    assert_int_equal(ckpt_stage_shard(node.stage, &save, &err), 0);
    ckpt_stage_destroy(node.stage);
    node.stage = NULL;
    assert_int_equal(run_program("muster-ckptd", "--once --seconds 30 %s", stage), 0);
    says("step 30 (a): committed");
    says("step 31 (b): dropped");
    assert_int_equal(access(stage, F_OK), -1);
    world_expect(&world, node.topology, node.target, 30);
    node_destroy(&node);
}

/* Another release staged it, and committed an earlier step: neither is touched, and every program says why. */
static void another_release(void **state)
{
    static const char versions[] =
        "written by muster 9." PACKAGE_VERSION " in format 1; this is muster " PACKAGE_VERSION,
                      of_stage[] = "made by muster 9.1; this is muster " PACKAGE_VERSION;
    struct world world;
    struct node node;
    char stage[512], path[1024];

    node_begin(&node, &world, &seed, 2, false);
    snprintf(stage, sizeof stage, "%s", ckpt_stage_directory(node.stage));
    world_write(&world, node.topology, node.target, 10, "a");
    snprintf(path, sizeof path, "%s/step-00000010/manifest.json", node.target);
    good_edit(path, "\"muster\":\"", "\"later\":1,\"muster\":\"9.", true);
    node_stage(&node, 30, "b");
    shell("ln -sfn '4 9.1' '%s/format'", stage);
    ckpt_stage_destroy(node.stage);
    node.stage = NULL;
    for (int quiet = 0; quiet < 2; quiet++) {
        assert_int_equal(run_program("muster-ckptd", "%s --once %s", quiet ? "-q" : "-j1", stage), 75);
        says("left as it is: ");
        says(of_stage);
        assert_ptr_equal(strchr(output, '\n'), output + strlen(output) - 1);
    }
    assert_int_equal(run_program("muster-ckpt", "status %s", stage), 78);
    says(of_stage);
    assert_int_equal(run_program("muster-ckpt", "verify %s", node.target), 78);
    says(versions);
    assert_int_equal(run_program("muster-ckpt", "list %s", node.target), 0);
    says("10  unknown: ");
    assert_int_equal(run_program("muster-ckpt", "list --json %s", node.target), 0);
    says("\"unknown\": \"");
    assert_int_equal(run_program("muster-ckpt", "rm --force %s/step-00000010", node.target), 78);
    says(versions);
    node_destroy(&node);
}

static mode_t mode_of(const char *directory, const char *name)
{
    char path[600];
    struct stat info;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_int_equal(stat(path, &info), 0);
    return info.st_mode & 0777;
}

/* An epilog's umask is slurmd's, and whose checkpoint it is may have kept it to himself, or shared it with a group. */
static void who_may_read_it_is_for_who_staged_it_to_say(void **state)
{
    static const mode_t masks[] = {077, 007, 027, 022};

    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        struct world world;
        struct node node;

        node_begin(&node, &world, &seed, 2, false);
        umask(masks[i]);
        node_stage(&node, 30, "a");
        umask(022);
        assert_int_equal(run_program("muster-ckptd", "--once %s", ckpt_stage_directory(node.stage)), 0);
        assert_int_equal(mode_of(node.target, "step-00000030"), 0777 & ~masks[i]);
        assert_int_equal(mode_of(node.target, "step-00000030/manifest.json"), 0666 & ~masks[i]);
        assert_int_equal(mode_of(node.target, "step-00000030/shard-00000-of-00002.safetensors"), 0666 & ~masks[i]);
        world_expect(&world, node.topology, node.target, 30);
        node_destroy(&node);
    }
}

/* Whose stage or checkpoint it is may want something of the terminal of who looks at it. */
static void what_is_shown_is_printable(void **state)
{
    struct world world;
    struct node node;
    char command[2048];

    node_begin(&node, &world, &seed, 2, false);
    node_stage(&node, 30, "a");
    assert_int_equal(run_program("muster-ckptd", "--once %s", ckpt_stage_directory(node.stage)), 0);
    snprintf(command, sizeof command,
             "sed -i 's/\"reason\": *\"[^\"]*\"/\"reason\": \"y\\\\u001b[31m\\\\u009b\\\\nz\"/' %s/status.json",
             ckpt_stage_directory(node.stage));
    assert_int_equal(system(command), 0);
    assert_int_equal(run_program("muster-ckpt", "status %s", ckpt_stage_directory(node.stage)), 0);
    says("y?[31m?? z");
    assert_null(strchr(output, '\033'));
    node_destroy(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_lines),
        cmocka_unit_test(once),
        cmocka_unit_test(a_target_that_is_none),
        cmocka_unit_test(stopped_and_killed),
        cmocka_unit_test(what_other_nodes_did),
        cmocka_unit_test(a_run_ends),
        cmocka_unit_test(a_run_ends_and_all_is_tried_once_more),
        cmocka_unit_test(a_run_that_has_ended),
        cmocka_unit_test(a_run_ends_and_others_have_the_rest),
        cmocka_unit_test(a_second_one_with_time_waits),
        cmocka_unit_test(the_epilog),
        cmocka_unit_test(drained_without_a_status),
        cmocka_unit_test(another_release),
        cmocka_unit_test(who_may_read_it_is_for_who_staged_it_to_say),
        cmocka_unit_test(what_is_shown_is_printable),
    };

    return cmocka_run_group_tests_name("ckptd", tests, NULL, NULL);
}
