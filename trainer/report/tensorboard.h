/*
 * tensorboard.h - TensorBoard's event files of a run. The process that writes the metrics writes them, too.
 *
 * They follow metrics.jsonl: a line that is whole there becomes one event. So the lines are the buffer: a directory
 * that cannot be written costs no step, and a key that is added later shows all steps of the run.
 *
 * Each start makes a file DIR/events.out.tfevents.TIME.HOST.PID.0. It begins with TensorBoard's mark of a start, at the
 * first step that follows: what earlier files have from that step on is forgotten. A new run begins with step 1, and so
 * hides all of an earlier one in the same directory.
 */
#ifndef MUSTER_TRAINER_REPORT_TENSORBOARD_H
#define MUSTER_TRAINER_REPORT_TENSORBOARD_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

struct tensorboard {
    char dir[PATH_MAX]; /* made if the one above it is there */
    long last;          /* the step up to which there are events; at first that after which they go on */
    bool validated;     /* that step has a validation, or will get none */
    off_t offset;       /* in the metrics, of the first line that may not be in the events */
    int fd;             /* of the event file; -1 at first */
    off_t length;       /* of its whole events */
    bool torn;          /* it is longer */
    char path[PATH_MAX + HOST_NAME_MAX + 64];
};

/* Writes the events of the lines that the metrics have by now. After a failure (CODE_IO) it goes on where it was. */
int tensorboard_follow(struct tensorboard *t, const char *metrics, struct error *err);

#endif
