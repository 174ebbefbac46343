/* directory.c - a directory of checkpoints: ckpt_list, ckpt_prune, ckpt_step_path. */
#include "config.h"

#include "ckpt/attempt.h"
#include "ckpt/file.h"
#include "ckpt/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct steps {
    uint64_t *steps;
    size_t count, room;
};

static int add_step(const char *name, void *arg)
{
    struct steps *list = arg;
    uint64_t step;

    if (!layout_parse_step(name, &step))
        return 0;
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 16;
        uint64_t *grown = realloc(list->steps, room * sizeof *grown);

        if (!grown)
            return 1;
        list->steps = grown;
        list->room = room;
    }
    list->steps[list->count++] = step;
    return 0;
}

static int newest_first(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a < b) - (a > b);
}

int ckpt_list(const char *dir, uint64_t **steps, size_t *count, struct error *err)
{
    struct directory directory;
    struct steps list = {0};
    int result;

    *steps = NULL;
    *count = 0;
    if (directory_open(&directory, NULL, dir, err) < 0)
        return errno == ENOENT ? 0 : -1;
    result = directory_each(&directory, add_step, &list, err);
    directory_close(&directory);
    if (result != 0) {
        free(list.steps);
        return result > 0 ? error_errno(err, CODE_IO, "%s: cannot list", dir) : -1;
    }
    if (list.count)
        qsort(list.steps, list.count, sizeof *list.steps, newest_first);
    *steps = list.steps;
    *count = list.count;
    return 0;
}

void ckpt_step_path(char *path, size_t size, const char *dir, uint64_t step)
{
    char name[LAYOUT_NAME_SIZE];

    layout_step_name(name, step);
    snprintf(path, size, "%s/%s", dir, name);
}

int ckpt_probe(const char *dir, struct error *err)
{
    struct directory directory;
    char name[LAYOUT_NAME_SIZE];
    int result;

    if (directory_make_path(dir, err) < 0 || directory_open(&directory, NULL, dir, err) < 0)
        return -1;
    file_temporary_name(name, sizeof name, "probe");
    result = file_write(&directory, name, "", 0, err);
    unlinkat(directory.fd, name, 0);
    directory_close(&directory);
    return result;
}

/* Renaming onto a directory that is not empty fails, so nothing that was set aside before is lost. */
int ckpt_set_aside(const char *dir, uint64_t step, char *path, size_t size, struct error *err)
{
    char name[LAYOUT_NAME_SIZE], aside[LAYOUT_NAME_SIZE + 32];
    struct directory directory;
    int result = -1;

    if (directory_open(&directory, NULL, dir, err) < 0)
        return -1;
    layout_step_name(name, step);
    snprintf(aside, sizeof aside, "%s.broken", name);
    for (int k = 2; k < 1000 && (result = renameat(directory.fd, name, directory.fd, aside)) < 0; k++) {
        if (errno != ENOTEMPTY && errno != EEXIST)
            break;
        snprintf(aside, sizeof aside, "%s.broken-%d", name, k);
    }
    if (result < 0)
        error_errno(err, CODE_IO, "%s/%s: cannot be renamed to %s", dir, name, aside);
    else if (path)
        snprintf(path, size, "%s/%s", dir, aside);
    directory_close(&directory);
    return result;
}

static bool opens(const char *dir, uint64_t step)
{
    char path[4096];
    struct ckpt *ckpt;

    ckpt_step_path(path, sizeof path, dir, step);
    ckpt = ckpt_open(path, NULL);
    ckpt_close(ckpt);
    return ckpt != NULL;
}

static int trash_step(const struct directory *directory, uint64_t step, struct error *err)
{
    char name[LAYOUT_NAME_SIZE];

    layout_step_name(name, step);
    return file_trash(directory, name, err);
}

int ckpt_prune(const char *dir, int keep, struct error *err)
{
    struct directory directory;
    uint64_t *steps, newest = 0;
    size_t count;
    int whole = 0, result = -1;

    if (ckpt_list(dir, &steps, &count, err) < 0)
        return -1;
    if (count == 0) {
        free(steps);
        return 0;
    }
    if (directory_open(&directory, NULL, dir, err) < 0)
        goto out;
    for (size_t i = 0; i < count && (whole == 0 || keep > 0); i++) {
        if (keep > 0 && whole == keep) {
            if (trash_step(&directory, steps[i], err) < 0)
                goto out;
        } else if (opens(dir, steps[i])) {
            if (whole++ == 0)
                newest = steps[i];
        }
    }
    result = whole > 0 ? attempt_clear_older(&directory, newest, err) : 0;
out:
    directory_close(&directory);
    free(steps);
    return result;
}
