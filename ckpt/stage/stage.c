/* stage.c - opens and closes a stage, and reports how its saves ended. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/stage/stage_internal.h"
#include "ckpt/write/attempt.h"
#include "common/clock.h"

#define POLL_SECONDS  0.02
#define REMOVAL_TRIES 500

static int adopt_save(const struct directory *directory, const struct staged *staged, struct error *err)
{
    int local = staged->save.local;
    struct contents contents;

    if (staged_contents(directory, ".", &contents, err) < 0)
        return -1;
    if (local == 0 || contents.staged + contents.drained < local)
        return stage_mark(directory, STAGE_DROPPED, err);
    unlinkat(directory->fd, STAGE_REPLACED, 0); /* the newer save that needed its memory may not exist */
    return stage_mark(directory, STAGE_ADOPTED, err);
}

/*
 * What an earlier run of the job left: complete saves are to be drained as they are. No rank would complete the
 * others. Nothing is marked if another release of muster has staged a file of an unknown format.
 */
static int adopt_stage(const struct directory *stage, struct error *err)
{
    static int (*const passes[])(const struct directory *, const struct staged *,
                                 struct error *) = {staged_check_formats, adopt_save};
    struct staged *saves;
    struct directory directory;
    size_t count;
    int result = 0;

    if (staged_list(stage, &saves, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < 2 * count && result == 0; i++) {
        const struct staged *staged = &saves[i % count];

        if (directory_open(&directory, stage, staged->name, NULL) < 0)
            continue;
        result = passes[i / count](&directory, staged, err);
        directory_close(&directory);
    }
    free(saves);
    if (result == 0 && file_exists(stage, STAGE_FREE)) /* perhaps files of shards that no rank of this node has now */
        result = file_trash(stage, STAGE_FREE, err);
    return result;
}

/* A drainer may be removing the stage of a job's earlier run: then it is made anew. */
static int enter_stage(struct ckpt_stage *stage, const char *path, struct error *err)
{
    struct stat info;

    for (int tries = 0; tries < REMOVAL_TRIES; tries++) {
        if (stage_directory_open(&stage->directory, path, true, err) < 0)
            return -1;
        stage->users = stage_lock(&stage->directory, STAGE_USERS, true);
        if (stage->users < 0 && errno != EAGAIN && errno != ENOENT)
            return error_errno(err, CODE_IO, "%s/" STAGE_USERS, stage->directory.path);
        if (stage->users >= 0 && fstat(stage->users, &info) == 0 && info.st_nlink > 0)
            return 0;
        if (stage->users >= 0)
            close(stage->users);
        stage->users = -1;
        directory_close(&stage->directory);
        clock_sleep(POLL_SECONDS);
    }
    return error_set(err, CODE_IO, "%s: is being removed", path);
}

static int prepare_stage(struct ckpt_stage *stage, struct error *err)
{
    if (stage->config.adopt && adopt_stage(&stage->directory, err) < 0)
        return -1;
    if (unlinkat(stage->directory.fd, STAGE_CLOSED, 0) < 0 && errno != ENOENT)
        return error_errno(err, CODE_IO, "%s/" STAGE_CLOSED, stage->directory.path);
    if (stage_mark(&stage->directory, STAGE_LOCK, err) < 0) /* there may be no inode left when the drainer needs it */
        return -1;
    if (stage->config.dir && access(stage->config.dir, F_OK) == 0 &&
        stage_mark(&stage->directory, STAGE_TARGET_EXISTED, err) < 0)
        return -1;
    if (status_read(stage->status, &stage->directory, NULL) == 0)
        stage->seen = status_serial(stage->status);
    return 0;
}

struct ckpt_stage *ckpt_stage_open(const struct ckpt_stage_config *config, struct error *err)
{
    struct ckpt_stage *stage = calloc(1, sizeof *stage);
    char path[4096];

    if (!stage || !(stage->status = calloc(1, sizeof *stage->status))) {
        error_errno(err, CODE_IO, "a stage");
        free(stage);
        return NULL;
    }
    stage->config = *config;
    stage->config.max_staged = config->max_staged > 0 ? config->max_staged : 2;
    stage->config.threads = config->threads > 0 ? config->threads : 2;
    stage->config.local = config->local > 0 ? config->local : 1;
    stage->directory.fd = stage->users = -1;
    for (int i = 0; i < STAGE_MAPPINGS; i++)
        stage->mappings[i].fd = -1;
    if (ckpt_stage_path(path, sizeof path, config->root, config->job, err) == 0 && enter_stage(stage, path, err) == 0 &&
        prepare_stage(stage, err) == 0)
        return stage;
    ckpt_stage_destroy(stage);
    return NULL;
}

const char *ckpt_stage_directory(const struct ckpt_stage *stage)
{
    return stage->directory.path;
}

void ckpt_stage_destroy(struct ckpt_stage *stage)
{
    if (!stage)
        return;
    for (int i = 0; i < STAGE_MAPPINGS; i++) {
        if (stage->mappings[i].data)
            munmap(stage->mappings[i].data, stage->mappings[i].bytes);
        if (stage->mappings[i].fd >= 0)
            close(stage->mappings[i].fd);
    }
    if (stage->users >= 0)
        close(stage->users);
    directory_close(&stage->directory);
    free(stage->last_part);
    free(stage->status);
    free(stage);
}

int ckpt_stage_mark_closed(struct ckpt_stage *stage, struct error *err)
{
    return stage_mark(&stage->directory, STAGE_CLOSED, err);
}

static int mark_save(const struct ckpt_stage *stage, uint64_t step, const char *attempt, const char *mark,
                     struct error *err)
{
    char name[FILE_NAME_SIZE];
    struct directory staged;
    int result;

    name_attempt(name, ATTEMPT_PARTIAL, step, attempt);
    if (directory_open(&staged, &stage->directory, name, err) < 0)
        return errno == ENOENT ? 0 : -1;
    result = stage_mark(&staged, mark, err);
    directory_close(&staged);
    return result;
}

int ckpt_stage_drop(struct ckpt_stage *stage, uint64_t step, const char *attempt, struct error *err)
{
    return mark_save(stage, step, attempt, STAGE_DROPPED, err);
}

/* 1 if there is a save of that step; with `mark` each gets that mark. */
static int visit_step(const struct ckpt_stage *stage, uint64_t step, const char *mark, struct error *err)
{
    struct attempt *attempts;
    size_t count;
    int result = 0;

    if (attempt_list(&stage->directory, &attempts, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count && result >= 0; i++)
        if (attempts[i].step == step)
            result = !mark || mark_save(stage, step, attempts[i].attempt, mark, err) == 0 ? 1 : -1;
    free(attempts);
    return result;
}

int ckpt_stage_replace(struct ckpt_stage *stage, uint64_t step, struct error *err)
{
    return visit_step(stage, step, STAGE_REPLACED, err) < 0 ? -1 : 0;
}

bool ckpt_stage_has(const struct ckpt_stage *stage, uint64_t step)
{
    return visit_step(stage, step, NULL, NULL) > 0;
}

bool ckpt_stage_has_drainer(struct ckpt_stage *stage)
{
    return stage_is_locked(&stage->directory, STAGE_LOCK);
}

/* The file is renamed into place: another inode or time means another status. */
static int read_status(struct ckpt_stage *stage, struct error *err)
{
    struct stat info;

    if (fstatat(stage->directory.fd, STATUS_NAME, &info, AT_SYMLINK_NOFOLLOW) < 0 ||
        (info.st_ino == stage->status_inode && info.st_mtim.tv_sec == stage->status_time.tv_sec &&
         info.st_mtim.tv_nsec == stage->status_time.tv_nsec))
        return 0;
    if (status_read(stage->status, &stage->directory, err) < 0)
        return -1;
    stage->status_inode = info.st_ino;
    stage->status_time = info.st_mtim;
    return 0;
}

int ckpt_stage_poll(struct ckpt_stage *stage, struct ckpt_stage_news *news, struct error *err)
{
    const struct status_save *next = NULL;

    if (read_status(stage, err) < 0)
        return -1;
    for (size_t i = 0; i < stage->status->count; i++) {
        const struct status_save *one = &stage->status->saves[i];

        if (one->serial > stage->seen && (!next || one->serial < next->serial))
            next = one;
    }
    if (!next)
        return 0;
    stage->seen = next->serial;
    memset(news, 0, sizeof *news);
    news->step = next->step;
    memcpy(news->attempt, next->attempt, sizeof news->attempt);
    news->outcome = next->state == STATUS_COMMITTED    ? CKPT_COMMITTED
                    : next->state == STATUS_SUPERSEDED ? CKPT_SUPERSEDED
                                                       : CKPT_FAILED;
    news->seconds = next->ended - next->started;
    news->newest = next->newest;
    snprintf(news->reason, sizeof news->reason, "%s", next->reason);
    return 1;
}

static void describe_entry(struct ckpt_stage_trouble *trouble, const struct status_save *entry)
{
    *trouble = (struct ckpt_stage_trouble){.step = entry->step, .draining = entry->state == STATUS_DRAINING};
    memcpy(trouble->reason, entry->reason, sizeof trouble->reason);
}

bool ckpt_stage_find_trouble(struct ckpt_stage *stage, struct ckpt_stage_trouble *trouble)
{
    const struct status_save *oldest = NULL;

    if (read_status(stage, NULL) < 0)
        return false;
    for (size_t i = 0; i < stage->status->count; i++) {
        const struct status_save *one = &stage->status->saves[i];

        if (one->serial == 0 && one->state == STATUS_DRAINING && !one->reason[0])
            return false; /* this one is getting on, whatever another waits for */
        if (one->serial == 0 && one->reason[0] && one->state != STATUS_UNKNOWN &&
            (!oldest || one->started < oldest->started))
            oldest = one;
    }
    if (oldest)
        describe_entry(trouble, oldest);
    return oldest;
}

bool ckpt_stage_find_oldest(struct ckpt_stage *stage, uint64_t step, bool failing, bool any,
                            struct ckpt_stage_trouble *found)
{
    const struct status_save *oldest = NULL, *at_work = NULL;

    if (read_status(stage, NULL) < 0)
        return false;
    for (size_t i = 0; i < stage->status->count; i++) {
        const struct status_save *one = &stage->status->saves[i];

        if (one->serial > 0 || one->state >= STATUS_DRAINED)
            continue;
        if (failing && one->state == STATUS_DRAINING)
            return false;
        if (one->step >= step)
            continue;
        if (one->state == STATUS_DRAINING || one->state == STATUS_HANGING)
            at_work = one;
        else if ((!failing || one->reason[0]) && (!oldest || one->started < oldest->started))
            oldest = one;
    }
    if (!oldest && any)
        oldest = at_work;
    if (oldest)
        describe_entry(found, oldest);
    return oldest;
}

double ckpt_stage_updated(const struct ckpt_stage *stage)
{
    return stage_signed_at(&stage->directory);
}

int ckpt_stage_drainer(struct ckpt_stage *stage)
{
    return read_status(stage, NULL) < 0 ? 0 : stage->status->pid;
}

bool ckpt_stage_target_existed(const struct ckpt_stage *stage)
{
    return file_exists(&stage->directory, STAGE_TARGET_EXISTED);
}

bool ckpt_stage_is_empty(struct ckpt_stage *stage)
{
    const struct status_save *entry;
    struct attempt *attempts;
    size_t count, left = 0;

    if (attempt_list(&stage->directory, &attempts, &count, NULL) < 0)
        return false;
    read_status(stage, NULL);
    for (size_t i = 0; i < count; i++) {
        entry = status_find(stage->status, attempts[i].step, attempts[i].attempt);
        left += !entry || entry->state != STATUS_UNKNOWN;
    }
    free(attempts);
    return left == 0;
}
