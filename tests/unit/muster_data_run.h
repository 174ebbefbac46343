/* muster_data_run.h - runs muster-data in a directory of its own, for the tests of the program. */
#ifndef MUSTER_TESTS_MUSTER_DATA_RUN_H
#define MUSTER_TESTS_MUSTER_DATA_RUN_H

#include <unistd.h>

#include "tests/unit/test_files.h"

static char program[4096], directory[] = "test_muster_data.XXXXXX";

/* Everything happens in a directory of its own. */
static inline int enter(void **state)
{
    return realpath(built_program("muster-data"), program) && mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

static inline int leave(void **state)
{
    return chdir("..") == 0 && rmdir(directory) == 0 ? 0 : -1;
}

/* By name from outside, so that it can empty no other directory. */
static inline int clean(void **state)
{
    char command[256];

    snprintf(command, sizeof command, "rm -rf ../%s/*", directory);
    return system(command) == 0 ? 0 : -1;
}

static inline void same_set(const char *a, const char *b)
{
    char command[300];

    snprintf(command, sizeof command, "cmp %s.bin %s.bin && cmp %s.idx %s.idx", a, b, a, b);
    assert_int_equal(system(command), 0);
}

/* Runs "muster-data ARGUMENTS" in a shell and expects its exit code and all it prints, to either stream. */
static inline void expect(const char *arguments, int code, const char *expected)
{
    int status = run_shell("'%s' %s", program, arguments);

    assert_string_equal(output, expected);
    assert_int_equal(status, code);
}

static inline void expect_nothing_left(void)
{
    assert_int_equal(system("test -z \"$(ls | grep -e '[.]tmp$' -e '[.]idx$' -e '[.]bin$' -e '[.]tokenizer')\""), 0);
}

#endif
