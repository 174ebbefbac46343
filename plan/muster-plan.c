/* muster-plan - which mesh, how fast, what fits. See muster-plan(1). */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/option.h"
#include "common/text.h"
#include "plan/search.h"
#include "plan/predict.h"
#include "plan/sweep.h"

static const char usage[] = "Usage: muster-plan --machine NAME --nodes N[-M[:STEP]] JOB.cfg [--set path=value]...\n"
                            "       muster-plan predict --machine NAME --stack NAME TABLE.csv\n"
                            "       muster-plan sweep DIR JOB.cfg --try PATH=A,B,... (see muster-plan sweep --help)\n"
                            "       muster-plan sweep DIR --table [--machine NAME]\n"
                            "\n"
                            "Prints the fastest meshes of a job that fit into the memory of so many nodes.\n"
                            "predict prints the rows of a table of runs with the columns predicted_gib,\n"
                            "predicted_seconds and predicted_fits.\n"
                            "\n"
                            "  --machine NAME    a file, or a name of etc/machines: a100-40, h200, ... in any case\n"
                            "  --nodes N[-M[:S]] nodes (default 1); N-M: a line each for N, 2 N, 4 N, ... and M;\n"
                            "                    N-M:S: a line each for N, N + S, N + 2 S, ... and M\n"
                            "  --ranks N         ranks a node (default: the machine's)\n"
                            "  --stack NAME      of etc/machines/stacks.cfg, or FILE:NAME (default: muster's)\n"
                            "  --set path=value  override a key of the job file\n"
                            "  --top N           meshes shown (default 10)\n"
                            "  --json            one JSON object a line\n"
                            "  --write JOB.cfg   write the job file with the fastest mesh\n"
                            "  -h, --help        show this\n"
                            "  -V, --version     show the version\n";

enum { MOST_NODES = 1000000 }; /* with at most 1024 ranks each, the number of ranks fits an int */

struct plan_options {
    const char *machine, *stack, *nodes, *write;
    struct sweep_lines sets;
    long ranks, top;
    bool json;
};

/* What a search was asked, and what it found. */
struct plan_report {
    struct job job;
    struct plan_machine machine;
    struct stack stack;
    int nodes, ranks;
    struct plan_results results;
    char why[1024]; /* why nothing fits */
    bool fitted;    /* something fits one of the numbers of nodes */
};

static struct plan_rates rates_of(const struct plan_report *report, const struct plan_choice *c)
{
    struct job job = report->job;

    plan_apply(c, &job);
    return plan_rates(&job, job.batch.global_batch, report->ranks,
                      plan_machine_peak(&report->machine, job.precision.compute), c->cost.seconds);
}

static double to_gib(double bytes)
{
    return bytes / 0x1p30;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void print_head(const struct plan_report *r)
{
    const struct model_shape *m = &r->job.model;
    double parameters = (double)model_parameters(m);

    printf("%.3g %s parameters, %d layers of %d, a step of %d x %d tokens in %s; stack %s\n",
           parameters * (parameters < 1e9 ? 1e-6 : 1e-9), parameters < 1e9 ? "million" : "billion", m->layers,
           m->hidden, r->job.batch.global_batch, m->seq_length, job_precisions[r->job.precision.compute],
           r->stack.name);
    if (r->stack.error > 0)
        printf("The error of predicted times was %.0f%% in the median: meshes as close to the fastest (=) are equal,\n"
               "and the simplest of them is first.\n",
               100 * r->stack.error);
    if (r->machine.gpu && r->stack.exact_memory)
        printf("muster has not run on several GPUs: only predictions for one were compared with measurements.\n");
}

static void print_columns(const char *number)
{
    printf("\n%5s   %-20s %4s %5s %-9s %-9s %6s %8s %9s %7s %5s\n", number, "dp x tp x pp (chunks)", "ZeRO", "micro",
           "recompute", "offload", "GiB", "s a step", "tokens/s", "TFLOP/s", "MFU");
}

static void print_choice(const struct plan_report *r, const struct plan_choice *c, int number)
{
    struct plan_rates rates = rates_of(r, c);
    char mesh[48], chunks[16] = "";

    if (c->chunks > 1)
        snprintf(chunks, sizeof chunks, " (%d)", c->chunks);
    snprintf(mesh, sizeof mesh, "%d x %d x %d%s", c->mesh.dp, c->mesh.tp, c->mesh.pp, chunks);
    printf("%5d %c %-21s %4d %5d %-9s %-9s %6.1f %8.3g %9.0f %7.1f %4.1f%%\n", number, c->place == 0 ? '=' : ' ', mesh,
           c->zero, c->micro_batch, job_recomputes[c->recompute], job_offloads[c->offload], to_gib(c->memory.held),
           c->cost.seconds, rates.tokens, rates.tflops, 100 * rates.mfu);
}

static void print_first(const struct plan_report *r)
{
    const struct plan_choice *c = &r->results.best[0];
    struct plan_rates rates = rates_of(r, c);
    int shown = 0;

    printf("\ntime of the first:");
    for (int i = 0; i < COST_PARTS; i++) {
        if (c->cost.part[i] < 0.001 * c->cost.seconds)
            continue;
        printf("%s%s %s %.1f%%", shown ? "," : "", shown && shown % 5 == 0 ? "\n   " : "", cost_names[i],
               100 * c->cost.part[i] / c->cost.seconds);
        shown++; /* five of them are at most 100 columns */
    }
    printf("\nrates of the first: PaLM MFU %.1f%%, HFU %.1f%%; Megatron %.1f TFLOP/s a rank (before 2022: %.1f);\n"
           "    MosaicML MFU %.1f%%, HFU %.1f%% (without attention %.1f%% and %.1f%%)\n",
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

/* Why the best choice within narrower limits loses against the best of all. `printed` has the choices of earlier lines:
 * none is repeated. */
static int print_other(const struct plan_report *r, const char *name, const struct plan_limits *limits,
                       char printed[2048], struct error *err)
{
    struct plan_choice found;
    struct plan_results results = {.best = &found, .most = 1};
    const struct plan_choice *best = r->results.count ? &r->results.best[0] : NULL, *c = &results.smallest;
    char why[100], mesh[160];

    if (plan_search(&r->job, &r->machine, &r->stack, r->ranks, limits, &results, err) < 0)
        return err->code == CODE_CONFIG ? 0 : -1; /* the model's shape does not allow it */
    if (results.count == 0) {
        snprintf(why, sizeof why, "needs %.1f GiB, mostly %s", to_gib(c->memory.needed),
                 largest_kind(&c->memory.footprint));
    } else if (best && found.cost.seconds > best->cost.seconds) {
        int part = worst_part(&found.cost, &best->cost);

        c = &found;
        snprintf(why, sizeof why, "%.2f x the time, %+.3g s of %s", c->cost.seconds / best->cost.seconds,
                 c->cost.part[part] - best->cost.part[part], cost_names[part]);
    } else {
        return 0;
    }
    plan_describe(c, mesh, sizeof mesh);
    if (strstr(printed, mesh))
        return 0;
    printf("%s  %s: %s:\n      %s\n", printed[0] ? "" : "why others lose:\n", name, why, mesh);
    snprintf(printed + strlen(printed), 2048 - strlen(printed), "%s\n", mesh);
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
        {"tp over a node", {.tp = r->machine.level[0].ranks, .zero = -1, .recompute = -1, .offload = -1}},
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
    char printed[2048] = "";

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (print_other(r, others[i].name, &others[i].limits, printed, err) < 0)
            return -1;
    return 0;
}

/* The rate of the best mesh in 16 bits if the job computes in fp32, or in fp32 if it computes in 16 bits. */
static int print_other_type(const struct plan_report *r, struct error *err)
{
    const struct plan_limits limits = PLAN_FREE;
    const struct plan_machine *m = &r->machine;
    enum dtype half = m->peak_fp16 > m->peak_bf16 ? DTYPE_F16 : DTYPE_BF16;
    struct plan_report other = {.machine = *m, .ranks = r->ranks};
    struct plan_choice best;
    char set[64], *sets[] = {set};
    int result;

    if (plan_machine_peak(m, half) <= m->peak_fp32)
        return 0;
    other.results = (struct plan_results){.best = &best, .most = 1};
    snprintf(set, sizeof set, "precision.compute=%s",
             job_precisions[r->job.precision.compute == DTYPE_F32 ? half : DTYPE_F32]);
    if (job_parse(&other.job, r->job.text, "the job", sets, 1, err) < 0)
        return -1;
    result = plan_search(&other.job, m, &r->stack, r->ranks, &limits, &other.results, err);
    if (result == 0 && other.results.count > 0)
        printf("In %s the best mesh would reach %.0f tokens/s.\n", job_precisions[other.job.precision.compute],
               rates_of(&other, &best).tokens);
    else if (result == 0)
        printf("In %s nothing fits.\n", job_precisions[other.job.precision.compute]);
    job_destroy(&other.job);
    return result;
}

static int print_table(const struct plan_report *r, struct error *err)
{
    print_head(r);
    if (r->results.tried > 0 && print_other_type(r, err) < 0)
        return -1;
    printf("%d node%s of %s, %d rank%s of %.1f GiB: %ld of %ld settings fit\n", r->nodes, r->nodes == 1 ? "" : "s",
           r->machine.name, r->ranks, r->ranks == 1 ? "" : "s", to_gib(r->machine.memory), r->results.fitting,
           r->results.tried);
    if (r->results.count > 0) {
        print_columns("");
        for (int i = 0; i < r->results.count; i++)
            print_choice(r, &r->results.best[i], i + 1);
        print_first(r);
    } else {
        printf("nothing fits: %s\n", r->why);
    }
    return r->results.tried > 0 ? print_others(r, err) : 0;
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
           r->machine.name, r->stack.name, r->nodes, r->ranks, r->results.tried, r->results.fitting);
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

static int read_machine(const struct plan_options *options, struct plan_machine *machine, struct stack *stack,
                        struct error *err)
{
    if (plan_machine_read(machine, options->machine, err) < 0)
        return -1;
    return stack_read(stack, options->stack ? options->stack : plan_machine_stack(machine), err);
}

static int run_predict(const struct plan_options *options, const char *path)
{
    struct plan_machine machine;
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

/* "16", "4-16" or "4-16:4". `step` 0: doubling. */
static bool parse_nodes(const char *text, int *first, int *last, int *step)
{
    int end = 0, found = sscanf(text, "%9d%n-%9d%n:%9d%n", first, &end, last, &end, step, &end);

    if (found == 1)
        *last = *first;
    return found >= 1 && !text[end] && *first >= 1 && *last >= *first && *last <= MOST_NODES &&
           (found < 3 || *step >= 1);
}

/* Leaves why nothing fits, if so, in report->why. */
static int search_nodes(struct plan_report *report, struct error *err)
{
    const struct plan_limits limits = PLAN_FREE;
    struct plan_results *results = &report->results;
    const struct plan_choice *least = &results->smallest;
    char text[160];

    if (plan_search(&report->job, &report->machine, &report->stack, report->ranks, &limits, results, err) < 0) {
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
    else if (!alone && report->results.count > 0)
        print_choice(report, &report->results.best[0], report->nodes);
    else if (!alone)
        printf("%5d   nothing fits: %s\n", report->nodes, report->why);
    if (!options->write)
        return 0;
    if (report->results.count == 0)
        return error_set(err, CODE_CONFIG, "%s is not written: nothing fits", options->write);
    return write_job(options->write, &report->job, &report->results.best[0], err);
}

static int plan_job(const struct plan_options *options, struct plan_report *report, int first, int last, int step,
                    struct error *err)
{
    if (first < last && !options->json) {
        print_head(report);
        print_columns("nodes");
    }
    for (int nodes = first, next; nodes <= last; nodes = next < last || nodes == last ? next : last) {
        next = step ? nodes + step : 2 * nodes;
        report->nodes = nodes;
        report->ranks = nodes * report->machine.level[0].ranks;
        if (plan_nodes(options, report, first == last, err) < 0)
            return -1;
    }
    if (!report->fitted)
        return error_set(err, CODE_CONFIG, "nothing fits %s node%s of %s", options->nodes, last == 1 ? "" : "s",
                         report->machine.name);
    return 0;
}

static int run_plan(const struct plan_options *options, const char *path)
{
    struct plan_report report = {.results.most = (int)options->top};
    struct error err;
    int first, last, step = 0, result;

    if (!parse_nodes(options->nodes, &first, &last, &step))
        return option_fail("--nodes %s must be N, N-M or N-M:STEP, from 1 to %d", options->nodes, MOST_NODES);
    if (options->write && first != last)
        return option_fail("--write needs one number of nodes");
    if (read_machine(options, &report.machine, &report.stack, &err) < 0 ||
        job_load(&report.job, path, options->sets.text, (int)options->sets.count, &err) < 0)
        return error_report(&err);
    if (options->ranks)
        report.machine.level[0].ranks = (int)options->ranks;
    report.results.best = error_calloc((size_t)options->top, sizeof *report.results.best, &err);
    result = report.results.best ? plan_job(options, &report, first, last, step, &err) : -1;
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
