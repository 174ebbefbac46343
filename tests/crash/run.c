#include "tests/crash/run.h"
#include "tests/cmocka_test.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

const char *built(char path[512], const char *name)
{
    const char *build = getenv("top_builddir");

    snprintf(path, 512, "%s/%s", build ? build : ".", name);
    return path;
}

bool full(void)
{
    return getenv("MUSTER_CHECK_FULL") != NULL;
}

static void become(const char *const *argv, const char *const *environment, int errors)
{
    char program[512], shim[512], real[4096];
    int nowhere = open("/dev/null", O_WRONLY);

    if (!realpath(built(shim, "tests/crash/.libs/libshim.so"), real))
        _exit(98);
    setenv("LD_PRELOAD", real, 1);
    for (; *environment; environment++)
        putenv((char *)(uintptr_t)*environment);
    dup2(nowhere, 1);
    dup2(errors, 2);
    execv(built(program, argv[0]), (char **)(uintptr_t)argv);
    _exit(98);
}

int run_shimmed(const char *const *argv, const char *const *environment, char *said, size_t size)
{
    size_t length = 0;
    int errors[2], status;
    ssize_t got;
    pid_t child;

    assert_int_equal(pipe(errors), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        become(argv, environment, errors[1]);
    close(errors[1]);
    while (length + 1 < size && (got = read(errors[0], said + length, size - 1 - length)) > 0)
        length += (size_t)got;
    said[length] = '\0';
    close(errors[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && (WEXITSTATUS(status) == 98 || WEXITSTATUS(status) == 99));
    return status;
}
