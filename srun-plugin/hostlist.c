#include "srun-plugin/hostlist.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int append(struct hostlist *list, const char *name, struct error *err)
{
    if (list->count == HOSTLIST_MAX)
        return error_set(err, CODE_DATA, "host list: has more than %d names", HOSTLIST_MAX);
    if ((list->count & (list->count - 1)) == 0) { /* full: room doubles at every power of two */
        char **names = realloc(list->names, (list->count ? 2 * (size_t)list->count : 1) * sizeof *names);

        if (!names)
            return error_errno(err, CODE_IO, "host list");
        list->names = names;
    }
    list->names[list->count] = strdup(name);
    if (!list->names[list->count])
        return error_errno(err, CODE_IO, "host list");
    list->count++;
    return 0;
}

/* Reads digits at *text; -1 if there are none, or more than nine. */
static long read_number(const char **text, int *width)
{
    long number = 0;

    for (*width = 0; isdigit((unsigned char)**text); (*text)++) {
        if (++*width > 9)
            return -1;
        number = number * 10 + (**text - '0');
    }
    return *width ? number : -1;
}

struct name {
    char text[HOSTNAME_SIZE];
    size_t used;
};

static int expand(struct hostlist *list, const char *rest, const char *end, struct name name, struct error *err);

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
        if (expand(list, rest, end, longer, err) < 0)
            return -1;
    }
    return 0;
}

/* `name` is made so far; [rest, end) is what follows it in the list's text. */
static int expand(struct hostlist *list, const char *rest, const char *end, struct name name, struct error *err)
{
    const char *close, *text;

    for (; rest < end && *rest != '['; rest++) {
        if (*rest == ']' || isspace((unsigned char)*rest) || iscntrl((unsigned char)*rest))
            return error_set(err, CODE_DATA, "host list: \"%.40s\" is followed by what no host name holds", name.text);
        if (name.used + 1 == sizeof name.text)
            return error_set(err, CODE_DATA, "host list: a name is longer than %d characters", HOSTNAME_SIZE - 1);
        name.text[name.used++] = *rest;
        name.text[name.used] = '\0';
    }
    if (rest == end)
        return append(list, name.text, err);
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
    struct hostlist *list = calloc(1, sizeof *list);

    if (!list) {
        error_errno(err, CODE_IO, "host list");
        return NULL;
    }
    for (const char *next; *text; text = *next ? next + 1 : next) {
        const char *end = next = name_end(text);

        while (text < end && isspace((unsigned char)*text))
            text++;
        while (end > text && isspace((unsigned char)end[-1]))
            end--;
        if (text < end && expand(list, text, end, (struct name){0}, err) < 0)
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
    for (int i = 0; i < list->count; i++)
        free(list->names[i]);
    free(list->names);
    free(list);
}
