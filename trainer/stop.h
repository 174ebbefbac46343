/*
 * stop.h - every way in which a run is asked to stop and save: TERM, INT, HUP, USR1 and USR2 (repeats are harmless),
 * a kill-switch file, and a limit of minutes. One rank asked is enough: the ranks agree between steps.
 */
#ifndef MUSTER_TRAINER_STOP_H
#define MUSTER_TRAINER_STOP_H

#include "common/job.h"
#include "trainer/comm/comm.h"

/*
 * From now on the signals wait until stop_agreed asks for them (HUP for ever where it was ignored, as under nohup);
 * SIGPIPE is ignored, so that a run outlives whoever reads its log. To be called before there are other threads, which
 * inherit what this one blocks.
 *
 * There is no handler, on purpose: a handler's frame is written below the stack pointer of whatever it interrupts, and
 * oneDNN before 3.11.2 (Debian 12 has 2.6.3) points that register into the heap while it multiplies fp32 matrices. The
 * frame, up to 12 KiB where there is AMX, then overwrites the heap (uxlfoundation/oneDNN, issue 4845).
 */
void stop_install(void);

/* report.minutes are counted from here: when the first step can begin, so that every run does one. */
void stop_start_clock(void);

enum stop_reason { STOP_NONE, STOP_MINUTES, STOP_FILE, STOP_SIGNAL };

/* Collective: the strongest reason that any rank has. *signal is the signal's number for STOP_SIGNAL. */
int stop_agreed(struct comm *world, const struct job *job, enum stop_reason *reason, int *signal, struct error *err);

/* "signal 15 (Terminated)", "the file kill.me", "the limit of 30 minutes" */
void stop_describe(char *text, int size, const struct job *job, enum stop_reason reason, int signal);

#endif
