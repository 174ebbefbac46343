/*
 * straggler.h - finds stragglers: ranks that are slower than ranks with the same work.
 *
 * In a synchronous run every rank's step takes as long as the slowest's, so ranks are compared by a step's time without
 * the time they waited for others (recorder_waited_seconds). Pure functions.
 */
#ifndef MUSTER_TRAINER_WATCH_STRAGGLER_H
#define MUSTER_TRAINER_WATCH_STRAGGLER_H

#include <stddef.h>

#include "trainer/watch/gpu_watch.h"
#include "trainer/watch/recorder.h"

/* What a rank reports of itself, in floats, so that all ranks can exchange it as such. */
struct rank_time {
    float seconds;                /* own time of a step */
    float group;                  /* ranks of one group, such as the pipeline stage, have the same work */
    float spent[RECORDER_SHARES]; /* seconds since the last report (recorder_shares) */
    float device_mib, host_mib;   /* of memory: the peak of the device's, and what of the host's is resident */
    struct gpu_reading gpu;
};

struct straggler {
    int rank;
    double seconds; /* own time of a step */
    double median;  /* of its group; for an even number of ranks the lower of the middle two */
};

/*
 * The ranks whose own time is more than `factor` times the median of their group, slowest first; `found` has room for
 * all. Finds none with factor 0, nor in a group whose median is under a millisecond, where the differences are noise.
 * Returns their number, or -1 when out of memory.
 */
int stragglers_find(struct straggler *found, const struct rank_time *times, int ranks, double factor);

/* "rank 5 on n3 is 1.8 x slower than the median (412 ms against 229 ms a step)" */
void straggler_text(char *text, size_t size, const struct straggler *straggler, const char *host);

#endif
