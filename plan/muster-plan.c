/* muster-plan - which mesh, how fast, what fits. See muster-plan(1). */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/option.h"
#include "common/text.h"
#include "plan/search.h"
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

enum { MOST_NODES = 1000000 }; /* of at most 1024 ranks: their number is an int */

struct plan_options {
    const char *machine, *stack, *nodes, *write;
    struct sweep_lines sets;
    long ranks, top;
    bool json;
};

/* What a search was asked, and what it found. */
struct plan_report {
    struct job job;
    struct cluster cluster;
    struct stack stack;
    int nodes, ranks;
    struct plan_results results;
    char why[1024]; /* nothing fits */
    bool fitted;    /* something, on one of the numbers of nodes */
};

static struct plan_rates rates_of(const struct plan_report *report, const struct plan_choice *c)
{
    struct job job = report->job;

    plan_apply(c, &job);
    return plan_rates(&job, job.batch.global_batch, report->ranks,
                      cluster_peak(&report->cluster, job.precision.compute), c->cost.seconds);
}

static double to_gib(double bytes)
{
    return bytes / 0x1p30;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void print_head(const struct plan_report *r)
{
    const struct model_shape *m = &r->job.model;

    printf("%.4g billion parameters, %d layers of %d, a step of %d x %d tokens; stack %s\n",
           (double)model_parameters(m) * 1e-9, m->layers, m->hidden, r->job.batch.global_batch, m->seq_length,
           r->stack.name);
    printf("%d node%s of %s, %d ranks of %.1f GiB: %ld of %ld settings fit\n", r->nodes, r->nodes == 1 ? "" : "s",
           r->cluster.name, r->ranks, to_gib(r->cluster.memory), r->results.fitting, r->results.tried);
}

static void print_choices(const struct plan_report *r)
{
    printf("\n%3s  %-22s %4s %6s %-10s %-9s %7s %8s %9s %9s %7s %6s %6s\n", "", "dp x tp x pp (chunks)", "ZeRO",
           "micro", "recompute", "offload", "GiB", "s a step", "tokens/s", "samples/s", "TFLOP/s", "MFU", "HFU");
    for (int i = 0; i < r->results.count; i++) {
        const struct plan_choice *c = &r->results.best[i];
        struct plan_rates rates = rates_of(r, c);
        char mesh[48], chunks[16] = "";

        if (c->chunks > 1)
            snprintf(chunks, sizeof chunks, " (%d)", c->chunks);
        snprintf(mesh, sizeof mesh, "%d x %d x %d%s", c->mesh.dp, c->mesh.tp, c->mesh.pp, chunks);
        printf("%3d  %-22s %4d %6d %-10s %-9s %7.1f %8.3g %9.0f %9.4g %7.1f %5.1f%% %5.1f%%\n", i + 1, mesh, c->zero,
               c->micro_batch, job_recomputes[c->recompute], job_offloads[c->offload], to_gib(c->memory.held),
               c->cost.seconds, rates.tokens, rates.samples, rates.tflops, 100 * rates.mfu, 100 * rates.hfu);
    }
}

static void print_first(const struct plan_report *r)
{
    const struct plan_choice *c = &r->results.best[0];
    struct plan_rates rates = rates_of(r, c);
    const char *comma = "";

    printf("\ntime of the first: ");
    for (int i = 0; i < COST_PARTS; i++)
        if (c->cost.part[i] >= 0.001 * c->cost.seconds) {
            printf("%s%s %.1f%%", comma, cost_names[i], 100 * c->cost.part[i] / c->cost.seconds);
            comma = ", ";
        }
    printf("\nrates of the first: PaLM MFU %.1f%%, HFU %.1f%%; Megatron %.1f TFLOP/s a rank (before 2022: %.1f); "
           "MosaicML MFU %.1f%%, HFU %.1f%% (without attention %.1f%% and %.1f%%)\n",
           100 * rates.mfu, 100 * rates.hfu, rates.tflops, rates.tflops_before, 100 * rates.mosaic_mfu,
           100 * rates.mosaic_hfu, 100 * rates.mosaic_mfu_params, 100 * rates.mosaic_hfu_params);
}

/* ---- why others lose --------------------------------------------------------------------------------------------- */

/* The part of which a choice spends most seconds more than another. */
static int worst_part(const struct plan_cost *cost, const struct plan_cost *best)
{
    int worst = 0;

    for (int i = 1; i < COST_PARTS; i++)
        if (cost->part[i] - best->part[i] > cost->part[worst] - best->part[worst])
            worst = i;
    return worst;
}

/* Where a choice that does not fit has its memory. */
static const char *largest_kind(const struct footprint *b)
{
    static const char *const kinds[] = {"parameters",  "gradients", "optimizer",
                                        "activations", "workspace", "exchanges"};
    int most = 0;

    for (int i = 1; i < FOOTPRINT_HOST_OPTIMIZER; i++)
        most = b->bytes[i] > b->bytes[most] ? i : most;
    return kinds[most];
}

/* The best within narrower limits, against the best of all. */
static int print_other(const struct plan_report *r, const char *name, const struct plan_limits *limits,
                       struct error *err)
{
    struct plan_choice found;
    struct plan_results results = {.best = &found, .most = 1};
    const struct plan_choice *best = r->results.count ? &r->results.best[0] : NULL;
    char text[160];

    if (plan_search(&r->job, &r->cluster, &r->stack, r->ranks, limits, &results, err) < 0) {
        if (err->code != CODE_CONFIG)
            return -1;
        printf("  %-24s the model's shape does not allow it\n", name);
    } else if (results.count == 0) {
        const struct plan_choice *least = &results.smallest;

        printf("  %-24s needs %.1f GiB, mostly %s: %s\n", name, to_gib(least->memory.needed),
               largest_kind(&least->memory.footprint), plan_describe(least, text, sizeof text));
    } else if (best && found.cost.seconds > best->cost.seconds) {
        int part = worst_part(&found.cost, &best->cost);

        printf("  %-24s %.2f x the time, %+.3g s of %s: %s\n", name, found.cost.seconds / best->cost.seconds,
               found.cost.part[part] - best->cost.part[part], cost_names[part],
               plan_describe(&found, text, sizeof text));
    }
    return 0;
}

static int print_others(const struct plan_report *r, struct error *err)
{
    const struct job *job = &r->job;
    const struct {
        const char *name;
        struct plan_limits limits;
    } others[] = {
        {"dp alone, ZeRO-1", {.tp = 1, .pp = 1, .zero = 1, .recompute = -1, .offload = -1}},
        {"dp alone, ZeRO-3", {.tp = 1, .pp = 1, .zero = 3, .recompute = -1, .offload = -1}},
        {"no pipeline", {.pp = 1, .zero = -1, .recompute = -1, .offload = -1}},
        {"no tensor parallelism", {.tp = 1, .zero = -1, .recompute = -1, .offload = -1}},
        {"tp over a node", {.tp = r->cluster.level[0].ranks, .zero = -1, .recompute = -1, .offload = -1}},
        {"without recompute", {.zero = -1, .recompute = RECOMPUTE_NONE, .offload = -1}},
        {"micro-batches of 1", {.micro_batch = 1, .zero = -1, .recompute = -1, .offload = -1}},
        {"as in the job file",
         {.tp = job->parallel.tp,
          .pp = job->parallel.pp,
          .chunks = job->parallel.chunks,
          .micro_batch = job->batch.micro_batch,
          .zero = job->parallel.zero,
          .recompute = (int)job->parallel.recompute,
          .offload = (int)job->parallel.offload}},
    };

    printf("others:\n");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (print_other(r, others[i].name, &others[i].limits, err) < 0)
            return -1;
    return 0;
}

static int print_table(const struct plan_report *r, struct error *err)
{
    print_head(r);
    if (r->results.count > 0) {
        print_choices(r);
        print_first(r);
    } else {
        printf("nothing fits: %s\n", r->why);
    }
    return r->results.tried > 0 ? print_others(r, err) : 0;
}

static void print_line(const struct plan_report *r)
{
    const struct plan_choice *c = &r->results.best[0];
    char text[160];

    if (r->results.count)
        printf("%5d nodes %8.3g s a step %10.0f tokens/s %6.1f GiB  %s\n", r->nodes, c->cost.seconds,
               rates_of(r, c).tokens, to_gib(c->memory.held), plan_describe(c, text, sizeof text));
    else
        printf("%5d nodes nothing fits: %s\n", r->nodes, r->why);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void print_choice_json(const struct plan_report *r, const struct plan_choice *c)
{
    struct plan_rates rates = rates_of(r, c);

    printf("{\"dp\": %d, \"tp\": %d, \"pp\": %d, \"chunks\": %d, \"zero\": %d, \"micro_batch\": %d, "
           "\"recompute\": \"%s\", \"offload\": \"%s\", \"gib\": %.3f, \"host_gib\": %.3f, \"seconds\": %.6g, "
           "\"tokens_per_second\": %.6g, \"samples_per_second\": %.6g, \"tflops\": %.2f, \"tflops_before_2022\": %.2f, "
           "\"mfu\": %.4f, \"hfu\": %.4f, \"mosaicml_mfu\": %.4f, \"mosaicml_hfu\": %.4f, "
           "\"mosaicml_mfu_params\": %.4f, \"mosaicml_hfu_params\": %.4f, \"time\": {",
           c->mesh.dp, c->mesh.tp, c->mesh.pp, c->chunks, c->zero, c->micro_batch, job_recomputes[c->recompute],
           job_offloads[c->offload], to_gib(c->memory.held), to_gib(c->memory.host), c->cost.seconds, rates.tokens,
           rates.samples, rates.tflops, rates.tflops_before, rates.mfu, rates.hfu, rates.mosaic_mfu, rates.mosaic_hfu,
           rates.mosaic_mfu_params, rates.mosaic_hfu_params);
    for (int i = 0; i < COST_PARTS; i++)
        printf("%s\"%s\": %.6g", i ? ", " : "", cost_names[i], c->cost.part[i]);
    printf("}}");
}

static void print_json(const struct plan_report *r)
{
    printf("{\"machine\": \"%s\", \"stack\": \"%s\", \"nodes\": %d, \"ranks\": %d, \"tried\": %ld, "
           "\"fitting\": %ld, \"best\": [",
           r->cluster.name, r->stack.name, r->nodes, r->ranks, r->results.tried, r->results.fitting);
    for (int i = 0; i < r->results.count; i++) {
        printf("%s", i ? ", " : "");
        print_choice_json(r, &r->results.best[i]);
    }
    printf(r->results.count ? "]}\n" : "], \"reason\": \"nothing fits: %s\"}\n", r->why);
}

/* ---- the commands -------------------------------------------------------------------------------------------------- */

static int write_job(const char *path, const struct job *job, const struct plan_choice *c, struct error *err)
{
    FILE *out = fopen(path, "w");
    char sets[512], *rest = sets;

    if (!out)
        return error_errno(err, CODE_IO, "%s", path);
    plan_sets(c, sets, sizeof sets);
    fprintf(out, "%s#! --set parallel.recompute_layers=0\n", job->text);
    while (rest)
        fprintf(out, "#! --set %s\n", strsep(&rest, " "));
    return fclose(out) == 0 ? 0 : error_errno(err, CODE_IO, "%s", path);
}

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
    int end = 0, found = sscanf(text, "%9d%n-%9d%n", first, &end, last, &end);

    if (found == 1)
        *last = *first;
    return found >= 1 && !text[end] && *first >= 1 && *last >= *first && *last <= MOST_NODES;
}

/* Leaves why nothing fits, if so, in report->why. */
static int search_nodes(struct plan_report *report, struct error *err)
{
    const struct plan_limits limits = PLAN_FREE;
    struct plan_results *results = &report->results;
    const struct plan_choice *least = &results->smallest;
    char text[160];

    if (plan_search(&report->job, &report->cluster, &report->stack, report->ranks, &limits, results, err) < 0) {
        snprintf(report->why, sizeof report->why, "%s", err->text);
        results->count = 0;
        return err->code == CODE_CONFIG ? 0 : -1;
    }
    if (results->count == 0)
        snprintf(report->why, sizeof report->why, "the least is %.1f GiB, mostly %s: %s", to_gib(least->memory.needed),
                 largest_kind(&least->memory.footprint), plan_describe(least, text, sizeof text));
    report->fitted = report->fitted || results->count > 0;
    return 0;
}

/* One number of nodes; `alone`: the only one, which gets the whole table. */
static int plan_nodes(const struct plan_options *options, struct plan_report *report, bool alone, struct error *err)
{
    if (search_nodes(report, err) < 0)
        return -1;
    if (options->json)
        print_json(report);
    else if (alone && print_table(report, err) < 0)
        return -1;
    else if (!alone)
        print_line(report);
    if (!options->write)
        return 0;
    if (report->results.count == 0)
        return error_set(err, CODE_CONFIG, "%s is not written: nothing fits", options->write);
    return write_job(options->write, &report->job, &report->results.best[0], err);
}

static int plan_job(const struct plan_options *options, struct plan_report *report, int first, int last,
                    struct error *err)
{
    int result = 0;

    for (int nodes = first; nodes <= last && result == 0; nodes++) {
        report->nodes = nodes;
        report->ranks = nodes * report->cluster.level[0].ranks;
        result = plan_nodes(options, report, first == last, err);
    }
    if (result == 0 && !report->fitted)
        return error_set(err, CODE_CONFIG, "nothing fits %s node%s of %s", options->nodes, last == 1 ? "" : "s",
                         report->cluster.name);
    return result;
}

static int run_plan(const struct plan_options *options, const char *path)
{
    struct plan_report report = {.results.most = (int)options->top};
    struct error err;
    int first, last, result;

    if (!parse_nodes(options->nodes, &first, &last))
        return option_fail("--nodes %s must be N or N-M, from 1 to %d", options->nodes, MOST_NODES);
    if (options->write && first != last)
        return option_fail("--write needs one number of nodes");
    if (read_machine(options, &report.cluster, &report.stack, &err) < 0 ||
        job_load(&report.job, path, options->sets.text, (int)options->sets.count, &err) < 0)
        return error_report(&err);
    if (options->ranks)
        report.cluster.level[0].ranks = (int)options->ranks;
    report.results.best = error_calloc((size_t)options->top, sizeof *report.results.best, &err);
    result = report.results.best ? plan_job(options, &report, first, last, &err) : -1;
    free(report.results.best);
    job_destroy(&report.job);
    return result < 0 ? error_report(&err) : CODE_OK;
}

int main(int argc, char **argv)
{
    struct plan_options options = {.nodes = "1", .top = 10};
    const struct option_row rows[] = {{"machine", OPTION_TEXT, .to = &options.machine},
                                      {"nodes", OPTION_TEXT, .to = &options.nodes},
                                      {"ranks", OPTION_WHOLE, .to = &options.ranks, .least = 1, .most = 1024},
                                      {"stack", OPTION_TEXT, .to = &options.stack},
                                      {"set", OPTION_TAKE, .to = &options.sets, .take = sweep_take_line},
                                      {"top", OPTION_WHOLE, .to = &options.top, .least = 1, .most = 1000},
                                      {"json", OPTION_FLAG, .to = &options.json},
                                      {"write", OPTION_TEXT, .to = &options.write},
                                      {0}};
    bool sweep = argc > 1 && strcmp(argv[1], "sweep") == 0;
    int code = sweep ? sweep_main(argc - 1, argv + 1) : options_read(rows, argc, argv, usage);

    if (code < 0 && !options.machine)
        code = option_fail("--machine is missing");
    else if (code < 0 && argc - optind == 2 && strcmp(argv[optind], "predict") == 0)
        code = run_predict(&options, argv[optind + 1]);
    else if (code < 0 && argc - optind == 1)
        code = run_plan(&options, argv[optind]);
    else if (code < 0)
        code = option_fail("one job file is needed, or \"predict\" and a table");
    text_free_lines(options.sets.text, options.sets.count);
    return error_output(code);
}
