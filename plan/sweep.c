#include "plan/sweep.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/job.h"
#include "common/option.h"
#include "common/text.h"

static const char usage[] = "Usage: muster-plan sweep DIR JOB.cfg --try PATH=A,B,... [--row \"PATH=A ...\"]...\n"
                            "       muster-plan sweep DIR --table [--machine NAME]\n"
                            "\n"
                            "Writes the rows of a sweep into DIR, and prints the command that runs them.\n"
                            "\n"
                            "  --try PATH=A,B,...   all combinations of these values; also nodes= and ranks=,\n"
                            "                       and batch.micro_batch=max for the largest that fits\n"
                            "  --row \"PATH=A ...\"   one more row\n"
                            "  --set PATH=VALUE     override a key of the job file in all rows\n"
                            "  --steps N            steps of a row (default 5)\n"
                            "  --table              print the results so far, and write DIR/table.csv\n"
                            "  --machine NAME       predict each row for this machine\n"
                            "  -h, --help           show this\n"
                            "  -V, --version        show the version\n";

static int add_line(struct sweep_lines *lines, const char *text, struct error *err)
{
    return text_add_line(&lines->text, &lines->count, "%s", text) ? 0 : error_set(err, CODE_IO, "out of memory");
}

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

static int add_product(const struct sweep_lines *axes, size_t axis, const char *row, struct sweep_lines *rows,
                       struct error *err)
{
    const char *text = axis < axes->count ? axes->text[axis] : NULL, *value = text ? strchr(text, '=') : NULL;
    char next[SWEEP_ROW_SIZE];
    int result = 0;

    if (!text)
        return add_line(rows, row, err);
    if (!value || strpbrk(text, " \t\n"))
        return error_set(err, CODE_USAGE, "--try \"%s\" must be PATH=VALUE,VALUE..., without blanks", text);
    while (result == 0 && value) {
        int length = (int)strcspn(++value, ","), name = (int)strcspn(text, "=") + 1;

        if (snprintf(next, sizeof next, "%s%s%.*s%.*s", row, axis ? " " : "", name, text, length, value) >=
                (int)sizeof next ||
            rows->count >= SWEEP_MOST_ROWS)
            return error_set(err, CODE_USAGE, "more than %d rows, or a row of more than %d bytes", SWEEP_MOST_ROWS,
                             SWEEP_ROW_SIZE);
        result = add_product(axes, axis + 1, next, rows, err);
        value = value[length] ? value + length : NULL;
    }
    return result;
}

int sweep_rows(const struct sweep_lines *axes, struct sweep_lines *rows, struct error *err)
{
    return axes->count > 0 ? add_product(axes, 0, "", rows, err) : 0;
}

void sweep_row_read(struct sweep_row *row, const char *line, double largest)
{
    char *rest = NULL;

    *row = (struct sweep_row){.largest = false};
    snprintf(row->text, sizeof row->text, "%s", line);
    for (char *set = strtok_r(row->text, " ", &rest); set; set = strtok_r(NULL, " ", &rest))
        if (strncmp(set, "nodes=", 6) == 0)
            row->nodes = atoi(set + 6);
        else if (strncmp(set, "ranks=", 6) == 0)
            row->ranks = atoi(set + 6);
        else if (strcmp(set, "batch.micro_batch=max") == 0)
            row->largest = true;
        else
            row->sets[row->nsets++] = set;
    if (!row->largest)
        return;
    snprintf(row->micro_batch, sizeof row->micro_batch, "batch.micro_batch=%.0f", largest);
    row->sets[row->nsets++] = row->micro_batch;
}

/* ---- writing a sweep --------------------------------------------------------------------------------------------- */

/* Added to the job: a few steps need none of these, and some of them forbid so few. */
static const char *const fixed_sets[] = {
    "checkpoint.dir=",          "checkpoint.load=",         "checkpoint.init=",           "checkpoint.every=0",
    "report.eval_every=0",      "report.kill_file=",        "report.minutes=0",           "report.log_every=1",
    "batch.rampup_start=0",     "batch.rampup_increment=0", "batch.rampup_samples=0",     "optimizer.schedule=constant",
    "optimizer.warmup_steps=0", "optimizer.decay_steps=0",  "optimizer.cooldown_steps=0", "parallel.mesh=given",
    "report.tensorboard=",      "report.prometheus="};

/* Refuses a sweep of which no row is valid: a key is misspelled. Single rows may be refused when they run. */
static int check_rows(const char *text, const struct sweep_lines *rows, struct error *err)
{
    struct sweep_row row;
    struct error other;
    struct job job;

    for (size_t i = 0; i < rows->count; i++) {
        sweep_row_read(&row, rows->text[i], 1);
        if (job_parse(&job, text, "job.cfg", row.sets, row.nsets, i == 0 ? err : &other) == 0) {
            job_destroy(&job);
            return 0;
        }
    }
    return rows->count > 0 ? -1 : error_set(err, CODE_USAGE, "no rows: give --try PATH=VALUE,VALUE... or --row");
}

static int write_file(const char *dir, const char *name, const struct sweep_lines *lines, const char *end,
                      struct error *err)
{
    char path[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "we");
    for (size_t i = 0; file && i < lines->count; i++)
        fprintf(file, "%s%s", lines->text[i], end);
    return file && fclose(file) == 0 ? 0 : error_errno(err, CODE_IO, "%s", path);
}

static int row_nodes(const struct sweep_lines *rows, size_t i)
{
    const char *at = i < rows->count ? strstr(rows->text[i], "nodes=") : NULL;

    return at ? atoi(at + strlen("nodes=")) : 0;
}

/* One command for each run of rows on as many nodes. sweep.sbatch is beside this program, installed or not. */
static void print_commands(const char *dir, const struct sweep_lines *rows)
{
    static const char *const places[] = {"share/muster", "etc"};
    char program[PATH_MAX - 64] = "", path[PATH_MAX], nodes[32], *script = NULL;
    size_t first = 0;

    if (readlink("/proc/self/exe", program, sizeof program - 1) > 0)
        *strrchr(program, '/') = '\0';
    for (int i = 0; i < 2 && !script; i++) {
        snprintf(path, sizeof path, "%s/../%s/sweep.sbatch", program, places[i]);
        script = realpath(path, NULL);
    }
    for (size_t i = 1; i <= rows->count; i++) {
        if (i < rows->count && row_nodes(rows, i) == row_nodes(rows, first))
            continue;
        nodes[0] = 0;
        if (row_nodes(rows, first) > 0)
            snprintf(nodes, sizeof nodes, " --nodes=%d", row_nodes(rows, first));
        printf("sbatch --array=%zu-%zu --output=%s/row-%%a.out%s %s %s\n", first + 1, i, dir, nodes,
               script ? script : "sweep.sbatch", dir);
        first = i;
    }
    free(script);
}

struct sweep_options {
    struct sweep_lines axes, rows, sets;
    const char *machine;
    long steps;
    bool table;
};

static int create_sweep(const char *dir, const char *path, struct sweep_options *options, struct error *err)
{
    struct job job = {.text = NULL};
    char steps[48];
    int result = sweep_rows(&options->axes, &options->rows, err);

    snprintf(steps, sizeof steps, "batch.steps=%ld", options->steps);
    for (size_t i = 0; i < sizeof fixed_sets / sizeof *fixed_sets && result == 0; i++)
        result = add_line(&options->sets, fixed_sets[i], err);
    if (result == 0 && (add_line(&options->sets, steps, err) < 0 ||
                        job_load(&job, path, options->sets.text, (int)options->sets.count, err) < 0 ||
                        check_rows(job.text, &options->rows, err) < 0))
        result = -1;
    if (result == 0 && mkdir(dir, 0777) < 0)
        result = error_errno(err, CODE_IO, "%s: a sweep needs a new directory", dir);
    if (result == 0 && (write_file(dir, "job.cfg", &(struct sweep_lines){&job.text, 1}, "", err) < 0 ||
                        write_file(dir, "rows", &options->rows, "\n", err) < 0))
        result = -1;
    if (result == 0)
        print_commands(dir, &options->rows);
    job_destroy(&job);
    return result;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

int sweep_take_line(const char *text, void *to)
{
    struct error err;

    return add_line(to, text, &err) == 0 ? -1 : error_report(&err);
}

static int take_row(const char *text, void *to)
{
    if (text[strspn(text, " ")] == '\0' || strpbrk(text, "\t\n") || strlen(text) >= SWEEP_ROW_SIZE)
        return option_fail("--row \"%.80s\" must be a line of settings PATH=VALUE", text);
    return sweep_take_line(text, to);
}

static int print_tables(const char *dir, const char *machine_name, struct error *err)
{
    struct plan_machine machine;
    char *text = NULL;
    size_t size;
    FILE *csv;
    int result;

    if (machine_name && plan_machine_read(&machine, machine_name, err) < 0)
        return -1;
    csv = open_memstream(&text, &size); /* a sweep that cannot be read leaves the last table as it is */
    if (!csv)
        return error_errno(err, CODE_IO, "the table");
    result = sweep_tables(dir, machine_name ? &machine : NULL, csv, stdout, err);
    if (fclose(csv) != 0 && result == 0)
        result = error_errno(err, CODE_IO, "the table");
    if (result == 0)
        result = write_file(dir, "table.csv", &(struct sweep_lines){&text, 1}, "", err);
    free(text);
    return result;
}

int sweep_main(int argc, char **argv)
{
    struct sweep_options options = {.steps = 5};
    const struct option_row rows[] = {{"try", OPTION_TAKE, .to = &options.axes, .take = sweep_take_line},
                                      {"row", OPTION_TAKE, .to = &options.rows, .take = take_row},
                                      {"set", OPTION_TAKE, .to = &options.sets, .take = sweep_take_line},
                                      {"steps", OPTION_WHOLE, .to = &options.steps, .least = 2},
                                      {"table", OPTION_FLAG, .to = &options.table},
                                      {"machine", OPTION_TEXT, .to = &options.machine},
                                      {0}};
    int code = options_read(rows, argc, argv, usage);
    struct error err;

    if (code >= 0)
        return code;
    if (argc - optind != (options.table ? 1 : 2))
        return option_fail("sweep needs %s", options.table ? "a sweep's directory" : "a directory and a job file");
    code = options.table ? print_tables(argv[optind], options.machine, &err)
                         : create_sweep(argv[optind], argv[optind + 1], &options, &err);
    text_free_lines(options.axes.text, options.axes.count);
    text_free_lines(options.rows.text, options.rows.count);
    text_free_lines(options.sets.text, options.sets.count);
    return code < 0 ? error_report(&err) : CODE_OK;
}
