/* muster_report.c - the program muster-report: its command line. report_commands.h has the commands. */
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "common/option.h"
#include "common/text.h"
#include "trainer/report/report_commands.h"

enum { CODE_DIFFER = 1 }; /* like diff's; other failures use common/error.h */
enum { SEVERAL = -1 };    /* files, for read_options */

static const char HELP[] = "usage: muster-report follow METRICS [--steps N] [--pid PID] [--interval SECONDS]\n"
                           "       muster-report plot METRICS... [--reference METRICS] [--title TEXT] [-o FILE.svg]\n"
                           "       muster-report html METRICS... [-o FILE.html]\n"
                           "       muster-report compare METRICS METRICS [--tolerance T] [--common]\n"
                           "       muster-report summary METRICS... [--json]\n"
                           "       muster-report where METRICS [--plan PLAN.json]\n"
                           "       muster-report --help | --version\n"
                           "\n"
                           "METRICS is the metrics.jsonl that muster-train writes. See muster-report(1).\n";

/* ---- the command line ---- */

/* -1: go on, with so many files from argv[optind] on (SEVERAL: one or more); otherwise the exit code. */
static int read_options(const struct option_row *rows, int argc, char **argv, int files)
{
    int code = options_read(rows, argc, argv, HELP);

    if (code >= 0 || argc - optind == files || (files == SEVERAL && argc > optind))
        return code;
    return option_fail("%s: needs %d metrics file%s, not %d", argv[0], abs(files), files == 2 ? "s" : "",
                       argc - optind);
}

/* ---- follow ---- */

static int run_follow(int argc, char **argv, struct error *err)
{
    struct follow follow = {.interval = 5.0};
    const struct option_row rows[] = {
        {"steps", OPTION_WHOLE, .to = &follow.steps, .least = 1},
        {"pid", OPTION_WHOLE, .to = &follow.pid, .least = 1, .most = INT_MAX},
        {"interval", OPTION_REAL, .to = &follow.interval},
        {0},
    };
    int code = read_options(rows, argc, argv, 1);

    if (code >= 0)
        return code;
    follow.path = argv[optind];
    return follow_run(&follow, err);
}

/* ---- plot ---- */

static int write_plot(const char *path, const struct plot *plot, struct error *err)
{
    FILE *out;

    if (!path)
        return plot_write(stdout, plot, err);
    out = io_create_file(path, err);
    return out ? io_close_file(out, path, plot_write(out, plot, err), err) : -1;
}

/* A file of such a name would be none that other programs can read. */
static int check_ending(const char *output, struct error *err)
{
    static const char *const others[] = {".png", ".pdf", ".ps", ".eps", ".jpg", ".jpeg", ".gif", ".webp"};

    for (size_t i = 0; output && i < sizeof others / sizeof *others; i++)
        if (text_ends_with(output, others[i]))
            return error_set(
                err, CODE_USAGE,
                "-o %s: the picture is SVG; name it FILE.svg, and convert that with rsvg-convert or magick", output);
    return 0;
}

/* Refuses an output file that is one of the inputs. */
static int protect_metrics(const char *output, const char *path, const char *what, struct error *err)
{
    struct stat there, metrics;

    if (!output || !path || stat(output, &there) < 0 || stat(path, &metrics) < 0 || there.st_dev != metrics.st_dev ||
        there.st_ino != metrics.st_ino || !S_ISREG(there.st_mode))
        return 0;
    return error_set(err, CODE_USAGE, "-o %s: would write the %s over the metrics; name another file", output, what);
}

/* Says once which lines are damaged. */
static int read_metrics(const char *path, struct metrics *metrics, struct error *err)
{
    struct metrics_damage damage;

    if (metrics_read(path, metrics, &damage, err) < 0)
        return -1;
    if (damage.lines > 0)
        fprintf(stderr, "muster-report: warning: %s; %zu such line%s left out\n", damage.first.text, damage.lines,
                damage.lines == 1 ? " is" : "s are");
    return 0;
}

static void free_runs(struct report_run *runs, int count)
{
    for (int i = 0; runs && i < count; i++)
        metrics_free(&runs[i].metrics);
    free(runs);
}

/* Of all files; NULL if one cannot be read, or is that of the output, which has `what`. */
static struct report_run *read_runs(char **paths, int count, const char *output, const char *what, struct error *err)
{
    struct report_run *runs = error_calloc((size_t)count, sizeof *runs, err);

    for (int i = 0; runs && i < count; i++) {
        runs[i].name = paths[i];
        if (protect_metrics(output, paths[i], what, err) < 0 || read_metrics(paths[i], &runs[i].metrics, err) < 0) {
            free_runs(runs, count);
            return NULL;
        }
    }
    return runs;
}

static int draw_plot(char **paths, int count, const char *reference, const char *output, struct plot *plot,
                     struct error *err)
{
    struct report_run *runs;
    int result = -1;

    if (check_ending(output, err) < 0 || protect_metrics(output, reference, "picture", err) < 0 ||
        !(runs = read_runs(paths, count, output, "picture", err)))
        return -1;
    plot->run = runs[0].metrics;
    plot->name = paths[0];
    plot->others = runs + 1;
    plot->nothers = (size_t)count - 1;
    if (!reference || read_metrics(reference, &plot->reference, err) == 0) {
        result = write_plot(output, plot, err);
        if (result < 0 && err->code == CODE_DATA)
            error_prefix(err, "%s", paths[0]);
    }
    free_runs(runs, count);
    metrics_free(&plot->reference);
    return result;
}

static int run_plot(int argc, char **argv, struct error *err)
{
    struct plot plot = {.title = "Training loss"};
    const char *reference = NULL, *output = NULL;
    const struct option_row rows[] = {
        {"reference", OPTION_TEXT, .to = &reference},
        {"title", OPTION_TEXT, .to = &plot.title},
        {"output", OPTION_TEXT, .to = &output, .letter = 'o'},
        {0},
    };
    int code = read_options(rows, argc, argv, SEVERAL);

    if (output && strcmp(output, "-") == 0)
        output = NULL;
    return code < 0 ? draw_plot(argv + optind, argc - optind, reference, output, &plot, err) : code;
}

/* ---- html ---- */

static int run_html(int argc, char **argv, struct error *err)
{
    const char *path = NULL;
    int code = read_options((const struct option_row[]){{"output", OPTION_TEXT, .to = &path, .letter = 'o'}, {0}}, argc,
                            argv, SEVERAL);
    int count = argc - optind, result = -1;
    struct report_run *runs;
    FILE *out = stdout;

    if (code >= 0)
        return code;
    if (path && strcmp(path, "-") == 0)
        path = NULL;
    runs = read_runs(argv + optind, count, path, "page", err);
    if (runs && (!path || (out = io_create_file(path, err))))
        result = html_write(out, runs, (size_t)count, err);
    if (runs && path && out)
        result = io_close_file(out, path, result, err);
    free_runs(runs, count);
    return result;
}

/* ---- compare ---- */

static void print_run(const char *path, const struct compare_run *run)
{
    printf("%s: %zu steps", path, run->steps);
    if (run->steps)
        printf(", %ld to %ld", run->first, run->last);
    if (run->only_here)
        printf("; %zu only here, from step %ld on", run->only_here, run->only_here_at);
    if (run->repeated)
        printf("; %zu repeated, from step %ld on", run->repeated, run->repeated_at);
    putchar('\n');
}

static int print_comparison(char **paths, const struct comparison *c, double tolerance, bool common_only)
{
    bool whole = !c->a.only_here && !c->b.only_here && !c->a.repeated && !c->b.repeated;
    bool same = c->common > 0 && c->worst <= tolerance && (whole || common_only);

    print_run(paths[0], &c->a);
    print_run(paths[1], &c->b);
    printf("in both: %zu steps, %zu with exactly the same loss\n", c->common, c->equal);
    if (c->worst > 0.0)
        printf("greatest relative difference of loss: %.3g at step %ld (%.9g and %.9g)\n", c->worst, c->worst_at,
               c->loss_a, c->loss_b);
    printf("%s (tolerance %g)\n", same ? "the same" : "different", tolerance);
    return same ? CODE_OK : CODE_DIFFER;
}

static int run_compare(int argc, char **argv, struct error *err)
{
    struct metrics a = {0}, b = {0};
    struct comparison comparison;
    bool common_only = false;
    double tolerance = 0.0;
    const struct option_row rows[] = {
        {"tolerance", OPTION_REAL, .to = &tolerance},
        {"common", OPTION_FLAG, .to = &common_only},
        {0},
    };
    int result = read_options(rows, argc, argv, 2);

    if (result >= 0)
        return result;
    if (read_metrics(argv[optind], &a, err) == 0 && read_metrics(argv[optind + 1], &b, err) == 0 &&
        compare_runs(&comparison, a.steps, a.count, b.steps, b.count, err) == 0)
        result = print_comparison(argv + optind, &comparison, tolerance, common_only);
    metrics_free(&a);
    metrics_free(&b);
    return result;
}

/* ---- summary ---- */

static int run_summary(int argc, char **argv, struct error *err)
{
    bool json = false;
    int code = read_options((const struct option_row[]){{"json", OPTION_FLAG, .to = &json}, {0}}, argc, argv, SEVERAL);
    int count = argc - optind, result;
    struct report_run *runs;

    if (code >= 0)
        return code;
    runs = read_runs(argv + optind, count, NULL, "", err);
    result = runs ? 0 : -1;
    for (int i = 0; i < count && result == 0; i++) {
        if (count > 1)
            fputs(json ? (i ? "," : "[") : (i ? "\n" : ""), stdout);
        result = summary_print(stdout, runs[i].name, json ? SIZE_MAX : 0, &runs[i].metrics, err);
    }
    if (json && count > 1)
        fputs("]\n", stdout);
    free_runs(runs, count);
    return result;
}

/* ---- where ---- */

static int run_where(int argc, char **argv, struct error *err)
{
    const char *plan = NULL;
    int code = read_options((const struct option_row[]){{"plan", OPTION_TEXT, .to = &plan}, {0}}, argc, argv, 1);

    return code >= 0 ? code : where_print(stdout, argv[optind], plan, err);
}

/* ---- what muster-train starts ---- */

/* --write=AFTER PATH ID --tensorboard=DIR --prometheus=DIR, as struct metrics_run has them */
static int run_writer(char **argv)
{
    const char *board = strchr(argv[4], '=') + 1, *prometheus = strchr(argv[5], '=') + 1;
    struct metrics_run run = {.path = argv[2],
                              .id = argv[3],
                              .tensorboard = *board ? board : NULL,
                              .prometheus = *prometheus ? prometheus : NULL};

    if (!text_to_long(argv[1] + strlen("--write="), -1, LONG_MAX, &run.after))
        return option_fail("%s: is for muster-train alone", argv[1]);
    metrics_serve(&run, STDIN_FILENO);
    return CODE_OK;
}

/* ---- */

static const struct {
    const char *name;
    int (*run)(int argc, char **argv, struct error *err); /* an exit code, or -1 */
} COMMANDS[] = {
    {"follow", run_follow},   {"plot", run_plot},       {"html", run_html},
    {"compare", run_compare}, {"summary", run_summary}, {"where", run_where},
};

int main(int argc, char **argv)
{
    struct error err = {.code = CODE_OK};
    int code;

    if (argc == 6 && strncmp(argv[1], "--write=", strlen("--write=")) == 0 && strchr(argv[4], '=') &&
        strchr(argv[5], '='))
        return run_writer(argv);
    if (argc == 3 && strcmp(argv[1], "--watch") == 0) {
        kill_file_serve(argv[2], STDIN_FILENO);
        return CODE_OK;
    }
    setlocale(LC_CTYPE, ""); /* but not LC_NUMERIC: JSON's numbers have a decimal point */
    for (size_t i = 0; argc > 1 && i < sizeof COMMANDS / sizeof COMMANDS[0]; i++)
        if (strcmp(argv[1], COMMANDS[i].name) == 0) {
            code = COMMANDS[i].run(argc - 1, argv + 1, &err);
            return code < 0 ? error_report(&err) : error_output(code);
        }
    code = options_read(&(const struct option_row){0}, argc, argv, HELP);
    if (code >= 0)
        return error_output(code);
    return argc < 2 ? option_fail("missing command: follow, plot, html, compare, summary or where")
                    : option_fail("unknown command %s; the commands are follow, plot, html, compare, summary, where",
                                  argv[1]);
}
