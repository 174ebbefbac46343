/* Files of the prefix that the plugin uses: nobody but root and the plugin's owner can have written them. */
#include <sys/stat.h>
#include <unistd.h>

static char base[] = "/tmp/muster-trust-XXXXXX", installed[4096];
#define PLUGIN_DIR installed
#define FABRIC_DIR installed
#include "srun-plugin/spank/trust.c"
#include "tests/cmocka_test.h"

static char file[4200];

static int set_up(void **state)
{
    FILE *program;

    if (!mkdtemp(base))
        return -1;
    snprintf(installed, sizeof installed, "%s/muster", base);
    snprintf(file, sizeof file, "%s/program", installed);
    if (mkdir(installed, 0755) < 0 || !(program = fopen(file, "w")))
        return -1;
    return fclose(program);
}

static int tear_down(void **state)
{
    unlink(file);
    rmdir(installed);
    return rmdir(base);
}

/* The answer is the same for a program and for the directory of the profiles. */
static bool is_trusted(void)
{
    struct error err = {0};
    bool trusted = trust_program(file, &err) == 0;

    if (!trusted) {
        assert_int_equal(err.code, CODE_INTERNAL);
        assert_non_null(strstr(err.text, file));
        assert_non_null(strstr(err.text, "users other than root"));
    }
    return trusted;
}

static void what_others_could_write_is_not_trusted(void **state)
{
    struct stat own;

    assert_int_equal(stat("/proc/self/exe", &own), 0);
    if (geteuid() != 0 && own.st_uid != geteuid())
        skip(); /* what we make is neither root's nor of the owner of this program */
    assert_int_equal(chmod(file, 0755), 0);
    assert_true(is_trusted());
    assert_int_equal(chmod(file, 0757), 0);
    assert_false(is_trusted());
    assert_int_equal(chmod(file, 0755), 0);
    assert_int_equal(chmod(installed, 0757), 0);
    assert_false(is_trusted());
    assert_int_equal(chmod(installed, 01777), 0); /* as /tmp: what is there is not others' to replace */
    assert_true(is_trusted());
    assert_int_equal(chmod(installed, 0755), 0);
    assert_int_equal(chmod(base, 0777), 0);
    assert_false(is_trusted());
    assert_int_equal(chmod(base, 0755), 0);
}

static void what_is_anothers_is_not_trusted(void **state)
{
    if (geteuid() != 0)
        skip();
    assert_int_equal(chown(base, 65534, 65534), 0);
    assert_false(is_trusted());
    assert_int_equal(chown(base, 0, 0), 0);
    assert_int_equal(chown(file, 65534, 65534), 0);
    assert_false(is_trusted());
    assert_int_equal(chown(file, 0, 0), 0);
    assert_true(is_trusted());
    assert_int_equal(chown(installed, 0, 65534), 0); /* of a group that may write there */
    assert_true(is_trusted());
    assert_int_equal(chmod(installed, 02775), 0);
    assert_false(is_trusted());
    assert_int_equal(chown(installed, 0, 0), 0);
    assert_int_equal(chmod(installed, 0755), 0);
}

static void a_file_that_is_missing_is_not_trusted(void **state)
{
    struct error err = {0};

    assert_int_equal(trust_program("/proc/self/exe/none-such", &err), -1);
    assert_int_equal(err.code, CODE_INTERNAL);
    assert_non_null(strstr(err.text, "/proc/self/exe/none-such is not started: Not a directory"));
}

static void profiles_are_those_beside_the_plugin_or_the_installed_ones(void **state)
{
    char path[PATH_MAX], own[PATH_MAX];
    struct error err = {0};
    uid_t owner;

    if (geteuid() == 0) {
        assert_int_equal(trust_profiles(path, &err), 0);
        assert_string_equal(path, installed);
    }
    assert_int_equal(chmod(installed, 0777), 0);
    assert_int_equal(trust_profiles(path, &err), -1);
    assert_non_null(strstr(err.text, "users other than root"));
    assert_non_null(strstr(err.text, "profiles="));
    assert_true(find_plugin(own, &owner)); /* here: this program */
    strcat(own, "/fabric");
    assert_int_equal(mkdir(own, 0755), 0);
    assert_int_equal(trust_profiles(path, &err), 0);
    assert_string_equal(path, own);
    if (geteuid() == 0) { /* slurmstepd has the user's effective id */
        assert_int_equal(chmod(own, 0700), 0);
        assert_int_equal(seteuid(65534), 0);
        assert_int_equal(trust_profiles(path, &err), -1);
        assert_int_equal(seteuid(0), 0);
    }
    assert_int_equal(rmdir(own), 0);
    assert_int_equal(chmod(installed, 0755), 0);
}

/* Whoever has named the plugin in plugstack.conf has named its prefix. */
static void a_plugin_in_its_prefix_trusts_it(void **state)
{
    char prefix[sizeof installed];
    uid_t owner;

    assert_int_equal(chmod(file, 0757), 0);
    strcpy(prefix, installed);
    assert_true(find_plugin(installed, &owner));
    assert_true(is_trusted());
    strcpy(installed, prefix);
    assert_false(is_trusted());
    assert_int_equal(chmod(file, 0755), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_could_write_is_not_trusted),
        cmocka_unit_test(what_is_anothers_is_not_trusted),
        cmocka_unit_test(a_file_that_is_missing_is_not_trusted),
        cmocka_unit_test(profiles_are_those_beside_the_plugin_or_the_installed_ones),
        cmocka_unit_test(a_plugin_in_its_prefix_trusts_it),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
