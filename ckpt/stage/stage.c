/* stage.c - opens and closes a stage, gives saves up, and finds in status.json where each save is. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/stage/stage_dir.h"
#include "ckpt/write/attempt.h"
#include "common/clock.h"
#include "common/text.h"

#define POLL_SECONDS  0.02
#define REMOVAL_TRIES 500

/* What an earlier run left must be of a known format: nothing is changed otherwise. */
static int check_formats(const struct directory *stage, struct error *err)
{
    struct staged *saves;
    struct directory directory;
    size_t count;
    int result = 0;

    if (staged_list(stage, &saves, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count && result == 0; i++) {
        if (directory_open(&directory, stage, saves[i].name, NULL) < 0)
            continue;
        result = staged_check_formats(&directory, &saves[i], err);
        directory_close(&directory);
    }
    free(saves);
    return result;
}

/* From now on, what is staged here is of an earlier run. */
static int begin_run(const struct directory *stage, struct error *err)
{
    char random[FILE_NAME_SIZE], name[STAGE_RUN_SIZE];

    if (check_formats(stage, err) < 0)
        return -1;
    file_temporary_name(random, sizeof random, "");
    snprintf(name, sizeof name, "%.16s", random + 1);
    return stage_mark(stage, STAGE_RUN, name, err);
}

/* 0; 1 if a drainer is removing the stage of a job's earlier run: then it is to be made anew; -1. */
static int enter_once(struct ckpt_stage *stage, const char *path, struct error *err)
{
    struct stat info;

    if (stage_directory_open(&stage->directory, path, true, err) < 0)
        return -1;
    /* Before `users` is held: a drainer that finds it held finds this run's name. */
    if (stage->config.first && begin_run(&stage->directory, err) < 0)
        return stage_is_removed(&stage->directory) ? 1 : -1;
    stage->users = stage_lock(&stage->directory, STAGE_USERS, true);
    if (stage->users < 0 && errno != EAGAIN && errno != ENOENT)
        return error_errno(err, CODE_IO, "%s/" STAGE_USERS, stage->directory.path);
    return stage->users >= 0 && fstat(stage->users, &info) == 0 && info.st_nlink > 0 ? 0 : 1;
}

static void leave_stage(struct ckpt_stage *stage)
{
    if (stage->users >= 0)
        close(stage->users);
    stage->users = -1;
    directory_close(&stage->directory);
}

static int enter_stage(struct ckpt_stage *stage, const char *path, struct error *err)
{
    int result = 1, lock;

    for (int tries = 0; tries < REMOVAL_TRIES && (result = enter_once(stage, path, err)) > 0; tries++) {
        leave_stage(stage);
        clock_sleep(POLL_SECONDS);
    }
    if (result != 0)
        return result < 0 ? -1 : error_set(err, CODE_IO, "%s: is being removed", path);
    stage_read_mark(&stage->directory, STAGE_RUN, stage->run, sizeof stage->run);
    if (!stage->config.first)
        return 0;
    lock = openat(stage->directory.fd, STAGE_LOCK, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0) /* there may be no inode left when the drainer needs it */
        return file_write_failed(&stage->directory, STAGE_LOCK, 0, err);
    close(lock);
    /* Of an earlier run: saves that it has left keep their data under their own names. */
    return file_exists(&stage->directory, STAGE_SLOTS) ? file_trash(&stage->directory, STAGE_SLOTS, err) : 0;
}

struct ckpt_stage *ckpt_stage_open(const struct ckpt_stage_config *config, struct error *err)
{
    struct ckpt_stage *stage = calloc(1, sizeof *stage);
    char path[4096];

    if (!stage) {
        error_errno(err, CODE_IO, "a stage");
        return NULL;
    }
    stage->config = *config;
    stage->config.max_staged = config->max_staged > 0 ? config->max_staged : 2;
    stage->config.threads = config->threads > 0 ? config->threads : 2;
    stage->config.local = config->local > 0 ? config->local : 1;
    stage->directory.fd = stage->users = -1;
    for (int i = 0; i < STAGE_SLOTS_MAPPED; i++)
        stage->slots[i].fd = -1;
    if (ckpt_stage_path(path, sizeof path, config->root, config->job, err) < 0 || enter_stage(stage, path, err) < 0) {
        ckpt_stage_destroy(stage);
        return NULL;
    }
    status_read(&stage->status, &stage->directory, NULL);
    for (size_t i = 0; i < stage->status.count; i++)
        stage->seen = stage->status.saves[i].serial > stage->seen ? stage->status.saves[i].serial : stage->seen;
    return stage;
}

const char *ckpt_stage_directory(const struct ckpt_stage *stage)
{
    return stage->directory.path;
}

void ckpt_stage_destroy(struct ckpt_stage *stage)
{
    if (!stage)
        return;
    for (int i = 0; i < STAGE_SLOTS_MAPPED; i++)
        stage_unmap(&stage->slots[i]);
    leave_stage(stage);
    free(stage->last_part);
    free(stage);
}

int ckpt_stage_drop(struct ckpt_stage *stage, uint64_t step, const char *attempt, const char *why, struct error *err)
{
    char text[256];
    struct attempt *attempts;
    struct directory staged;
    size_t count;
    int result = 0;

    snprintf(text, sizeof text, "%s %s", stage->run, why);
    if (attempt_list(&stage->directory, &attempts, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (attempts[i].step != step || (attempt && strcmp(attempts[i].attempt, attempt) != 0))
            continue;
        if (directory_open(&staged, &stage->directory, attempts[i].name, err) < 0) {
            result = errno == ENOENT ? result : -1;
            continue;
        }
        if (stage_mark(&staged, STAGE_DROPPED, text, err) < 0)
            result = -1;
        directory_close(&staged);
    }
    free(attempts);
    return result;
}

bool ckpt_stage_has(const struct ckpt_stage *stage, uint64_t step)
{
    struct attempt *attempts;
    size_t count;
    bool found = false;

    if (attempt_list(&stage->directory, &attempts, &count, NULL) < 0)
        return false;
    for (size_t i = 0; i < count; i++)
        found |= attempts[i].step == step;
    free(attempts);
    return found;
}

bool ckpt_stage_has_drainer(struct ckpt_stage *stage)
{
    return stage_is_locked(&stage->directory, STAGE_LOCK);
}

/* ---- what ranks read in status.json ------------------------------------------------------------------------------ */

/* The file is renamed into place: another inode or time means another status. */
static int read_status(struct ckpt_stage *stage, struct error *err)
{
    struct stat info;

    if (fstatat(stage->directory.fd, STATUS_NAME, &info, AT_SYMLINK_NOFOLLOW) < 0 ||
        (info.st_ino == stage->status_inode && info.st_mtim.tv_sec == stage->status_time.tv_sec &&
         info.st_mtim.tv_nsec == stage->status_time.tv_nsec))
        return 0;
    if (status_read(&stage->status, &stage->directory, err) < 0)
        return -1;
    stage->status_inode = info.st_ino;
    stage->status_time = info.st_mtim;
    return 0;
}

int ckpt_stage_poll(struct ckpt_stage *stage, struct ckpt_save_status *ended, struct error *err)
{
    const struct ckpt_save_status *next = NULL;

    if (read_status(stage, err) < 0)
        return -1;
    for (size_t i = 0; i < stage->status.count; i++) {
        const struct ckpt_save_status *one = &stage->status.saves[i];

        if (one->serial > stage->seen && (!next || one->serial < next->serial))
            next = one;
    }
    if (!next)
        return 0;
    stage->seen = next->serial;
    *ended = *next;
    return 1;
}

bool ckpt_stage_find_trouble(struct ckpt_stage *stage, struct ckpt_save_status *trouble)
{
    const struct ckpt_save_status *oldest = NULL;

    if (read_status(stage, NULL) < 0)
        return false;
    for (size_t i = 0; i < stage->status.count; i++) {
        const struct ckpt_save_status *one = &stage->status.saves[i];

        if (one->state == CKPT_DRAINING && !one->reason[0])
            return false; /* this one is getting on, whatever another waits for */
        if (one->state < CKPT_UNKNOWN && one->reason[0] && (!oldest || one->started < oldest->started))
            oldest = one;
    }
    if (oldest)
        *trouble = *oldest;
    return oldest;
}

bool ckpt_stage_find_oldest(struct ckpt_stage *stage, uint64_t step, bool failing, bool any,
                            struct ckpt_save_status *found)
{
    const struct ckpt_save_status *oldest = NULL, *at_work = NULL;

    if (read_status(stage, NULL) < 0)
        return false;
    for (size_t i = 0; i < stage->status.count; i++) {
        const struct ckpt_save_status *one = &stage->status.saves[i];

        if (failing && one->state == CKPT_DRAINING)
            return false;
        if (one->state >= CKPT_DRAINED || one->step >= step)
            continue;
        if (one->state == CKPT_DRAINING || one->state == CKPT_HANGING)
            at_work = one;
        else if ((!failing || one->reason[0]) && (!oldest || one->started < oldest->started))
            oldest = one;
    }
    if (!oldest && any)
        oldest = at_work;
    if (oldest)
        *found = *oldest;
    return oldest;
}

double ckpt_stage_updated(const struct ckpt_stage *stage)
{
    return stage_signed_at(&stage->directory);
}

int ckpt_stage_drainer(struct ckpt_stage *stage)
{
    return read_status(stage, NULL) < 0 ? 0 : stage->status.pid;
}

void ckpt_stage_kill_drainer(const char *dir, int pid)
{
    char path[64], *words;
    size_t length = 0;

    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    words = pid > 0 ? text_read_file(path, 8192, &length, NULL) : NULL;
    if (words && memmem(words, length, "muster-ckptd", 12) && memmem(words, length, dir, strlen(dir)))
        kill(pid, SIGKILL);
    free(words);
}

bool ckpt_stage_is_empty(struct ckpt_stage *stage)
{
    const struct ckpt_save_status *entry;
    struct attempt *attempts;
    size_t count, left = 0;

    if (attempt_list(&stage->directory, &attempts, &count, NULL) < 0)
        return false;
    read_status(stage, NULL);
    for (size_t i = 0; i < count; i++) {
        entry = status_find(&stage->status, attempts[i].step, attempts[i].attempt);
        left += !entry || entry->state != CKPT_UNKNOWN;
    }
    free(attempts);
    return left == 0;
}
