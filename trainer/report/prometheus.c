#include "trainer/report/prometheus.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static void __attribute__((format(printf, 3, 4))) add_text(char *buf, size_t size, const char *format, ...)
{
    size_t used = strlen(buf);
    va_list args;

    va_start(args, format);
    vsnprintf(buf + used, size - used, format, args);
    va_end(args);
}

static void add_head(char *buf, size_t size, const char *name, const char *type, const char *help)
{
    add_text(buf, size, "# HELP muster_%s %s\t# TYPE muster_%s %s\t", name, help, name, type);
}

void prometheus_format(char *buf, size_t size, const struct prometheus *values, const char *job)
{
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"step", "gauge", "Last training step of the run.", values->step},
        {"tokens_total", "counter", "Tokens since the last start.", values->tokens},
        {"skipped_steps_total", "counter", "Steps without an update since the last start.", values->skipped},
        {"loss", "gauge", "Mean loss of the last step, in nats a token.", values->loss},
        {"mfu_ratio", "gauge", "Model FLOPs utilization of the last step (PaLM).", values->mfu},
        {"save_wait_seconds_total", "counter", "Seconds that training has waited for saves since the last start.",
         values->waited},
        {"checkpoint_timestamp_seconds", "gauge", "When the newest checkpoint was committed, or the run began with it.",
         values->committed},
        {"checkpoint_step", "gauge", "Step of the newest committed checkpoint.", values->committed_step},
        {"stage_bytes", "gauge", "Memory of this node that is reserved for staged saves.", values->staged},
        {"stage_free_bytes", "gauge", "Room that is left in the file system where saves are staged.", values->left},
    };

    buf[0] = '\0';
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (isnan(rows[i].value))
            continue;
        add_head(buf, size, rows[i].name, rows[i].type, rows[i].help);
        add_text(buf, size, "muster_%s{slurm_job=\"%s\",uid=\"%u\"} %.15g\t", rows[i].name, job, (unsigned)getuid(),
                 rows[i].value);
    }
}

/* Kinds of causes, by the words of a hang report (trainer/watch/hang_report.c) or of muster-supervise(1). */
static const struct {
    const char *words, *kind;
} KINDS[] = {
    {"node failure", "node"},
    {"silent", "silent"},
    {"dead", "dead"},
    {"stopped", "stopped"},
    {"aborted", "aborted"},
    {"ended by signal", "signal"},
    {"; it has been", "late"},
    {"data does not arrive", "network"},
    {"", "other"},
};

static size_t kind_of(const char *cause)
{
    size_t kind = 0;

    while (!strstr(cause, KINDS[kind].words))
        kind++;
    return kind;
}

/* Every kind, also those that did not happen yet: Prometheus sees the first one as a rise. */
static void add_starts(char *buf, size_t size, const char *job, const struct metrics *starts)
{
    add_head(buf, size, "starts_total", "counter", "Starts of the run: its first, requeues, and restarts in place.");
    add_text(buf, size, "muster_starts_total{slurm_job=\"%s\",uid=\"%u\"} %zu\t", job, (unsigned)getuid(),
             starts->nstarts);
    add_head(buf, size, "restarts_total", "counter", "Restarts inside an allocation, by cause.");
    for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
        size_t count = 0;

        for (size_t i = 0; i < starts->nstarts; i++)
            count += starts->starts[i].fault > 0 && kind_of(starts->starts[i].cause) == k;
        add_text(buf, size, "muster_restarts_total{slurm_job=\"%s\",uid=\"%u\",cause=\"%s\"} %zu\t", job,
                 (unsigned)getuid(), KINDS[k].kind, count);
    }
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* 1: this user's regular file has the name; 0: nothing; -1: something else. */
static int look_at(const char *path)
{
    struct stat now;

    if (lstat(path, &now) < 0)
        return 0;
    return S_ISREG(now.st_mode) && now.st_uid == geteuid() ? 1 : -1;
}

static int write_file(const char *path, const char *text, struct error *err)
{
    int fd, result;

    unlink(path); /* of an earlier try; another user's stays, and O_EXCL refuses it */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_errno(err, CODE_IO, "cannot create %s", path);
    result = fchmod(fd, 0644) < 0 ? -1 : io_write_all(fd, text, strlen(text)); /* node_exporter is another user */
    if (close(fd) < 0 || result < 0)
        return error_errno(err, CODE_IO, "cannot write %s", path);
    return 0;
}

int prometheus_write(const char *path, const char *text, const char *job, const struct metrics *starts,
                     struct error *err)
{
    char buf[2 * METRICS_LINE_SIZE], beside[PATH_MAX + 40];
    int result;

    if (look_at(path) < 0)
        return error_set(err, CODE_IO, "%s is another user's, or no regular file; remove it", path);
    snprintf(buf, sizeof buf, "%.*s", (int)strcspn(text, "\n"), text);
    if (starts->nstarts > 0)
        add_starts(buf, sizeof buf, job, starts);
    for (char *at = buf; (at = strchr(at, '\t'));)
        *at = '\n';
    snprintf(beside, sizeof beside, "%s.tmp", path);
    result = write_file(beside, buf, err);
    if (result == 0 && rename(beside, path) < 0)
        result = error_errno(err, CODE_IO, "cannot rename %s", beside);
    if (result < 0)
        unlink(beside);
    return result;
}

void prometheus_remove(const char *path)
{
    if (look_at(path) > 0)
        unlink(path);
}
