/* tool_bar.c - the progress bar, and the rate that is printed when it is over. */
#include "config.h"

#include "ckpt/tool.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH 40

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

struct bar tool_bar(const struct options *options)
{
    return (struct bar){.draw = !options->quiet && isatty(STDERR_FILENO), .last = -1, .start = now()};
}

/* Drawn anew only when it moves, so that a fast disk does not wait for a slow terminal. */
void tool_bar_draw(uint64_t done, uint64_t total, void *arg)
{
    static const char full[] = "########################################";
    struct bar *bar = arg;
    double part = total ? (double)done / (double)total : 1;
    char of_done[32], of_total[32];

    if (!bar->draw || (int)(part * 1000) == bar->last)
        return;
    bar->last = (int)(part * 1000);
    tool_format_bytes(of_done, sizeof of_done, done);
    tool_format_bytes(of_total, sizeof of_total, total);
    fprintf(stderr, "\r[%-*.*s] %5.1f%%  %s of %s ", BAR_WIDTH, (int)(part * BAR_WIDTH), full, 100 * part, of_done,
            of_total);
}

double tool_bar_end(struct bar *bar)
{
    if (bar->last >= 0)
        fprintf(stderr, "\r%*s\r", BAR_WIDTH + 40, "");
    bar->last = -1;
    return now() - bar->start;
}

void tool_format_rate(char *text, size_t size, uint64_t bytes, double seconds)
{
    char whole[32], rate[32];

    tool_format_bytes(whole, sizeof whole, bytes);
    tool_format_bytes(rate, sizeof rate, (uint64_t)((double)bytes / (seconds > 1e-3 ? seconds : 1e-3)));
    snprintf(text, size, "%s in %.1f s (%s/s)", whole, seconds, rate);
}
