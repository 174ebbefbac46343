/*
 * stop.h - every way in which a run is asked to stop and save: TERM, INT, USR1 and USR2 (repeats are harmless), a
 * kill-switch file, and a limit of minutes. One rank asked is enough: the ranks agree between steps.
 */
#ifndef MUSTER_TRAINER_STOP_H
#define MUSTER_TRAINER_STOP_H

#include "common/job.h"
#include "trainer/comm/comm.h"

/* Catch the signals, from now on; SIGPIPE is ignored, so that a run outlives whoever reads its log. */
void stop_install(void);

/* report.minutes are counted from here: when the first step can begin, so that every run does one. */
void stop_start_clock(void);

enum stop_reason { STOP_NONE, STOP_MINUTES, STOP_FILE, STOP_SIGNAL };

/* Collective: the strongest reason that any rank has. *signal is the signal's number for STOP_SIGNAL. */
int stop_agreed(struct comm *world, const struct job *job, enum stop_reason *reason, int *signal, struct error *err);

/* "signal 15 (Terminated)", "the file kill.me", "the limit of 30 minutes" */
void stop_describe(char *text, int size, const struct job *job, enum stop_reason reason, int signal);

#endif
