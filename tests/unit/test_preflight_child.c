/* The second srun of a preflight: what it inherits, and that it ends. This program stands for srun, and starts itself.
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "srun-plugin/preflight/preflight.h"
#include "tests/cmocka_test.h"

static struct child start(const char *what)
{
    char *argv[] = {(char *)"test", (char *)what, NULL};
    struct child child;

    if (getenv("MUSTER_TEST_EMULATED")) {
        print_message("# a program in an emulator cannot start itself\n");
        skip();
    }
    assert_int_equal(child_start(&child, argv, NULL), 0);
    return child;
}

/* All that it prints, until it closes its output. */
static void read_all(const struct child *child, char *text, size_t size)
{
    size_t held = 0;
    ssize_t got;

    while (held < size - 1 && (got = read(child->fd, text + held, size - 1 - held)) > 0)
        held += (size_t)got;
    text[held] = '\0';
}

static void assert_gone(pid_t pid)
{
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
}

static void test_environment(void **state)
{
    static char text[1 << 20];
    struct child child;

    setenv("SLURM_CONF", "/etc/slurm/slurm.conf", 1);
    setenv("SLURM_NTASKS_PER_NODE", "8", 1); /* srun would take it for an option */
    setenv("SLURM_SPANK__SLURM_SPANK_OPTION_spank_muster_muster_preflight", "exclude", 1); /* and ask itself for ever */
    setenv("PMI_FD", "9", 1);
    setenv("MUSTER_HEAD", "n1", 1);
    setenv("MUSTER_PREFLIGHT_ROOT", "/saved", 1);
    setenv("LD_LIBRARY_PATH_OF_TEST", "/opt", 1);
    child = start("environment");
    read_all(&child, text, sizeof text);
    child_end(&child);
    assert_gone(child.pid);
    assert_non_null(strstr(text, "SLURM_CONF=/etc/slurm/slurm.conf\n"));
    assert_non_null(strstr(text, "MUSTER_PREFLIGHT_ROOT=/saved\n"));
    assert_non_null(strstr(text, "LD_LIBRARY_PATH_OF_TEST=/opt\n"));
    assert_null(strstr(text, "SLURM_NTASKS_PER_NODE"));
    assert_null(strstr(text, "SLURM_SPANK"));
    assert_null(strstr(text, "PMI_FD"));
    assert_null(strstr(text, "MUSTER_HEAD"));
    /* Both outputs come here, its input is empty, and no descriptor of ours is open there. */
    assert_non_null(strstr(text, "on standard error\n"));
    assert_non_null(strstr(text, "input 0 bytes, descriptor 3 closed, no signal blocked\n"));
}

static void test_ends(void **state)
{
    struct child child;
    char line[16] = "";

    /* One that hangs, and one that heeds no TERM because it is stopped. */
    child = start("hang");
    assert_int_equal(read(child.fd, line, sizeof line), 5);
    child_end(&child);
    assert_gone(child.pid);
    child = start("hang");
    assert_int_equal(read(child.fd, line, sizeof line), 5);
    assert_int_equal(kill(child.pid, SIGSTOP), 0);
    child_end(&child);
    assert_gone(child.pid);
}

/* ---- what stands for srun ---------------------------------------------------------------------------------------- */

static int print_environment(void)
{
    sigset_t blocked;
    char byte;

    for (char **entry = environ; *entry; entry++)
        puts(*entry);
    fflush(stdout);
    if (write(STDERR_FILENO, "on standard error\n", 18) != 18)
        return 1;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    printf("input %zd bytes, descriptor 3 %s, %s blocked\n", read(STDIN_FILENO, &byte, 1),
           close(3) < 0 ? "closed" : "open", sigismember(&blocked, SIGUSR1) ? "SIGUSR1" : "no signal");
    return 0;
}

static int hang(void)
{
    if (write(STDOUT_FILENO, "here\n", 5) != 5)
        return 1;
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_environment), cmocka_unit_test(test_ends)};
    sigset_t set;

    if (argc > 1)
        return strcmp(argv[1], "hang") == 0 ? hang() : print_environment();
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1); /* srun blocks what it waits for */
    sigprocmask(SIG_BLOCK, &set, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
