#include "srun-plugin/task_counts.h"

#include <ctype.h>
#include <limits.h>

#define MOST 65535 /* as many tasks as Slurm starts on a node */

static int read_number(const char **text)
{
    int number = 0;

    if (!isdigit((unsigned char)**text))
        return -1;
    for (; isdigit((unsigned char)**text); (*text)++)
        number = number > MOST ? number : number * 10 + (**text - '0');
    return number > MOST ? -1 : number;
}

/* One "8(x3)"; returns how many nodes it is for, -1 if it is none. */
static int read_counts(const char **text, int *count)
{
    int times = 1;

    *count = read_number(text);
    if (*count < 0)
        return -1;
    if ((*text)[0] == '(' && (*text)[1] == 'x') {
        *text += 2;
        times = read_number(text);
        if (times < 1 || **text != ')')
            return -1;
        ++*text;
    }
    return **text == ',' || !**text ? times : -1;
}

int task_counts(const char *text, int *counts, int nodes, int *all, struct error *err)
{
    const char *at = text;
    int filled = 0, count, times;
    long sum = 0;

    do {
        times = read_counts(&at, &count);
        if (times < 0)
            return error_set(err, CODE_DATA, "ranks by node: \"%.60s\" must be numbers such as 8 or 8(x3),4", text);
        if (filled == 0 && !*at && times == 1)
            times = nodes;
        for (int i = 0; i < times && filled < nodes + 1; i++, filled++)
            if (filled < nodes) {
                counts[filled] = count;
                sum += count;
            }
    } while (*at++ == ',');
    if (filled != nodes)
        return error_set(err, CODE_DATA, "ranks by node: \"%.60s\" is not for %d nodes", text, nodes);
    if (sum > INT_MAX)
        return error_set(err, CODE_DATA, "ranks by node: \"%.60s\" are %ld on %d nodes", text, sum, nodes);
    if (all)
        *all = (int)sum;
    return 0;
}
