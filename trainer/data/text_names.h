/* text_names.h - the names of the texts that muster-data reads: its arguments, and those that a file lists. */
#ifndef MUSTER_TRAINER_DATA_TEXT_NAMES_H
#define MUSTER_TRAINER_DATA_TEXT_NAMES_H

#include "common/error.h"

struct text_names {
    char **names;
    int count;
    int room;
};

/* A copy of each. */
int text_names_add(struct text_names *names, char *const *more, int count, struct error *err);

/* Those in the file `list`, one a line, empty lines aside; "-" is standard input. CODE_DATA or CODE_IO. */
int text_names_read(struct text_names *names, const char *list, struct error *err);

void text_names_destroy(struct text_names *names);

#endif
