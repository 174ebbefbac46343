/* tool.c - functions that the commands of muster-ckpt share: opening paths, formats, the progress bar. */
#include "config.h"

#include "ckpt/tools/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

int tool_check_directory(const char *path, struct error *err)
{
    struct stat info;

    if (stat(path, &info) < 0)
        return error_errno(err, errno == ENOENT || errno == ENOTDIR ? CODE_DATA : CODE_IO, "%s", path);
    if (!S_ISDIR(info.st_mode))
        return error_set(err, CODE_DATA, "%s: not a directory, so no checkpoint and no directory of them", path);
    return 0;
}

bool tool_is_removed(const char *path)
{
    return access(path, F_OK) < 0 && errno == ENOENT;
}

const char *tool_flaw(const struct error *err)
{
    return err->code == CODE_CONFIG ? "unknown" : "broken";
}

void tool_format_bytes(char *text, size_t size, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    snprintf(text, size, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

void tool_format_time(char *text, size_t size, uint64_t seconds)
{
    time_t when = (time_t)seconds;
    struct tm parts;

    if (!localtime_r(&when, &parts) || strftime(text, size, "%Y-%m-%d %H:%M", &parts) == 0)
        snprintf(text, size, "-");
}

void tool_format_mesh(char *text, size_t size, const struct ckpt_state *state)
{
    snprintf(text, size, "dp %d x tp %d x pp %d, ZeRO %d", state->dp, state->tp, state->pp, state->zero);
}

struct ckpt *tool_open(const char *path, struct error *err)
{
    char inside[4096];
    uint64_t *steps;
    size_t count;

    if (snprintf(inside, sizeof inside, "%s/manifest.json", path) < (int)sizeof inside && access(inside, F_OK) == 0)
        return ckpt_open(path, err);
    if (tool_check_directory(path, err) < 0 || ckpt_list(path, &steps, &count, err) < 0)
        return NULL;
    if (count == 0) {
        error_set(err, CODE_DATA,
                  "%s: no checkpoint (no manifest.json in it) and no directory of checkpoints (no step-* in it)", path);
        free(steps);
        return NULL;
    }
    ckpt_step_path(inside, sizeof inside, path, steps[0]);
    free(steps);
    return ckpt_open(inside, err);
}

int tool_print_json(json_t *json)
{
    int result = json_dumpf(json, stdout, JSON_INDENT(2));
    struct error err;

    json_decref(json);
    if (result < 0) {
        error_set(&err, CODE_IO, "cannot print JSON: no memory, or nowhere to write");
        return error_report(&err);
    }
    putchar('\n');
    return CODE_OK;
}

#define BAR_WIDTH 40

struct bar tool_bar(const struct options *options)
{
    return (struct bar){.draw = !options->quiet && isatty(STDERR_FILENO), .last = -1, .start = clock_monotonic()};
}

/* Drawn only when it moves, so that a fast disk does not wait for a slow terminal. */
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
    return clock_monotonic() - bar->start;
}

void tool_format_rate(char *text, size_t size, uint64_t bytes, double seconds)
{
    char whole[32], rate[32];

    tool_format_bytes(whole, sizeof whole, bytes);
    tool_format_bytes(rate, sizeof rate, (uint64_t)((double)bytes / (seconds > 1e-3 ? seconds : 1e-3)));
    snprintf(text, size, "%s in %.1f s (%s/s)", whole, seconds, rate);
}
