#include "srun-plugin/spank/report_node.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_write.h"
#include "srun-plugin/node/node_report.h"

#define LINE_SIZE 1000 /* Slurm splits longer lines, and lines of other tasks come in between */

bool report_node_is_due(const struct report_node *report)
{
    const struct task *task = &report->plan->task;

    return report->json || task->nodes <= REPORT_NODES || task->rank == 0 || !report->node ||
           report->node->problem_count > 0 || (report->plan->bind && report->plan->bind->note_count > 0);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

struct node_block {
    report_print *print;
    const char *name;
};

static void print_indented(const char *line, void *arg)
{
    const struct node_block *block = arg;
    char text[LINE_SIZE];

    if (!line[0])
        return;
    snprintf(text, sizeof text, "  %.80s: %.900s", block->name, line);
    block->print(text);
}

static void print_block(const struct report_node *report, report_print *print)
{
    const struct rank_plan *plan = report->plan;
    struct node_block block = {.print = print, .name = report->name};
    char line[LINE_SIZE];

    snprintf(line, sizeof line, "muster: node %s, rank%s %.600s", report->name, plan->task.local_ranks == 1 ? "" : "s",
             report->ranks ? report->ranks : "not known");
    print(line);
    if (!report->node || !plan->bind) {
        print_indented("could not be read: no rank is bound and no fabric profile applies", &block);
        return;
    }
    if (plan->task.rank == 0 || report->node->problem_count > 0) /* most nodes are like rank 0's */
        node_report(report->node, print_indented, &block);
    bind_report(report->node, plan->bind, print_indented, &block);
    if (plan->unbound) {
        snprintf(line, sizeof line, "no rank is bound: %s", plan->unbound);
        print_indented(line, &block);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void write_cpus(FILE *out, const char *key, const struct cpus *cpus)
{
    char text[1024];

    json_string_member(out, key, cpus_format(cpus, text, sizeof text));
}

static void write_rank(const struct report_node *report, size_t row, FILE *out)
{
    const struct bind_rank *rank = &report->plan->bind->ranks[row];

    fputs("{\"muster\":\"rank\"", out);
    json_string_member(out, "node", report->name);
    json_number_member(out, "local_rank", (long)row);
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

static void write_node(const struct report_node *report, FILE *out)
{
    fputs("{\"muster\":\"node\"", out);
    json_string_member(out, "node", report->name);
    json_string_member(out, "ranks", report->ranks);
    json_string_member(out, "machine", report->node && report->node->title[0] ? report->node->title : NULL);
    json_string_member(out, "unbound", report->plan->unbound);
    fputc('}', out);
}

static void write_text(const struct report_node *report, const char *kind, const char *text, FILE *out)
{
    fprintf(out, "{\"muster\":\"%s\"", kind);
    json_string_member(out, "node", report->name);
    json_string_member(out, "text", text);
    fputc('}', out);
}

/* Prints the text written since the last call, and empties it. */
static void flush_line(FILE *out, char **text, report_print *print)
{
    fputc('\0', out);
    if (fflush(out) == 0)
        print(*text);
    rewind(out);
}

static void print_json(const struct report_node *report, report_print *print)
{
    const struct bind_plan *bind = report->plan->bind;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return;
    write_node(report, out);
    flush_line(out, &text, print);
    for (size_t row = 0; bind && row < bind->count; row++) {
        write_rank(report, row, out);
        flush_line(out, &text, print);
    }
    for (size_t i = 0; report->node && i < report->node->problem_count; i++) {
        write_text(report, "problem", report->node->problems[i], out);
        flush_line(out, &text, print);
    }
    for (size_t i = 0; bind && i < bind->note_count; i++) {
        write_text(report, "note", bind->notes[i], out);
        flush_line(out, &text, print);
    }
    fclose(out);
    free(text);
}

void report_node(const struct report_node *report, report_print *print)
{
    if (report->json)
        print_json(report, print);
    else
        print_block(report, print);
}
