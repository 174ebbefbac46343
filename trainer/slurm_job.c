#include "trainer/slurm_job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "trainer/programs.h"

extern char **environ;

#define MOST_SECONDS 20 /* squeue itself waits for MessageTimeout (10 s) */

/* The environment without the user's own filters of squeue's output. NULL without memory. */
static char **list_variables(void)
{
    size_t count = 0, kept = 0;
    char **list;

    while (environ[count])
        count++;
    list = calloc(count + 1, sizeof *list);
    for (size_t i = 0; list && i < count; i++)
        if (strncmp(environ[i], "SQUEUE_", 7) != 0 && strncmp(environ[i], "SLURM_CLUSTERS=", 15) != 0)
            list[kept++] = environ[i];
    return list;
}

/* Reads until the end, or until the time is over: then false. What does not fit is lost. */
static bool read_output(int fd, char *text, size_t size)
{
    double end = clock_monotonic() + MOST_SECONDS;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char rest[256];
    size_t used = 0;

    for (double left = MOST_SECONDS; left > 0; left = end - clock_monotonic()) {
        bool full = used + 1 >= size;
        ssize_t got;

        if (poll(&ready, 1, (int)(left * 1000) + 1) <= 0)
            continue;
        got = read(fd, full ? rest : text + used, full ? sizeof rest : size - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        used += full || got < 0 ? 0 : (size_t)got;
        text[used] = '\0';
        if (got <= 0)
            return got == 0;
    }
    return false;
}

/* squeue's exit code, or -1. */
static int run_squeue(char **arguments, char *text, size_t size)
{
    struct program program = {.words = arguments, .input = -1};
    char **variables;
    int ends[2], status = 0;
    bool complete;
    pid_t pid = 0;

    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    program.variables = variables = list_variables();
    program.output = ends[1];
    if (variables)
        program_start(&pid, &program, NULL);
    free(variables);
    close(ends[1]);
    complete = pid > 0 && read_output(ends[0], text, size);
    close(ends[0]);
    if (!complete && pid > 0)
        kill(pid, SIGKILL);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return complete && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static enum slurm_answer read_state(char *text)
{
    static const char *const ended[] = {"BOOT_FAIL", "CANCELLED", "COMPLETED",     "DEADLINE",
                                        "FAILED",    "NODE_FAIL", "PREEMPTED",     "OUT_OF_MEMORY",
                                        "REVOKED",   "TIMEOUT",   "LAUNCH_FAILED", "RECONFIG_FAIL"};
    static const char *const waiting[] = {"PENDING",     "REQUEUED",     "REQUEUE_HOLD",
                                          "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"};

    text[strcspn(text, " \n")] = '\0';
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
    char option[160], text[512];
    char *arguments[] = {(char[]){"squeue"},       (char[]){"--noheader"},  option,
                         (char[]){"--states=all"}, (char[]){"--format=%T"}, NULL};
    enum slurm_answer answer;
    int code;

    snprintf(option, sizeof option, "--jobs=%s", job);
    code = run_squeue(arguments, text, sizeof text);
    if (code != 0)
        return code > 0 && strstr(text, "Invalid job id") ? SLURM_UNKNOWN : SLURM_SILENT;
    answer = read_state(text);
    if (answer != SLURM_RUNNING || !*step)
        return answer;
    /* The run's own step may have ended in a job that goes on. A suspended job's steps are listed too. */
    snprintf(option, sizeof option, "--steps=%s.%s", job, step);
    arguments[3] = (char[]){"--format=%i"};
    arguments[4] = NULL;
    if (run_squeue(arguments, text, sizeof text) != 0)
        return SLURM_RUNNING;
    return *text ? SLURM_RUNNING : SLURM_ENDED;
}
