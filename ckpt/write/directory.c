/* directory.c - a directory of checkpoints: lists, probes, prunes and removes, but never the last whole checkpoint. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/write/attempt.h"
#include "common/text.h"

static int newest_first(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a < b) - (a > b);
}

int ckpt_list(const char *dir, uint64_t **steps, size_t *count, struct error *err)
{
    struct directory directory;
    struct listing listing;
    const char *name;
    uint64_t step;
    int result;

    *steps = NULL;
    *count = 0;
    if (directory_open(&directory, NULL, dir, err) < 0)
        return errno == ENOENT ? 0 : -1;
    listing = listing_open(&directory);
    while ((name = listing_next(&listing)))
        if (name_parse_step(name, &step))
            listing_keep(&listing, (void **)steps, count, &step, sizeof step);
    result = listing_close(&listing, err);
    directory_close(&directory);
    if (*count)
        qsort(*steps, *count, sizeof step, newest_first);
    return result;
}

bool ckpt_find_step_path(char *dir, size_t size, uint64_t *step, const char *path)
{
    char real[PATH_MAX];

    return ckpt_split_step_path(dir, size, step, path) ||
           (realpath(path, real) && ckpt_split_step_path(dir, size, step, real));
}

void ckpt_tokenizer_path(char *folder, size_t size, const char *path)
{
    char dir[4096];
    uint64_t step;

    snprintf(folder, size, "%s/tokenizer", ckpt_find_step_path(dir, sizeof dir, &step, path) ? dir : path);
}

/* Does the same as a save, with a file of one byte. */
static int try_save(const struct directory *parent, const char *from, const char *to, struct error *err)
{
    struct directory inside;
    int result = -1;

    if (mkdirat(parent->fd, from, 0777) < 0)
        return file_write_failed(parent, from, 0, err);
    if (directory_open_made(&inside, parent, from, err) < 0)
        return -1;
    if (file_write(&inside, "probe", "", 1, err) == 0 && directory_sync(&inside, err) == 0)
        result = renameat(parent->fd, from, parent->fd, to) < 0
                     ? error_errno(err, CODE_IO, "%s/%s: cannot rename to %s", parent->path, from, to)
                     : directory_sync(parent, err);
    if (unlinkat(inside.fd, "probe", 0) < 0 && result == 0)
        result = error_errno(err, CODE_IO, "%s/%s/probe: cannot remove", parent->path, to);
    directory_close(&inside);
    return result;
}

int ckpt_probe(const char *dir, struct error *err)
{
    char from[FILE_NAME_SIZE], to[FILE_NAME_SIZE];
    struct directory directory;
    int result;

    if (directory_make_path(dir, err) < 0 || directory_open(&directory, NULL, dir, err) < 0)
        return -1;
    file_temporary_name(from, sizeof from, "probe");
    file_temporary_name(to, sizeof to, "probe");
    result = try_save(&directory, from, to, err);
    unlinkat(directory.fd, from, AT_REMOVEDIR);
    if (unlinkat(directory.fd, to, AT_REMOVEDIR) < 0 && result == 0)
        result = error_errno(err, CODE_IO, "%s/%s: cannot remove", dir, to);
    directory_close(&directory);
    return result;
}

/* Renaming onto a directory that is not empty fails, so nothing that was set aside before is lost. */
int ckpt_set_aside(const char *dir, uint64_t step, struct error *err)
{
    char name[FILE_NAME_SIZE], aside[FILE_NAME_SIZE + 32];
    struct directory directory;
    int result = -1;

    if (directory_open(&directory, NULL, dir, err) < 0)
        return -1;
    name_step(name, step);
    snprintf(aside, sizeof aside, "%s.broken", name);
    for (int k = 2; k < 1000 && (result = renameat(directory.fd, name, directory.fd, aside)) < 0; k++) {
        if (errno != ENOTEMPTY && errno != EEXIST)
            break;
        snprintf(aside, sizeof aside, "%s.broken-%d", name, k);
    }
    if (result < 0)
        error_errno(err, CODE_IO, "%s/%s: cannot rename to %s", dir, name, aside);
    directory_close(&directory);
    return result;
}

/* ---- removal ----------------------------------------------------------------------------------------------------- */

#define STALE_SECONDS (24 * 60 * 60)

/* 1 if ckpt_open accepts it; 0 if it is broken or unknown; -1 if that cannot be found out. */
static int is_whole(const char *dir, uint64_t step, struct error *err)
{
    char path[4096];
    struct error why = {0};
    struct ckpt *ckpt;

    ckpt_step_path(path, sizeof path, dir, step);
    ckpt = ckpt_open(path, &why);
    ckpt_close(ckpt);
    if (ckpt || why.code == CODE_DATA || why.code == CODE_CONFIG)
        return ckpt != NULL;
    if (err)
        *err = why;
    return -1;
}

/* Removes what processes left that died in ckpt_probe or while they wrote `latest`, a day later. */
static void trash_stale(const struct directory *directory)
{
    struct listing listing = listing_open(directory);
    const char *name;
    struct stat info;

    while ((name = listing_next(&listing)))
        if ((strncmp(name, "probe.", 6) == 0 || strncmp(name, "latest.", 7) == 0) && text_ends_with(name, ".tmp") &&
            fstatat(directory->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_mtime + STALE_SECONDS < time(NULL))
            file_trash(directory, name, NULL);
    listing_close(&listing, NULL);
}

/*
 * Whether steps[i] stays for good. In each interval of keep_every steps, the oldest checkpoint that is whole stays. One
 * that is the last of its interval stays without being opened. Call this from the oldest step to the newest. *kept: the
 * last interval of which a checkpoint stays.
 */
static bool is_milestone(const char *dir, const uint64_t *steps, size_t i, size_t first, uint64_t keep_every,
                         uint64_t *kept)
{
    uint64_t interval = keep_every ? steps[i] / keep_every : 0;
    int whole = 1;

    if (keep_every == 0 || (interval == 0 && steps[i] > 0) || *kept == interval)
        return false;
    if (i > first && steps[i - 1] / keep_every == interval)
        whole = is_whole(dir, steps[i], NULL);
    if (whole > 0)
        *kept = interval;
    return whole != 0; /* one that cannot be read at present stays too */
}

/* Removes those of steps[first] and older ones that do not stay. */
static int trash_older(const struct directory *directory, const uint64_t *steps, size_t first, size_t count,
                       uint64_t keep_every, struct error *err)
{
    uint64_t kept = UINT64_MAX;
    char name[FILE_NAME_SIZE];
    int result = 0;

    for (size_t i = count; i-- > first;) {
        name_step(name, steps[i]);
        if (!is_milestone(directory->path, steps, i, first, keep_every, &kept) &&
            attempt_trash(directory, name, result < 0 ? NULL : err) < 0)
            result = -1; /* another user's may have to stay; *err is of the first */
    }
    return result;
}

int ckpt_prune(const char *dir, int keep, uint64_t keep_every, struct error *err)
{
    struct directory directory;
    uint64_t *steps, newest = 0;
    size_t count, first = 0;
    int whole = 0, failed = 0, result;

    if (ckpt_list(dir, &steps, &count, err) < 0)
        return -1;
    if (count == 0 || directory_open(&directory, NULL, dir, err) < 0) {
        free(steps);
        return count == 0 ? 0 : -1;
    }
    trash_stale(&directory);
    file_empty_trash(&directory);
    for (; first < count && (whole == 0 || whole < keep); first++)
        if (is_whole(dir, steps[first], NULL) > 0 && whole++ == 0)
            newest = steps[first];
    if (keep > 0)
        failed = trash_older(&directory, steps, first, count, keep_every, err);
    result = whole > 0 ? attempt_clear(&directory, newest, true, NULL, failed ? NULL : err) : 0;
    directory_close(&directory);
    free(steps);
    return failed ? -1 : result;
}

/* Whether the directory has another whole checkpoint. */
static int has_another_whole(const char *dir, uint64_t step, struct error *err)
{
    uint64_t *steps;
    size_t count;
    int found = 0;

    if (ckpt_list(dir, &steps, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count && !found; i++)
        found = steps[i] != step && is_whole(dir, steps[i], NULL) > 0;
    free(steps);
    return found;
}

int ckpt_remove(const char *dir, uint64_t step, bool even_last, struct error *err)
{
    struct directory directory;
    char name[FILE_NAME_SIZE];
    int whole, another, result = -1;

    name_step(name, step);
    if (directory_open(&directory, NULL, dir, err) < 0)
        return -1;
    if (!file_exists(&directory, name)) {
        error_errno(err, errno == ENOENT ? CODE_DATA : CODE_IO, "%s/%s", dir, name);
        goto out;
    }
    if (attempt_check_formats_in(&directory, name, err) < 0)
        goto out;
    whole = even_last ? 0 : is_whole(dir, step, err);
    another = whole > 0 ? has_another_whole(dir, step, err) : 1;
    if (whole < 0)
        error_prefix(err, "cannot tell whether it is whole (--force removes it)");
    else if (another == 0)
        error_set(err, CODE_USAGE, "%s/%s is the last whole checkpoint of its directory; --force removes even that",
                  dir, name);
    else if (another > 0)
        result = file_trash(&directory, name, err);
out:
    directory_close(&directory);
    return result;
}
