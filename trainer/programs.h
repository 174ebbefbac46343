/* programs.h - starts other programs: muster-ckptd(8), which does for a trainer what could block in checkpoint.dir, and
 * squeue(1). */
#ifndef MUSTER_TRAINER_PROGRAMS_H
#define MUSTER_TRAINER_PROGRAMS_H

#include <sys/types.h>

#include "common/error.h"

#define CKPTD "muster-ckptd"

/*
 * Starts a program in a session of its own, which a terminal's ^C does not reach. `words`: its name, looked for in PATH
 * unless it has a slash, and its arguments, up to NULL. Its only open files are `input` and, for its output and its
 * errors, `output` (-1: /dev/null): a launcher that waits for the end of its socket would wait for the program. No signal
 * is blocked in it. -1 and *pid is 0 if it cannot be started.
 */
int program_start(pid_t *pid, const char *const *words, int input, int output, struct error *err);

/* Starts the muster-ckptd beside this program, else the one in PATH. `arguments`: after its name, at most 4. */
int ckptd_start(pid_t *pid, const char *const *arguments, int input, int output, struct error *err);

#endif
