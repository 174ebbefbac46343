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
        .facts = indexed_facts(samples_data(blend->sets[set])),
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

#define RECORD_MARK "#! data"
#define RECORD_LINE                                                                                                    \
    RECORD_MARK " 2: %" PRIu64 " tokens, %" PRIu64 " documents, index %08" PRIx32 ", blocks %08" PRIx32 ", %s\n"
#define RECORD_SCAN ": %" SCNu64 " tokens, %" SCNu64 " documents, index %" SCNx32 ","

struct set_record {
    uint64_t tokens, documents;
    uint32_t index, blocks;
    bool has_blocks; /* false: a line of the first releases */
};

static int append_sets(FILE *text, const struct blend *blend, struct error *err)
{
    for (int i = 0; blend && i < blend_sets(blend); i++) {
        struct blend_set set = blend_set(blend, i);
        uint32_t blocks;

        if (indexed_blocks(samples_data(blend->sets[i]), &blocks, err) < 0)
            return -1;
        fprintf(text, RECORD_LINE, set.facts.tokens, set.facts.documents, set.facts.checksum, blocks, set.prefix);
    }
    return 0;
}

char *set_record_append(const char *job_text, const struct blend *train, const struct blend *valid, struct error *err)
{
    char *text = NULL;
    size_t size, length = strlen(job_text);
    FILE *stream = open_memstream(&text, &size);
    int result = 0;

    if (stream) {
        fprintf(stream, "%s%s", job_text, length > 0 && job_text[length - 1] != '\n' ? "\n" : "");
        result = append_sets(stream, train, err) < 0 || append_sets(stream, valid, err) < 0 ? -1 : 0;
    }
    if (!stream || fclose(stream) != 0)
        result = error_errno(err, CODE_IO, "no memory for the job text");
    if (result == 0)
        return text;
    free(text);
    return NULL;
}

/* In a text that is not UTF-8 a manifest has '?' for each byte that is not ASCII. */
static bool is_prefix(const char *kept, const char *prefix)
{
    for (; *prefix && (*kept == *prefix || (*kept == '?' && (unsigned char)*prefix >= 0x80)); prefix++)
        kept++;
    return !*prefix && (*kept == '\n' || !*kept);
}

/* Reads a line that records the set of this prefix. False: it is another line. */
static bool scan_record(const char *line, const char *prefix, struct set_record *record)
{
    int end = 0;

    *record = (struct set_record){.has_blocks = true};
    sscanf(line, RECORD_MARK " 2" RECORD_SCAN " blocks %" SCNx32 ",%n", &record->tokens, &record->documents,
           &record->index, &record->blocks, &end);
    if (end == 0) {
        record->has_blocks = false;
        sscanf(line, RECORD_MARK RECORD_SCAN "%n", &record->tokens, &record->documents, &record->index, &end);
    }
    return end > 0 && line[end] == ' ' && is_prefix(line + end + 1, prefix);
}

/* The last line of that prefix: a job file that was taken from a checkpoint has earlier ones. */
static bool find_record(const char *text, const char *prefix, struct set_record *record)
{
    struct set_record here;
    bool found = false;

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (scan_record(line, prefix, &here)) {
            *record = here;
            found = true;
        }
    }
    return found;
}

int set_record_compare(const char *before, const char *now, const struct blend *blend, struct error *err)
{
    int result = 0;

    for (int i = 0; blend && i < blend_sets(blend); i++) {
        const char *prefix = blend_set(blend, i).prefix;
        struct set_record had, has;

        if (!find_record(before, prefix, &had) || !find_record(now, prefix, &has))
            continue;
        if (had.tokens != has.tokens || had.documents != has.documents || had.index != has.index)
            return error_set(err, CODE_CONFIG,
                             "data set %.400s was replaced: it has %" PRIu64 " tokens in %" PRIu64
                             " document%s (index %08" PRIx32 "), and had %" PRIu64 " in %" PRIu64 " (%08" PRIx32 ")",
                             prefix, has.tokens, has.documents, has.documents == 1 ? "" : "s", has.index, had.tokens,
                             had.documents, had.index);
        if (!had.has_blocks)
            result = error_set(err, CODE_OK,
                               "the checkpoint is of an earlier release, which recorded the lengths of the documents "
                               "of data set %.400s, and not its tokens: these are not compared",
                               prefix);
        else if (had.blocks != has.blocks)
            return error_set(err, CODE_CONFIG,
                             "data set %.400s was replaced: it has documents of the same lengths as before, and other "
                             "tokens (blocks %08" PRIx32 ", and had %08" PRIx32 ")",
                             prefix, has.blocks, had.blocks);
    }
    return result;
}
