/* muster-topo place, run as a user runs it: the table, the picture, the host file, and what it refuses. */
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/test_files.h"

static char program[4096], directory[] = "test_muster_topo.XXXXXX";

static const char topology[] = "SwitchName=a Nodes=n[1,3]\nSwitchName=b Nodes=n[2,4]\nSwitchName=core Switches=a,b\n";

/* Everything happens in a directory of its own. */
static int enter(void **state)
{
    if (!realpath(built_program("muster-topo"), program) || !mkdtemp(directory) || chdir(directory) != 0)
        return -1;
    write_text("tree.conf", topology);
    return 0;
}

static int leave(void **state)
{
    static const char *const files[] = {"tree.conf", "out.svg", "hosts"};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(files[i]);
    return chdir("..") == 0 && rmdir(directory) == 0 ? 0 : -1;
}

/* Runs "muster-topo ARGUMENTS", expects its exit code, and returns all that it prints, to either stream. */
static const char *run(const char *arguments, int code)
{
    int status = run_shell("'%s' %s", program, arguments);

    if (status != code)
        fail_msg("%s: exit %d, and not %d: %s", arguments, status, code, output);
    return output;
}

static void the_table_is_by_switch(void **state)
{
    assert_string_equal(run("place --nodes 'n[1-4]' --topology tree.conf --slots 2 --mesh tp=2,pp=2 "
                            "--bytes dp=100,pp=10,tp=1",
                            0),
                        "8 ranks (dp 2, tp 2, pp 2) on 4 nodes under 3 switches; no order is better\n"
                        "  switch  node  ranks                 pp          dp\n"
                        "  a       n1    0-1                   0           0\n"
                        "  a       n3    2-3                   0           1\n"
                        "  b       n2    4-5                   1           0\n"
                        "  b       n4    6-7                   1           1\n"
                        "  traffic of a step      this order  Slurm's order   sorted names\n"
                        "  across core                  40 B          800 B          800 B\n"
                        "  1 level below               800 B           40 B           40 B\n"
                        "  within a node                 8 B            8 B            8 B\n");
}

static void tp_groups_that_fit_no_node_are_told(void **state)
{
    const char *text = run("place --nodes 'n[1-4]' --topology tree.conf --slots 2 --mesh tp=4", 0);

    assert_non_null(strstr(text, "2 of 2 tp groups do not fit a node"));
    text = run("place --nodes 'n[1-4]' --slots '4(x2),2,2' --mesh tp=4", 0);
    assert_non_null(strstr(text, "1 of 3 tp groups do not fit a node"));
}

static void the_host_file_has_a_line_for_each_rank(void **state)
{
    char *text;

    run("place --nodes 'n[1-4]' --topology tree.conf --slots 2 --mesh tp=2,pp=2 --hostfile hosts", 0);
    text = read_file("hosts", NULL);
    assert_string_equal(text, "n1\nn1\nn3\nn3\nn2\nn2\nn4\nn4\n");
    free(text);
}

static int count(const char *text, const char *what)
{
    int found = 0;

    for (; (text = strstr(text, what)); text++)
        found++;
    return found;
}

static void the_picture_shows_every_switch_and_node(void **state)
{
    char *text;
    size_t size;

    run("place --nodes 'n[1-4],x' --topology tree.conf --slots 2 --mesh tp=1,pp=5 --svg out.svg", 0);
    text = read_file("out.svg", &size);
    assert_int_equal(count(text, "<svg "), 1);
    assert_string_equal(text + size - 7, "</svg>\n");
    for (const char *const *name = (const char *const[]){"core", "a", "b", "n1", "n2", "n3", "n4", "x", NULL}; *name;
         name++) {
        char label[32];

        snprintf(label, sizeof label, ">%s</text>", *name);
        assert_int_equal(count(text, label), 1);
    }
    /* background, legend of 5, 5 frames, and 10 ranks in stripes: a stage on each node or two on some */
    assert_in_range(count(text, "<rect "), 1 + 5 + 5 + 5, 1 + 5 + 5 + 10);
    free(text);
}

static void what_is_wrong_is_said(void **state)
{
    static const struct {
        const char *arguments, *says;
        int code;
    } wrong[] = {
        {"", "a command is needed: node, save or place", 64},
        {"plaice", "no such command: plaice", 64},
        {"place", "--nodes is needed", 64},
        {"place --nodes", "a value is missing after --nodes", 64},
        {"place --nodes n1 --colour red", "unknown option --colour", 64},
        {"place --nodes n1 n2", "unexpected argument \"n2\"", 64},
        {"place --nodes 'n['", "host list", 65},
        {"place --nodes n1,n1", "n1 is twice in the allocation", 65},
        {"place --nodes n1 --slots 8,8", "is not for 1 nodes", 65},
        {"place --nodes n1 --slots '8(x'", "must be numbers such as", 65},
        {"place --nodes n1 --slots 99999", "must be numbers such as", 65},
        {"place --nodes 'n[1-99999]' --slots 65535", "6553434465 on 99999 nodes", 65},
        {"place --nodes 'n[1-9999]' --slots 65535 --mesh dp=1", "slots are more than the limit", 78},
        {"place --nodes n1 --mesh dp=9", "dp 9, tp 1, pp 1 does not fit 8 slots", 78},
        {"place --nodes n1 --mesh tp=3", "8 ranks cannot be laid out", 78},
        {"place --nodes n1 --mesh tp=0", "", 78},
        {"place --nodes n1 --mesh dp", "must be dp=N, tp=N or pp=N", 64},
        {"place --nodes n1 --mesh xp=1", "must be dp=N, tp=N or pp=N", 64},
        {"place --nodes n1 --mesh tp=-1", "must be dp=N, tp=N or pp=N", 64},
        {"place --nodes n1 --bytes dp=1x", "must be dp=N, tp=N or pp=N", 64},
        {"place --nodes n1 --mesh tp=99999999", "more than", 64},
        {"place --nodes n1 --topology none.conf", "cannot read none.conf", 74},
        {"place --nodes n1 --job none.cfg", "none.cfg", 78},
        {"place --nodes n1 --svg none/out.svg", "cannot create none/out.svg", 74},
        {"place --nodes n1 --svg /dev/full", "cannot write /dev/full", 74},
    };
    struct stat found;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *text = run(wrong[i].arguments, wrong[i].code);

        if (!strstr(text, wrong[i].says))
            fail_msg("%s: \"%s\" does not say \"%s\"", wrong[i].arguments, text, wrong[i].says);
    }
    assert_int_equal(stat("/dev/full", &found), 0); /* what was there before is left there */
    assert_non_null(strstr(run("--version", 0), "muster-topo "));
    assert_non_null(strstr(run("--help", 0), "muster-topo place"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_by_switch),
        cmocka_unit_test(tp_groups_that_fit_no_node_are_told),
        cmocka_unit_test(the_host_file_has_a_line_for_each_rank),
        cmocka_unit_test(the_picture_shows_every_switch_and_node),
        cmocka_unit_test(what_is_wrong_is_said),
    };

    return cmocka_run_group_tests(tests, enter, leave);
}
