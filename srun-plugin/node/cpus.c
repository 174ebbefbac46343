#include "srun-plugin/node/cpus.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"

#define WORDS (CPUS_MAX / 64)

/* The kernel's masks are arrays of long; so are those of struct cpus. */
_Static_assert(sizeof(long) == sizeof(uint64_t), "a mask of CPUs has words of 64 bits");

void cpus_add(struct cpus *set, unsigned cpu)
{
    if (cpu < CPUS_MAX)
        set->word[cpu / 64] |= UINT64_C(1) << (cpu % 64);
}

bool cpus_has(const struct cpus *set, unsigned cpu)
{
    return cpu < CPUS_MAX && (set->word[cpu / 64] >> (cpu % 64) & 1);
}

unsigned cpus_count(const struct cpus *set)
{
    unsigned count = 0;

    for (size_t i = 0; i < WORDS; i++)
        count += (unsigned)__builtin_popcountll(set->word[i]);
    return count;
}

bool cpus_equal(const struct cpus *a, const struct cpus *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

bool cpus_intersect(const struct cpus *a, const struct cpus *b)
{
    for (size_t i = 0; i < WORDS; i++)
        if (a->word[i] & b->word[i])
            return true;
    return false;
}

void cpus_and(struct cpus *set, const struct cpus *with)
{
    for (size_t i = 0; i < WORDS; i++)
        set->word[i] &= with->word[i];
}

void cpus_or(struct cpus *set, const struct cpus *with)
{
    for (size_t i = 0; i < WORDS; i++)
        set->word[i] |= with->word[i];
}

int cpus_next(const struct cpus *set, unsigned from)
{
    for (unsigned cpu = from; cpu < CPUS_MAX; cpu++) {
        uint64_t rest = set->word[cpu / 64] >> (cpu % 64);

        if (rest)
            return (int)(cpu + (unsigned)__builtin_ctzll(rest));
        cpu |= 63;
    }
    return -1;
}

int cpus_parse(struct cpus *set, const char *text, struct error *err)
{
    const char *rest = text;

    memset(set, 0, sizeof *set);
    while (*rest && !isspace((unsigned char)*rest)) {
        long first = 0, last;
        bool valid = text_take_number(&rest, CPUS_MAX - 1, &first);

        last = first;
        if (valid && *rest == '-') {
            rest++;
            valid = text_take_number(&rest, CPUS_MAX - 1, &last) && last >= first;
        }
        if (!valid || (*rest && *rest != ',' && !isspace((unsigned char)*rest)))
            return error_set(err, CODE_DATA, "'%s' is not a list of CPUs such as \"0-3,8\", each below %d", text,
                             CPUS_MAX);
        for (long cpu = first; cpu <= last; cpu++)
            cpus_add(set, (unsigned)cpu);
        rest += *rest == ',';
    }
    return 0;
}

char *cpus_format(const struct cpus *set, char *text, size_t size)
{
    size_t used = 0;

    snprintf(text, size, "-");
    for (int first = cpus_next(set, 0), last; first >= 0; first = cpus_next(set, (unsigned)last + 1)) {
        char range[32];

        for (last = first; cpus_has(set, (unsigned)last + 1); last++)
            ;
        snprintf(range, sizeof range, last > first ? "%s%d-%d" : "%s%d", used ? "," : "", first, last);
        if (used + strlen(range) + 4 > size) {
            snprintf(text + used, size - used, "...");
            break;
        }
        used += (size_t)snprintf(text + used, size - used, "%s", range);
    }
    return text;
}

int affinity_get(struct cpus *cpus)
{
    *cpus = (struct cpus){0};
    return sched_getaffinity(0, sizeof *cpus, (cpu_set_t *)cpus) < 0 ? -1 : 0;
}

int affinity_set(const struct cpus *cpus)
{
    return sched_setaffinity(0, sizeof *cpus, (const cpu_set_t *)cpus);
}

int affinity_read(struct affinity *affinity, const struct cpus *every)
{
    struct cpus widest;

    if (affinity_get(&affinity->own) < 0)
        return -1;
    affinity->all = affinity->own;
    if (every && cpus_equal(&affinity->own, every))
        return 0;
    memset(&widest, 0xff, sizeof widest);
    if (affinity_set(&widest) == 0)
        affinity_get(&affinity->all);
    affinity_set(&affinity->own);
    return 0;
}
