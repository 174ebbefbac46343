/* reclaim.c - removes saves that could not be drained for long. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/drain/drain_internal.h"

/* The time of target.json; of the directory if that cannot be read. 0 if it must stay. */
static double find_age(const struct drainer *drainer, const struct staged *staged, uint64_t *bytes)
{
    struct directory directory;
    struct contents contents = {0};
    double since = staged->save.started;
    struct stat info;

    if (directory_open(&directory, &drainer->stage, staged->name, NULL) < 0)
        return 0;
    if (since == 0 && fstat(directory.fd, &info) == 0)
        since = (double)info.st_mtim.tv_sec;
    if (staged_contents(&directory, ".", &contents, NULL) < 0)
        since = 0;
    directory_close(&directory);
    *bytes = contents.bytes;
    return since;
}

/* Whether it was removed. */
static bool remove_old(struct drainer *drainer, const struct staged *staged, double before)
{
    const struct staged_save *save = &staged->save;
    uint64_t bytes = 0;
    double since = find_age(drainer, staged, &bytes);

    if (since == 0 || since >= before || file_trash(&drainer->stage, staged->name, NULL) < 0)
        return false;
    drainer_log(drainer, true,
                "step %" PRIu64
                " (%s): failed: staged %.1f hours ago in %s, not committed to %s since; removed, %" PRIu64
                " bytes are lost",
                save->step, save->attempt, (clock_realtime() - since) / 3600, drainer->stage.path,
                save->dir[0] ? save->dir : "any directory", bytes);
    return true;
}

static int reclaim_stage(struct drainer *drainer, double before, struct error *err)
{
    int users = stage_lock(&drainer->stage, STAGE_USERS, false), removed = 0, more, now, left;
    struct staged *saves;
    size_t count;

    if (users < 0)
        return 0;
    file_trash(&drainer->stage, STAGE_SLOTS, NULL);
    do {
        now = 0;
        more = staged_list(&drainer->stage, &saves, &count, err);
        for (size_t i = 0; i < count; i++)
            now += remove_old(drainer, &saves[i], before);
        left = (int)count - now;
        removed += now;
        free(saves);
    } while (more > 0 && now > 0);
    if (more >= 0 && left == 0)
        drainer_remove_stage(drainer);
    close(users);
    return more < 0 ? -1 : removed;
}

int ckpt_reclaim(const char *stage_dir, double seconds, ckpt_drain_log *log, void *log_arg, struct error *err)
{
    const struct ckpt_drain_options options = {.require_unused = true, .log = log, .log_arg = log_arg};
    struct drainer *drainer = drainer_create(&options);
    int result;

    if (!drainer)
        return error_errno(err, CODE_IO, "%s", stage_dir);
    if (drainer_open(drainer, stage_dir, &result, err))
        result = reclaim_stage(drainer, clock_realtime() - seconds, err);
    else if (result > 0)
        result = 0;
    drainer_destroy(drainer);
    return result;
}
