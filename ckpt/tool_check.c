/* tool_check.c - "muster-ckpt verify" and "muster-ckpt diff". */
#include "config.h"

#include "ckpt/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH 40

struct bar {
    int last; /* what was drawn, in 1000ths */
};

/* Drawn anew only when it moves, so that a fast disk does not wait for a slow terminal. */
static void draw_bar(uint64_t done, uint64_t total, void *arg)
{
    static const char full[] = "########################################";
    struct bar *bar = arg;
    double part = total ? (double)done / (double)total : 1;
    char of_done[32], of_total[32];

    if ((int)(part * 1000) == bar->last)
        return;
    bar->last = (int)(part * 1000);
    tool_format_bytes(of_done, sizeof of_done, done);
    tool_format_bytes(of_total, sizeof of_total, total);
    fprintf(stderr, "\r[%-*.*s] %5.1f%%  %s of %s ", BAR_WIDTH, (int)(part * BAR_WIDTH), full, 100 * part, of_done,
            of_total);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int removed(const char *path)
{
    printf("%s: removed meanwhile\n", path);
    return CODE_OK;
}

static int verify_open(struct ckpt *ckpt, const struct options *options)
{
    bool draw = !options->quiet && isatty(STDERR_FILENO);
    struct bar bar = {.last = -1};
    double start = now(), seconds;
    char size[32], rate[32];
    struct error err;
    int result = ckpt_verify(ckpt, options->threads, draw ? draw_bar : NULL, &bar, &err);

    if (draw && bar.last >= 0)
        fprintf(stderr, "\r%*s\r", BAR_WIDTH + 40, "");
    if (result < 0 && options->all && tool_is_gone(ckpt_path(ckpt)))
        return removed(ckpt_path(ckpt));
    if (result < 0)
        return error_report(&err);
    seconds = now() - start;
    tool_format_bytes(size, sizeof size, ckpt_bytes(ckpt));
    tool_format_bytes(rate, sizeof rate, (uint64_t)((double)ckpt_bytes(ckpt) / (seconds > 1e-3 ? seconds : 1e-3)));
    printf("%s: whole, %s in %.1f s (%s/s)\n", ckpt_path(ckpt), size, seconds, rate);
    return CODE_OK;
}

static int verify_all(const char *dir, const struct options *options)
{
    uint64_t *steps;
    struct error err;
    size_t count;
    int code = CODE_OK;

    if (tool_check_directory(dir, &err) < 0 || ckpt_list(dir, &steps, &count, &err) < 0)
        return error_report(&err);
    if (count == 0) {
        error_set(&err, CODE_DATA, "%s: no directory of checkpoints (no step-* in it)", dir);
        code = error_report(&err);
    }
    for (size_t i = 0; i < count; i++) {
        char path[4096];
        struct ckpt *ckpt;
        int one;

        ckpt_step_path(path, sizeof path, dir, steps[i]);
        ckpt = ckpt_open(path, &err);
        one = ckpt ? verify_open(ckpt, options) : tool_is_gone(path) ? removed(path) : error_report(&err);
        if (code == CODE_OK)
            code = one;
        ckpt_close(ckpt);
    }
    free(steps);
    return code;
}

int tool_verify(const char *path, const struct options *options)
{
    struct error err;
    struct ckpt *ckpt;
    int code;

    if (options->all)
        return verify_all(path, options);
    ckpt = tool_open(path, &err);
    if (!ckpt)
        return error_report(&err);
    code = verify_open(ckpt, options);
    ckpt_close(ckpt);
    return code;
}

static void print_difference(const char *tensor, const char *kind, const char *reason, void *arg)
{
    (void)arg;
    printf("%s %s: %s\n", tensor, kind, reason);
}

int tool_diff(const char *a, const char *b, const struct options *options)
{
    struct ckpt *first = NULL, *second = NULL;
    struct error err;
    int code, result = -1;

    (void)options;
    first = tool_open(a, &err);
    if (first)
        second = tool_open(b, &err);
    if (second)
        result = ckpt_diff(first, second, print_difference, NULL, &err);
    code = result < 0 ? error_report(&err) : result > 0 ? 1 : CODE_OK;
    ckpt_close(first);
    ckpt_close(second);
    return code;
}
