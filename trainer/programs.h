/* programs.h - starts other programs: muster-ckptd(8), which does for a trainer what could block in checkpoint.dir, and
 * squeue(1). */
#ifndef MUSTER_TRAINER_PROGRAMS_H
#define MUSTER_TRAINER_PROGRAMS_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

#define CKPTD "muster-ckptd"

/* How a program is started. Its open files are `input` and, for its output and its errors, `output` (-1: /dev/null). */
struct program {
    char *const *words;     /* its name, looked for in PATH unless it has a slash, and its arguments, up to NULL */
    char *const *variables; /* its environment, up to NULL */
    int input, output;
    bool own_session; /* a terminal's ^C does not reach it */
};

/* 0, or -1 and *pid is 0. No signal is blocked in it. */
int program_start(pid_t *pid, const struct program *program, struct error *err);

/*
 * Starts the muster-ckptd beside this program, else the one in PATH, in a session of its own. `arguments`: after its
 * name, up to NULL, at most 4. It has no other open files than these two: a launcher that waits for the end of its
 * socket would wait for the drain.
 */
int ckptd_start(pid_t *pid, const char *const *arguments, int input, int output, struct error *err);

#endif
