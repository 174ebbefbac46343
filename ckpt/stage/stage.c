/* stage.c - opens and closes a stage, gives saves up, and finds in status.json where each save is. */
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
#include "common/text.h"

static int enter_stage(struct ckpt_stage *stage, const char *path, struct error *err)
{
    struct directory *directory = &stage->directory;
    int lock;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_errno(err, CODE_IO, "%s: cannot make the staging directory", path);
    if (stage_directory_open(directory, path, err) < 0 || stage_mark_format(directory, err) < 0)
        return -1;
    lock = openat(directory->fd, STAGE_LOCK, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0) /* there may be no inode left when the drainer needs it */
        return file_write_failed(directory, STAGE_LOCK, 0, err);
    close(lock);
    stage->users = stage_lock(directory, STAGE_USERS, true);
    return stage->users < 0 ? error_errno(err, CODE_IO, "%s/" STAGE_USERS, path) : 0;
}

int ckpt_stage_earlier(const struct ckpt_stage_config *config, struct ckpt_stage_name **names, size_t *count,
                       struct error *err)
{
    char prefix[4096], path[4096];
    struct ckpt_stage_name found = {0};
    const char *own = prefix + strlen(config->root) + 1, *name;
    struct directory root, stage;
    struct listing listing;
    int known = 0;

    *names = NULL;
    *count = 0;
    if (ckpt_stage_path(prefix, sizeof prefix, config->root, config->job, "", err) < 0 ||
        directory_open(&root, NULL, config->root, err) < 0)
        return -1;
    listing = listing_open(&root);
    while (known >= 0 && (name = listing_next(&listing))) {
        if (strncmp(name, own, strlen(own)) != 0 || strcmp(name + strlen(own), config->run) == 0)
            continue;
        snprintf(found.name, sizeof found.name, "%s", name);
        snprintf(path, sizeof path, "%s/%s", config->root, name);
        if (stage_directory_open(&stage, path, NULL) < 0) /* not this user's, or gone */
            continue;
        known = stage_check_format(&stage, err);
        directory_close(&stage);
        if (known == 0)
            listing_keep(&listing, (void **)names, count, &found, sizeof found);
    }
    if (listing_close(&listing, known < 0 ? NULL : err) < 0)
        known = -1;
    directory_close(&root);
    if (known >= 0)
        return 0;
    free(*names);
    return -1;
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
    stage->directory.fd = stage->users = -1;
    for (int i = 0; i < STAGE_SLOTS_MAPPED; i++)
        stage->slots[i].fd = -1;
    if (ckpt_stage_path(path, sizeof path, config->root, config->job, config->run, err) < 0 ||
        enter_stage(stage, path, err) < 0) {
        ckpt_stage_destroy(stage);
        return NULL;
    }
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
    if (stage->users >= 0)
        close(stage->users);
    directory_close(&stage->directory);
    free(stage->last_part);
    free(stage);
}

int ckpt_stage_drop(struct ckpt_stage *stage, uint64_t step, const char *attempt, const char *why, struct error *err)
{
    struct listing saves = listing_open(&stage->directory);
    struct attempt save;
    struct directory staged;
    int result = 0;

    while (attempt_next(&saves, &save)) {
        if (save.step != step || (attempt && strcmp(save.attempt, attempt) != 0))
            continue;
        if (directory_open(&staged, &stage->directory, save.name, err) < 0) {
            result = errno == ENOENT ? result : -1;
            continue;
        }
        if (stage_mark(&staged, STAGE_DROPPED, *why ? why : DROPPED_SILENTLY, err) < 0)
            result = -1;
        directory_close(&staged);
    }
    return listing_close(&saves, err) < 0 ? -1 : result;
}

bool ckpt_stage_has(const struct ckpt_stage *stage, uint64_t step)
{
    struct listing saves = listing_open(&stage->directory);
    struct attempt save;
    bool found = false;

    while (!found && attempt_next(&saves, &save))
        found = save.step == step;
    listing_close(&saves, NULL);
    return found;
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

/* False if a save is getting on, whatever another waits for. Otherwise *trouble is the oldest with a reason; or its
 * reason is "", if none has one. */
static bool find_trouble(const struct status *status, struct ckpt_save_status *trouble)
{
    trouble->reason[0] = '\0';
    for (size_t i = 0; i < status->count; i++) {
        const struct ckpt_save_status *one = &status->saves[i];

        if (one->state == CKPT_DRAINING && !one->reason[0])
            return false;
        if (one->state < CKPT_COMMITTED && one->reason[0] && (!trouble->reason[0] || one->started < trouble->started))
            *trouble = *one;
    }
    return true;
}

bool ckpt_stage_find_trouble(struct ckpt_stage *stage, struct ckpt_save_status *trouble)
{
    return read_status(stage, NULL) == 0 && find_trouble(&stage->status, trouble) && trouble->reason[0];
}

bool ckpt_stage_stands_still(const char *path, struct ckpt_save_status *trouble)
{
    struct status *status = calloc(1, sizeof *status);
    struct directory stage;
    bool still = true;

    if (status && stage_directory_open(&stage, path, NULL) == 0) {
        still = status_read(status, &stage, NULL) < 0 || find_trouble(status, trouble);
        directory_close(&stage);
    }
    free(status);
    return still;
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
    return !stage_has_saves(&stage->directory);
}
