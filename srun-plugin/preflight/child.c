#include "srun-plugin/preflight/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/text.h"

/* Whether the child gets an entry "NAME=VALUE" of our environment. */
static bool is_inherited(const char *entry)
{
    static const char *const kept[] = {
        "SLURM_CONF=", "SLURM_CONF_SERVER=", "SLURM_JWT=", "SLURM_WORKING_CLUSTER=", "MUSTER_PREFLIGHT_ROOT=", NULL};
    static const char *const dropped[] = {"SLURM", "_SLURM", "SBATCH_", "SALLOC_", "SRUN_", "SPANK_", "PMI", "MUSTER_",
                                          NULL};

    return text_begins_with(entry, kept) || !text_begins_with(entry, dropped);
}

static char **list_environment(void)
{
    size_t count = 0, kept = 0;
    char **entries;

    while (environ[count])
        count++;
    entries = calloc(count + 1, sizeof *entries);
    for (size_t i = 0; entries && i < count; i++)
        if (is_inherited(environ[i]))
            entries[kept++] = environ[i];
    return entries;
}

/* After the fork in a process of threads: system calls only. */
static void become_srun(int out, char *const *argv, char *const *entries)
{
    sigset_t none;
    int null = open("/dev/null", O_RDONLY);

    /* Its own group, so that ^C is for the outer srun to decide; and it does not outlive that. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0)
        _exit(126);
    close_range(STDERR_FILENO + 1, ~0u, 0);
    execve("/proc/self/exe", argv, entries);
    _exit(127);
}

int child_start(struct child *child, char *const *argv, struct error *err)
{
    char **entries = list_environment();
    int ends[2];

    if (!entries || pipe2(ends, O_CLOEXEC) < 0) {
        free(entries);
        return error_errno(err, CODE_IO, "no pipe to srun");
    }
    child->pid = fork();
    if (child->pid == 0)
        become_srun(ends[1], argv, entries);
    free(entries);
    close(ends[1]);
    if (child->pid < 0) {
        close(ends[0]);
        return error_errno(err, CODE_IO, "cannot start srun");
    }
    child->fd = ends[0];
    return 0;
}

/* True when it has ended, within `seconds`. */
static bool wait_for(pid_t pid, double seconds)
{
    for (int i = 0; i <= seconds * 200; i++) {
        pid_t rc = waitpid(pid, NULL, WNOHANG);

        if (rc == pid || (rc < 0 && errno == ECHILD))
            return true;
        clock_sleep(0.005);
    }
    return false;
}

void child_end(struct child *child)
{
    /* TERM makes srun kill its tasks at once and complete its step; a stopped task too. */
    if (!wait_for(child->pid, 1)) {
        kill(child->pid, SIGTERM);
        if (!wait_for(child->pid, 5)) {
            kill(child->pid, SIGKILL);
            wait_for(child->pid, 5);
        }
    }
    close(child->fd);
}
