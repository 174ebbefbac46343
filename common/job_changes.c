/* job_changes.c - job_changes of job.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/job.h"
#include "common/job_keys.h"

/* What changes the numbers of a run. Not the mesh, nor what is only reported or kept; and seeds are compared before. */
static bool is_of_training(const struct job_key *key)
{
    static const char *const parts[] = {"model.dropout",  "model.attention_dropout",
                                        "batch.",         "optimizer.",
                                        "data.mask_prob", "data.short_prob",
                                        "data.cls",       "data.sep",
                                        "data.mask",      "data.pad",
                                        "precision."};

    if (strcmp(key->path, "batch.micro_batch") == 0 || strcmp(key->path, "optimizer.most_skipped") == 0)
        return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strncmp(key->path, parts[i], strlen(parts[i])) == 0)
            return true;
    return false;
}

static const void *field(const struct job *job, const struct job_key *key)
{
    return (const char *)job + key->offset;
}

/* A type in which to sum is of any that one may compute in, though a file says "compute". */
static const char *choice(const struct job_key *key, const void *at)
{
    const struct job_key *names =
        key->offset == offsetof(struct job, precision.reduce) ? &job_keys[job_key_find("precision.compute")] : key;
    unsigned index;

    memcpy(&index, at, sizeof index);
    return names->choices[index];
}

static void show(char *text, size_t size, const struct job *job, const struct job_key *key)
{
    const void *at = field(job, key);

    switch (key->type) {
    case JOB_KEY_INT:
        snprintf(text, size, "%d", *(const int *)at);
        break;
    case JOB_KEY_LONG:
        snprintf(text, size, "%ld", *(const long *)at);
        break;
    case JOB_KEY_U64:
        snprintf(text, size, "%" PRIu64, *(const uint64_t *)at);
        break;
    case JOB_KEY_NUMBER:
        snprintf(text, size, "%.10g", *(const double *)at);
        break;
    case JOB_KEY_STRING:
        snprintf(text, size, "\"%s\"", (const char *)at);
        break;
    case JOB_KEY_BOOL:
        snprintf(text, size, "%s", *(const bool *)at ? "true" : "false");
        break;
    case JOB_KEY_CHOICE:
        snprintf(text, size, "\"%s\"", choice(key, at));
        break;
    }
}

bool job_changes(char *text, size_t size, const struct job *before, const struct job *now)
{
    size_t used = 0;

    text[0] = '\0';
    for (int k = 0; k < job_key_count; k++) {
        const struct job_key *key = &job_keys[k];
        char then[64], here[64];

        if (!is_of_training(key) || memcmp(field(before, key), field(now, key), key->size) == 0)
            continue;
        show(then, sizeof then, before, key);
        show(here, sizeof here, now, key);
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s was %s and is %s", used ? ", " : "", key->path,
                                     then, here);
    }
    return used > 0;
}
