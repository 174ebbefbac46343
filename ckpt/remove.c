/* remove.c - ckpt_prune and ckpt_remove: what is no longer wanted, but never the last checkpoint that is whole. */
#include "config.h"

#include "ckpt/attempt.h"
#include "ckpt/file.h"
#include "ckpt/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STALE_SECONDS (24 * 60 * 60)

static bool opens(const char *dir, uint64_t step)
{
    char path[4096];
    struct ckpt *ckpt;

    ckpt_step_path(path, sizeof path, dir, step);
    ckpt = ckpt_open(path, NULL);
    ckpt_close(ckpt);
    return ckpt != NULL;
}

/* One of an unknown form stays, which is no failure. */
static int trash_step(const struct directory *directory, uint64_t step, struct error *err)
{
    char name[LAYOUT_NAME_SIZE];

    layout_step_name(name, step);
    return attempt_check_forms_in(directory, name, NULL) < 0 ? 0 : file_trash(directory, name, err);
}

/* What a process left that died in ckpt_probe, or while it wrote `latest`; a day later nobody is at it any more. */
static int trash_stale(const char *name, void *arg)
{
    const struct directory *directory = arg;
    size_t length = strlen(name);
    struct stat info;

    if ((strncmp(name, "probe.", 6) == 0 || strncmp(name, "latest.", 7) == 0) && length > 4 &&
        strcmp(name + length - 4, ".tmp") == 0 && fstatat(directory->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        info.st_mtime + STALE_SECONDS < time(NULL))
        file_trash(directory, name, NULL);
    return 0;
}

/* Whether a checkpoint beyond the newest `keep` stays because of its step. */
static bool is_kept(uint64_t step, uint64_t keep_every)
{
    return keep_every > 0 && step % keep_every == 0;
}

/* What another user owns may have to stay; that keeps nothing else from going. *err is of the first. */
static int trash_next(const struct directory *directory, uint64_t step, int failed, struct error *err)
{
    return trash_step(directory, step, failed ? NULL : err) < 0 ? -1 : failed;
}

int ckpt_prune(const char *dir, int keep, uint64_t keep_every, struct error *err)
{
    struct directory directory;
    uint64_t *steps, newest = 0;
    size_t count;
    int whole = 0, failed = 0, result = -1;

    if (ckpt_list(dir, &steps, &count, err) < 0)
        return -1;
    if (count == 0) {
        free(steps);
        return 0;
    }
    if (directory_open(&directory, NULL, dir, err) < 0)
        goto out;
    directory_each(&directory, trash_stale, &directory, NULL); /* small: not worth failing for */
    file_empty_trash(&directory);
    for (size_t i = 0; i < count && (whole == 0 || keep > 0); i++) {
        if (keep > 0 && whole == keep) {
            if (!is_kept(steps[i], keep_every))
                failed = trash_next(&directory, steps[i], failed, err);
        } else if (opens(dir, steps[i])) {
            if (whole++ == 0)
                newest = steps[i];
        }
    }
    result = whole > 0 ? attempt_clear_older(&directory, newest, failed ? NULL : err) : 0;
out:
    directory_close(&directory);
    free(steps);
    return failed ? -1 : result;
}

/* Whether some other checkpoint of the directory opens. */
static int another_opens(const char *dir, uint64_t step, struct error *err)
{
    uint64_t *steps;
    size_t count;
    int found = 0;

    if (ckpt_list(dir, &steps, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count && !found; i++)
        found = steps[i] != step && opens(dir, steps[i]);
    free(steps);
    return found;
}

int ckpt_remove(const char *dir, uint64_t step, bool even_last, struct error *err)
{
    struct directory directory;
    char name[LAYOUT_NAME_SIZE];
    int another, result = -1;

    layout_step_name(name, step);
    if (directory_open(&directory, NULL, dir, err) < 0)
        return -1;
    if (faccessat(directory.fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
        error_errno(err, errno == ENOENT ? CODE_DATA : CODE_IO, "%s/%s", dir, name);
        goto out;
    }
    if (attempt_check_forms_in(&directory, name, err) < 0)
        goto out;
    another = even_last || !opens(dir, step) ? 1 : another_opens(dir, step, err);
    if (another == 0)
        error_set(err, CODE_USAGE, "%s/%s is the last whole checkpoint of its directory; --force removes even that",
                  dir, name);
    else if (another > 0)
        result = file_trash(&directory, name, err);
out:
    directory_close(&directory);
    return result;
}
