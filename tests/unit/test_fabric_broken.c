/* Profiles that must be refused, each with its line, and that one of them never costs the others. */
#include <sys/stat.h>
#include <unistd.h>

#include "common/philox.h"
#include "srun-plugin/fabric/fabric.h"
#include "tests/unit/test_files.h"

/* libconfig 1.5 loses a string that a syntax error follows; it is not ours to free. LeakSanitizer asks for this. */
const char *__lsan_default_suppressions(void) __attribute__((visibility("default")));
const char *__lsan_default_suppressions(void)
{
    return "leak:strbuf_append\nleak:libconfig_yylex\n";
}

/* The first line of each file is "# LINE: MESSAGE"; the error must be exactly that. */
static void expect_first_line(const struct error *err, void *arg)
{
    char path[1024], line[1024], expected[2100];
    size_t length = strcspn(err->text, ":");
    FILE *file;

    snprintf(path, sizeof path, "%.*s", (int)length, err->text);
    file = fopen(path, "r");
    if (!file)
        fail_msg("no file in: %s", err->text);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    snprintf(expected, sizeof expected, "%s:%s", path, line + strlen("# "));
    assert_string_equal(err->text, expected);
    assert_int_equal(err->code, CODE_CONFIG);
    ++*(int *)arg;
}

static void every_broken_profile_has_its_message(void **state)
{
    struct fabric *fabric = fabric_create(NULL);
    char path[1024];
    int refused = 0;

    snprintf(path, sizeof path, "%s/tests/unit/broken_fabric", getenv("top_srcdir"));
    assert_int_equal(fabric_add_directory(fabric, FABRIC_SITE, path, NULL, expect_first_line, &refused), 0);
    assert_in_range(refused, 50, 1000);
    fabric_destroy(fabric);
}

/* ---- directories ------------------------------------------------------------------------------------------------- */

static char complaints[8][1024];

static void keep(const struct error *err, void *arg)
{
    int *count = arg;

    snprintf(complaints[(*count)++ % 8], sizeof complaints[0], "%s", err->text);
}

#define PROFILE(name)                                                                                                  \
    "name = \"" name "\"; match = { }; set = ( { name = \"NCCL_" name                                                  \
    "\"; value = \"1\"; why = \"w\"; source = \"s\"; } );\n"

/* Good ones, a broken one, a zero byte, one too large, a second of a name, a directory, and what is no profile. */
static void a_broken_profile_is_skipped_and_told(void **state)
{
    static const struct fabric_facts facts;
    static const struct fabric_inputs inputs;
    struct fabric *fabric = fabric_create(NULL);
    struct env_list plan = {0};
    char directory[] = "fabric-XXXXXX", path[64], *large = malloc(300000);
    static const char *const files[] = {"a.cfg", "b.cfg", "c.cfg", "d.cfg", "e.cfg", "f.cfg", "g.txt", ".h.cfg"};
    int count = 0;

    assert_non_null(mkdtemp(directory));
    assert_int_equal(chdir(directory), 0);
    write_file("a.cfg", PROFILE("A"), strlen(PROFILE("A")));
    write_file("b.cfg", "name = ;\n", 9);
    write_file("c.cfg", "x\0y", 3);
    memset(large, '\n', 300000);
    write_file("d.cfg", large, 300000);
    write_file("e.cfg", PROFILE("A"), strlen(PROFILE("A")));
    write_file("f.cfg", PROFILE("F"), strlen(PROFILE("F")));
    write_file("g.txt", "junk", 4);
    write_file(".h.cfg", "junk", 4);
    assert_int_equal(mkdir("z.cfg", 0700), 0);
    assert_int_equal(fabric_add_directory(fabric, FABRIC_SITE, ".", NULL, keep, &count), 2);
    assert_int_equal(count, 5);
    assert_string_equal(complaints[0],
                        "./b.cfg:1: syntax error here or just before; write name = value; and name = { ... };");
    assert_string_equal(complaints[1], "./c.cfg: a zero byte; a profile is text");
    assert_string_equal(complaints[2], "./d.cfg: larger than 262144 bytes");
    assert_string_equal(complaints[3], "./e.cfg:1: the name \"A\" is already used by ./a.cfg; choose another");
    assert_string_equal(complaints[4], "./z.cfg: not a regular file");
    assert_int_equal(fabric_fill_env(&plan, fabric, &facts, &inputs, NULL), 0);
    assert_int_equal(plan.count, 2);
    assert_string_equal(plan.variables[0].name, "NCCL_A");
    assert_string_equal(plan.variables[1].name, "NCCL_F");
    env_list_clear(&plan);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        unlink(files[i]);
    rmdir("z.cfg");
    assert_int_equal(chdir(".."), 0);
    snprintf(path, sizeof path, "%s", directory);
    assert_int_equal(rmdir(path), 0);
    fabric_destroy(fabric);
    free(large);
}

static void a_directory_that_is_not_there_has_no_profiles(void **state)
{
    struct fabric *fabric = fabric_create(NULL);
    int count = 0;

    assert_int_equal(fabric_add_directory(fabric, FABRIC_SITE, "/no/such/directory", NULL, keep, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(fabric_add_directory(fabric, FABRIC_SITE, "/proc/self/status", NULL, keep, &count), 0);
    assert_int_equal(count, 1);
    assert_string_equal(complaints[0], "/proc/self/status: Not a directory");
    fabric_destroy(fabric);
}

/* ---- mutations --------------------------------------------------------------------------------------------------- */

static uint32_t draw(uint64_t *counter, uint32_t below)
{
    return philox_u32((struct philox_stream){.seed = 20260402}, (*counter)++) % below;
}

/* Replaces a run of bytes, or drops it. */
static void mutate(char *text, uint64_t *counter)
{
    static const char bytes[] = "=;{}[]()\"#/*\\\n.,-L0123456789@ abz$\x80\xff";
    size_t length = strlen(text), at = draw(counter, (uint32_t)length), run = 1 + draw(counter, 6);

    run = run < length - at ? run : length - at;
    if (draw(counter, 2))
        memmove(text + at, text + at + run, length - at - run + 1);
    else
        for (size_t i = 0; i < run; i++)
            text[at + i] = bytes[draw(counter, sizeof bytes - 1)];
}

/* Whatever the text: accepted, and then planned with, or refused with a line. With --enable-sanitizers it means most.
 */
static void mutations_never_crash(void **state)
{
    static const struct node_nic nic = {
        .kind = NIC_ROCE, .hca = "mlx5_0:1", .netdev = "eth0", .gid_index = 3, .rate = 100, .up = true};
    static const struct fabric_facts facts = {.nodes = 2, .gpus = 1, .nics = &nic, .nic_count = 1};
    static const struct fabric_inputs inputs;
    static char text[8192];
    char *original = read_source("etc/fabric/roce.cfg");
    uint64_t counter = 0;
    int accepted = 0, refused = 0;

    assert_in_range(strlen(original), 1000, sizeof text / 2 - 1);
    for (int round = 0; round < 2000; round++) {
        struct fabric *fabric = fabric_create(NULL);
        struct env_list plan = {0};
        struct error err = {0};

        strcpy(text, original);
        for (uint32_t i = 0, count = 1 + draw(&counter, 4); i < count; i++)
            mutate(text, &counter);
        if (fabric_add_text(fabric, FABRIC_SITE, text, "mutant.cfg", &err) == 0) {
            assert_int_equal(fabric_fill_env(&plan, fabric, &facts, &inputs, NULL), 0);
            env_list_clear(&plan);
            accepted++;
        } else {
            assert_int_equal(err.code, CODE_CONFIG);
            assert_int_equal(strncmp(err.text, "mutant.cfg:", 11), 0);
            assert_null(strchr(err.text, '\n'));
            refused++;
        }
        fabric_destroy(fabric);
    }
    assert_in_range(accepted, 100, 2000);
    assert_in_range(refused, 100, 2000);
    free(original);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_broken_profile_has_its_message),
        cmocka_unit_test(a_broken_profile_is_skipped_and_told),
        cmocka_unit_test(a_directory_that_is_not_there_has_no_profiles),
        cmocka_unit_test(mutations_never_crash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
