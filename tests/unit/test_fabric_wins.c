/* Who wins: the user, the job file, nccl.conf, the site, the shipped profile. */
#include "tests/cmocka_test.h"
#include "tests/unit/fabric_machines.h"

/* ---- who wins ---------------------------------------------------------------------------------------------------- */

/* All 32 cases of who has a say on one variable. */
static void the_first_who_has_a_say_wins(void **state)
{
    static const char *const sources[] = {"user", "gpt.cfg:7", "nccl.conf", "site.cfg:1", "ours.cfg:1"};
    static const char *const values[] = {"u", "j", "c", "s", "o"};
    static const char profile[] =
        "name = \"p%d\"; match = { }; set = ( { name = \"NCCL_X\"; value = \"%s\"; why = \"w\"; "
        "source = \"d\"; } );\n";
    static const struct fabric_facts facts;

    for (unsigned who = 0; who < 32; who++) {
        struct fabric *fabric = fabric_create(NULL);
        struct file_variables job = {0}, conf = {0};
        const char *environment[] = {who & 1 ? "NCCL_X=u" : NULL, NULL};
        struct fabric_inputs inputs = {.user = machines_look_up,
                                       .user_arg = environment,
                                       .job_file = "/home/me/gpt.cfg",
                                       .job = &job,
                                       .conf = &conf};
        struct env_list *plan;
        char text[512];
        int first = who ? __builtin_ctz(who) : -1;

        if (who & 2)
            assert_int_equal(file_variables_add(&job, "NCCL_X", "j", 7, NULL), 0);
        if (who & 4)
            assert_int_equal(fabric_conf_parse(&conf, "NCCL_X=c\nNCCL_X=d\n", NULL), 0); /* the first counts */
        for (int layer = 3; layer < 5; layer++) {
            snprintf(text, sizeof text, profile, layer, values[layer]);
            if (who & 1u << layer)
                machines_add(fabric, layer == 3 ? FABRIC_SITE : FABRIC_SHIPPED, text,
                             layer == 3 ? "site.cfg" : "ours.cfg");
        }
        plan = machines_plan(fabric, &facts, &inputs);
        /* What only the user has a say on is none of the plan's business. */
        if (who == 1)
            first = -1;
        assert_int_equal(plan->count, first >= 0);
        machines_expect(plan, "NCCL_X", first >= 0 ? values[first] : NULL, first >= 0 ? sources[first] : NULL);
        if (first >= 0)
            assert_int_equal(env_is_to_be_set(machines_find(plan, "NCCL_X")), first == 1 || first > 2);
        machines_plan_destroy(plan);
        file_variables_clear(&job);
        file_variables_clear(&conf);
        fabric_destroy(fabric);
    }
}

static void the_report_says_what_muster_would_have_set(void **state)
{
    struct fabric *fabric = machines_load_shipped(NULL);
    const char *environment[] = {"NCCL_SOCKET_IFNAME=^docker", NULL};
    struct fabric_inputs inputs = {.user = machines_look_up, .user_arg = environment};
    struct env_list *plan = machines_plan(fabric, &machines[0].facts, &inputs);
    const struct env_variable *variable = machines_find(plan, "NCCL_SOCKET_IFNAME");

    assert_non_null(strstr(variable->why, "infiniband.cfg:"));
    assert_non_null(strstr(variable->why, " would have set =eno1"));
    variable = machines_find(plan, "NCCL_IB_HCA");
    assert_non_null(strstr(variable->source, "infiniband.cfg:"));
    assert_non_null(strstr(variable->why, "the fast ones only"));
    for (size_t v = 1; v < plan->count; v++)
        assert_true(strcmp(plan->variables[v - 1].name, plan->variables[v].name) < 0); /* each once */
    machines_plan_destroy(plan);
    fabric_destroy(fabric);
}

/* ---- the site's directory ---------------------------------------------------------------------------------------- */

#define SET(name, value) "{ name = \"" name "\"; value = \"" value "\"; why = \"w\"; source = \"d\"; }"

static void a_site_lays_its_own_over_the_shipped_one(void **state)
{
    struct fabric *fabric = machines_load_shipped(NULL);
    struct env_list *plan;

    machines_add(fabric, FABRIC_SITE,
                 "name = \"low\"; priority = 10; match = { };\n"
                 "set = ( " SET("NCCL_A", "low") ", " SET("NCCL_B", "low") ", " SET("NCCL_IB_TC", "low") " );\n",
                 "low.cfg");
    machines_add(fabric, FABRIC_SITE,
                 "name = \"high\"; priority = 20; match = { nics = [ \"infiniband\" ]; };\n"
                 "set = ( " SET("NCCL_A", "high") ",\n" SET("NCCL_SOCKET_IFNAME",
                                                            "=ib0") " );\n"
                                                                    "leave = [ \"NCCL_IB_HCA\", \"NCCL_B\" ];\n",
                 "high.cfg");
    plan = machines_plan(fabric, &machines[0].facts, NULL);
    assert_string_equal(plan->profile, "high, low, infiniband");
    machines_expect(plan, "NCCL_A", "high", "high.cfg:2");
    machines_expect(plan, "NCCL_B", NULL, NULL); /* left, though a profile behind it sets it */
    machines_expect(plan, "NCCL_IB_TC", "low", "low.cfg:2");
    machines_expect(plan, "NCCL_SOCKET_IFNAME", "=ib0", "high.cfg:3");
    machines_expect(plan, "NCCL_IB_HCA", NULL, NULL);
    assert_int_equal(machines_find(plan, "GLOO_SOCKET_IFNAME")->origin, ENV_FROM_SHIPPED);
    machines_plan_destroy(plan);
    fabric_destroy(fabric);
}

static void a_site_replaces_a_shipped_one_by_its_name(void **state)
{
    struct fabric *fabric = machines_load_shipped(NULL);
    struct env_list *plan;

    /* Also where it does not match: whatever is known as infiniband is the site's. */
    machines_add(fabric, FABRIC_SITE,
                 "name = \"infiniband\"; match = { least_nodes = 100; }; set = ( " SET("NCCL_A", "1") " );",
                 "site.cfg");
    plan = machines_plan(fabric, &machines[0].facts, NULL);
    assert_string_equal(plan->profile, "");
    assert_int_equal(plan->count, 0);
    machines_plan_destroy(plan);
    fabric_destroy(fabric);
}

static void what_is_not_known_is_left_out_and_told(void **state)
{
    const char *environment[] = {"NCCL_IB_GID_INDEX=1", "OMP_PLACES=", NULL};
    const struct fabric_inputs inputs = {.user = machines_look_up, .user_arg = environment};
    static const struct node_nic mixed[] = {
        {.kind = NIC_ROCE, .hca = "mlx5_0:1", .netdev = "eth0", .gid_index = 3, .rate = 100, .up = true},
        {.kind = NIC_ROCE, .hca = "mlx5_1:1", .netdev = "eth1", .gid_index = 5, .rate = 100, .up = true}};
    static const struct fabric_facts facts = {.nodes = 2, .job_nodes = 8, .local_rank = 3, NICS(mixed)};
    struct fabric *fabric = fabric_create(NULL);
    struct env_list *plan;

    machines_add(fabric, FABRIC_SITE,
                 "name = \"site\"; match = { nics = [ \"roce\" ]; };\n"
                 "set = (\n" SET("NCCL_IB_GID_INDEX", "${gid_index}") ",\n" SET("OMP_PLACES", "${cores}") ",\n" SET(
                     "X_RANK", "$${local_rank}$") " );\n",
                 "site.cfg");
    machines_add(fabric, FABRIC_SHIPPED, "name = \"ours\"; match = { }; set = ( " SET("OMP_PLACES", "cores") " );",
                 "ours.cfg");
    plan = machines_plan(fabric, &facts, &inputs);
    assert_int_equal(plan->note_count, 0); /* the user has said it */
    machines_plan_destroy(plan);
    plan = machines_plan(fabric, &facts, NULL);
    assert_int_equal(plan->note_count, 2);
    assert_string_equal(plan->notes[0], "site.cfg:3: NCCL_IB_GID_INDEX is left out: gid_index is not known here");
    assert_string_equal(plan->notes[1], "site.cfg:4: OMP_PLACES is left out: cores is not known here");
    machines_expect(plan, "NCCL_IB_GID_INDEX", NULL, NULL); /* the ports differ, and NCCL takes one for all */
    machines_expect(plan, "OMP_PLACES", "cores", "ours.cfg:1");
    machines_expect(plan, "X_RANK", "$3$", "site.cfg:5");
    machines_plan_destroy(plan);
    fabric_destroy(fabric);
}

static void the_first_setting_whose_condition_holds_counts(void **state)
{
    static const struct fabric_facts amd = {.vendor = "amd"}, nvidia = {.vendor = "nvidia"};
    struct fabric *fabric = fabric_create(NULL);
    struct env_list *plan;

    machines_add(
        fabric, FABRIC_SHIPPED,
        "name = \"p\"; match = { }; set = (\n{ name = \"X\"; value = \"a\"; why = \"w\"; source = \"d\"; when = "
        "{ vendors = [ \"amd\" ]; }; },\n" SET("X", "b") " );\n",
        "p.cfg");
    plan = machines_plan(fabric, &amd, NULL);
    machines_expect(plan, "X", "a", "p.cfg:2");
    machines_plan_destroy(plan);
    plan = machines_plan(fabric, &nvidia, NULL);
    machines_expect(plan, "X", "b", "p.cfg:3");
    machines_plan_destroy(plan);
    fabric_destroy(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_who_has_a_say_wins),
        cmocka_unit_test(the_report_says_what_muster_would_have_set),
        cmocka_unit_test(a_site_lays_its_own_over_the_shipped_one),
        cmocka_unit_test(a_site_replaces_a_shipped_one_by_its_name),
        cmocka_unit_test(what_is_not_known_is_left_out_and_told),
        cmocka_unit_test(the_first_setting_whose_condition_holds_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
