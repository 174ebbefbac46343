/* muster_report.c - the program muster-report: its command line. The commands are in follow.c, plot.c and summary.c. */
#include "config.h"

#include <getopt.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/option.h"
#include "common/text.h"
#include "trainer/report/follow.h"
#include "trainer/report/metrics.h"
#include "trainer/report/plot.h"
#include "trainer/report/progress.h"
#include "trainer/report/summary.h"

enum { CODE_DIFFER = 1 }; /* like diff's; other failures use common/error.h */

static const char HELP[] =
    "usage: muster-report follow METRICS [--steps N] [--pid PID] [--interval SECONDS]\n"
    "       muster-report plot METRICS [--reference METRICS] [--mark STEP=LABEL]... [--title TEXT] [-o FILE.svg]\n"
    "       muster-report compare METRICS METRICS [--tolerance T] [--common]\n"
    "       muster-report summary METRICS\n"
    "       muster-report --help | --version\n"
    "\n"
    "METRICS is the metrics.jsonl that muster-train writes. See muster-report(1).\n";

/* ---- the command line ---- */

static int read_long(const char *text, const char *option, long least, long *value, struct error *err)
{
    if (!text_to_long(text, least, LONG_MAX, value))
        return error_set(err, CODE_USAGE, "%s %s: must be a whole number, at least %ld", option, text, least);
    return 0;
}

static int read_real(const char *text, const char *option, double *value, struct error *err)
{
    if (!text_to_double(text, 0.0, HUGE_VAL, value))
        return error_set(err, CODE_USAGE, "%s %s: must be a number, at least 0", option, text);
    return 0;
}

static int unknown_option(char **argv, struct error *err)
{
    return error_set(err, CODE_USAGE, "%s: option %s is unknown or lacks its value; muster-report --help lists them",
                     argv[0], option_refused(argv));
}

static int expect_files(int argc, char **argv, int files, struct error *err)
{
    if (argc - optind == files)
        return 0;
    return error_set(err, CODE_USAGE, "%s: needs %d metrics file%s, not %d; see muster-report --help", argv[0], files,
                     files == 1 ? "" : "s", argc - optind);
}

/* ---- follow ---- */

static int run_follow(int argc, char **argv, struct error *err)
{
    static const struct option options[] = {{"steps", required_argument, NULL, 's'},
                                            {"pid", required_argument, NULL, 'p'},
                                            {"interval", required_argument, NULL, 'i'},
                                            {0}};
    struct follow follow = {.interval = 5.0};
    long pid = 0;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 's' && read_long(optarg, "--steps", 1, &follow.steps, err) < 0)
            return -1;
        if (c == 'p' && read_long(optarg, "--pid", 1, &pid, err) < 0)
            return -1;
        if (c == 'i' && read_real(optarg, "--interval", &follow.interval, err) < 0)
            return -1;
        if (c == '?')
            return unknown_option(argv, err);
    }
    if (expect_files(argc, argv, 1, err) < 0)
        return -1;
    follow.path = argv[optind];
    follow.pid = (pid_t)pid;
    return follow_run(&follow, err);
}

/* ---- plot ---- */

static int read_mark(char *text, struct mark *mark, struct error *err)
{
    char *equals = strchr(text, '=');

    if (!equals || !equals[1])
        return error_set(err, CODE_USAGE, "--mark %s: must be STEP=LABEL, such as 120=preempted", text);
    *equals = '\0';
    snprintf(mark->label, sizeof mark->label, "%s", equals + 1);
    return read_long(text, "--mark", 0, &mark->step, err);
}

/* Removes an incomplete picture, but nothing that is not a regular file, such as /dev/full. */
static void remove_file(const char *path)
{
    struct stat found;

    if (lstat(path, &found) == 0 && S_ISREG(found.st_mode))
        unlink(path);
}

static int write_plot(const char *path, const struct plot *plot, struct error *err)
{
    FILE *out = path ? fopen(path, "we") : stdout;
    int result;

    if (!out)
        return error_errno(err, CODE_IO, "cannot create %s", path);
    result = plot_write(out, plot, err);
    if (path ? fclose(out) != 0 : fflush(out) != 0)
        result = result < 0 ? -1 : error_errno(err, CODE_IO, "cannot write %s", path ? path : "the plot");
    if (path && result < 0)
        remove_file(path);
    return result;
}

/* Refuses an output file that is one of the inputs. */
static int protect_metrics(const char *output, const char *path, struct error *err)
{
    struct stat there, metrics;

    if (!output || !path || stat(output, &there) < 0 || stat(path, &metrics) < 0 || there.st_dev != metrics.st_dev ||
        there.st_ino != metrics.st_ino || !S_ISREG(there.st_mode))
        return 0;
    return error_set(err, CODE_USAGE, "-o %s: would write the picture over the metrics; name another file", output);
}

/* Says once which lines are damaged. */
static int read_metrics(const char *path, struct metrics_step **steps, size_t *count, struct error *err)
{
    struct metrics_damage damage;

    if (metrics_read(path, steps, count, &damage, err) < 0)
        return -1;
    if (damage.lines > 0)
        fprintf(stderr, "muster-report: warning: %s; %zu such line%s left out\n", damage.first.text, damage.lines,
                damage.lines == 1 ? " is" : "s are");
    return 0;
}

static int draw_plot(const char *path, const char *reference, const char *output, struct plot *plot, struct error *err)
{
    struct metrics_step *steps = NULL, *other = NULL;
    int result = -1;

    if (protect_metrics(output, path, err) < 0 || protect_metrics(output, reference, err) < 0 ||
        read_metrics(path, &steps, &plot->nsteps, err) < 0)
        goto out;
    if (reference && read_metrics(reference, &other, &plot->nreference, err) < 0)
        goto out;
    plot->steps = steps;
    plot->reference = other;
    result = write_plot(output, plot, err);
    if (result < 0 && err->code == CODE_DATA)
        error_prefix(err, "%s", path);
out:
    free(steps);
    free(other);
    return result;
}

static int run_plot(int argc, char **argv, struct error *err)
{
    static const struct option options[] = {{"reference", required_argument, NULL, 'r'},
                                            {"mark", required_argument, NULL, 'm'},
                                            {"title", required_argument, NULL, 't'},
                                            {"output", required_argument, NULL, 'o'},
                                            {0}};
    struct plot plot = {.title = "Training loss"};
    const char *reference = NULL, *output = NULL;
    struct mark *marks = error_calloc((size_t)argc, sizeof *marks, err);
    int c, result = -1;

    if (!marks)
        return -1;
    plot.marks = marks;
    while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (c == 'r')
            reference = optarg;
        if (c == 't')
            plot.title = optarg;
        if (c == 'o')
            output = strcmp(optarg, "-") ? optarg : NULL;
        if (c == 'm' && read_mark(optarg, &marks[plot.nmarks++], err) < 0)
            goto out;
        if (c == '?') {
            unknown_option(argv, err);
            goto out;
        }
    }
    if (expect_files(argc, argv, 1, err) == 0)
        result = draw_plot(argv[optind], reference, output, &plot, err);
out:
    free(marks);
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
    static const struct option options[] = {
        {"tolerance", required_argument, NULL, 't'}, {"common", no_argument, NULL, 'c'}, {0}};
    struct metrics_step *a = NULL, *b = NULL;
    struct comparison comparison;
    bool common_only = false;
    double tolerance = 0.0;
    size_t na, nb;
    int c, result = -1;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 't' && read_real(optarg, "--tolerance", &tolerance, err) < 0)
            return -1;
        if (c == 'c')
            common_only = true;
        if (c == '?')
            return unknown_option(argv, err);
    }
    if (expect_files(argc, argv, 2, err) < 0)
        return -1;
    if (read_metrics(argv[optind], &a, &na, err) == 0 && read_metrics(argv[optind + 1], &b, &nb, err) == 0 &&
        compare_runs(&comparison, a, na, b, nb, err) == 0)
        result = print_comparison(argv + optind, &comparison, tolerance, common_only);
    free(a);
    free(b);
    return result;
}

/* ---- summary ---- */

static int run_summary(int argc, char **argv, struct error *err)
{
    static const struct option options[] = {{0}};
    struct terminal terminal = terminal_inspect(STDOUT_FILENO);
    struct summary summary = {.columns = terminal.columns, .utf8 = terminal.utf8};
    struct metrics_step *steps;
    int result;

    if (getopt_long(argc, argv, "", options, NULL) != -1)
        return unknown_option(argv, err);
    if (expect_files(argc, argv, 1, err) < 0 || read_metrics(argv[optind], &steps, &summary.count, err) < 0)
        return -1;
    summary.name = argv[optind];
    summary.steps = steps;
    result = summary_print(stdout, &summary, err);
    free(steps);
    return result;
}

/* ---- */

struct report_command {
    const char *name;
    int (*run)(int argc, char **argv, struct error *err); /* an exit code, or -1 */
};

static const struct report_command COMMANDS[] = {
    {"follow", run_follow},
    {"plot", run_plot},
    {"compare", run_compare},
    {"summary", run_summary},
};

static int run_command(int argc, char **argv, struct error *err)
{
    if (argc < 2)
        return error_set(err, CODE_USAGE,
                         "missing command: follow, plot, compare or summary; see muster-report --help");
    for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++)
        if (strcmp(argv[1], COMMANDS[i].name) == 0)
            return COMMANDS[i].run(argc - 1, argv + 1, err);
    return error_set(err, CODE_USAGE, "unknown command %s; the commands are follow, plot, compare, summary", argv[1]);
}

int main(int argc, char **argv)
{
    struct error err = {.code = CODE_OK};
    int code;

    setlocale(LC_CTYPE, ""); /* but not LC_NUMERIC: JSON's numbers have a decimal point */
    opterr = 0;
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("muster-report " PACKAGE_VERSION);
        return error_output(CODE_OK);
    }
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(HELP, stdout);
            return error_output(CODE_OK);
        }
    }
    code = run_command(argc, argv, &err);
    return code < 0 ? error_report(&err) : error_output(code);
}
