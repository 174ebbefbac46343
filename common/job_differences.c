/* job_differences.c - in which keys two jobs differ that what is learned depends on. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/job.h"
#include "common/job_keys.h"

#define VALUE_SIZE (JOB_PATH_SIZE + 2)

/*
 * Groups that say what is learned, and keys of theirs that do not: what is there to begin with is made once, another
 * seed is refused, and the rest changes how the same is computed. batch.steps is a matter of the schedule.
 */
static const char *const groups[] = {"model.", "batch.", "optimizer.", "data.", "precision."};
static const char *const others[] = {
    "model.preset", "model.init_std",   "batch.micro_batch",
    "batch.steps",  "batch.seed",       "optimizer.most_skipped",
    "data.valid",   "precision.reduce", "precision.loss_scale_start",
};

static bool is_learned_by(const struct job_key *key)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(key->path, others[i]) == 0)
            return false;
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (strncmp(key->path, groups[i], strlen(groups[i])) == 0)
            return true;
    return false;
}

/* Where no other end of it is given, the rate falls until the run ends. */
static bool falls_until_the_end(const struct job *job)
{
    return job->optimizer.decay_steps == 0 && job->optimizer.schedule != LR_CONSTANT;
}

static const void *field_of(const struct job *job, const struct job_key *key)
{
    return (const char *)job + key->offset;
}

static bool differs(const struct job *a, const struct job *b, const struct job_key *key)
{
    if (strcmp(key->path, "batch.steps") == 0)
        return a->batch.steps != b->batch.steps && (falls_until_the_end(a) || falls_until_the_end(b));
    if (!is_learned_by(key))
        return false;
    if (key->type == JOB_KEY_STRING)
        return strcmp(field_of(a, key), field_of(b, key)) != 0;
    return memcmp(field_of(a, key), field_of(b, key), key->size) != 0;
}

/* As the job file would have it. */
static void print_value(char *text, const struct job *job, const struct job_key *key)
{
    const void *field = field_of(job, key);

    switch (key->type) {
    case JOB_KEY_INT:
        snprintf(text, VALUE_SIZE, "%d", *(const int *)field);
        break;
    case JOB_KEY_LONG:
        snprintf(text, VALUE_SIZE, "%ld", *(const long *)field);
        break;
    case JOB_KEY_U64:
        snprintf(text, VALUE_SIZE, "%" PRIu64, *(const uint64_t *)field);
        break;
    case JOB_KEY_NUMBER:
        snprintf(text, VALUE_SIZE, "%.9g", *(const double *)field);
        break;
    case JOB_KEY_BOOL:
        snprintf(text, VALUE_SIZE, "%s", *(const bool *)field ? "true" : "false");
        break;
    case JOB_KEY_CHOICE: /* all enums are ints */
        snprintf(text, VALUE_SIZE, "\"%s\"", key->choices[*(const int *)field]);
        break;
    case JOB_KEY_STRING:
        snprintf(text, VALUE_SIZE, "\"%s\"", (const char *)field);
        break;
    }
}

void job_each_difference(const struct job *a, const struct job *b,
                         void (*visit)(const char *path, const char *in_a, const char *in_b, void *arg), void *arg)
{
    char in_a[VALUE_SIZE], in_b[VALUE_SIZE];

    for (int k = 0; k < job_key_count; k++) {
        if (!differs(a, b, &job_keys[k]))
            continue;
        print_value(in_a, a, &job_keys[k]);
        print_value(in_b, b, &job_keys[k]);
        visit(job_keys[k].path, in_a, in_b, arg);
    }
}
