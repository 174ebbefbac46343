/* deadline.h - reads, writes and waits that end by a time of clock_monotonic. */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_DEADLINE_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_DEADLINE_H

#include <stddef.h>

/* Until poll's `events` come on fd: 0; -1 and errno, ETIMEDOUT when it is too late. */
int deadline_wait(int fd, short events, double deadline);

/* All of `size` bytes: 0; -1 and errno, ECONNRESET if the other end closed early. fd may be blocking or not. */
int deadline_read(int fd, void *data, size_t size, double deadline);
int deadline_write(int fd, const void *data, size_t size, double deadline);

#endif
