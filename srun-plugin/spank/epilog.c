#include "srun-plugin/spank/epilog.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"

enum {
    STAGES_MOST = 64, /* of one job: it has one on a node, or a few */
    LEAST_MS = 500,   /* for a stage to be begun */
};

struct epilog_pass {
    const struct epilog *epilog;
    void (*log)(const char *line);
    double deadline;
};

static void log_line(const struct epilog_pass *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void log_line(const struct epilog_pass *run, const char *format, ...)
{
    char line[PATH_MAX + 256];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    run->log(line);
}

static double seconds_left(const struct epilog_pass *run)
{
    return run->deadline - clock_monotonic();
}

/*
 * "muster-<uid>-<job>", and after it nothing or ".NODE.CHECKSUM" (trainer/saver.c), in the characters that a stage's
 * name has (ckpt_stage_path). The directory is everybody's: what else a name may hold would forge lines of slurmd's
 * log.
 */
static bool is_of_id(const struct epilog *epilog, uint32_t job_id, const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    char wanted[64];
    int length = snprintf(wanted, sizeof wanted, "muster-%u-%" PRIu32, (unsigned)epilog->uid, job_id);

    return strncmp(name, wanted, (size_t)length) == 0 && (name[length] == '\0' || name[length] == '.') &&
           name[strspn(name, letters)] == '\0';
}

static bool is_of_job(const struct epilog *epilog, const char *name)
{
    return is_of_id(epilog, epilog->job_id, name) || (epilog->het_job_id && is_of_id(epilog, epilog->het_job_id, name));
}

static void drain_stage(const struct epilog_pass *run, const char *stage)
{
    const struct epilog *epilog = run->epilog;
    struct error err;
    int status;

    if (epilog->trust && epilog->trust(epilog->ckptd, &err) < 0) {
        log_line(run, "%s: not drained: %s", stage, err.text);
        return;
    }
    status = epilog_run(&(struct epilog_run){
        .program = epilog->ckptd, .stage = stage, .uid = epilog->uid, .seconds = seconds_left(run), .log = run->log});
    if (status == EPILOG_NO_PROCESS)
        log_line(run, "%s: not drained: %s", stage, strerror(errno));
    else if (status == EPILOG_NO_PROGRAM)
        log_line(run, "%s: not drained: %s does not start", stage, epilog->ckptd);
    else if (status == EPILOG_NO_USER)
        log_line(run, "%s: not drained: cannot become user %u", stage, (unsigned)epilog->uid);
    else if (status == EPILOG_LEFT)
        log_line(
            run,
            "%s: not all of it was drained: muster-ckptd hangs and cannot be killed; a requeued job goes on with it",
            stage);
    else if (status == EPILOG_KILLED)
        log_line(run, "%s: not all of it was drained: muster-ckptd was killed; a requeued job goes on with it", stage);
    else if (status == CODE_STOPPED) /* muster-ckptd has logged what is left, and why */
        log_line(run, "%s: not all of it was drained; the rest is kept: muster-ckptd --once goes on with it", stage);
    else if (status != 0)
        log_line(run, "%s: not all of it was drained: muster-ckptd ended with %d", stage, status);
    else
        log_line(run, "%s: drained after job %" PRIu32, stage, epilog->job_id);
}

/* Owned by the job's user, and no link. What muster-ckptd then opens, it opens as that user. */
static bool is_stage(const struct epilog_pass *run, DIR *directory, const char *name)
{
    struct stat status;

    return is_of_job(run->epilog, name) && fstatat(dirfd(directory), name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(status.st_mode) && status.st_uid == run->epilog->uid;
}

/* How many stages were drained, of those that there are when `most` may be. */
static int drain_root(const struct epilog_pass *run, const char *root, int most)
{
    DIR *directory = root[0] == '/' ? opendir(root) : NULL;
    char stage[PATH_MAX];
    struct dirent *entry;
    int count = 0;

    if (!directory)
        return 0;
    while ((entry = readdir(directory))) {
        if (!is_stage(run, directory, entry->d_name) ||
            snprintf(stage, sizeof stage, "%s/%s", root, entry->d_name) >= (int)sizeof stage)
            continue;
        if (count == most || seconds_left(run) * 1000 < LEAST_MS) {
            log_line(run, "%s: %s; what is left of job %" PRIu32 " there is not drained", stage,
                     count == most ? "a job has not so many stages" : "no time is left to drain it",
                     run->epilog->job_id);
            break;
        }
        drain_stage(run, stage);
        count++;
    }
    closedir(directory);
    return count;
}

int epilog_drain(const struct epilog *epilog, void (*log)(const char *line))
{
    struct epilog_pass run = {.epilog = epilog, .log = log, .deadline = clock_monotonic() + epilog->seconds};
    char roots[PATH_MAX], *rest = roots, *root;
    int count = 0;

    if (epilog->seconds <= 0 || strlen(epilog->roots) >= sizeof roots)
        return 0;
    strcpy(roots, epilog->roots);
    while ((root = strsep(&rest, ":")))
        count += drain_root(&run, root, STAGES_MOST - count);
    return count;
}
