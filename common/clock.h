/* clock.h - the time in seconds, as a double. */
#ifndef MUSTER_COMMON_CLOCK_H
#define MUSTER_COMMON_CLOCK_H

/* CLOCK_MONOTONIC: for durations and deadlines. Does not jump when the date is set. */
double clock_monotonic(void);

/* CLOCK_REALTIME: seconds since 1970, for times that are stored or compared across nodes. */
double clock_realtime(void);

/* Sleep for the full time, even if signals arrive. */
void clock_sleep(double seconds);

/*
 * For how long something does not move, as a number tells that changes while it does; zeroed at first. Of the time
 * between two looks at most a second counts: this process may have been stopped too, as in a suspended job.
 */
struct standstill {
    double sign, looked; /* of the last look */
    double seconds;
};

/* Returns still->seconds. */
double standstill_look(struct standstill *still, double sign);

#endif
