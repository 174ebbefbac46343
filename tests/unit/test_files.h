/* test_files.h - files and commands for cmocka tests. Whatever goes wrong here fails the test that called. */
#ifndef MUSTER_TESTS_UNIT_TEST_FILES_H
#define MUSTER_TESTS_UNIT_TEST_FILES_H

#include "tests/cmocka_test.h"

#include <sys/wait.h>

static inline void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

/* A whole file, malloc'ed and ended by a zero byte; *bytes, if not NULL, is its size. */
static inline char *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "r");
    char *data;
    long length;

    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    length = ftell(file);
    rewind(file);
    data = malloc((size_t)length + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)length, file), length);
    data[length] = '\0';
    fclose(file);
    if (bytes)
        *bytes = (size_t)length;
    return data;
}

/* Of the source tree: read_file of "etc/gpt-125m.cfg", say. */
static inline char *read_source(const char *name)
{
    const char *top = getenv("top_srcdir");
    char path[1024];

    snprintf(path, sizeof path, "%s/%s", top ? top : "..", name);
    return read_file(path, NULL);
}

/* The path of a program of this build. */
static inline const char *built_program(const char *name)
{
    static char path[1024];
    const char *top = getenv("top_builddir");

    snprintf(path, sizeof path, "%s/%s", top ? top : ".", name);
    return path;
}

static char output[1 << 16];

/* Runs a command line of sh: its exit code. What it prints to either stream is in `output`. */
static inline int run_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline int run_shell(const char *format, ...)
{
    char words[8192], command[8210];
    va_list args;
    FILE *pipe;
    int status;

    va_start(args, format);
    assert_true((size_t)vsnprintf(words, sizeof words, format, args) < sizeof words);
    va_end(args);
    snprintf(command, sizeof command, "{ %s\n} 2>&1", words);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Fails the test unless `output` has the text. */
static inline void says(const char *text)
{
    if (!strstr(output, text))
        fail_msg("\"%s\" is not in: %s", text, output);
}

/* run_shell of a program of this build with these words after its name. */
static inline int run_program(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline int run_program(const char *name, const char *format, ...)
{
    char words[4096];
    va_list args;

    va_start(args, format);
    assert_true((size_t)vsnprintf(words, sizeof words, format, args) < sizeof words);
    va_end(args);
    return run_shell("'%s' %s", built_program(name), words);
}

#endif
