/* drain_reclaim.c - frees the memory of saves that could not be drained for long. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/drain/drain.h"
#include "ckpt/stage/stage_dir.h"
#include "common/clock.h"

struct reclaim {
    struct directory stage;
    double before; /* seconds since 1970: saves that were staged earlier go */
    ckpt_drain_log *log;
    void *log_arg;
    int removed, left;
};

/* The time of target.json; of the directory if no rank has written that file. */
static double time_staged(const struct directory *directory, const struct staged *staged)
{
    struct stat info;

    if (staged->save.started > 0 || fstat(directory->fd, &info) < 0)
        return staged->save.started;
    return (double)info.st_mtim.tv_sec;
}

static bool may_go(const struct reclaim *run, const struct staged *staged, double *since, uint64_t *bytes)
{
    struct directory directory;
    struct contents contents;
    struct error unknown;
    bool may = false;

    if (directory_open(&directory, &run->stage, staged->name, NULL) < 0)
        return false;
    *since = time_staged(&directory, staged);
    if (staged_contents(&directory, ".", &contents, &unknown) == 0 && *since > 0 && *since < run->before)
        may = staged_check_formats(&directory, staged, &unknown) == 0;
    *bytes = contents.bytes;
    directory_close(&directory);
    return may;
}

static void remove_old(struct reclaim *run, const struct staged *staged)
{
    const struct staged_save *save = &staged->save;
    double since;
    uint64_t bytes;
    char line[9216];

    if (!may_go(run, staged, &since, &bytes) || file_trash(&run->stage, staged->name, NULL) < 0) {
        run->left++;
        return;
    }
    run->removed++;
    snprintf(line, sizeof line,
             "step %" PRIu64 " (%s): failed: staged %.1f hours ago in %s, not committed to %s since; removed, %" PRIu64
             " bytes are lost",
             save->step, save->attempt, (clock_realtime() - since) / 3600, run->stage.path,
             save->dir[0] ? save->dir : "any directory", bytes);
    error_tame(line);
    if (run->log)
        run->log(line, true, run->log_arg);
}

static int reclaim_stage(struct reclaim *run, struct error *err)
{
    struct staged *saves;
    size_t count;
    int more, before;

    do {
        before = run->removed;
        run->left = 0;
        more = staged_list(&run->stage, &saves, &count, err);
        for (size_t i = 0; more >= 0 && i < count; i++)
            remove_old(run, &saves[i]);
        free(saves);
    } while (more > 0 && run->removed > before);
    if (more < 0)
        return -1;
    if (run->left == 0) {
        file_remove_all(&run->stage);
        rmdir(run->stage.path);
    }
    return run->removed;
}

int ckpt_reclaim(const char *stage_dir, double seconds, ckpt_drain_log *log, void *log_arg, struct error *err)
{
    struct reclaim run = {.before = clock_realtime() - seconds, .log = log, .log_arg = log_arg};
    int users, lock, result = 0;

    if (stage_directory_open(&run.stage, stage_dir, false, err) < 0)
        return access(stage_dir, F_OK) < 0 ? 0 : -1;
    if (stage_directory_check(&run.stage, err) < 0) {
        directory_close(&run.stage);
        return -1;
    }
    users = stage_lock(&run.stage, STAGE_USERS, false);
    lock = users < 0 ? -1 : stage_lock(&run.stage, STAGE_LOCK, false);
    if (lock >= 0)
        result = reclaim_stage(&run, err);
    if (lock >= 0)
        close(lock);
    if (users >= 0)
        close(users);
    directory_close(&run.stage);
    return result;
}
