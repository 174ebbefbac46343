/* muster-plan - which mesh, how fast, what fits. See muster-plan(1). */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/option.h"
#include "plan/plan_print.h"
#include "plan/predict.h"
#include "plan/sweep.h"

static const char usage[] = "Usage: muster-plan --machine NAME --nodes N[-M] JOB.cfg [--set path=value]...\n"
                            "       muster-plan predict --machine NAME --stack NAME TABLE.csv\n"
                            "       muster-plan sweep DIR JOB.cfg --try PATH=A,B,... (see muster-plan sweep --help)\n"
                            "       muster-plan sweep DIR --table [--machine NAME]\n"
                            "\n"
                            "Prints the fastest meshes of a job that fit into the memory of so many nodes.\n"
                            "predict prints the rows of a table of runs with the columns predicted_gib,\n"
                            "predicted_seconds and predicted_fits.\n"
                            "\n"
                            "  --machine NAME    a file, or a name of etc/machines: a100-40, h200, ...\n"
                            "  --nodes N[-M]     nodes; of several numbers, a line for each (default 1)\n"
                            "  --ranks N         ranks a node (default: the machine's)\n"
                            "  --stack NAME      of etc/machines/stacks.cfg, or FILE:NAME (default: muster's)\n"
                            "  --set path=value  override a key of the job file\n"
                            "  --top N           choices shown (default 10)\n"
                            "  --json            one JSON object a line\n"
                            "  --write JOB.cfg   write the job file with the fastest mesh\n"
                            "  -h, --help        show this\n"
                            "  -V, --version     show the version\n";

struct plan_options {
    const char *machine, *stack, *nodes, *write;
    long ranks, top;
    bool json;
    char **set;
    int nset;
};

static int read_machine(const struct plan_options *options, struct cluster *machine, struct stack *stack,
                        struct error *err)
{
    if (cluster_read(machine, options->machine, err) < 0)
        return -1;
    return stack_read(stack, options->stack ? options->stack : cluster_own_stack(machine), err);
}

static int run_predict(const struct plan_options *options, const char *path)
{
    struct cluster machine;
    struct stack stack;
    struct error err;
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    int result;

    if (!in)
        result = error_errno(&err, CODE_IO, "%s", path);
    else if (read_machine(options, &machine, &stack, &err) < 0)
        result = -1;
    else
        result = predict_table(in, stdout, path, &machine, &stack, &err);
    if (in && in != stdin)
        fclose(in);
    return result < 0 ? error_report(&err) : CODE_OK;
}

/* "16", or "4-16". */
static bool parse_nodes(const char *text, int *first, int *last)
{
    int end = 0, found = sscanf(text, "%6d%n-%6d%n", first, &end, last, &end);

    if (found == 1)
        *last = *first;
    return found >= 1 && !text[end] && *first >= 1 && *last >= *first;
}

/* One number of nodes; `alone`: the only one, which gets the whole table. */
static int plan_nodes(const struct plan_options *options, struct plan_report *report, bool alone, struct error *err)
{
    const struct plan_limits limits = PLAN_FREE;
    struct plan_results *results = &report->results;

    if (plan_search(report->job, report->cluster, report->stack, report->ranks, &limits, results, err) < 0)
        return -1;
    if (options->json)
        plan_print_json(stdout, report);
    else if (alone && plan_print_table(stdout, report, err) < 0)
        return -1;
    else if (!alone)
        plan_print_line(stdout, report);
    if (!options->write)
        return 0;
    if (results->count == 0)
        return error_set(err, CODE_CONFIG, "%s is not written: nothing fits", options->write);
    return plan_write_job(options->write, report->job, &results->best[0], err);
}

static int plan_job(const struct plan_options *options, struct plan_report *report, int first, int last,
                    struct error *err)
{
    int result = 0;

    for (int nodes = first; nodes <= last && result == 0; nodes++) {
        report->nodes = nodes;
        report->ranks = nodes * report->cluster->level[0].ranks;
        result = plan_nodes(options, report, first == last, err);
        if (result < 0 && first < last && err->code == CODE_CONFIG && !options->write) {
            fprintf(stderr, "muster-plan: %s\n", err->text);
            result = 0;
        }
    }
    return result;
}

static int run_plan(const struct plan_options *options, const char *path)
{
    struct cluster machine;
    struct stack stack;
    struct job job;
    struct error err;
    struct plan_report report = {.job = &job, .cluster = &machine, .stack = &stack};
    int first, last, result;

    if (!parse_nodes(options->nodes, &first, &last))
        return option_fail("--nodes must be a number, or two with a dash");
    if (options->write && first != last)
        return option_fail("--write needs one number of nodes");
    if (read_machine(options, &machine, &stack, &err) < 0 ||
        job_load(&job, path, options->set, options->nset, &err) < 0)
        return error_report(&err);
    if (options->ranks)
        machine.level[0].ranks = (int)options->ranks;
    report.results.most = (int)options->top;
    report.results.best = error_calloc((size_t)options->top, sizeof *report.results.best, &err);
    result = report.results.best ? plan_job(options, &report, first, last, &err) : -1;
    free(report.results.best);
    job_destroy(&job);
    return result < 0 ? error_report(&err) : CODE_OK;
}

static int take_set(const char *text, void *to)
{
    struct plan_options *options = to;

    options->set[options->nset++] = (char *)text;
    return -1;
}

int main(int argc, char **argv)
{
    struct plan_options options = {.nodes = "1", .top = 10, .set = calloc((size_t)argc, sizeof *options.set)};
    const struct option_row rows[] = {{"machine", OPTION_TEXT, .to = &options.machine},
                                      {"nodes", OPTION_TEXT, .to = &options.nodes},
                                      {"ranks", OPTION_WHOLE, .to = &options.ranks, .least = 1, .most = 1024},
                                      {"stack", OPTION_TEXT, .to = &options.stack},
                                      {"set", OPTION_TAKE, .to = &options, .take = take_set},
                                      {"top", OPTION_WHOLE, .to = &options.top, .least = 1, .most = 1000},
                                      {"json", OPTION_FLAG, .to = &options.json},
                                      {"write", OPTION_TEXT, .to = &options.write},
                                      {0}};
    bool sweep = argc > 1 && strcmp(argv[1], "sweep") == 0;
    int code = !options.set ? CODE_INTERNAL
               : sweep      ? sweep_main(argc - 1, argv + 1)
                            : options_read(rows, argc, argv, usage);

    if (code < 0 && !options.machine)
        code = option_fail("--machine is missing");
    else if (code < 0 && argc - optind == 2 && strcmp(argv[optind], "predict") == 0)
        code = run_predict(&options, argv[optind + 1]);
    else if (code < 0 && argc - optind == 1)
        code = run_plan(&options, argv[optind]);
    else if (code < 0)
        code = option_fail("one job file is needed, or \"predict\" and a table");
    free(options.set);
    return error_output(code);
}
