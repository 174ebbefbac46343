/* What the shipped profiles set on which machine, and what is read beside them. */
#include <unistd.h>

#include "tests/unit/fabric_machines.h"
#include "tests/unit/test_files.h"

/* ---- the shipped profiles ---------------------------------------------------------------------------------------- */

static void each_machine_gets_its_variables(void **state)
{
    struct fabric *fabric = machines_load_shipped(NULL);

    for (size_t i = 0; i < MACHINES; i++) {
        struct env_list *plan = machines_plan(fabric, &machines[i].facts, NULL);
        char text[4096] = "";

        for (size_t v = 0; v < plan->count; v++) {
            size_t used = strlen(text);

            assert_true(env_is_to_be_set(&plan->variables[v]));
            snprintf(text + used, sizeof text - used, "%s=%s\n", plan->variables[v].name, plan->variables[v].value);
        }
        if (strcmp(plan->profile, machines[i].chosen) != 0 || strcmp(text, machines[i].variables) != 0)
            fail_msg("%s: %s\n%s", machines[i].name, plan->profile, text);
        assert_int_equal(plan->note_count, machines[i].notes);
        machines_plan_destroy(plan);
    }
    fabric_destroy(fabric);
}

static void assert_same(const struct env_list *plan, const struct env_list *other)
{
    assert_string_equal(plan->profile, other->profile);
    assert_int_equal(plan->note_count, other->note_count);
    assert_int_equal(plan->count, other->count);
    for (size_t v = 0; v < plan->count; v++) {
        assert_string_equal(plan->variables[v].name, other->variables[v].name);
        assert_string_equal(plan->variables[v].value, other->variables[v].value);
        assert_string_equal(plan->variables[v].why, other->variables[v].why);
    }
}

/* What a machine or its job does not have, as the plugin lists it: NULL behind the last. */
static size_t list_absent(const struct fabric_facts *facts, const char *absent[7])
{
    static const char *const kinds[] = {"infiniband", "roce", "slingshot", "efa"};
    size_t count = 0;

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bool found = false;

        for (size_t i = 0; i < facts->nic_count; i++)
            found = found || (facts->nics[i].up && strcmp(nic_kind_name(facts->nics[i].kind), kinds[k]) == 0);
        if (!found)
            absent[count++] = kinds[k];
    }
    if (facts->gpus == 0)
        absent[count++] = "tcp";
    if (facts->job_nodes > 1)
        absent[count++] = "single-node";
    absent[count] = NULL;
    return count;
}

/* A profile that is not read because of its file's name would not have matched. */
static void profiles_for_absent_parts_are_not_needed(void **state)
{
    struct fabric *all = machines_load_shipped(NULL);
    size_t skipped = 0;

    for (size_t i = 0; i < 3 * MACHINES; i++) {
        struct fabric_facts facts = machines[i / 3].facts;
        struct env_list *plan, *other;
        struct fabric *some;
        const char *absent[7];

        facts.nodes = facts.job_nodes = i % 3 ? (unsigned)(i % 3) * 4 : facts.nodes;
        skipped += list_absent(&facts, absent);
        some = machines_load_shipped(absent);
        plan = machines_plan(all, &facts, NULL);
        other = machines_plan(some, &facts, NULL);
        assert_same(plan, other);
        for (size_t v = 0; v < plan->count; v++)
            assert_string_equal(plan->variables[v].source, other->variables[v].source);
        for (size_t n = 0; n < plan->note_count; n++)
            assert_string_equal(plan->notes[n], other->notes[n]);
        machines_plan_destroy(plan);
        machines_plan_destroy(other);
        fabric_destroy(some);
    }
    assert_in_range(skipped, 8 * MACHINES, 15 * MACHINES);
    fabric_destroy(all);
}

static void shipped_profiles_are_named_without_their_directory(void **state)
{
    struct fabric *fabric = machines_load_shipped(NULL);
    struct env_list *plan = machines_plan(fabric, &machines[0].facts, NULL);

    assert_in_range(plan->count, 1, 100);
    for (size_t v = 0; v < plan->count; v++)
        assert_null(strchr(plan->variables[v].source, '/'));
    machines_plan_destroy(plan);
    fabric_destroy(fabric);
}

static bool is_plain(const struct fabric_facts *facts)
{
    for (size_t i = 0; i < facts->nic_count; i++)
        if (facts->nics[i].hca[0])
            return false;
    return facts->gpus == 0;
}

/* Where node_read_bare leaves them out. */
static void without_gpus_no_shipped_profile_asks_for_ethernet(void **state)
{
    struct fabric *all = machines_load_shipped(NULL);
    int plain = 0;

    for (size_t i = 0; i < MACHINES; i++) {
        struct fabric_facts bare = machines[i].facts;
        struct env_list *plan, *whole;

        if (!is_plain(&machines[i].facts))
            continue;
        bare.nics = NULL;
        bare.nic_count = 0;
        plan = machines_plan(all, &bare, NULL);
        whole = machines_plan(all, &machines[i].facts, NULL);
        assert_same(plan, whole);
        plain += whole->count > 0;
        machines_plan_destroy(plan);
        machines_plan_destroy(whole);
    }
    assert_in_range(plain, 2, MACHINES);
    fabric_destroy(all);
}

/* Whether a list of words has the word, "slingshot" not being in "slingshot-cscs". */
static bool lists(const char *words, const char *word)
{
    char padded[256], wanted[64];

    snprintf(padded, sizeof padded, " %s ", words);
    snprintf(wanted, sizeof wanted, " %s ", word);
    return strstr(padded, wanted) != NULL;
}

static void each_profile_matches_its_machines_and_no_others(void **state)
{
    for (size_t p = 0; p < SHIPPED; p++) {
        struct fabric *fabric = fabric_create(NULL);
        char name[64], *text;
        int matched = 0;

        snprintf(name, sizeof name, "etc/fabric/%s.cfg", machines_shipped[p]);
        text = read_source(name);
        machines_add(fabric, FABRIC_SHIPPED, text, machines_shipped[p]);
        free(text);
        for (size_t i = 0; i < MACHINES; i++) {
            struct env_list *plan = machines_plan(fabric, &machines[i].facts, NULL);

            if ((plan->profile[0] != '\0') != lists(machines[i].matches, machines_shipped[p]))
                fail_msg("%s on %s: \"%s\"", machines_shipped[p], machines[i].name, plan->profile);
            matched += strcmp(machines[i].chosen, machines_shipped[p]) == 0;
            machines_plan_destroy(plan);
        }
        assert_in_range(matched, 1, MACHINES);
        fabric_destroy(fabric);
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void reads_nccl_conf_as_nccl_does(void **state)
{
    struct file_variables conf = {0};

    assert_int_equal(fabric_conf_parse(&conf,
                                       "# NCCL_A=0\nNCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME==ens1f0\n\n NCCL_B=1\nNCCL_C\n"
                                       "NCCL_D = 1\n9X=1\nNCCL_E=\nNCCL_F=a b ",
                                       NULL),
                     0);
    assert_int_equal(conf.count, 4);
    assert_string_equal(conf.items[0].value, "WARN");
    assert_string_equal(conf.items[1].value, "=ens1f0");
    assert_string_equal(conf.items[2].name, "NCCL_E");
    assert_string_equal(conf.items[2].value, "");
    assert_string_equal(conf.items[3].value, "a b ");
    file_variables_clear(&conf);
    assert_int_equal(conf.count, 0);
}

/* A file of more than 64 KiB is skipped, and so is what exceeds FILE_VARIABLES_MOST variables. */
static void a_large_nccl_conf_is_bounded(void **state)
{
    static char text[70000];
    char path[] = "nccl-conf-XXXXXX";
    struct file_variables conf = {0};
    struct error err = {0};
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    memset(text, '#', sizeof text);
    memcpy(text, "A=1\n", 4);
    assert_int_equal(write(fd, text, 65536), 65536);
    assert_int_equal(fabric_conf_read(&conf, path, NULL, &err), 0);
    assert_string_equal(conf.items[0].name, "A");
    file_variables_clear(&conf);
    assert_int_equal(write(fd, "#", 1), 1);
    assert_int_equal(fabric_conf_read(&conf, path, NULL, &err), 0);
    assert_true(conf.count == 0 || strcmp(conf.items[0].name, "A") != 0); /* /etc/nccl.conf may have some */
    file_variables_clear(&conf);
    close(fd);
    unlink(path);
    for (size_t i = 0, used = 0; i <= FILE_VARIABLES_MOST; i++)
        used += (size_t)sprintf(text + used, "NCCL_%zu=%zu\n", i, i);
    assert_int_equal(fabric_conf_parse(&conf, text, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_int_equal(conf.count, FILE_VARIABLES_MOST);
    file_variables_clear(&conf);
}

static void finds_libraries_where_the_loader_looks(void **state)
{
    char path[1024];

    snprintf(path, sizeof path, "/nowhere::%s/etc/fabric:/", getenv("top_srcdir"));
    assert_true(fabric_find_file("tcp.cfg", path));
    assert_false(fabric_find_file("no-such.cfg", path));
    assert_false(fabric_find_file("tcp.cfg", NULL));
    assert_true(fabric_find_file("/proc/self/status", NULL));
    assert_false(fabric_find_file("/no/such/file", path));
}

/* ---- the manual -------------------------------------------------------------------------------------------------- */

/* The words behind "it has " or "it can be " of the error that a profile gets; each must be in bold in the manual. */
static int expect_words(const char *profile, const char *before, const char *manual)
{
    struct fabric *fabric = fabric_create(NULL);
    struct error err;
    char *words, *word, *rest = NULL, bold[128];
    int count = 0;

    assert_int_equal(fabric_add_text(fabric, FABRIC_SITE, profile, "p.cfg", &err), -1);
    words = strstr(err.text, before);
    assert_non_null(words);
    for (word = strtok_r(words + strlen(before), ", ", &rest); word; word = strtok_r(NULL, ", ", &rest), count++) {
        snprintf(bold, sizeof bold, "*%s*", word);
        if (!strstr(manual, bold))
            fail_msg("muster-fabric(5) does not have %s", bold);
    }
    fabric_destroy(fabric);
    return count;
}

static void the_manual_has_every_key(void **state)
{
    char *manual = read_source("doc/muster-fabric.5.scd");
    char bold[64];

    assert_int_equal(expect_words("x = 1;", "it has ", manual), 7);
    assert_int_equal(expect_words("name = \"p\"; match = { x = 1; };", "it has ", manual), 11);
    assert_int_equal(expect_words("name = \"p\"; match = { }; set = ( { x = 1; } );", "it has ", manual), 5);
    assert_int_equal(expect_words("name = \"p\"; match = { }; warn = ( { x = 1; } );", "it has ", manual), 2);
    assert_int_equal(expect_words("name = \"p\"; match = { }; set = ( { name = \"X\"; value = \"${x}\"; why = \"w\"; "
                                  "source = \"s\"; } );",
                                  "it can be ", manual),
                     6);
    for (size_t i = 0; i < SHIPPED; i++) {
        snprintf(bold, sizeof bold, "\n*%s*\n", machines_shipped[i]);
        assert_non_null(strstr(manual, bold));
    }
    free(manual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_machine_gets_its_variables),
        cmocka_unit_test(each_profile_matches_its_machines_and_no_others),
        cmocka_unit_test(profiles_for_absent_parts_are_not_needed),
        cmocka_unit_test(shipped_profiles_are_named_without_their_directory),
        cmocka_unit_test(without_gpus_no_shipped_profile_asks_for_ethernet),
        cmocka_unit_test(reads_nccl_conf_as_nccl_does),
        cmocka_unit_test(a_large_nccl_conf_is_bounded),
        cmocka_unit_test(finds_libraries_where_the_loader_looks),
        cmocka_unit_test(the_manual_has_every_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
