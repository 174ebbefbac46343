/*
 * terminal.h - what the user's terminal can do. For programs; call setlocale(LC_CTYPE, "") before.
 */
#ifndef MUSTER_TRAINER_REPORT_TERMINAL_H
#define MUSTER_TRAINER_REPORT_TERMINAL_H

#include <stdbool.h>

struct terminal {
    bool live;   /* a terminal on which a line can be drawn over and over: not a file, a pipe, or TERM=dumb */
    bool colour; /* live, and NO_COLOR (no-color.org) is not set */
    bool utf8;   /* the locale says so */
    int columns; /* 80 where unknown */
};

struct terminal terminal_look(int fd);

#endif
