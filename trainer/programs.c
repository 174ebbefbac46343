#include "trainer/programs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Prints the state of job $1, and "step" unless its step $2 has ended: the run's own step may end in a job that goes
 * on. A suspended job's steps are listed too. The user's own filters of squeue's output do not apply.
 */
static const char question[] = "unset SLURM_CLUSTERS $(env | sed -n 's/^\\(SQUEUE_[A-Z0-9_]*\\)=.*/\\1/p')\n"
                               "squeue --noheader --states=all --jobs=\"$1\" --format=%T || exit\n"
                               "[ -z \"$2\" ] || squeue --noheader --steps=\"$1.$2\" --format='step %i' || echo step\n";

/* squeue itself waits for MessageTimeout (10 s). The exit code, or -1. */
static int ask_squeue(const char *job, const char *step, char *text, size_t size)
{
    const char *words[] = {"timeout", "-s", "KILL", "20", "sh", "-c", question, "sh", job, step, NULL};
    int ends[2], status = 0;
    size_t used = 0;
    ssize_t got;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    program_spawn(&pid, words, ends[1], NULL);
    close(ends[1]);
    while ((got = read(ends[0], text + used, size - 1 - used)) > 0 || (got < 0 && errno == EINTR))
        used += got > 0 ? (size_t)got : 0;
    text[used] = '\0';
    close(ends[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static enum slurm_answer read_state(const char *text)
{
    static const char *const ended[] = {"BOOT_FAIL", "CANCELLED", "COMPLETED",     "DEADLINE",
                                        "FAILED",    "NODE_FAIL", "PREEMPTED",     "OUT_OF_MEMORY",
                                        "REVOKED",   "TIMEOUT",   "LAUNCH_FAILED", "RECONFIG_FAIL"};
    static const char *const waiting[] = {"PENDING",     "REQUEUED",     "REQUEUE_HOLD",
                                          "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"};

    if (!*text)
        return SLURM_UNKNOWN;
    if (strcmp(text, "COMPLETING") == 0)
        return SLURM_COMPLETING;
    for (size_t i = 0; i < sizeof ended / sizeof *ended; i++)
        if (strcmp(text, ended[i]) == 0)
            return SLURM_ENDED;
    for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++)
        if (strcmp(text, waiting[i]) == 0)
            return SLURM_WAITING;
    return SLURM_RUNNING;
}

enum slurm_answer slurm_job_ask(const char *job, const char *step)
{
    char text[512], *state = text;
    int code = ask_squeue(job, step, text, sizeof text);
    enum slurm_answer answer;
    bool running;

    if (code != 0)
        return code > 0 && strstr(text, "Invalid job id") ? SLURM_UNKNOWN : SLURM_SILENT;
    running = strstr(text, "step") || !*step;
    answer = read_state(strsep(&state, " \n"));
    return answer == SLURM_RUNNING && !running ? SLURM_ENDED : answer;
}
