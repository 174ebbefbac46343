#include "srun-plugin/preflight/option.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

/* Of srun's command line, and of the user's program, where it does no harm; false where there is none. */
static bool look_for(bool (*is_it)(const char *word))
{
    FILE *file = fopen("/proc/self/cmdline", "r");
    bool found = false;
    char *word = NULL;
    size_t size = 0;

    while (file && !found && getdelim(&word, &size, '\0', file) > 0)
        found = is_it(word);
    free(word);
    if (file)
        fclose(file);
    return found;
}

/* --jobid, and what it may be shortened to. */
static bool names_a_job(const char *word)
{
    return strncmp(word, "--jobi", 6) == 0;
}

void preflight_look_around(struct preflight_wish *wish)
{
    wish->own_job = !getenv("SLURM_JOB_ID") && !getenv("SLURM_JOBID") && !look_for(names_a_job);
}

int preflight_refusal(const char *value, uint32_t job_id, uint32_t step_id)
{
    unsigned long job, step;
    int code;

    if (sscanf(value, "%lu.%lu %d", &job, &step, &code) != 3 || job != job_id || step != step_id)
        return 0;
    return code;
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

/* True when the job goes back to the queue. */
static bool replace(const struct layout *layout, const char *bad, void (*log)(const char *line))
{
    struct error err = {0};
    bool requeued;

    if (replace_nodes(layout->job_id, bad, &requeued, &err) == 0)
        say(log, "job %u goes back to the queue, and will not get %s again", (unsigned)layout->job_id, bad);
    else
        say(log, "%s: %s", requeued ? "requeued, but with the same nodes" : "not requeued", err.text);
    return requeued;
}

static void end_job(const struct layout *layout, void (*log)(const char *line), int code)
{
    struct error err = {0};

    if (replace_end_job(layout->job_id, &err) < 0)
        say(log, "warning: %s", err.text);
    exit(code);
}

static int refuse(const struct layout *layout, int code)
{
    char value[64];

    snprintf(value, sizeof value, "%u.%u %d", (unsigned)layout->job_id, (unsigned)layout->step_id, code);
    setenv(PREFLIGHT_REFUSED, value, 1);
    return code;
}

int preflight_option_run(const struct preflight_wish *wish, const struct layout *layout, void (*log)(const char *line))
{
    struct verdict *verdict = NULL;
    struct error err = {0};
    int code = 0;
    char *bad;

    if (!wish->on)
        return 0;
    if (ask(wish, layout, log, &verdict, &err) < 0) {
        say(log, "warning: the nodes were not checked: %s", err.text);
        return 0;
    }
    if (verdict->bad)
        code = verdict->everywhere ? CODE_IO : CODE_PEER;
    bad = preflight_bad_names(layout, verdict);
    verdict_destroy(verdict);
    if (code == CODE_PEER && wish->exclude && bad && replace(layout, bad, log))
        exit(code);
    free(bad);
    if (code && wish->own_job)
        end_job(layout, log, code);
    return code ? refuse(layout, code) : 0;
}
