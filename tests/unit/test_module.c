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

static char base[] = "/tmp/muster-module-XXXXXX", installed[64];
#define MODULE_DIR installed
#include "srun-plugin/module.c"

static char file[96];

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
    char gone[600];

    (void)state;
    snprintf(gone, sizeof gone, "%s.gone", file);
    assert_int_equal(rename(file, gone), 0);
    assert_null(module_symbol("none-such.so", "x", &err));
    assert_non_null(strstr(err.text, ": No such file or directory"));
    assert_int_equal(rename(gone, file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_could_write_is_not_loaded),
        cmocka_unit_test(what_is_anothers_is_not_loaded),
        cmocka_unit_test(what_is_not_there_is_said),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
