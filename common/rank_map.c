#include "common/rank_map.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* How many of map[0 .. count) go up by the same step, which is 1 or more. */
static int run_length(const int *map, int count, int *step)
{
    int length = 1;

    *step = count > 1 ? map[1] - map[0] : 1;
    if (*step < 1)
        return 1;
    while (length < count && map[length] - map[length - 1] == *step)
        length++;
    return length > 2 || *step == 1 ? length : 1; /* "3,9" is no longer than "3-9:6" */
}

char *rank_map_text(const int *map, int world, struct error *err)
{
    enum { RUN = 3 * 12 }; /* three numbers of 32 bits, and what is between them */
    char *text = calloc(1, RANK_MAP_TEXT + RUN + 1);
    int used = 0, step, length;

    if (!text) {
        error_errno(err, CODE_IO, "no memory for the order of %d ranks", world);
        return NULL;
    }
    for (int at = 0; at < world && used <= RANK_MAP_TEXT; at += length) {
        length = run_length(&map[at], world - at, &step);
        used += snprintf(text + used, RUN, "%s%d", at ? "," : "", map[at]);
        if (length > 1)
            used += snprintf(text + used, RUN, "-%d", map[at + length - 1]);
        if (length > 1 && step > 1)
            used += snprintf(text + used, RUN, ":%d", step);
    }
    if (used <= RANK_MAP_TEXT)
        return text;
    error_set(err, CODE_CONFIG, "the order of %d ranks is too irregular to be told in one variable", world);
    free(text);
    return NULL;
}

static int read_number(const char **text, long most, long *number)
{
    if (!isdigit((unsigned char)**text))
        return -1;
    for (*number = 0; isdigit((unsigned char)**text); (*text)++) {
        *number = *number * 10 + (**text - '0');
        if (*number > most)
            return -1;
    }
    return 0;
}

/* One run into map[*count ...], whose entries are -1 as long as they are not set; taken[rank] marks who was there. */
static int read_run(const char **text, int world, int *map, char *taken, int *count, struct error *err)
{
    long first, last, step = 1;

    if (read_number(text, world - 1, &first) < 0)
        return error_set(err, CODE_CONFIG, "a rank from 0 to %d must stand there", world - 1);
    last = first;
    if (**text == '-') {
        ++*text;
        if (read_number(text, world - 1, &last) < 0 || last < first)
            return error_set(err, CODE_CONFIG, "a run must end with a rank from %ld to %d", first, world - 1);
        if (**text == ':') {
            ++*text;
            if (read_number(text, world, &step) < 0 || step < 1 || (last - first) % step != 0)
                return error_set(err, CODE_CONFIG, "the step of a run must lead from %ld to %ld", first, last);
        }
    }
    for (long rank = first; rank <= last; rank += step) {
        if (taken[rank])
            return error_set(err, CODE_CONFIG, "rank %ld is there twice", rank);
        taken[rank] = 1;
        map[(*count)++] = (int)rank;
    }
    return 0;
}

int rank_map_parse(const char *text, int world, int *map, struct error *err)
{
    const char *at = text;
    char *taken = calloc((size_t)world, 1);
    int count = 0, rc = -1;

    if (!taken)
        return error_errno(err, CODE_IO, "no memory for the order of %d ranks", world);
    for (;; at++) {
        if (read_run(&at, world, map, taken, &count, err) < 0) {
            error_prefix(err, "the map of ranks, at character %td", at - text + 1);
            goto out;
        }
        if (*at != ',')
            break;
    }
    if (*at)
        error_set(err, CODE_CONFIG, "the map of ranks, at character %td: \",\" or the end must stand there",
                  at - text + 1);
    else if (count != world)
        error_set(err, CODE_CONFIG, "the map of ranks is for %d ranks, and there are %d", count, world);
    else
        rc = 0;
out:
    free(taken);
    return rc;
}
