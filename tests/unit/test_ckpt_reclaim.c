/* Memory comes back, after the data: saves that cannot be drained for long, and stages with far too many. */
#include "config.h"

#include "tests/unit/ckpt_good.h"
#include "tests/unit/ckpt_stage_world.h"

#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/stage/stage_dir.h"
#include "tests/cmocka_test.h"

static uint64_t seed = 77;
static char stage[256];

static int count_lines(void)
{
    int lines = 0;

    for (const char *at = output; (at = strchr(at, '\n')); at++)
        lines++;
    return lines;
}

/* A stage whose target fails: its parent is a file. The job still runs. */
static void set_up(struct node *node, struct world *world)
{
    char file[512];

    node_create(node, world, &seed, 1, false);
    write_file(join(file, node->target, "file"), "x", 1);
    snprintf(node->target + strlen(node->target), sizeof node->target - strlen(node->target), "/file/ckpt");
    node_open(node, "1", 3, "a");
    snprintf(stage, sizeof stage, "%s", ckpt_stage_directory(node->stage));
}

static void job_ends(struct node *node)
{
    ckpt_stage_destroy(node->stage);
    node->stage = NULL;
}

static void tear_down(struct node *node)
{
    *strstr(node->target, "/file/ckpt") = '\0';
    node_destroy(node);
}

/* As if it had been staged in 2001. */
static void make_old(const char *staged)
{
    shell("sed -i 's/\"started\":[0-9.e+]*/\"started\":1e9/' '%s/%s/target.json'", stage, staged);
}

static void what_is_left_for_too_long_goes(void **state)
{
    struct world world;
    struct node node;

    set_up(&node, &world);
    node_stage(&node, 10, "a");
    node_stage(&node, 20, "b");
    make_old("step-00000010.a.partial");
    assert_int_equal(run_program("muster-ckptd", "--once --reclaim=24h %s", stage), 0); /* the job uses it */
    assert_string_equal(output, "");
    job_ends(&node);
    assert_int_equal(run_program("muster-ckptd", "--once %s", stage), 75);
    assert_int_equal(run_program("muster-ckptd", "-q --once --reclaim=24h %s", stage), 74);
    says(": left in ");
    says("step 10 (a): failed: staged ");
    says("not committed to ");
    says(" bytes are lost");
    shell("test ! -e '%s/step-00000010.a.partial' && test -e '%s/step-00000020.b.partial'", stage, stage);
    assert_int_equal(run_program("muster-ckptd", "-q --once --reclaim=24h %s", stage), 75);
    make_old("step-00000020.b.partial");
    assert_int_equal(run_program("muster-ckptd", "-q --once --reclaim=24h %s", stage), 74);
    assert_int_equal(access(stage, F_OK), -1);
    tear_down(&node);
}

/* By hand: never what is in use. */
static void the_tool_frees_what_is_old(void **state)
{
    struct world world;
    struct node node;

    set_up(&node, &world);
    node_stage(&node, 10, "a");
    node_stage(&node, 20, "b");
    node_stage(&node, 30, "c");
    make_old("step-00000010.a.partial");
    make_old("step-00000020.b.partial");
    assert_int_equal(run_program("muster-ckpt", "reclaim %s", stage), 64);
    says("--older-than");
    assert_int_equal(run_program("muster-ckpt", "reclaim --older-than=soon %s", stage), 64);
    assert_int_equal(run_program("muster-ckpt", "reclaim --older-than=1h %s", stage), 0);
    assert_string_equal(output, ""); /* the job uses it */
    job_ends(&node);
    assert_int_equal(run_program("muster-ckpt", "reclaim --older-than=1h %s", stage), 0);
    says("step 10 (a): failed: ");
    says("step 20 (b): failed: ");
    assert_int_equal(count_lines(), 2);
    shell("test $(find '%s' -name '*.safetensors*' -type f | wc -l) -eq 1", stage); /* their memory is free */
    shell("test -e '%s/step-00000030.c.partial'", stage);
    assert_int_equal(run_program("muster-ckpt", "reclaim --older-than=1h /there/is/no/stage"), 74);
    tear_down(&node);
}

/* Root acts on a stage as its owner, and sees those of all. */
static void of_another_user(void **state)
{
    struct world world;
    struct node node;

    if (geteuid() != 0)
        skip();
    set_up(&node, &world);
    node_stage(&node, 10, "a");
    make_old("step-00000010.a.partial");
    job_ends(&node);
    shell("chmod 711 '%s' && mv '%s' '%s/muster-65534-1' && chown -R 65534 '%s/muster-65534-1'", node.root, stage,
          node.root, node.root);
    snprintf(stage, sizeof stage, "%.200s/muster-65534-1", node.root);
    assert_int_equal(run_program("muster-ckpt", "status %s", stage), 0);
    says("step 10       staged");
    assert_int_equal(run_program("muster-ckpt", "status %s", node.root), 0); /* a directory of stages, as of stage= */
    says("nothing is staged on this node in ");
    assert_int_equal(run_program("muster-ckpt", "status --all-users %s", node.root), 0);
    says("/muster-65534-1: no drainer");
    says("step 10       staged");
    assert_int_equal(run_program("muster-ckpt", "reclaim --older-than=1h --all-users %s", node.root), 0);
    says("step 10 (a): failed: ");
    shell("test ! -e '%s/step-00000010.a.partial'", stage);
    tear_down(&node);
}

/* Own shards are durable: one try to commit, the memory is free, and the other node commits. */
static void other_nodes_are_not_waited_for(void **state)
{
    struct world world;
    struct node node, other;

    node_begin_pair(&node, &other, &world, &seed, false);
    node_stage(&node, 30, "a");
    node_stage(&other, 30, "a");
    snprintf(stage, sizeof stage, "%s", ckpt_stage_directory(node.stage));
    job_ends(&node);
    assert_int_equal(run_program("muster-ckptd", "-q --once --partner %s", stage), 76);
    says("a node that still has the save commits it when they arrive");
    assert_int_equal(access(stage, F_OK), -1);
    assert_int_equal(run_program("muster-ckptd", "--once --partner %s", ckpt_stage_directory(other.stage)), 0);
    says("step 30 (a): committed");
    world_expect(&world, node.topology, node.target, 30);
    ckpt_stage_destroy(other.stage);
    node_destroy(&node);
}

static void far_too_many_saves_are_not_looked_at_at_once(void **state)
{
    struct world world;
    struct node node;

    set_up(&node, &world);
    node_stage(&node, 10, "a");
    shell("cd '%s' && mkdir $(seq -f step-%%08.0f.x.partial 1000 2999)", stage);
    assert_int_equal(run_program("muster-ckptd", "-q --once --seconds 0.3 %s", stage), 75);
    job_ends(&node);
    assert_int_equal(run_program("muster-ckptd", "--once %s", stage), 75);
    says("has 64 saves or more: the others wait");
    assert_int_equal(count_entries(stage), 5); /* the one save, format, lock, users, status.json */
    tear_down(&node);
}

/* Whoever chose these names may not be who reads the terminal or slurmd's log. */
static void names_forge_no_lines(void **state)
{
    struct world world;
    struct node node;

    set_up(&node, &world);
    node_stage(&node, 10, "a");
    job_ends(&node);
    shell("sed -i 's|\"dir\":\"[^\"]*|&/\\\\u001b[31m\\\\nroot: forged|' '%s'/step-*/target.json", stage);
    shell("mv '%s' \"$(printf '%s\\033[32m\\nroot: forged')\"", stage, stage);
    assert_int_equal(run_program("muster-ckpt", "status '%s'*", stage), 0);
    says("?[32m root: forged: no drainer");
    says("/?[31m root: forged");
    assert_int_equal(count_lines(), 2);
    assert_null(strchr(output, '\033'));
    assert_int_equal(run_program("muster-ckptd", "--once '%s'*", stage), 75);
    says("?[32m root: forged: 1 save (step 10), ");
    assert_int_equal(count_lines(), 1);
    shell("touch -d yesterday '%s'*/step-*", stage);
    usleep(1100000);
    assert_int_equal(run_program("muster-ckpt", "reclaim --older-than=1s '%s'*", stage), 0);
    says("step 10 (a): failed: ");
    assert_int_equal(count_lines(), 1);
    assert_null(strchr(output, '\033'));
    tear_down(&node);
}

/* A target.json that no muster wrote: the save stays, and the line says why. */
static void what_cannot_be_read_stays(void **state)
{
    static const char *const spoils[] = {"rm f; mkfifo f", "sed -i 's/\"started\":[0-9.]*/\"started\":0.0/' f"};
    static const char *const reasons[] = {"target.json: not a regular file", "target.json: values that no stage has"};
    struct world world;
    struct node node;

    for (int i = 0; i < 2; i++) {
        set_up(&node, &world);
        node_stage(&node, 10, "a");
        job_ends(&node);
        shell("cd '%s'/step-*/ && mv target.json f && { %s; } && mv f target.json", stage, spoils[i]);
        assert_int_equal(run_program("muster-ckptd", "--once %s", stage), 75);
        says(reasons[i]);
        shell("test -e '%s'/step-*/shard-00000-of-00001.safetensors", stage);
        tear_down(&node);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_for_too_long_goes),
        cmocka_unit_test(the_tool_frees_what_is_old),
        cmocka_unit_test(of_another_user),
        cmocka_unit_test(other_nodes_are_not_waited_for),
        cmocka_unit_test(far_too_many_saves_are_not_looked_at_at_once),
        cmocka_unit_test(names_forge_no_lines),
        cmocka_unit_test(what_cannot_be_read_stays),
    };

    return cmocka_run_group_tests_name("reclaim", tests, NULL, NULL);
}
