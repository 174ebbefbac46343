/* saver_stage.c - copies the rank's shard into its node's stage, and runs the muster-ckptd that drains it. */
#include "trainer/saver_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/thread.h"
#include "trainer/programs.h"

enum { LONG_LIVED = 10 }; /* seconds after the last restart, `restarts` is 0 again */

static int start_ckptd(struct saver_stage *s, struct error *err)
{
    char cap[32], child[32];
    const char *stage = ckpt_stage_directory(s->handle);
    const char *arguments[] = {"--quiet", child, s->cap > 0 ? cap : stage, s->cap > 0 ? stage : NULL, NULL};

    snprintf(cap, sizeof cap, "--cap=%d", s->cap);
    snprintf(child, sizeof child, "--child=%d", (int)getpid());
    return ckptd_start(&s->pid, arguments, -1, STDOUT_FILENO, err);
}

static bool is_running(struct saver_stage *s)
{
    int status;

    if (s->pid != 0 && waitpid(s->pid, &status, WNOHANG) != 0)
        s->pid = 0;
    return s->pid != 0;
}

static bool is_drained(struct saver_stage *s)
{
    return (is_running(s) || ckpt_stage_has_drainer(s->handle)) && s->silent < 3 * SAVER_SILENT;
}

bool saver_stage_has_drainer(struct saver_stage *s)
{
    return s->restarts < SAVER_MOST_RESTARTS || is_drained(s);
}

/* For how long it has not moved, while this process did: a job may be suspended. */
static double count_silent(struct saver_stage *s)
{
    double now = clock_monotonic(), sign = ckpt_stage_updated(s->handle);

    if (sign != s->sign) {
        s->sign = sign;
        s->silent = 0;
        s->kill_at = SAVER_SILENT;
    } else if (s->looked > 0) {
        s->silent += fmin(now - s->looked, SAVER_SILENT / 4.0);
    }
    s->looked = now;
    return s->silent;
}

/* Ours, or one of an earlier run, which has the stage in its command line. */
static void kill_drainer(struct saver_stage *s)
{
    const char *stage = ckpt_stage_directory(s->handle);
    char path[64], words[8192];
    int pid = is_running(s) ? s->pid : saver_stage_is_copying(s) ? 0 : ckpt_stage_drainer(s->handle);
    FILE *file;
    size_t length;

    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    file = pid > 0 ? fopen(path, "re") : NULL;
    length = file ? fread(words, 1, sizeof words, file) : 0;
    if (memmem(words, length, CKPTD, strlen(CKPTD)) && memmem(words, length, stage, strlen(stage)))
        kill(pid, SIGKILL);
    if (file)
        fclose(file);
}

int saver_stage_supervise(struct saver_stage *s, struct error *line)
{
    if (!s->first)
        return 0;
    if (count_silent(s) >= s->kill_at) {
        s->kill_at = s->silent + SAVER_SILENT;
        kill_drainer(s);
        return error_set(line, CODE_IO, CKPTD " made no progress for %.0f s and is restarted", s->silent);
    }
    if (is_drained(s))
        return 0;
    if (clock_monotonic() - s->restarted > LONG_LIVED)
        s->restarts = 0;
    if (s->restarts == SAVER_MOST_RESTARTS)
        return 0;
    s->restarts++;
    s->restarted = clock_monotonic();
    return start_ckptd(s, line) < 0 ? -1 : error_set(line, CODE_IO, CKPTD " had ended and was restarted");
}

/* ---- the stage ---- */

struct saver_stage *saver_stage_open(const struct ckpt_stage_config *config, int cap, struct error *err)
{
    struct saver_stage *s = calloc(1, sizeof *s);

    if (!s) {
        error_set(err, CODE_IO, "out of memory for the stage");
        return NULL;
    }
    s->first = config->first;
    s->cap = cap;
    s->kill_at = SAVER_SILENT;
    s->handle = ckpt_stage_open(config, err);
    if (s->handle && (!s->first || start_ckptd(s, err) == 0))
        return s;
    saver_stage_close(s, 0);
    return NULL;
}

void saver_stage_close(struct saver_stage *s, double seconds)
{
    double end = clock_monotonic() + seconds;
    struct error ignored;

    if (!s)
        return;
    if (s->save)
        saver_stage_wait(s, &ignored);
    ckpt_stage_destroy(s->handle);
    while (is_running(s) && clock_monotonic() < end)
        clock_sleep(0.01);
    free(s);
}

/* ---- the copy ---- */

static void *copy_shard(void *arg)
{
    struct saver_stage *s = arg;

    s->result = ckpt_stage_shard(s->handle, s->save, &s->error);
    atomic_store(&s->done, true);
    return NULL;
}

void saver_stage_copy(struct saver_stage *s, const struct ckpt_save *save, bool in_thread)
{
    s->save = save;
    atomic_store(&s->done, false);
    s->threaded = in_thread && thread_start(&s->thread, copy_shard, s) == 0;
    if (!s->threaded)
        copy_shard(s);
}

bool saver_stage_is_copying(const struct saver_stage *s)
{
    return s && s->save;
}

bool saver_stage_copy_done(const struct saver_stage *s)
{
    return atomic_load(&s->done);
}

int saver_stage_wait(struct saver_stage *s, struct error *err)
{
    if (s->threaded)
        pthread_join(s->thread, NULL);
    s->threaded = false;
    s->save = NULL;
    if (s->result != 0)
        *err = s->error;
    return s->result;
}
