#include "trainer/report/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int metrics_each(const char *path, metrics_visit *visit, void *arg, bool *torn, struct error *err)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    int result;

    if (torn)
        *torn = false;
    if (!file)
        return error_errno(err, CODE_IO, "cannot open metrics %s", path);
    for (long number = 1; (length = getline(&line, &size, file)) >= 0; number++) {
        struct metrics_step step;

        if (line[length - 1] != '\n') { /* the last, by getline's word: half a write, not yet a step */
            if (torn)
                *torn = true;
            break;
        }
        if (metrics_parse(&step, line, (size_t)length, err) < 0) {
            result = error_prefix(err, "%s:%ld", path, number);
            goto out;
        }
        result = visit(&step, line, (size_t)length, arg);
        if (result)
            goto out;
    }
    if (ferror(file)) /* a directory opens well and only fails here */
        result = error_errno(err, CODE_IO, "cannot read metrics %s", path);
    else
        result = 0;
out:
    free(line);
    fclose(file);
    return result;
}

struct list {
    struct metrics_step *steps;
    size_t count, room;
    struct error *err;
};

static int append(const struct metrics_step *step, const char *line, size_t length, void *arg)
{
    struct list *list = arg;

    (void)line, (void)length;
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 256;
        struct metrics_step *more = reallocarray(list->steps, room, sizeof *more);

        if (!more)
            return error_errno(list->err, CODE_IO, "no memory for %zu steps of metrics", room);
        list->steps = more;
        list->room = room;
    }
    list->steps[list->count++] = *step;
    return 0;
}

int metrics_read(const char *path, struct metrics_step **steps, size_t *count, struct error *err)
{
    struct list list = {.err = err};

    *steps = NULL;
    *count = 0;
    if (metrics_each(path, append, &list, NULL, err) < 0) {
        free(list.steps);
        return -1;
    }
    *steps = list.steps;
    *count = list.count;
    return 0;
}
