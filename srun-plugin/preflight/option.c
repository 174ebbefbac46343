#include "srun-plugin/preflight/option.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/job.h"
#include "srun-plugin/preflight/replace.h"
#include "srun-plugin/preflight/run.h"

int preflight_option(struct preflight_wish *wish, const char *argument)
{
    if (argument && argument[0] && strcmp(argument, "exclude") != 0)
        return -1;
    wish->on = true;
    if (argument && argument[0])
        wish->exclude = true;
    return 0;
}

/* srun --jobid, and what it may be shortened to. */
static bool names_a_job(void)
{
    FILE *file = fopen("/proc/self/cmdline", "r");
    bool found = false;
    char *word = NULL;
    size_t size = 0;

    while (file && !found && getdelim(&word, &size, '\0', file) > 0)
        found = strncmp(word, "--jobi", 6) == 0;
    free(word);
    if (file)
        fclose(file);
    return found;
}

void preflight_look_around(struct preflight_wish *wish)
{
    wish->own_job = !getenv("SLURM_JOB_ID") && !getenv("SLURM_JOBID") && !names_a_job();
}

static void say(void (*log)(const char *line), const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(void (*log)(const char *line), const char *format, ...)
{
    char line[2048];
    int length = snprintf(line, sizeof line, "muster: preflight: ");
    va_list args;

    va_start(args, format);
    vsnprintf(line + length, sizeof line - (size_t)length, format, args);
    va_end(args);
    log(line);
}

static int ask(const struct preflight_wish *wish, const struct layout *layout, void (*log)(const char *line),
               struct verdict **verdict, struct error *err)
{
    struct preflight preflight = {.program = wish->program, .layout = layout, .log = log};
    struct job job;
    int status;

    /* Its errors were told before, or it is none of ours to judge. */
    if (wish->job_file[0] && job_load(&job, wish->job_file, NULL, 0, err) == 0)
        preflight.job = &job;
    status = preflight_run(&preflight, verdict, err);
    if (preflight.job)
        job_destroy(&job);
    return status;
}

static void replace(const struct layout *layout, const char *bad, void (*log)(const char *line))
{
    struct error err = {0};
    bool requeued;

    if (replace_nodes(layout->job_id, bad, &requeued, &err) == 0)
        say(log, "job %u goes back to the queue, and will not get %s again", (unsigned)layout->job_id, bad);
    else
        say(log, "%s: %s", requeued ? "requeued, but with the same nodes" : "not requeued", err.text);
}

void preflight_option_run(const struct preflight_wish *wish, const struct layout *layout, void (*log)(const char *line))
{
    struct verdict *verdict = NULL;
    struct error err = {0};
    char *bad;
    int code;

    if (!wish->on)
        return;
    if (ask(wish, layout, log, &verdict, &err) < 0) {
        say(log, "warning: the nodes were not checked: %s", err.text);
        return;
    }
    if (!verdict->bad) {
        verdict_destroy(verdict);
        return;
    }
    code = verdict->everywhere ? CODE_IO : CODE_PEER;
    bad = preflight_bad_names(layout, verdict);
    if ((wish->own_job ? replace_end_job(layout->job_id, &err)
                       : replace_end_step(layout->job_id, layout->step_id, &err)) < 0)
        say(log, "warning: %s", err.text);
    if (wish->exclude && bad && !verdict->everywhere)
        replace(layout, bad, log);
    free(bad);
    verdict_destroy(verdict);
    exit(code);
}
