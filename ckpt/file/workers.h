/* workers.h - one function on several threads at once, for work that waits for disks. */
#ifndef MUSTER_CKPT_FILE_WORKERS_H
#define MUSTER_CKPT_FILE_WORKERS_H

#define WORKERS_MOST 256

/*
 * Run `work` on `count` threads (1 to WORKERS_MOST), the caller's among them, and wait for all. If the system gives
 * fewer threads than were asked for, fewer do the work: it must be such that one alone could. Signals are the program's
 * business: none is delivered to a thread that is started here.
 */
void workers_run(int count, void *(*work)(void *arg), void *arg);

#endif
