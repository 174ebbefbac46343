/* check.c - muster-train --check: refuses what the first seconds of a run would refuse, as far as this node sees it. */
#include <errno.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/models/units.h"
#include "common/job_data.h"
#include "trainer/data/blend.h"
#include "trainer/run.h"
#include "trainer/train.h"

enum { LOOK_SECONDS = 5, SAMPLES = 16 };

/* ---- the looks: CODE_IO means that this node cannot see something; any other code, that the job is wrong ---- */

/* A data set may be missing on a login node: CODE_IO, where engine_open_sets would call its prefix wrong. */
static int find_sets(const char *key, const char *value, struct error *err)
{
    struct job_data data;
    char path[JOB_PATH_SIZE + 8];

    if (job_data_parse(&data, value, err) < 0)
        return -1;
    for (int i = 0; i < data.count; i++)
        for (int k = 0; k < 2; k++) {
            snprintf(path, sizeof path, "%s.%s", data.sets[i].prefix, k ? "bin" : "idx");
            if (access(path, R_OK) < 0)
                return error_errno(err, CODE_IO, "%s: %s", key, path);
        }
    return 0;
}

static int look_at_data(struct run *run, struct error *err)
{
    const struct job *job = run->job;
    long count = job->batch.global_batch < SAMPLES ? job->batch.global_batch : SAMPLES;
    struct batch *batch;
    int result;

    if (find_sets("data.train", job->data.train, err) < 0 || find_sets("data.valid", job->data.valid, err) < 0 ||
        engine_open_sets(run->engine, err) < 0 || run_tokenizer_check(run, err) < 0)
        return -1;
    batch = batch_create(&job->model, job->data.reset == RESET_DOCUMENT, count, err);
    result = batch ? batch_read(batch, run->engine->train, 0, count, err) : -1;
    batch_destroy(batch);
    return result;
}

static int look_at_checkpoint(struct run *run, struct error *err)
{
    const char *const paths[] = {run->job->checkpoint.load, run->job->checkpoint.init};
    struct engine *e = run->engine;
    struct error ignored;

    for (int i = 0; i < 2; i++)
        if (paths[i][0] && access(paths[i], F_OK) < 0)
            return error_errno(err, CODE_IO, "checkpoint.%s: %s", i ? "init" : "load", paths[i]);
    if (engine_open_sets(e, &ignored) < 0)
        e->train = e->valid = NULL;
    e->units = units_create_whole(&run->job->model, err);
    e->world = e->units ? comm_alone_create(err) : NULL;
    return e->world ? run_restore(run, err) : -1;
}

static int look_above(const char *key, const char *path, struct error *err)
{
    char copy[JOB_PATH_SIZE], above[JOB_PATH_SIZE + 4];

    snprintf(above, sizeof above, "%s/", dirname(strcpy(copy, path)));
    if (path[0] && access(path, W_OK) < 0 && access(above, W_OK | X_OK) < 0)
        return error_errno(err, CODE_IO, "%s: cannot write to %s", key, above);
    return 0;
}

/* A run makes its file of metrics and its directory of events in directories that exist. It makes checkpoint.dir with
 * all directories above it. */
static int look_at_paths(struct run *run, struct error *err)
{
    char above[JOB_PATH_SIZE + 4], dir[JOB_PATH_SIZE + 4];

    snprintf(above, sizeof above, "%s", run->job->checkpoint.dir);
    while (above[0] && access(above, F_OK) < 0 && errno == ENOENT)
        snprintf(above, sizeof above, "%s", dirname(strcpy(dir, above)));
    strcat(above, above[0] ? "/" : ""); /* with a slash, a file is no directory */
    if (above[0] && access(above, W_OK | X_OK) < 0)
        return error_errno(err, CODE_IO, "checkpoint.dir: cannot write to %s", above);
    if (look_above("report.metrics", run->job->report.metrics, err) < 0)
        return -1;
    return look_above("report.tensorboard", run->job->report.tensorboard, err);
}

/* ---- each look is in a child process, which may wait for a file system for ever ---- */

static void answer_look(int (*look)(struct run *, struct error *), const struct job *job, int to)
{
    struct engine engine = {.job = job};
    struct run run = {.job = job, .engine = &engine}; /* no leader: the run's log is silent */
    struct error err = {.code = CODE_OK};

    if (look(&run, &err) == 0)
        err.code = CODE_OK;
    fflush(stdout);
    _exit(write(to, &err, sizeof err) == (ssize_t)sizeof err ? 0 : 1);
}

static void take_look(int (*look)(struct run *, struct error *), const char *at, const struct job *job,
                      struct error *err)
{
    int ends[2];
    pid_t child;

    error_set(err, CODE_IO, "%s not looked at: no answer within %d s", at, LOOK_SECONDS);
    fflush(stdout);
    if (pipe(ends) < 0)
        return;
    child = fork();
    if (child == 0)
        answer_look(look, job, ends[1]);
    close(ends[1]);
    if (poll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, LOOK_SECONDS * 1000) > 0 &&
        read(ends[0], err, sizeof *err) != (ssize_t)sizeof *err)
        error_set(err, CODE_INTERNAL, "%s: the look ended without an answer", at);
    close(ends[0]);
    if (child > 0)
        kill(child, SIGKILL); /* one that waits for a file system ends when that answers */
}

static int look_at_kill_file(struct run *run, struct error *err)
{
    run->leader = true; /* only rank 0 of a run looks */
    return run_kill_file_start(run, err);
}

int check_job_files(const struct job *job, struct error *err)
{
    static const struct {
        const char *at;
        int (*look)(struct run *, struct error *);
    } looks[] = {
        {"report.kill_file", look_at_kill_file},
        {"data.train and data.valid", look_at_data},
        {"checkpoint.dir, load and init", look_at_checkpoint},
        {"checkpoint.dir, report.metrics and tensorboard", look_at_paths},
    };
    struct job here = *job;
    char *paths[] = {here.checkpoint.dir, here.checkpoint.load,    here.checkpoint.init,
                     here.report.metrics, here.report.tensorboard, here.report.kill_file};

    if (job_expand_paths(&here, err) < 0)
        fprintf(stderr, "muster-train: warning: not looked at, outside of that job: %s\n", err->text);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strchr(paths[i], '%'))
            paths[i][0] = '\0';
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        take_look(looks[i].look, looks[i].at, &here, err);
        if (err->code == CODE_IO) {
            fprintf(stderr, "muster-train: warning: this node cannot check all: %s\n", err->text);
        } else if (err->code != CODE_OK) {
            if (err->code == CODE_DATA) /* job and data, or checkpoint, do not fit each other */
                err->code = CODE_CONFIG;
            return -1;
        }
    }
    return 0;
}
