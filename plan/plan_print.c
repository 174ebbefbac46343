#include "plan/plan_print.h"

#include <string.h>

static struct plan_rates rates_of(const struct plan_report *report, const struct plan_choice *c)
{
    struct job job = *report->job;

    plan_apply(c, &job);
    return plan_rates(&job, job.batch.global_batch, report->ranks, cluster_peak(report->cluster, job.precision.compute), c->cost.seconds);
}

static double to_gib(double bytes)
{
    return bytes / 0x1p30;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void print_head(FILE *out, const struct plan_report *r)
{
    const struct model_shape *m = &r->job->model;

    fprintf(out, "%.4g billion parameters, %d layers of %d, a step of %d x %d tokens; stack %s\n",
            (double)model_parameters(m) * 1e-9, m->layers, m->hidden, r->job->batch.global_batch, m->seq_length,
            r->stack->name);
    fprintf(out, "%d node%s of %s, %d ranks of %.1f GiB: %ld of %ld settings fit\n", r->nodes, r->nodes == 1 ? "" : "s",
            r->cluster->name, r->ranks, to_gib(r->cluster->memory), r->results.fitting, r->results.tried);
}

static void print_choices(FILE *out, const struct plan_report *r)
{
    fprintf(out, "\n%3s  %-22s %4s %6s %-10s %-9s %7s %8s %9s %9s %7s %6s %6s\n", "", "dp x tp x pp (chunks)", "ZeRO",
            "micro", "recompute", "offload", "GiB", "s a step", "tokens/s", "samples/s", "TFLOP/s", "MFU", "HFU");
    for (int i = 0; i < r->results.count; i++) {
        const struct plan_choice *c = &r->results.best[i];
        struct plan_rates rates = rates_of(r, c);
        char mesh[48], chunks[16] = "";

        if (c->chunks > 1)
            snprintf(chunks, sizeof chunks, " (%d)", c->chunks);
        snprintf(mesh, sizeof mesh, "%d x %d x %d%s", c->mesh.dp, c->mesh.tp, c->mesh.pp, chunks);
        fprintf(out, "%3d  %-22s %4d %6d %-10s %-9s %7.1f %8.3g %9.0f %9.4g %7.1f %5.1f%% %5.1f%%\n", i + 1, mesh,
                c->zero, c->micro_batch, job_recomputes[c->recompute], job_offloads[c->offload], to_gib(c->memory.held),
                c->cost.seconds, rates.tokens, rates.samples, rates.tflops, 100 * rates.mfu, 100 * rates.hfu);
    }
}

static void print_first(FILE *out, const struct plan_report *r)
{
    const struct plan_choice *c = &r->results.best[0];
    struct plan_rates rates = rates_of(r, c);
    const char *comma = "";

    fprintf(out, "\ntime of the first: ");
    for (int i = 0; i < COST_PARTS; i++)
        if (c->cost.part[i] >= 0.001 * c->cost.seconds) {
            fprintf(out, "%s%s %.1f%%", comma, cost_names[i], 100 * c->cost.part[i] / c->cost.seconds);
            comma = ", ";
        }
    fprintf(out,
            "\nrates of the first: PaLM MFU %.1f%%, HFU %.1f%%; Megatron %.1f TFLOP/s a rank (before 2022: %.1f); "
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
static int print_other(FILE *out, const struct plan_report *r, const char *name, const struct plan_limits *limits,
                       struct error *err)
{
    struct plan_choice found;
    struct plan_results results = {.best = &found, .most = 1};
    const struct plan_choice *best = r->results.count ? &r->results.best[0] : NULL;
    char text[160];

    if (plan_search(r->job, r->cluster, r->stack, r->ranks, limits, &results, err) < 0) {
        if (err->code != CODE_CONFIG)
            return -1;
        fprintf(out, "  %-24s the model's shape does not allow it\n", name);
    } else if (results.count == 0) {
        const struct plan_choice *least = &results.smallest;

        fprintf(out, "  %-24s needs %.1f GiB, mostly %s: %s\n", name, to_gib(least->memory.needed),
                largest_kind(&least->memory.footprint), plan_describe(least, text, sizeof text));
    } else if (best && found.cost.seconds > best->cost.seconds) {
        int part = worst_part(&found.cost, &best->cost);

        fprintf(out, "  %-24s %.2f x the time, %+.3g s of %s: %s\n", name, found.cost.seconds / best->cost.seconds,
                found.cost.part[part] - best->cost.part[part], cost_names[part],
                plan_describe(&found, text, sizeof text));
    }
    return 0;
}

static int print_others(FILE *out, const struct plan_report *r, struct error *err)
{
    struct {
        const char *name;
        struct plan_limits limits;
    } others[] = {{"dp alone, ZeRO-1", PLAN_FREE},      {"dp alone, ZeRO-3", PLAN_FREE},  {"no pipeline", PLAN_FREE},
                  {"no tensor parallelism", PLAN_FREE}, {"tp over a node", PLAN_FREE},    {"without recompute", PLAN_FREE},
                  {"micro-batches of 1", PLAN_FREE},    {"as in the job file", PLAN_FREE}};
    const struct job *job = r->job;

    others[0].limits.tp = others[0].limits.pp = others[1].limits.tp = others[1].limits.pp = 1;
    others[0].limits.zero = 1;
    others[1].limits.zero = 3;
    others[2].limits.pp = 1;
    others[3].limits.tp = 1;
    others[4].limits.tp = r->cluster->level[0].ranks;
    others[5].limits.recompute = RECOMPUTE_NONE;
    others[6].limits.micro_batch = 1;
    others[7].limits = (struct plan_limits){.tp = job->parallel.tp,
                                            .pp = job->parallel.pp,
                                            .chunks = job->parallel.chunks,
                                            .micro_batch = job->batch.micro_batch,
                                            .zero = job->parallel.zero,
                                            .recompute = (int)job->parallel.recompute,
                                            .offload = (int)job->parallel.offload};
    fprintf(out, "others:\n");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (print_other(out, r, others[i].name, &others[i].limits, err) < 0)
            return -1;
    return 0;
}

int plan_print_table(FILE *out, const struct plan_report *r, struct error *err)
{
    char text[160];

    print_head(out, r);
    if (r->results.count > 0) {
        print_choices(out, r);
        print_first(out, r);
    } else {
        fprintf(out, "nothing fits: the least is %.1f GiB, mostly %s: %s\n", to_gib(r->results.smallest.memory.needed),
                largest_kind(&r->results.smallest.memory.footprint),
                plan_describe(&r->results.smallest, text, sizeof text));
    }
    return print_others(out, r, err);
}

void plan_print_line(FILE *out, const struct plan_report *r)
{
    const struct plan_choice *c = r->results.count ? &r->results.best[0] : &r->results.smallest;
    char text[160];

    plan_describe(c, text, sizeof text);
    if (r->results.count)
        fprintf(out, "%5d nodes %8.3g s a step %10.0f tokens/s %6.1f GiB  %s\n", r->nodes, c->cost.seconds,
                rates_of(r, c).tokens, to_gib(c->memory.held), text);
    else
        fprintf(out, "%5d nodes nothing fits: at least %.1f GiB  %s\n", r->nodes, to_gib(c->memory.needed), text);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void print_choice_json(FILE *out, const struct plan_report *r, const struct plan_choice *c)
{
    struct plan_rates rates = rates_of(r, c);

    fprintf(
        out,
        "{\"dp\": %d, \"tp\": %d, \"pp\": %d, \"chunks\": %d, \"zero\": %d, \"micro_batch\": %d, "
        "\"recompute\": \"%s\", \"offload\": \"%s\", \"gib\": %.3f, \"host_gib\": %.3f, \"seconds\": %.6g, "
        "\"tokens_per_second\": %.6g, \"samples_per_second\": %.6g, \"tflops\": %.2f, \"tflops_before_2022\": %.2f, "
        "\"mfu\": %.4f, \"hfu\": %.4f, \"mosaicml_mfu\": %.4f, \"mosaicml_hfu\": %.4f, "
        "\"mosaicml_mfu_params\": %.4f, \"mosaicml_hfu_params\": %.4f, \"time\": {",
        c->mesh.dp, c->mesh.tp, c->mesh.pp, c->chunks, c->zero, c->micro_batch, job_recomputes[c->recompute],
        job_offloads[c->offload], to_gib(c->memory.held), to_gib(c->memory.host), c->cost.seconds, rates.tokens,
        rates.samples, rates.tflops, rates.tflops_before, rates.mfu, rates.hfu, rates.mosaic_mfu, rates.mosaic_hfu,
        rates.mosaic_mfu_params, rates.mosaic_hfu_params);
    for (int i = 0; i < COST_PARTS; i++)
        fprintf(out, "%s\"%s\": %.6g", i ? ", " : "", cost_names[i], c->cost.part[i]);
    fprintf(out, "}}");
}

void plan_print_json(FILE *out, const struct plan_report *r)
{
    fprintf(out,
            "{\"machine\": \"%s\", \"stack\": \"%s\", \"nodes\": %d, \"ranks\": %d, \"tried\": %ld, "
            "\"fitting\": %ld, \"best\": [",
            r->cluster->name, r->stack->name, r->nodes, r->ranks, r->results.tried, r->results.fitting);
    for (int i = 0; i < r->results.count; i++) {
        fprintf(out, "%s", i ? ", " : "");
        print_choice_json(out, r, &r->results.best[i]);
    }
    fprintf(out, "]}\n");
}

int plan_write_job(const char *path, const struct job *job, const struct plan_choice *c, struct error *err)
{
    FILE *out = fopen(path, "w");
    bool ends = job->text[0] && job->text[strlen(job->text) - 1] == '\n';
    char sets[512], *rest = sets;

    if (!out)
        return error_errno(err, CODE_IO, "%s", path);
    plan_sets(c, sets, sizeof sets);
    fprintf(out, "%s%s#! --set parallel.recompute_layers=0\n", job->text, ends ? "" : "\n");
    while (rest)
        fprintf(out, "#! --set %s\n", strsep(&rest, " "));
    return fclose(out) == 0 ? 0 : error_errno(err, CODE_IO, "%s", path);
}
