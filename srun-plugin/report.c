#include "srun-plugin/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LINE_SIZE 1024

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

static int max(int a, size_t b)
{
    return (int)b > a ? (int)b : a;
}

void report_layout(const struct layout *layout, report_print *print)
{
    char line[LINE_SIZE], ranks[512];
    int width = (int)strlen("node");

    snprintf(line, sizeof line,
             "muster: job %" PRIu32 " step %" PRIu32 ": %" PRIu32 " rank%s on %zu node%s, rank 0 at %s", layout->job_id,
             layout->step_id, layout->ranks, layout->ranks == 1 ? "" : "s", layout->count,
             layout->count == 1 ? "" : "s", layout->head);
    print(line);
    for (size_t i = 0; i < layout->count; i++)
        width = max(width, strlen(layout->nodes[i].name));
    snprintf(line, sizeof line, "  %-*s  ranks", width, "node");
    print(line);
    for (size_t i = 0; i < layout->count; i++) {
        const struct layout_node *node = &layout->nodes[i];

        snprintf(line, sizeof line, "  %-*s  %s", width, node->name,
                 report_ranks(node->ranks, node->count, ranks, sizeof ranks));
        print(line);
    }
}

void report_env(const struct task *task, const struct env_entry *entries, size_t count, report_print *print)
{
    char line[LINE_SIZE];
    int name = (int)strlen("variable"), value = (int)strlen("value");

    for (size_t i = 0; i < count; i++) {
        name = max(name, strlen(entries[i].name));
        if (strlen(entries[i].value) <= 32) /* one long path must not push every other line's last column away */
            value = max(value, strlen(entries[i].value));
    }
    snprintf(line, sizeof line, "muster: the environment of rank %" PRIu32, task->rank);
    print(line);
    snprintf(line, sizeof line, "  %-*s  %-*s  source", name, "variable", value, "value");
    print(line);
    for (size_t i = 0; i < count; i++) {
        const struct env_entry *entry = &entries[i];

        if (entry->source == ENV_USER)
            snprintf(line, sizeof line, "  %-*s  %-*.600s  user", name, entry->name, value, entry->value);
        else
            snprintf(line, sizeof line, "  %-*s  %-*.600s  muster: %s", name, entry->name, value, entry->value,
                     entry->why);
        print(line);
    }
}
