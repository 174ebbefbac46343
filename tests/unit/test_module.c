/* Where the plugin looks for its modules: root loads them, so nobody else may have put them there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char base[] = "/tmp/muster-module-XXXXXX", installed[4096];
#define MODULE_DIR installed
#include "srun-plugin/module.c"

static char file[4200];

static int set_up(void **state)
{
    FILE *module;

    (void)state;
    if (!mkdtemp(base))
        return -1;
    snprintf(installed, sizeof installed, "%s/muster", base);
    snprintf(file, sizeof file, "%s/none-such.so", installed);
    if (mkdir(installed, 0755) < 0 || !(module = fopen(file, "w")))
        return -1;
    fprintf(module, "%0200d", 0); /* no library, but as long as one's first header */
    return fclose(module);
}

static int tear_down(void **state)
{
    (void)state;
    unlink(file);
    rmdir(installed);
    return rmdir(base);
}

/* Whether the loader was asked: it then says that it is no library. */
static bool is_tried(void)
{
    struct error err = {0};

    assert_null(module_symbol("none-such.so", "x", &err));
    assert_int_equal(err.code, CODE_INTERNAL);
    if (strstr(err.text, "others than root"))
        assert_non_null(strstr(err.text, file));
    else
        assert_non_null(strstr(err.text, "ELF"));
    return !strstr(err.text, "others than root");
}

static void what_others_could_write_is_not_loaded(void **state)
{
    struct stat own;

    (void)state;
    assert_int_equal(stat("/proc/self/exe", &own), 0);
    if (geteuid() != 0 && own.st_uid != geteuid())
        skip(); /* what we make is neither root's nor of the owner of this program */
    assert_int_equal(chmod(file, 0755), 0);
    assert_true(is_tried());
    assert_int_equal(chmod(file, 0757), 0);
    assert_false(is_tried());
    assert_int_equal(chmod(file, 0755), 0);
    assert_int_equal(chmod(installed, 0757), 0);
    assert_false(is_tried());
    assert_int_equal(chmod(installed, 01777), 0); /* as /tmp: what is there is not others' to replace */
    assert_true(is_tried());
    assert_int_equal(chmod(installed, 0755), 0);
    assert_int_equal(chmod(base, 0777), 0);
    assert_false(is_tried());
    assert_int_equal(chmod(base, 0755), 0);
}

static void what_is_anothers_is_not_loaded(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chown(base, 65534, 65534), 0);
    assert_false(is_tried());
    assert_int_equal(chown(base, 0, 0), 0);
    assert_int_equal(chown(file, 65534, 65534), 0);
    assert_false(is_tried());
    assert_int_equal(chown(file, 0, 0), 0);
    assert_true(is_tried());
    assert_int_equal(chown(installed, 0, 65534), 0); /* of a group that may write there */
    assert_true(is_tried());
    assert_int_equal(chmod(installed, 02775), 0);
    assert_false(is_tried());
    assert_int_equal(chown(installed, 0, 0), 0);
    assert_int_equal(chmod(installed, 0755), 0);
}

/* Where it cannot be looked at, it is not loaded either: it may come a moment later. */
static void what_is_not_there_is_said(void **state)
{
    struct error err = {0};
    char gone[4300];

    (void)state;
    snprintf(gone, sizeof gone, "%s.gone", file);
    assert_int_equal(rename(file, gone), 0);
    assert_null(module_symbol("none-such.so", "x", &err));
    assert_non_null(strstr(err.text, ": No such file or directory"));
    assert_int_equal(rename(gone, file), 0);
}

static void a_program_that_others_could_write_is_not_trusted(void **state)
{
    struct error err = {0};

    (void)state;
    assert_int_equal(module_trust("/proc/self/exe/none-such", &err), -1);
    assert_int_equal(err.code, CODE_INTERNAL);
    assert_non_null(strstr(err.text, "/proc/self/exe/none-such is not started"));
    assert_int_equal(chmod(file, 0757), 0);
    assert_int_equal(module_trust(file, &err), -1);
    assert_non_null(strstr(err.text, "others than root"));
    assert_int_equal(chmod(file, 0755), 0);
    if (geteuid() == 0)
        assert_int_equal(module_trust(file, &err), 0);
}

/* Whoever has named the plugin in plugstack.conf has named its prefix. */
static void a_plugin_in_its_prefix_trusts_it(void **state)
{
    char prefix[sizeof installed];
    struct error err = {0};
    uid_t owner;

    (void)state;
    strcpy(prefix, installed);
    assert_true(find_own_directory(installed, &owner));
    assert_int_equal(chmod(file, 0757), 0);
    assert_int_equal(module_trust(file, &err), 0);
    strcpy(installed, prefix);
    assert_int_equal(module_trust(file, &err), -1);
    assert_int_equal(chmod(file, 0755), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_could_write_is_not_loaded),
        cmocka_unit_test(what_is_anothers_is_not_loaded),
        cmocka_unit_test(what_is_not_there_is_said),
        cmocka_unit_test(a_program_that_others_could_write_is_not_trusted),
        cmocka_unit_test(a_plugin_in_its_prefix_trusts_it),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
