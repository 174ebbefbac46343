#include "common/clock.h"

#include <errno.h>
#include <time.h>

static double read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double clock_monotonic(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double clock_realtime(void)
{
    return read_clock(CLOCK_REALTIME);
}

void clock_sleep(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds};

    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

double standstill_look(struct standstill *still, double sign)
{
    double now = clock_monotonic(), since = still->looked > 0 ? now - still->looked : 0;

    still->seconds = sign == still->sign ? still->seconds + (since < 1 ? since : 1) : 0;
    still->sign = sign;
    still->looked = now;
    return still->seconds;
}
