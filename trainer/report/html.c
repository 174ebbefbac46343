#include "trainer/report/report_commands.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "common/io.h"
#include "common/text.h"

extern const char html_page[];       /* page.html, by a rule of module.am */
static const char DATA[] = "@DATA@"; /* where the data go in it */

enum {
    BUCKETS = 2000,     /* at most, of a run */
    ALL_BUCKETS = 6000, /* of all runs together */
    ALL_MARKS = 300,    /* starts, and as many meshes, of all runs together */
    ALL_CHECKPOINTS = 2000,
    ALL_REPORTS = 20,
    REPORT_BYTES = 16384, /* of one, at most */
    ALL_REPORT_BYTES = 20 * REPORT_BYTES,
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

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* At most `most` of the last ones. */
static void append_last(json_t *list, json_t *item, size_t most)
{
    json_array_append_new(list, item);
    if (json_array_size(list) > most)
        json_array_remove(list, 0);
}

/* The hang report of the job that made this start, a regular file; NULL if it has written none. */
static json_t *read_report(json_t *start, size_t most)
{
    const char *directory = json_string_value(json_object_get(start, "hang"));
    char path[PATH_MAX] = "", text[REPORT_BYTES + PATH_MAX + 64];
    struct stat is;
    ssize_t length = 0;
    int fd = -1;

    if (directory && snprintf(path, sizeof path, "%s/hang-report.txt", directory) < (int)sizeof path)
        fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &is) == 0 && S_ISREG(is.st_mode))
        length = io_read_at(fd, text, most, 0);
    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return NULL;
    text[length] = '\0';
    text[text_utf8_end(text, (size_t)length)] = '\0';
    if (is.st_size > length)
        snprintf(text + strlen(text), PATH_MAX + 64, "\n... all of it is in %s", path);
    return json_pack("{s:O*, s:O*, s:s}", "job", json_object_get(start, "job"), "ready",
                     json_object_get(start, "ready"), "text", text);
}

struct page_events {
    json_t *checkpoints, *reports; /* arrays */
    json_int_t saved, last;        /* all checkpoints; the step of the last one */
    size_t most, most_reports;     /* that are listed */
    size_t most_bytes;             /* of a report */
};

/* A start shows that the checkpoint exists which it went on from; the epilog may have committed that. */
static int take_event(void *arg, const char *kind, json_t *event, struct error *err)
{
    json_t *seconds = json_object_get(event, "seconds"), *report;
    json_int_t step = json_integer_value(json_object_get(event, "step"));
    struct page_events *page = arg;
    bool starts = strcmp(kind, "start") == 0;

    (void)err;
    if ((starts || strcmp(kind, "checkpoint") == 0) && step > 0 && step != page->last) {
        append_last(page->checkpoints,
                    json_pack("{s:I, s:O*}", "step", step, "seconds", json_is_number(seconds) ? seconds : NULL),
                    page->most);
        page->saved++;
        page->last = step;
    }
    if (starts && (report = read_report(event, page->most_bytes)))
        append_last(page->reports, report, page->most_reports);
    return 0;
}

/* Members of a run: checkpoints, hang reports, and what was measured. */
static void write_events(FILE *out, const char *path, size_t runs)
{
    struct page_events page = {.checkpoints = json_array(),
                               .reports = json_array(),
                               .most = ALL_CHECKPOINTS / runs,
                               .most_reports = 1 + ALL_REPORTS / runs,
                               .most_bytes = ALL_REPORT_BYTES / (ALL_REPORTS + runs)};
    struct metrics_damage ignored = {0};
    json_t *all;

    metrics_each_event(path, take_event, &page, &ignored, NULL); /* errors were found when the run was read */
    all = json_pack("{s:I, s:o, s:o, s:o}", "saved", page.saved, "checkpoints", page.checkpoints, "reports",
                    page.reports, "measured", where_measured(path));
    fputs(",\"events\":", out);
    json_dumpf(all, out, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(all);
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
        write_events(out, runs[i].name, count);
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
