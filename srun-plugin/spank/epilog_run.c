/*
 * epilog_run.c - one muster-ckptd that root starts for a user, who may have other processes on the node: in another job
 * there, or by ssh. They must not get at what root has through it, nor at its place outside of every job's cgroup.
 */
#include "srun-plugin/spank/epilog.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"

enum {
    SPARE_SECONDS = 5, /* at most, for it to end by itself, and again to be killed */
    LOOK_MS = 20,
    LINE_SIZE = 1024,
    LINES_MOST = 50,
    NOBODY = 65534,
};

/* ---- the child --------------------------------------------------------------------------------------------------- */

/*
 * The real group is another than the effective one, which alone counts for files: the kernel then lets nobody but root
 * trace the program, nor take its descriptors or its memory, from its first instruction on. (A shell would make the
 * real group the effective one.)
 */
static int become_user(uid_t uid)
{
    struct passwd *user;

    if (geteuid() != 0)
        return geteuid() == uid ? 0 : -1;
    user = getpwuid(uid);
    if (!user || initgroups(user->pw_name, user->pw_gid) < 0 ||
        setresgid(user->pw_gid == NOBODY ? NOBODY - 1 : NOBODY, user->pw_gid, user->pw_gid) < 0 ||
        setresuid(uid, uid, uid) < 0)
        return -1;
    return uid != 0 && geteuid() == 0 ? -1 : 0;
}

/* slurmd is often exempt from being killed where memory is out; what a user can make as large as he likes is not. */
static void be_killable(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0 && write(fd, "0", 1) == 1)
        close(fd);
}

static double spare_of(const struct epilog_run *run)
{
    return run->seconds / 6 < SPARE_SECONDS ? run->seconds / 6 : SPARE_SECONDS;
}

/* Nothing of slurmd's goes along. */
static void become_program(const struct epilog_run *run, int out)
{
    char limit[32], path[] = "PATH=/usr/bin:/bin";
    char *environment[] = {path, NULL};
    int null = open("/dev/null", O_RDONLY);
    sigset_t none;

    snprintf(limit, sizeof limit, "%.1f", run->seconds - 2 * spare_of(run));
    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    be_killable();
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0 ||
        become_user(run->uid) < 0 || chdir("/") < 0)
        _exit(EPILOG_NO_USER);
    close_range(STDERR_FILENO + 1, ~0u, 0);
    execle(run->program, run->program, "--once", "--partner", "--seconds", limit, run->stage, (char *)NULL,
           environment);
    _exit(EPILOG_NO_PROGRAM);
}

/* ---- what it prints ---------------------------------------------------------------------------------------------- */

struct child_output {
    int fd; /* -1: it is closed */
    void (*log)(const char *line);
    int lines;
    char line[LINE_SIZE];
    size_t used;
};

static void end_line(struct child_output *output)
{
    output->line[output->used] = '\0';
    if (output->used && output->lines < LINES_MOST)
        output->log(output->line);
    else if (output->used && output->lines == LINES_MOST)
        output->log("muster-ckptd says more, which is left out");
    output->lines += output->used > 0 && output->lines <= LINES_MOST;
    output->used = 0;
}

static void add_output(struct child_output *output, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\n' || output->used == LINE_SIZE - 1)
            end_line(output);
        if (text[i] != '\n')
            output->line[output->used++] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
    }
}

/* What is there by now, and no more than one pipe's worth: the caller has a clock to look at. */
static void read_output(struct child_output *output)
{
    char text[4096];
    ssize_t got;

    for (int i = 0; i < 16 && output->fd >= 0; i++) {
        got = read(output->fd, text, sizeof text);
        if (got > 0) {
            add_output(output, text, (size_t)got);
        } else if (got == 0 || errno != EINTR) {
            if (got < 0 && errno == EAGAIN)
                return;
            close(output->fd);
            output->fd = -1;
        }
    }
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* True when the child has ended before `deadline`. It is still to be reaped. */
static bool wait_until(pid_t child, double deadline, struct child_output *output)
{
    while (clock_monotonic() < deadline) {
        struct pollfd news = {.fd = output->fd, .events = POLLIN};
        siginfo_t info = {.si_pid = 0};

        poll(&news, 1, LOOK_MS);
        read_output(output);
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == child)
            return true;
    }
    return false;
}

/* Its group too goes, while its number is still taken. */
static int reap_child(pid_t child)
{
    int status = 0;

    kill(-child, SIGKILL);
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return EPILOG_KILLED;
    return WEXITSTATUS(status);
}

static int wait_for(pid_t child, double end, double spare, struct child_output *output)
{
    if (wait_until(child, end - spare, output))
        return reap_child(child);
    kill(-child, SIGKILL);
    if (!wait_until(child, end, output))
        return EPILOG_LEFT;
    reap_child(child);
    return EPILOG_KILLED;
}

int epilog_run(const struct epilog_run *run)
{
    struct child_output output = {.fd = -1, .log = run->log};
    double end = clock_monotonic() + run->seconds;
    int ends[2], status;
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return EPILOG_NO_PROCESS;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    child = fork();
    if (child == 0)
        become_program(run, ends[1]);
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return EPILOG_NO_PROCESS;
    }
    setpgid(child, child);
    output.fd = ends[0];
    status = wait_for(child, end, spare_of(run), &output);
    read_output(&output);
    end_line(&output);
    if (output.fd >= 0)
        close(output.fd);
    return status;
}
