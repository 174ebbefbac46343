#include "plan/hostlist.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

#define TASKS_MOST 65535 /* tasks that Slurm starts on a node */

static int append_name(struct hostlist *list, const char *name, struct error *err)
{
    size_t count = (size_t)list->count;

    if (count == HOSTLIST_MAX)
        return error_set(err, CODE_DATA, "host list: has more than %d names", HOSTLIST_MAX);
    if (!text_add_line(&list->names, &count, "%s", name))
        return error_errno(err, CODE_IO, "host list");
    list->count++;
    return 0;
}

/* A number of at most nine digits at *text, and how many they are; -1 if there is none. */
static long read_number(const char **text, int *width)
{
    const char *begin = *text;
    long number;

    if (!text_take_number(text, 999999999, &number) || *text - begin > 9)
        return -1;
    *width = (int)(*text - begin);
    return number;
}

struct name {
    char text[HOSTNAME_SIZE];
    size_t used;
};

static int expand_name(struct hostlist *list, const char *rest, const char *end, struct name name, struct error *err);

static int expand_range(struct hostlist *list, const char **text, const char *rest, const char *end, struct name name,
                        struct error *err)
{
    int width, ignored;
    long first = read_number(text, &width), last = first;

    if (first >= 0 && **text == '-') {
        (*text)++;
        last = read_number(text, &ignored);
    }
    if (first < 0 || last < first)
        return error_set(err, CODE_DATA, "host list: after \"%.40s\" there must be numbers such as [1-4,7]", name.text);
    for (long number = first; number <= last; number++) {
        struct name longer = name;
        int digits = snprintf(longer.text + name.used, sizeof longer.text - name.used, "%0*ld", width, number);

        longer.used += (size_t)digits;
        if (longer.used >= sizeof longer.text)
            return error_set(err, CODE_DATA, "host list: a name is longer than %d characters", HOSTNAME_SIZE - 1);
        if (expand_name(list, rest, end, longer, err) < 0)
            return -1;
    }
    return 0;
}

/* `name` is made so far; [rest, end) is what follows it in the list's text. */
static int expand_name(struct hostlist *list, const char *rest, const char *end, struct name name, struct error *err)
{
    const char *close, *text;

    for (; rest < end && *rest != '['; rest++) {
        if (*rest == ']' || isspace((unsigned char)*rest) || iscntrl((unsigned char)*rest))
            return error_set(err, CODE_DATA, "host list: \"%.40s\" is followed by a character that no host name has",
                             name.text);
        if (name.used + 1 == sizeof name.text)
            return error_set(err, CODE_DATA, "host list: a name is longer than %d characters", HOSTNAME_SIZE - 1);
        name.text[name.used++] = *rest;
        name.text[name.used] = '\0';
    }
    if (rest == end)
        return append_name(list, name.text, err);
    close = memchr(rest, ']', (size_t)(end - rest));
    if (!close)
        return error_set(err, CODE_DATA, "host list: \"%.40s[\" has no \"]\"", name.text);
    for (text = rest + 1;; text++) {
        if (expand_range(list, &text, close + 1, end, name, err) < 0)
            return -1;
        if (text == close)
            return 0;
        if (*text != ',')
            return error_set(err, CODE_DATA, "host list: in \"%.40s[\" only numbers, \"-\" and \",\" may stand",
                             name.text);
    }
}

/* Where the name at `text` ends: at a comma outside of brackets, or at the end. */
static const char *name_end(const char *text)
{
    int inside = 0;

    for (; *text && (inside || *text != ','); text++)
        inside = *text == '[' ? 1 : *text == ']' ? 0 : inside;
    return text;
}

struct hostlist *hostlist_create(const char *text, struct error *err)
{
    struct hostlist *list = error_calloc(1, sizeof *list, err);

    if (!list)
        return NULL;
    for (const char *next; *text; text = *next ? next + 1 : next) {
        const char *end = next = name_end(text);

        while (text < end && isspace((unsigned char)*text))
            text++;
        while (end > text && isspace((unsigned char)end[-1]))
            end--;
        if (text < end && expand_name(list, text, end, (struct name){0}, err) < 0)
            goto fail;
    }
    return list;
fail:
    hostlist_destroy(list);
    return NULL;
}

void hostlist_destroy(struct hostlist *list)
{
    if (!list)
        return;
    text_free_lines(list->names, (size_t)list->count);
    free(list);
}

/* ---- counts by node ---- */

/* One "8(x3)"; returns how many nodes it is for, -1 if it is none. */
static int read_run(const char **text, int *count)
{
    long number, times = 1;

    if (!text_take_number(text, TASKS_MOST, &number))
        return -1;
    *count = (int)number;
    if ((*text)[0] == '(' && (*text)[1] == 'x') {
        *text += 2;
        if (!text_take_number(text, TASKS_MOST, &times) || times < 1 || **text != ')')
            return -1;
        ++*text;
    }
    return **text == ',' || !**text ? (int)times : -1;
}

int hostlist_counts(const char *text, int *counts, int nodes, int *all, struct error *err)
{
    const char *at = text;
    int filled = 0, count, times;
    long sum = 0;

    do {
        times = read_run(&at, &count);
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
