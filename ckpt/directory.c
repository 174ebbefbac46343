/* directory.c - a directory of checkpoints: ckpt_list, ckpt_step_path, ckpt_probe, ckpt_set_aside. */
#include "config.h"

#include "ckpt/file.h"
#include "ckpt/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

bool ckpt_split_step_path(char *dir, size_t size, uint64_t *step, const char *path)
{
    size_t length = strlen(path);
    char *slash;

    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length >= size)
        return false;
    snprintf(dir, size, "%.*s", (int)length, path);
    slash = strrchr(dir, '/');
    if (!layout_parse_step(slash ? slash + 1 : dir, step))
        return false;
    if (!slash)
        snprintf(dir, size, ".");
    else
        slash[slash == dir] = '\0'; /* "/step-1" is in "/" */
    return true;
}

/* What a save does, with a file of one byte. */
static int try_save(const struct directory *parent, const char *from, const char *to, struct error *err)
{
    struct directory inside;
    int result = -1;

    if (mkdirat(parent->fd, from, 0777) < 0)
        return file_write_failed(parent, from, 0, err);
    if (directory_open(&inside, parent, from, err) < 0)
        return -1;
    if (file_write(&inside, "probe", "", 1, err) < 0 || directory_sync(&inside, err) < 0)
        goto out;
    if (renameat(parent->fd, from, parent->fd, to) < 0)
        error_errno(err, CODE_IO, "%s/%s: cannot rename to %s", parent->path, from, to);
    else
        result = directory_sync(parent, err);
out:
    if (unlinkat(inside.fd, "probe", 0) < 0 && result == 0)
        result = error_errno(err, CODE_IO, "%s/%s/probe: cannot remove", parent->path, to);
    directory_close(&inside);
    return result;
}

int ckpt_probe(const char *dir, struct error *err)
{
    char from[LAYOUT_NAME_SIZE], to[LAYOUT_NAME_SIZE];
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
        error_errno(err, CODE_IO, "%s/%s: cannot rename to %s", dir, name, aside);
    else if (path)
        snprintf(path, size, "%s/%s", dir, aside);
    directory_close(&directory);
    return result;
}
