#include "trainer/report/report_commands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/text.h"

extern const char html_page[];       /* page.html, by a rule of module.am */
static const char DATA[] = "@DATA@"; /* where the data go in it */

enum {
    BUCKETS = 2000,     /* at most, of a run */
    ALL_BUCKETS = 6000, /* of all runs together */
    ALL_MARKS = 300,    /* starts, and as many meshes, of all runs together */
};

enum measure { MEAN, LEAST, MOST };

/* band: in a thinned run the least and the greatest value of a bucket are drawn too */
static const struct {
    const char *key;
    size_t offset;
    bool band;
} SERIES[] = {
    {"loss", offsetof(struct metrics_step, loss), true},
    {"valid_loss", offsetof(struct metrics_step, valid_loss), false},
    {"order_loss", offsetof(struct metrics_step, order_loss), true},
    {"valid_order_loss", offsetof(struct metrics_step, valid_order_loss), false},
    {"tokens_per_second", offsetof(struct metrics_step, tokens_per_second), true},
    {"mfu", offsetof(struct metrics_step, mfu), false},
    {"step_seconds", offsetof(struct metrics_step, step_seconds), true},
    {"lr", offsetof(struct metrics_step, lr), false},
    {"grad_norm", offsetof(struct metrics_step, grad_norm), true},
    {"loss_scale", offsetof(struct metrics_step, loss_scale), false},
};

/* Of the finite values among these steps; NaN if there is none. */
static double measure_bucket(const struct metrics_step *steps, size_t count, size_t offset, enum measure measure)
{
    double sum = 0.0, least = INFINITY, most = -INFINITY;
    size_t finite = 0;

    for (size_t i = 0; i < count; i++) {
        double value = *(const double *)(const void *)((const char *)&steps[i] + offset);

        if (!isfinite(value))
            continue;
        finite++;
        sum += value;
        least = fmin(least, value);
        most = fmax(most, value);
    }
    if (!finite)
        return NAN;
    return measure == MEAN ? sum / (double)finite : measure == LEAST ? least : most;
}

/* The first line of a bucket. */
static size_t bucket_begin(const struct metrics *run, size_t buckets, size_t bucket)
{
    return (size_t)((double)bucket * (double)run->count / (double)buckets);
}

static void write_column(FILE *out, const struct metrics *run, size_t buckets, size_t offset, enum measure measure)
{
    int digits = buckets < run->count ? 5 : 9;

    for (size_t i = 0; i < buckets; i++) {
        size_t begin = bucket_begin(run, buckets, i), end = bucket_begin(run, buckets, i + 1);
        double value = measure_bucket(run->steps + begin, end - begin, offset, measure);

        fputc(i ? ',' : '[', out);
        fprintf(out, isfinite(value) ? "%.*g" : "null", digits, value);
    }
    fputc(']', out);
}

/* The last step of each bucket; then the columns of each series that has a value. */
static void write_series(FILE *out, const struct metrics *run, size_t buckets)
{
    fputs("{\"step\":", out);
    for (size_t i = 0; i < buckets; i++)
        fprintf(out, "%c%ld", i ? ',' : '[', run->steps[bucket_begin(run, buckets, i + 1) - 1].step);
    fputc(']', out);
    for (size_t i = 0; i < sizeof SERIES / sizeof *SERIES; i++) {
        size_t offset = SERIES[i].offset;

        if (isnan(measure_bucket(run->steps, run->count, offset, LEAST)))
            continue;
        fprintf(out, ",\"%s\":[", SERIES[i].key);
        write_column(out, run, buckets, offset, MEAN);
        for (enum measure m = LEAST; SERIES[i].band && buckets < run->count && m <= MOST; m++) {
            fputc(',', out);
            write_column(out, run, buckets, offset, m);
        }
        fputc(']', out);
    }
    fputc('}', out);
}

static int write_runs(FILE *out, const struct report_run *runs, size_t count, struct error *err)
{
    fprintf(out, "{\"made\":%ld,\"runs\":[", (long)time(NULL));
    for (size_t i = 0; i < count; i++) {
        const struct metrics *run = &runs[i].metrics;
        size_t buckets = ALL_BUCKETS / count < BUCKETS ? ALL_BUCKETS / count : BUCKETS, restarts = 0;

        for (size_t k = 0; k < run->nstarts; k++)
            restarts += start_went_on(&run->starts[k]);
        fputs(i ? ",{\"summary\":" : "{\"summary\":", out);
        if (summary_print(out, runs[i].name, ALL_MARKS / count, run, err) < 0)
            return -1;
        json_number_member(out, "restarts", (long)restarts);
        json_real_member(out, "time", run->steps[run->count - 1].time);
        fputs(",\"series\":", out);
        write_series(out, run, run->count < buckets ? run->count : buckets);
        fputc('}', out);
    }
    fputs("]}", out);
    return 0;
}

int html_write(FILE *out, const struct report_run *runs, size_t count, struct error *err)
{
    const char *here = strstr(html_page, DATA);
    char *text = NULL;
    size_t length = 0;
    FILE *json;
    int result;

    if (count > HTML_RUNS_MOST)
        return error_set(err, CODE_USAGE, "a page shows at most %d runs, not %zu", HTML_RUNS_MOST, count);
    json = open_memstream(&text, &length);
    if (!json)
        return error_errno(err, CODE_IO, "cannot make the page");
    result = write_runs(json, runs, count, err);
    if (fclose(json) != 0 && result == 0)
        result = error_errno(err, CODE_IO, "cannot make the page");
    if (result == 0) {
        fwrite(html_page, 1, (size_t)(here - html_page), out);
        for (const char *at = text; *at; at++) /* "<" is only in strings, and no string can end the element */
            if (*at == '<')
                fputs("\\u003c", out);
            else
                putc(*at, out);
        fputs(here + strlen(DATA), out);
    }
    free(text);
    return result;
}
