/*
 * tail.h - the lines of a file that another process writes: those that are there, then each new one. It follows the
 * name, not the file: the file may come later, and may be replaced by a rename or cut short; then it begins anew.
 */
#ifndef MUSTER_TRAINER_REPORT_TAIL_H
#define MUSTER_TRAINER_REPORT_TAIL_H

#include <stddef.h>

#include "common/error.h"

struct tail;

enum tail_news {
    TAIL_ERROR = -1,
    TAIL_NOTHING, /* for now: ask again later. On network filesystems there is no better way than asking */
    TAIL_LINE,
    TAIL_ANEW, /* the file was replaced or cut: the next line is its first */
};

struct tail *tail_create(const char *path, struct error *err);
void tail_destroy(struct tail *tail);

/* Never waits. A line is without its newline, ends in 0, and is valid until the next call. Half a line is not a line
 * yet. */
enum tail_news tail_next(struct tail *tail, const char **line, size_t *length, struct error *err);

long tail_line_number(const struct tail *tail); /* of the last line given, from 1 */

#endif
