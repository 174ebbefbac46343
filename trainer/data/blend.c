#include "trainer/data/blend.h"

#include <stdlib.h>

#include "common/job_data.h"
#include "trainer/data/apportion.h"

struct blend {
    struct job_data data;
    struct samples *sets[JOB_SETS_MOST];
    struct apportion *apportion;
};

static struct blend *create_blend(const struct job *job, const char *text, bool train, struct error *err)
{
    struct blend *blend = error_calloc(1, sizeof *blend, err);
    double parts[JOB_SETS_MOST];

    if (!blend || job_data_parse(&blend->data, text, err) < 0)
        goto fail;
    for (int i = 0; i < blend->data.count; i++) {
        const char *prefix = blend->data.sets[i].prefix;

        parts[i] = blend->data.sets[i].part;
        /* The seeds of jobs are below 2^53. */
        blend->sets[i] = train ? samples_create_train(job, prefix, job->batch.seed + ((uint64_t)i << 53), err)
                               : samples_create_valid(job, prefix, err);
        if (!blend->sets[i])
            goto fail;
    }
    blend->apportion = apportion_create(parts, blend->data.count, err);
    if (blend->apportion)
        return blend;
fail:
    blend_destroy(blend);
    return NULL;
}

struct blend *blend_create_train(const struct job *job, struct error *err)
{
    return create_blend(job, job->data.train, true, err);
}

struct blend *blend_create_valid(const struct job *job, struct error *err)
{
    return create_blend(job, job->data.valid, false, err);
}

void blend_destroy(struct blend *blend)
{
    if (!blend)
        return;
    for (int i = 0; i < JOB_SETS_MOST; i++)
        samples_destroy(blend->sets[i]);
    apportion_destroy(blend->apportion);
    free(blend);
}

int blend_sets(const struct blend *blend)
{
    return blend->data.count;
}

struct blend_set blend_set(const struct blend *blend, int set)
{
    return (struct blend_set){
        .prefix = blend->data.sets[set].prefix,
        .part = blend->data.sets[set].part,
        .samples = samples_per_epoch(blend->sets[set]),
        .facts = samples_facts(blend->sets[set]),
    };
}

void blend_locate(struct blend *blend, uint64_t first, long count, struct blend_place *places)
{
    apportion_seek(blend->apportion, first);
    for (long i = 0; i < count; i++) {
        int set = apportion_next(blend->apportion);

        places[i] = (struct blend_place){.set = set, .number = apportion_counts(blend->apportion)[set] - 1};
    }
}

const uint64_t *blend_counts(struct blend *blend, uint64_t n)
{
    apportion_seek(blend->apportion, n);
    return apportion_counts(blend->apportion);
}

int blend_read(const struct blend *blend, struct blend_place place, const struct sample *into, struct error *err)
{
    return samples_read(blend->sets[place.set], place.number, into, err);
}
