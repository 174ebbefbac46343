/* muster_data_run.h - runs muster-data in a directory of its own, for the tests of the program. */
#ifndef MUSTER_TESTS_MUSTER_DATA_RUN_H
#define MUSTER_TESTS_MUSTER_DATA_RUN_H

#include <sys/wait.h>
#include <unistd.h>

#include "tests/cmocka_test.h"

static char program[4096], directory[] = "test_muster_data.XXXXXX";

/* Everything happens in a directory of its own. */
static inline int enter(void **state)
{
    char here[3000], *path;

    snprintf(here, sizeof here, "%s/muster-data", getenv("top_builddir"));
    path = realpath(here, program);
    return path && mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
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

static inline void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

static inline void same_set(const char *a, const char *b)
{
    char command[300];

    snprintf(command, sizeof command, "cmp %s.bin %s.bin && cmp %s.idx %s.idx", a, b, a, b);
    assert_int_equal(system(command), 0);
}

/* Runs "muster-data ARGUMENTS" in a shell and expects its exit code and all it prints, to either stream. */
static inline void expect(const char *arguments, int code, const char *output)
{
    char command[8192], text[4096];
    size_t size;
    FILE *pipe;
    int status;

    snprintf(command, sizeof command, "{ '%s' %s; } 2>&1", program, arguments);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    size = fread(text, 1, sizeof text - 1, pipe);
    text[size] = '\0';
    status = pclose(pipe);
    assert_string_equal(text, output);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

static inline void expect_nothing_left(void)
{
    assert_int_equal(system("test -z \"$(ls | grep -e '[.]tmp$' -e '[.]idx$' -e '[.]bin$' -e '[.]tokenizer')\""), 0);
}

#endif
