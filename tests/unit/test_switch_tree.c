/* Host lists are expanded as Slurm means them, topology.conf becomes the tree above the allocation, nonsense is
 * refused. */
#include "plan/hostlist.h"
#include "srun-plugin/order/order.h"
#include "tests/cmocka_test.h"

static void expect_names(const char *text, const char *expected)
{
    struct error err = {0};
    struct hostlist *list = hostlist_create(text, &err);
    char joined[1024] = "";

    if (!list)
        fail_msg("%s", err.text);
    for (int i = 0; i < list->count; i++) {
        strcat(joined, i ? " " : "");
        strcat(joined, list->names[i]);
    }
    assert_string_equal(joined, expected);
    hostlist_destroy(list);
}

static void host_lists_are_expanded(void **state)
{
    expect_names("", "");
    expect_names("a", "a");
    expect_names("a,b", "a b");
    expect_names("n[1-4,7]", "n1 n2 n3 n4 n7");
    expect_names("n[08-11]", "n08 n09 n10 n11");
    expect_names("n[098-101],m", "n098 n099 n100 n101 m");
    expect_names("r[1-2]n[01-02]x", "r1n01x r1n02x r2n01x r2n02x");
    expect_names(" a , n[3,1]b,", "a n3b n1b");
    expect_names("gpu-a.example[7]", "gpu-a.example7");
}

static void broken_host_lists_are_refused(void **state)
{
    static const char *const broken[] = {
        "n[",  "n[1", "n[1-",  "n[1-]",  "n[4-1]",         "n[]",     "n[,1]", "n[1,]", "n[1-2-3]",       "n[a]",
        "n1]", "a b", "n[1]]", "n[[1]]", "n[1-999999999]", "n[1 ,2]", "n[-1]", "a\nb",  "n[1-9999999999]"};

    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct error err = {0};

        if (hostlist_create(broken[i], &err))
            fail_msg("\"%s\" was taken", broken[i]);
        assert_int_equal(err.code, CODE_DATA);
        assert_non_null(strstr(err.text, "host list"));
    }
}

static void a_name_too_long_is_refused(void **state)
{
    char text[600];
    struct error err = {0};

    memset(text, 'n', sizeof text);
    strcpy(text + 300, "[1-2]");
    assert_null(hostlist_create(text, &err));
    assert_int_equal(err.code, CODE_DATA);
    strcpy(text + HOSTNAME_SIZE - 2, "[1-12]"); /* n...n1 just fits, n...n10 does not */
    assert_null(hostlist_create(text, &err));
    strcpy(text + HOSTNAME_SIZE - 2, "[1-9]");
    hostlist_destroy(hostlist_create(text, &err));
}

static struct switch_tree *make_good(const char *nodes, const char *text)
{
    struct error err = {0};
    struct switch_tree *switch_tree = switch_tree_create(nodes, text, "t.conf", &err);

    if (!switch_tree)
        fail_msg("%s", err.text);
    return switch_tree;
}

static void expect_path(const struct switch_tree *switch_tree, int node, const char *expected)
{
    char text[256];

    assert_string_equal(switch_tree_path_name(switch_tree, node, text, sizeof text), expected);
}

static void a_tree_is_read(void **state)
{
    struct switch_tree *switch_tree = make_good("n[1-2,5,9]", "# three levels\n"
                                                              "SwitchName=leaf1 Nodes=n[1-4] LinkSpeed=100\n"
                                                              "switchname=leaf2 nodes=n[5-8] # a comment\n"
                                                              "SwitchName=leaf3 \\\n  Nodes=n[9-12]\n\n"
                                                              "SwitchName=leaf4 Nodes=n[13-16]\r\n"
                                                              "SwitchName=s1 Switches=leaf[1-2]\n"
                                                              "SwitchName=s2 Switches=leaf[3-4]\n"
                                                              "SwitchName=top Switches=s[1-2]");

    assert_int_equal(switch_tree->node_count, 4);
    assert_int_equal(switch_tree->switch_count, 6); /* leaf4 has nobody */
    assert_int_equal(switch_tree->levels, 3);
    assert_string_equal(switch_tree->switches[0].name, "top");
    for (int i = 1; i < switch_tree->switch_count; i++)
        assert_in_range(switch_tree->switches[i].parent, 0, i - 1);
    expect_path(switch_tree, 0, "s1/leaf1");
    expect_path(switch_tree, 2, "s1/leaf2");
    expect_path(switch_tree, 3, "s2/leaf3");
    assert_int_equal(switch_tree_meet(switch_tree, 0, 0), 3);
    assert_int_equal(switch_tree_meet(switch_tree, 0, 1), 2);
    assert_int_equal(switch_tree_meet(switch_tree, 1, 2), 1);
    assert_int_equal(switch_tree_meet(switch_tree, 3, 0), 0);
    switch_tree_destroy(switch_tree);
}

static void unnamed_nodes_and_several_tops_hang_beneath_the_root(void **state)
{
    struct switch_tree *switch_tree =
        make_good("a[1-2],b1,c1", "BlockName=a Nodes=a[1-9]\nBlockSizes=9\nBlockName=b Nodes=b1");

    assert_string_equal(switch_tree->switches[0].name, "");
    assert_int_equal(switch_tree->switch_count, 3);
    expect_path(switch_tree, 0, "a");
    expect_path(switch_tree, 2, "b");
    expect_path(switch_tree, 3, "");
    assert_int_equal(switch_tree_meet(switch_tree, 0, 1), 1);
    assert_int_equal(switch_tree_meet(switch_tree, 0, 2), 0);
    assert_int_equal(switch_tree_meet(switch_tree, 2, 3), 0);
    switch_tree_destroy(switch_tree);

    switch_tree =
        make_good("a1,c[1-2]", "BlockName=a Nodes=a[1-9]\nBlockName=b Nodes=b1"); /* b has nobody: a is the root */
    assert_int_equal(switch_tree->switch_count, 1);
    assert_string_equal(switch_tree->switches[0].name, "a");
    assert_int_equal(switch_tree->above[2], 0);
    switch_tree_destroy(switch_tree);

    switch_tree = make_good("z,y,x", NULL);
    assert_int_equal(switch_tree->levels, 1);
    assert_string_equal(switch_tree->nodes[0], "z");
    assert_int_equal(switch_tree_meet(switch_tree, 0, 1), 0);
    assert_int_equal(switch_tree_meet(switch_tree, 1, 1), 1);
    switch_tree_destroy(switch_tree);
}

static void expect_two_groups(const char *text)
{
    struct switch_tree *switch_tree = make_good("n[1-2,5,9]", text);

    assert_int_equal(switch_tree_meet(switch_tree, 0, 1), 1);
    assert_int_equal(switch_tree_meet(switch_tree, 1, 2), 0);
    expect_path(switch_tree, 0, "a");
    expect_path(switch_tree, 2, "b");
    expect_path(switch_tree, 3, "");
    switch_tree_destroy(switch_tree);
}

static void rings_a_torus_and_quotation_marks_are_understood(void **state)
{
    expect_two_groups("RingName=a RingSize=4 Nodes=n[1-4]\nRingName=b RingSize=2 Nodes=n[5-6]");
    expect_two_groups("TorusName=a Dims=2x2x1 Nodes=n[1-4]\n  TorusName=a PlacementDims=1x2x1(2) Anchors=2\n"
                      "TorusName=b Dims=2x1x1 Nodes=n[5-6]");
    expect_two_groups("BlockName = a Nodes = \"n[1-2], n[3-4]\"\nBlockName=\"b\" Nodes=\"n[5-6]\"");
}

static void what_scontrol_prints_is_understood(void **state)
{
    struct switch_tree *switch_tree =
        make_good("n[1,3]", "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
                            "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
                            "SwitchName=s2 Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[0-1]\n");

    assert_string_equal(switch_tree->switches[0].name, "s2");
    expect_path(switch_tree, 0, "s0");
    expect_path(switch_tree, 1, "s1");
    switch_tree_destroy(switch_tree);
    switch_tree = make_good("n[1,3]", "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n"
                                      "BlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n"
                                      "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n");
    assert_string_equal(switch_tree->switches[0].name, "");
    expect_path(switch_tree, 1, "b2");
    switch_tree_destroy(switch_tree);
}

static void broken_topologies_are_refused_with_their_line(void **state)
{
    static const struct {
        const char *nodes, *text, *says;
    } broken[] = {
        {"n1", "SwitchName=a Nodes=n[1", "t.conf:1: "},
        {"n1", "\n\nSwitchName=a Nodes=n1 Colour=red", "t.conf:3: Colour="},
        {"n1", "SwitchName=a Nodes", "t.conf:1: \"Nodes\""},
        {"n1", "Nodes=n1", "t.conf:1: has no SwitchName"},
        {"n1", "SwitchName= Nodes=n1", "t.conf:1: "},
        {"n1", "SwitchName=a SwitchName=b Nodes=n1", "t.conf:1: a line describes one"},
        {"n1", "SwitchName=a Nodes=n1 Nodes=n2", "t.conf:1: Nodes= is given twice"},
        {"n1", "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]", "t.conf:2: node n1 is under a already"},
        {"n1", "SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "t.conf:2: switch a is described already in line 1"},
        {"n1", "SwitchName=a Switches=b", "t.conf:1: switch b is not described"},
        {"n1", "SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=c Switches=a",
         "t.conf:3: switch a is under b"},
        {"n1", "SwitchName=a Switches=b Nodes=n1\nSwitchName=b Switches=a", "is above itself"},
        {"n1", "SwitchName=a Switches=a", "is above itself"},
        {"n1,n1", "", "n1 is twice in the allocation"},
        {"", "", "no node"},
    };

    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct error err = {0};

        if (switch_tree_create(broken[i].nodes, broken[i].text, "t.conf", &err))
            fail_msg("\"%s\" was taken", broken[i].text);
        assert_int_equal(err.code, CODE_DATA);
        if (!strstr(err.text, broken[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.text, broken[i].says);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_lists_are_expanded),
        cmocka_unit_test(broken_host_lists_are_refused),
        cmocka_unit_test(a_name_too_long_is_refused),
        cmocka_unit_test(a_tree_is_read),
        cmocka_unit_test(unnamed_nodes_and_several_tops_hang_beneath_the_root),
        cmocka_unit_test(rings_a_torus_and_quotation_marks_are_understood),
        cmocka_unit_test(what_scontrol_prints_is_understood),
        cmocka_unit_test(broken_topologies_are_refused_with_their_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
