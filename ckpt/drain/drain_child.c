/*
 * drain_child.c - the child process that works on the target.
 *
 * A file system may not answer for hours, and a process that waits for it in the kernel cannot be killed. Only the
 * child waits; the drainer continues.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/drain/drain_internal.h"

#define HANG_SECONDS 10.0
#define KILL_SECONDS 1.0 /* a running process ends so soon after SIGKILL; one that does not is in a system call */
#define STOP_SECONDS 1.0 /* to end in order */

static void send_line(const char *line, bool failure, void *arg)
{
    const struct drain_child *child = arg;

    dprintf(child->news, "%c%s\n", failure ? '!' : ' ', line);
}

/* Closes the lock, the input and the output: others wait until these are closed, such as srun. */
static void become_child(struct drain_turn *turn, pid_t parent, int news)
{
    struct drainer *drainer = turn->drainer;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    close(drainer->lock);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    drainer->child.news = news;
    if (drainer->options.log)
        drainer->options.log = send_line;
    drainer->options.log_arg = &drainer->child;
    umask(turn->save->staged.save.umask); /* an epilog has slurmd's, with which everybody could read a user's files */
}

/* Processor time of the process, of all its threads. */
static double time_used(pid_t pid)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) < 0)
        return 0;
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

int drain_child_start(struct drain_turn *turn, struct error *err)
{
    struct drainer *drainer = turn->drainer;
    pid_t parent = getpid(), pid;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_errno(err, CODE_IO, "a pipe");
    atomic_store(&drainer->shared->bytes, 0);
    atomic_store(&drainer->shared->copying, false);
    atomic_store(&drainer->shared->reported, false);
    drainer->shared->newest = 0;
    pid = fork();
    if (pid == 0) {
        become_child(turn, parent, ends[1]);
        drain_work(turn);
        _exit(0);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return error_errno(err, CODE_IO, "a process for the drain");
    }
    drainer->child = (struct drain_child){.pid = pid, .news = ends[0]};
    return 0;
}

/* Its lines; an empty one when it has reported. */
static void read_news(struct drainer *drainer)
{
    struct drain_child *child = &drainer->child;

    while (read(child->news, child->line + child->length, 1) == 1) {
        if (child->line[child->length] != '\n' && child->length + 1 < sizeof child->line) {
            child->length++;
            continue;
        }
        child->line[child->length] = '\0';
        if (child->length > 0)
            drainer_log(drainer, child->line[0] == '!', "%s", child->line + 1);
        child->length = 0;
    }
}

/* Finds out whether it has ended, makes progress, or was stopped. Kills a stopped one. */
static void look_at_child(struct drainer *drainer)
{
    struct drain_child *child = &drainer->child;
    pid_t ended;
    int status;

    if (child->pid == 0)
        return;
    ended = waitpid(child->pid, &status, WNOHANG | WUNTRACED);
    read_news(drainer);
    if (ended > 0 && WIFSTOPPED(status)) {
        child->stopped = true;
        kill(child->pid, SIGKILL);
    } else if (ended != 0) {
        child->pid = 0;
        close(child->news);
        return;
    }
    standstill_look(&child->still, time_used(child->pid));
}

bool drain_child_hangs(const struct drainer *drainer)
{
    return drainer->child.pid != 0 && (drainer->child.killed || drainer->child.still.seconds >= HANG_SECONDS);
}

void drain_child_wait(struct drainer *drainer, double seconds)
{
    struct pollfd news = {.fd = drainer->child.news, .events = POLLIN};

    if (drainer->child.pid == 0)
        clock_sleep(seconds);
    else
        poll(&news, 1, (int)(seconds * 1000));
    look_at_child(drainer);
}

static void wait_for_end(struct drainer *drainer, double seconds)
{
    double end = clock_monotonic() + seconds;

    while (drainer->child.pid != 0 && clock_monotonic() < end)
        drain_child_wait(drainer, 0.01);
}

void drain_child_kill(struct drainer *drainer)
{
    drainer->child.name[0] = '\0';
    if (drainer->child.pid == 0)
        return;
    kill(drainer->child.pid, SIGKILL);
    wait_for_end(drainer, KILL_SECONDS);
    drainer->child.killed = true;
}

void drain_child_stop(struct drainer *drainer)
{
    atomic_store(&drainer->shared->stop, true);
    if (!drain_child_hangs(drainer))
        wait_for_end(drainer, STOP_SECONDS);
    drain_child_kill(drainer);
}
