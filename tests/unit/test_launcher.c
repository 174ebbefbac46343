/* The launcher: programs that it starts, what it refuses, and a caller that does without it. */
#include "tests/cmocka_test.h"
#include "tests/unit/test_files.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/process/launcher.h"

static pid_t launcher;
static int life;

/* As slurmstepd: the other end of `life` shows the launcher that this process has not ended. */
static int start_launcher(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), ends[2];
    socklen_t size = sizeof(sa_family_t);
    char name[64] = "";

    if (bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 8) < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    size = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &size);
    memcpy(name, address.sun_path + 1, size - offsetof(struct sockaddr_un, sun_path) - 1);
    setenv(LAUNCHER_VARIABLE, name, 1);
    launcher = fork();
    if (launcher == 0) {
        close(ends[1]);
        umask(0777);
        launcher_serve(listener, ends[0]);
        _exit(0);
    }
    close(listener);
    close(ends[0]);
    life = ends[1];
    return 0;
}

static int end_launcher(void **state)
{
    int status;

    close(life);
    return waitpid(launcher, &status, 0) == launcher && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* What `muster-NAME --version` prints, and whether the launcher has started it. */
static bool run_version(const char *name, char *text, size_t size)
{
    const char *arguments[] = {"--version", NULL};
    struct error err = {0};
    bool outside;
    size_t used = 0;
    ssize_t got;
    int ends[2], input;
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    input = program_start(&pid, name, arguments, ends[1], &err);
    assert_true(input >= 0);
    assert_true(pid > 0);
    close(input);
    outside = !program_is_child(pid);
    close(ends[1]);
    while ((got = read(ends[0], text + used, size - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = '\0';
    close(ends[0]);
    while (program_is_running(&pid))
        usleep(1000);
    assert_int_equal(pid, 0);
    return outside;
}

static void it_starts_muster_ckptd(void **state)
{
    char text[256];

    for (int i = 0; i < 20; i++) {
        assert_true(run_version("muster-ckptd", text, sizeof text));
        assert_non_null(strstr(text, "muster"));
    }
}

static void other_programs_are_started_by_their_caller(void **state)
{
    char text[256];

    assert_false(run_version("muster-ckpt", text, sizeof text));
    assert_non_null(strstr(text, "muster"));
}

static void a_launcher_that_is_stopped_is_done_without(void **state)
{
    char text[256];
    int status;

    kill(launcher, SIGSTOP);
    assert_int_equal(waitpid(launcher, &status, WUNTRACED), launcher);
    assert_true(WIFSTOPPED(status));
    assert_false(run_version("muster-ckptd", text, sizeof text));
    assert_non_null(strstr(text, "muster"));
    kill(launcher, SIGCONT);
    assert_true(run_version("muster-ckptd", text, sizeof text));
}

/* Of a user's own making, or of another release. */
static void other_requests_are_not_served(void **state)
{
    static char junk[20000];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = getenv(LAUNCHER_VARIABLE);
    pid_t answer = -1;
    char ready;

    for (size_t size = 1; size < sizeof junk; size = size * 3 + 1) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        memset(junk, (int)size, sizeof junk);
        memcpy(address.sun_path + 1, name, strlen(name));
        assert_int_equal(connect(fd, (struct sockaddr *)&address,
                                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))),
                         0);
        assert_int_equal(recv(fd, &ready, 1, 0), 1);
        assert_int_equal(send(fd, junk, size, 0), (ssize_t)size);
        assert_int_equal(recv(fd, &answer, sizeof answer, 0), (ssize_t)sizeof answer);
        assert_int_equal(answer, 0);
        close(fd);
    }
    it_starts_muster_ckptd(state);
}

static void without_one_the_caller_starts_it(void **state)
{
    char text[256], *name = strdup(getenv(LAUNCHER_VARIABLE));

    unsetenv(LAUNCHER_VARIABLE);
    assert_false(run_version("muster-ckptd", text, sizeof text));
    setenv(LAUNCHER_VARIABLE, "nobody listens here", 1);
    assert_false(run_version("muster-ckptd", text, sizeof text));
    setenv(LAUNCHER_VARIABLE, name, 1);
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_starts_muster_ckptd),
        cmocka_unit_test(other_programs_are_started_by_their_caller),
        cmocka_unit_test(a_launcher_that_is_stopped_is_done_without),
        cmocka_unit_test(other_requests_are_not_served),
        cmocka_unit_test(without_one_the_caller_starts_it),
    };
    char path[8192], built[4096];

    snprintf(path, sizeof path, "%s:%s", realpath(".", built), getenv("PATH")); /* as built_program */
    setenv("PATH", path, 1);
    return cmocka_run_group_tests(tests, start_launcher, end_launcher);
}
