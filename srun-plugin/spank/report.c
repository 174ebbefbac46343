#include "srun-plugin/spank/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_write.h"

#define LINE_SIZE 1000 /* Slurm breaks longer ones, and other tasks' lines come in between */

char *report_ranks(const uint32_t *ranks, size_t count, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t first = 0, last; first < count; first = last + 1) {
        char run[32];

        for (last = first; last + 1 < count && ranks[last + 1] == ranks[last] + 1; last++)
            ;
        if (first == last)
            snprintf(run, sizeof run, "%s%" PRIu32, first ? "," : "", ranks[first]);
        else
            snprintf(run, sizeof run, "%s%" PRIu32 "-%" PRIu32, first ? "," : "", ranks[first], ranks[last]);
        if (used + strlen(run) + sizeof "..." > size) {
            snprintf(text + used, size - used, "...");
            break;
        }
        used += (size_t)snprintf(text + used, size - used, "%s", run);
    }
    return text;
}

struct row {
    const char *name, *value;
    char source[320];
};

static struct row row_of_entry(const struct env_entry *entry)
{
    struct row row = {.name = entry->name, .value = entry->value};

    if (entry->source == ENV_USER)
        snprintf(row.source, sizeof row.source, "user");
    else
        snprintf(row.source, sizeof row.source, "muster: %s", entry->why);
    return row;
}

static struct row row_of_fabric(const struct fabric_variable *variable)
{
    struct row row = {.name = variable->name, .value = variable->value};

    if (variable->why && variable->why[0])
        snprintf(row.source, sizeof row.source, "%s: %s", variable->source, variable->why);
    else
        snprintf(row.source, sizeof row.source, "%s", variable->source);
    return row;
}

/* muster's own first, then the fabric's. rows has room for all of them. */
static size_t list_rows(const struct rank_plan *plan, struct row *rows)
{
    size_t count = 0;

    for (size_t i = 0; i < plan->env->count; i++)
        if (strcmp(plan->env->entries[i].name, "MUSTER_SET") != 0) /* which says again what all the others say */
            rows[count++] = row_of_entry(&plan->env->entries[i]);
    for (size_t i = 0; plan->fabric && i < plan->fabric->count; i++)
        rows[count++] = row_of_fabric(&plan->fabric->variables[i]);
    return count;
}

static struct row *make_rows(const struct rank_plan *plan, size_t *count)
{
    struct row *rows = calloc(plan->env->count + (plan->fabric ? plan->fabric->count : 0) + 1, sizeof *rows);

    *count = rows ? list_rows(plan, rows) : 0;
    return rows;
}

static void print_notes(const struct rank_plan *plan, report_print *print)
{
    char line[LINE_SIZE];

    if (!plan->fabric)
        return;
    snprintf(line, sizeof line, "  fabric profile: %s", plan->fabric->profile[0] ? plan->fabric->profile : "none fits");
    print(line);
    for (size_t i = 0; i < plan->fabric->note_count; i++) {
        snprintf(line, sizeof line, "  note: %s", plan->fabric->notes[i]);
        print(line);
    }
}

void report_variables(const struct rank_plan *plan, report_print *print)
{
    char line[LINE_SIZE];
    int name = (int)strlen("variable"), value = (int)strlen("value");
    size_t count;
    struct row *rows = make_rows(plan, &count);

    for (size_t i = 0; i < count; i++) {
        int length = (int)strlen(rows[i].name);

        name = length > name ? length : name;
        length = (int)strlen(rows[i].value);
        if (length <= 32) /* one long path must not push every other line's last column away */
            value = length > value ? length : value;
    }
    snprintf(line, sizeof line, "muster: the environment of rank %" PRIu32, plan->task.rank);
    print(line);
    print_notes(plan, print);
    snprintf(line, sizeof line, "  %-*s  %-*s  source", name, "variable", value, "value");
    print(line);
    for (size_t i = 0; i < count; i++) {
        snprintf(line, sizeof line, "  %-*s  %-*.400s  %s", name, rows[i].name, value, rows[i].value, rows[i].source);
        print(line);
    }
    free(rows);
}

static void write_variable(const struct rank_plan *plan, const struct row *row, FILE *out)
{
    char value[601];

    snprintf(value, sizeof value, "%s", row->value);
    fprintf(out, "{\"muster\":\"variable\",\"rank\":%" PRIu32, plan->task.rank);
    json_string_member(out, "name", row->name);
    json_string_member(out, "value", value);
    if (strlen(row->value) >= sizeof value)
        fputs(",\"cut\":true", out);
    json_string_member(out, "source", row->source);
    fputc('}', out);
}

void report_variables_json(const struct rank_plan *plan, report_print *print)
{
    size_t count, size;
    struct row *rows = make_rows(plan, &count);

    for (size_t i = 0; i < count; i++) {
        char *text = NULL;
        FILE *out = open_memstream(&text, &size);

        if (out)
            write_variable(plan, &rows[i], out);
        if (out && fclose(out) == 0)
            print(text);
        free(text);
    }
    free(rows);
}
