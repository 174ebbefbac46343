/* ckptd_process.h - starts muster-ckptd(8), which does for a trainer what could block in checkpoint.dir. */
#ifndef MUSTER_TRAINER_CKPTD_PROCESS_H
#define MUSTER_TRAINER_CKPTD_PROCESS_H

#include <sys/types.h>

#include "common/error.h"

#define CKPTD "muster-ckptd"

/*
 * Start the muster-ckptd beside this program, else the one in PATH. `arguments`: after its name, up to NULL, at most 4.
 * It gets a session of its own: a terminal's ^C must not end what drains the last save. It has no other open files than
 * `input` and, for its output and its errors, `output` (-1: /dev/null): a launcher that waits for the end of its socket
 * would wait for the drain. On failure -1, and *pid is 0.
 */
int ckptd_start(pid_t *pid, const char *const *arguments, int input, int output, struct error *err);

#endif
