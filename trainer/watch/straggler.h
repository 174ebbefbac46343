/*
 * straggler.h - ranks that take longer than their like. Time spent waiting for others is no rank's own, and in a
 * synchronous run everyone's step takes as long as the slowest's: what counts is a step's time less the time waited
 * (recorder_waited_seconds). Pure functions.
 */
#ifndef MUSTER_TRAINER_WATCH_STRAGGLER_H
#define MUSTER_TRAINER_WATCH_STRAGGLER_H

#include <stddef.h>

struct straggler {
    int rank;
    double seconds; /* its own a step */
    double median;  /* of its group; of an even number of ranks the lower of the middle two */
};

/*
 * Those of `ranks` ranks whose own seconds a step are more than factor times the median of their group, the slowest
 * first; `found` has room for all. groups[ranks] tells whose work is alike, such as the pipeline stage; NULL for all.
 * A factor of 0 finds none, and so does a group whose median is under a millisecond: there noise is what differs.
 * Returns how many, or -1 when out of memory.
 */
int stragglers_find(struct straggler *found, const double *seconds, const int *groups, int ranks, double factor);

/* "rank 5 on n3 is 1.8 x slower than the median (412 ms against 229 ms a step)" */
void straggler_text(char *text, size_t size, const struct straggler *straggler, const char *host);

#endif
