#include "srun-plugin/report_node.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/json_text.h"
#include "srun-plugin/node_report.h"

bool report_node_is_due(const struct report_node *report)
{
    const struct task *task = &report->plan->task;

    return report->json || task->nodes <= REPORT_NODES || task->rank == 0 || !report->node ||
           report->node->problem_count > 0 || (report->plan->bind && report->plan->bind->note_count > 0);
}

/* ---- for a person ---- */

struct block {
    FILE *out;
    const char *name;
};

static void add_line(const char *line, void *arg)
{
    const struct block *block = arg;

    fprintf(block->out, "\n  %s: %s", block->name, line);
}

static void write_block(const struct report_node *report, FILE *out)
{
    const struct rank_plan *plan = report->plan;
    struct block block = {.out = out, .name = report->name};

    fprintf(out, "muster: node %s, %" PRIu32 " rank%s from %" PRIu32 " on", report->name, plan->task.local_ranks,
            plan->task.local_ranks == 1 ? "" : "s", plan->task.rank);
    if (!report->node || !plan->bind) {
        fputs(": could not be read, so nothing is bound and no profile sets anything", out);
        return;
    }
    node_report(report->node, add_line, &block);
    bind_report(report->node, plan->bind, add_line, &block);
    if (plan->unbound)
        fprintf(out, "\n  %s: muster binds nothing: %s", report->name, plan->unbound);
}

/* ---- for programs ---- */

static void write_cpus(FILE *out, const char *key, const struct cpus *cpus)
{
    char text[1024];

    json_string_member(out, key, cpus_format(cpus, text, sizeof text));
}

static void write_rank(const struct report_node *report, size_t row, FILE *out)
{
    const struct bind_rank *rank = &report->plan->bind->ranks[row];

    fprintf(out, "%s{\"local_rank\":%zu", row ? "," : "", row);
    json_string_member(out, "gpu", rank->gpu >= 0 ? report->node->gpus[rank->gpu].address : NULL);
    fputs(",\"nics\":[", out);
    for (size_t i = 0; i < rank->nic_count; i++) {
        fputs(i ? "," : "", out);
        json_quote(out, node_nic_name(&report->node->nics[rank->nics[i]]));
    }
    fputc(']', out);
    write_cpus(out, "cpus", &rank->cpus);
    write_cpus(out, "memory", &rank->mems);
    json_number_member(out, "threads", rank->threads);
    fputc('}', out);
}

static void write_lines(FILE *out, const char *key, char *const *lines, size_t count)
{
    fprintf(out, ",\"%s\":[", key);
    for (size_t i = 0; i < count; i++) {
        fputs(i ? "," : "", out);
        json_quote(out, lines[i]);
    }
    fputc(']', out);
}

static void write_json(const struct report_node *report, FILE *out)
{
    const struct bind_plan *bind = report->plan->bind;

    fputs("{\"muster\":\"node\"", out);
    json_string_member(out, "name", report->name);
    json_number_member(out, "first_rank", report->plan->task.rank);
    json_string_member(out, "unbound", report->plan->unbound);
    fputs(",\"ranks\":[", out);
    for (size_t row = 0; bind && row < bind->count; row++)
        write_rank(report, row, out);
    fputc(']', out);
    if (report->node)
        write_lines(out, "problems", report->node->problems, report->node->problem_count);
    if (bind)
        write_lines(out, "notes", bind->notes, bind->note_count);
    fputc('}', out);
}

void report_node(const struct report_node *report, report_print *print)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return;
    if (report->json)
        write_json(report, out);
    else
        write_block(report, out);
    if (fclose(out) == 0)
        print(text);
    free(text);
}
