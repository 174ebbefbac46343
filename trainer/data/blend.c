#include "trainer/data/blend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/job_data.h"

struct blend {
    struct job_data data;
    struct samples *sets[JOB_SETS_MOST];
    struct apportion *apportion;
};

struct blend *blend_create(const struct job *job, bool train, struct error *err)
{
    struct blend *blend = error_calloc(1, sizeof *blend, err);
    double parts[JOB_SETS_MOST];

    if (!blend || job_data_parse(&blend->data, train ? job->data.train : job->data.valid, err) < 0)
        goto fail;
    for (int i = 0; i < blend->data.count; i++) {
        const char *prefix = blend->data.sets[i].prefix;

        parts[i] = blend->data.sets[i].part;
        /* The seeds of jobs are below 2^53. */
        blend->sets[i] = samples_create(job, prefix, train, train ? job->batch.seed + ((uint64_t)i << 53) : 0, err);
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

void blend_locate(struct blend *blend, uint64_t first, long count, struct drawn_sample *drawn)
{
    apportion_seek(blend->apportion, first);
    for (long i = 0; i < count; i++) {
        int set = apportion_next(blend->apportion);

        drawn[i] = (struct drawn_sample){.set = set, .number = apportion_counts(blend->apportion)[set] - 1};
    }
}

const uint64_t *blend_counts(struct blend *blend, uint64_t n)
{
    apportion_seek(blend->apportion, n);
    return apportion_counts(blend->apportion);
}

int blend_read(const struct blend *blend, struct drawn_sample drawn, const struct sample *into, struct error *err)
{
    return samples_read(blend->sets[drawn.set], drawn.number, into, err);
}

/* ---- set records ------------------------------------------------------------------------------------------------- */

#define RECORD_MARK "#! data: "
#define RECORD_LINE RECORD_MARK "%" PRIu64 " tokens, %" PRIu64 " documents, index %08" PRIx32 ", "
#define RECORD_SCAN RECORD_MARK "%" SCNu64 " tokens, %" SCNu64 " documents, index %" SCNx32 ",%n"

static void append_sets(FILE *text, const struct blend *blend)
{
    for (int i = 0; blend && i < blend_sets(blend); i++) {
        struct blend_set set = blend_set(blend, i);

        fprintf(text, RECORD_LINE "%s\n", set.facts.tokens, set.facts.documents, set.facts.checksum, set.prefix);
    }
}

char *set_record_append(const char *job_text, const struct blend *train, const struct blend *valid, struct error *err)
{
    char *text = NULL;
    size_t size, length = strlen(job_text);
    FILE *stream = open_memstream(&text, &size);

    if (stream) {
        fprintf(stream, "%s%s", job_text, length > 0 && job_text[length - 1] != '\n' ? "\n" : "");
        append_sets(stream, train);
        append_sets(stream, valid);
    }
    if (!stream || fclose(stream) != 0) {
        error_errno(err, CODE_IO, "no memory for the job text");
        free(text);
        return NULL;
    }
    return text;
}

/* In a text that is not UTF-8 a manifest has '?' for each byte that is not ASCII. */
static bool is_prefix(const char *kept, const char *prefix)
{
    for (; *prefix && (*kept == *prefix || (*kept == '?' && (unsigned char)*prefix >= 0x80)); prefix++)
        kept++;
    return !*prefix && (*kept == '\n' || !*kept);
}

/* The facts in the last line of that prefix: a job file that was taken from a checkpoint has earlier ones. */
static bool find_record(const char *text, const char *prefix, struct indexed_facts *facts)
{
    bool found = false;

    for (const char *line = text; line; line = strchr(line, '\n')) {
        struct indexed_facts here;
        int end = 0;

        line += *line == '\n';
        if (strncmp(line, RECORD_MARK, strlen(RECORD_MARK)) == 0 &&
            sscanf(line, RECORD_SCAN, &here.tokens, &here.documents, &here.checksum, &end) == 3 && line[end] == ' ' &&
            is_prefix(line + end + 1, prefix)) {
            *facts = here;
            found = true;
        }
    }
    return found;
}

int set_record_compare(const char *job_text, const struct blend *blend, struct error *err)
{
    for (int i = 0; blend && i < blend_sets(blend); i++) {
        struct blend_set set = blend_set(blend, i);
        struct indexed_facts now = set.facts, before;

        if (find_record(job_text, set.prefix, &before) &&
            (before.tokens != now.tokens || before.documents != now.documents || before.checksum != now.checksum))
            return error_set(err, CODE_CONFIG,
                             "data set %.400s was replaced: it has %" PRIu64 " tokens in %" PRIu64
                             " document%s (index %08" PRIx32 "), and had %" PRIu64 " in %" PRIu64 " (%08" PRIx32 ")",
                             set.prefix, now.tokens, now.documents, now.documents == 1 ? "" : "s", now.checksum,
                             before.tokens, before.documents, before.checksum);
    }
    return 0;
}
