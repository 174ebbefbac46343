/* manifest.c - a save's part of the manifest, what makes a manifest valid, and its files. Its JSON: manifest_json.c. */
#include "config.h"

#include "ckpt/format/manifest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/format/pieces.h"
#include "common/crc32c.h"
#include "common/safetensors.h"

static int check_tensors(const struct manifest *manifest, struct error *err)
{
    const struct ckpt_tensor **by_name;
    const char *twice = NULL;

    for (size_t i = 0; i < manifest->ntensors; i++) {
        const struct ckpt_tensor *tensor = &manifest->tensors[i];

        if (tensor->name[0] == '\0' || strnlen(tensor->name, CKPT_NAME_SIZE) == CKPT_NAME_SIZE)
            return error_set(err, CODE_DATA, "tensor %zu: its name must have 1 to %d bytes", i, CKPT_NAME_SIZE - 1);
        if (!tensor_is_valid(tensor))
            return error_set(
                err, CODE_DATA,
                "tensor \"%s\": its shape must be 1 to %d sizes of at least 1, and 62 bits of bytes in all",
                tensor->name, CKPT_MAX_DIMS);
    }
    by_name = tensors_by_name(manifest->tensors, manifest->ntensors);
    if (!by_name)
        return error_errno(err, CODE_IO, "a table of %zu tensors", manifest->ntensors);
    for (size_t i = 1; i < manifest->ntensors && !twice; i++)
        twice = strcmp(by_name[i - 1]->name, by_name[i]->name) == 0 ? by_name[i]->name : NULL;
    free(by_name);
    return twice ? error_set(err, CODE_DATA, "tensor \"%s\" is given twice", twice) : 0;
}

/* Kinds are the names of the shard's own tensors, so '_' is kept for safetensors' __metadata__ and our pads. */
static int check_kinds(const struct manifest *manifest, struct error *err)
{
    if (manifest->nkinds < 1 || manifest->nkinds > 64)
        return error_set(err, CODE_DATA, "%zu kinds, there must be 1 to 64", manifest->nkinds);
    for (size_t k = 0; k < manifest->nkinds; k++) {
        const char *kind = manifest->kinds[k];

        if (kind[0] == '\0' || kind[0] == '_' || strlen(kind) >= CKPT_NAME_SIZE)
            return error_set(err, CODE_DATA,
                             "kind \"%s\": a kind's name must have 1 to %d bytes and not begin with '_'", kind,
                             CKPT_NAME_SIZE - 1);
        for (size_t i = 0; i < k; i++)
            if (strcmp(manifest->kinds[i], kind) == 0)
                return error_set(err, CODE_DATA, "kind \"%s\" is given twice", kind);
    }
    return 0;
}

static int check_state(const struct ckpt_progress *state, struct error *err)
{
    if (state->step > INT64_MAX || state->consumed_samples > INT64_MAX || state->skipped_steps > INT64_MAX ||
        state->skipped_in_a_row > INT64_MAX || state->loss_count > INT64_MAX)
        return error_set(err, CODE_DATA,
                         "state: step, consumed_samples, skipped_steps, skipped_in_a_row and loss_count must be below "
                         "2^63");
    if (!isfinite(state->loss_scale) || !isfinite(state->loss_mean))
        return error_set(err, CODE_DATA, "state: loss_scale and loss_mean must be finite");
    if (state->loss_scale_good_steps < 0 || state->loss_scale_hysteresis < 0)
        return error_set(err, CODE_DATA, "state: loss_scale_good_steps and loss_scale_hysteresis must not be negative");
    return 0;
}

int manifest_check(const struct manifest *manifest, struct error *err)
{
    if (manifest->shards < 1 || manifest->shards > CKPT_MAX_SHARDS)
        return error_set(err, CODE_DATA, "%d shards, there must be 1 to %d", manifest->shards, CKPT_MAX_SHARDS);
    if (manifest->part < -1 || manifest->part >= manifest->shards)
        return error_set(err, CODE_DATA, "shard %d of %d", manifest->part, manifest->shards);
    if (!name_is_attempt(manifest->attempt))
        return error_set(err, CODE_DATA, "attempt \"%s\": must be 1 to %d letters, digits, '.', '_' and '-'",
                         manifest->attempt, CKPT_ATTEMPT_SIZE - 1);
    if (check_state(&manifest->state, err) < 0 || check_kinds(manifest, err) < 0)
        return -1;
    return check_tensors(manifest, err);
}

int manifest_lay_out(const struct manifest *manifest, struct manifest_shard *shard, struct error *err)
{
    uint64_t elements = 0;

    for (size_t p = 0; p < shard->npieces; p++) {
        const struct ckpt_piece *piece = &shard->pieces[p];

        if (piece->tensor >= manifest->ntensors)
            return error_set(err, CODE_DATA, "piece %zu: tensor %u of a table of %zu", p, piece->tensor,
                             manifest->ntensors);
        if (piece->count == 0 || !piece_is_valid(piece, &manifest->tensors[piece->tensor]))
            return error_set(err, CODE_DATA, "piece %zu: not within tensor \"%s\"", p,
                             manifest->tensors[piece->tensor].name);
        if (__builtin_add_overflow(elements, piece->count, &elements))
            return error_set(err, CODE_DATA, "piece %zu: the number of elements exceeds 64 bits", p);
    }
    if (shard_layout_of(&shard->layout, elements, manifest->nkinds) < 0)
        return error_set(err, CODE_DATA, "the shard's size exceeds 62 bits");
    return 0;
}

/* ---- the part of a save ------------------------------------------------------------------------------------------ */

/* Copies the save's tables, without empty pieces. */
static int copy_tables(struct manifest *part, const struct ckpt_save *save, struct error *err)
{
    struct manifest_shard *shard = part->shard = calloc(1, sizeof *shard);

    part->tensors = calloc(save->ntensors + 1, sizeof *part->tensors);
    part->kinds = calloc(save->nkinds + 1, sizeof *part->kinds);
    part->job_text = strdup(save->job_text ? save->job_text : "");
    if (shard)
        shard->pieces = calloc(save->npieces + 1, sizeof *shard->pieces);
    if (!shard || !shard->pieces || !part->tensors || !part->kinds || !part->job_text)
        return error_errno(err, CODE_IO, "manifest of shard %d", save->shard);
    part->ntensors = save->ntensors;
    if (save->ntensors)
        memcpy(part->tensors, save->tensors, save->ntensors * sizeof *part->tensors);
    for (part->nkinds = 0; part->nkinds < save->nkinds; part->nkinds++) {
        part->kinds[part->nkinds] = strdup(save->kinds[part->nkinds]);
        if (!part->kinds[part->nkinds])
            return error_errno(err, CODE_IO, "manifest of shard %d", save->shard);
    }
    for (size_t p = 0; p < save->npieces; p++)
        if (save->pieces[p].count > 0)
            shard->pieces[shard->npieces++] = save->pieces[p];
    return 0;
}

/* Creates the shard's safetensors header: one 1-D tensor for each kind, at the layout's offsets. Sets data_offset and
 * header_crc, and allocates block_crcs. */
static int make_header(struct manifest *part, void **header, struct error *err)
{
    struct safetensors_entry *entries = error_calloc(part->nkinds, sizeof *entries, err);
    const char *metadata[] = {"format", "muster-shard", NULL};
    struct manifest_shard *shard = part->shard;
    size_t bytes = 0;
    int result = -1;

    shard->block_crcs = error_calloc(shard->layout.blocks + 1, sizeof *shard->block_crcs, err);
    for (size_t k = 0; entries && k < part->nkinds; k++)
        entries[k] = (struct safetensors_entry){part->kinds[k], "F32", 1, {shard->layout.elements}, 0, 0};
    if (entries && shard->block_crcs)
        result = safetensors_layout(entries, part->nkinds, metadata, SHARD_ALIGN, SHARD_ALIGN, header, &bytes, err);
    if (result == 0) {
        shard->data_offset = bytes;
        shard->header_crc = crc32c(0, *header, bytes);
    }
    free(entries);
    return result;
}

struct manifest *manifest_create_part(const struct ckpt_save *save, void **header, struct error *err)
{
    struct manifest *part = error_calloc(1, sizeof *part, err);

    if (!part)
        return NULL;
    *part = (struct manifest){.part = save->shard, .shards = save->shards, .state = save->state};
    snprintf(part->version, sizeof part->version, "%s", PACKAGE_VERSION);
    if (name_is_attempt(save->attempt)) /* otherwise manifest_check refuses "" */
        snprintf(part->attempt, sizeof part->attempt, "%s", save->attempt);
    if (copy_tables(part, save, err) < 0)
        goto fail;
    if (manifest_check(part, err) < 0 || manifest_lay_out(part, part->shard, err) < 0) {
        if (err && err->code == CODE_DATA)
            err->code = CODE_INTERNAL; /* the caller's struct is wrong, not a file */
        error_prefix(err, "cannot save step %llu", (unsigned long long)save->state.step);
        goto fail;
    }
    gethostname(part->shard->host, sizeof part->shard->host - 1);
    part->shard->written = (uint64_t)time(NULL);
    if (make_header(part, header, err) == 0)
        return part;
fail:
    manifest_destroy(part);
    return NULL;
}

/* ---- do parts belong together? ----------------------------------------------------------------------------------- */

static bool same_tensors(const struct manifest *a, const struct manifest *b)
{
    if (a->ntensors != b->ntensors)
        return false;
    for (size_t i = 0; i < a->ntensors; i++)
        if (strcmp(a->tensors[i].name, b->tensors[i].name) != 0 || !tensor_same_shape(&a->tensors[i], &b->tensors[i]))
            return false;
    return true;
}

static bool same_kinds(const struct manifest *a, const struct manifest *b)
{
    if (a->nkinds != b->nkinds)
        return false;
    for (size_t k = 0; k < a->nkinds; k++)
        if (strcmp(a->kinds[k], b->kinds[k]) != 0)
            return false;
    return true;
}

static bool same_state(const struct ckpt_progress *a, const struct ckpt_progress *b)
{
    const struct json_field *field = ckpt_state_fields;

    while (field->name && memcmp((const char *)a + field->offset, (const char *)b + field->offset, field->size) == 0)
        field++;
    return !field->name;
}

int manifest_agree(const struct manifest *a, const struct manifest *b, struct error *err)
{
    const char *what = a->shards != b->shards                  ? "the number of shards"
                       : strcmp(a->attempt, b->attempt) != 0   ? "the attempt"
                       : !same_state(&a->state, &b->state)     ? "the state (step, samples, seed, ...)"
                       : !same_kinds(a, b)                     ? "the kinds"
                       : !same_tensors(a, b)                   ? "the table of tensors"
                       : strcmp(a->job_text, b->job_text) != 0 ? "the job file"
                                                               : NULL;

    return what ? error_set(err, CODE_DATA, "does not agree with shard %d on %s", a->part, what) : 0;
}

int manifest_check_save(const struct manifest *manifest, uint64_t step, const char *attempt, struct error *err)
{
    if (manifest->state.step == step && strcmp(manifest->attempt, attempt) == 0)
        return 0;
    return error_set(err, CODE_DATA, "is of step %" PRIu64 ", attempt \"%s\"", manifest->state.step, manifest->attempt);
}

void manifest_destroy(struct manifest *manifest)
{
    if (!manifest)
        return;
    for (int i = 0; manifest->shard && i < manifest_count(manifest); i++) {
        free(manifest->shard[i].block_crcs);
        free(manifest->shard[i].pieces);
    }
    for (size_t k = 0; manifest->kinds && k < manifest->nkinds; k++)
        free(manifest->kinds[k]);
    free(manifest->shard);
    free(manifest->kinds);
    free(manifest->tensors);
    free(manifest->job_text);
    free(manifest);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

struct manifest *manifest_read(const struct directory *directory, const char *name, int part, int shards,
                               struct error *err)
{
    size_t bytes;
    char *text = file_read(directory, name, MANIFEST_MAX_BYTES, &bytes, err);
    struct manifest *manifest = text ? manifest_decode(text, bytes, part, shards, err) : NULL;

    if (text && !manifest)
        error_prefix(err, "%s/%s", directory->path, name);
    free(text);
    return manifest;
}

int manifest_open_shard(const struct manifest *manifest, int shard, const struct directory *directory,
                        struct error *err)
{
    const struct manifest_shard *described = &manifest->shard[manifest->part < 0 ? shard : 0];
    uint64_t bytes, expected = manifest_shard_bytes(described);
    char name[FILE_NAME_SIZE];
    int fd;

    name_shard(name, SHARD_DATA, shard, manifest->shards);
    fd = file_open(directory, name, &bytes, err);
    if (fd < 0 || bytes == expected)
        return fd;
    close(fd);
    return error_set(err, CODE_DATA, "%s/%s: %" PRIu64 " bytes, the %s says %" PRIu64 "%s", directory->path, name,
                     bytes, manifest->part < 0 ? "manifest" : "part", expected, bytes < expected ? ": truncated" : "");
}

void *manifest_read_header(const struct manifest *manifest, int shard, int fd, const struct directory *directory,
                           struct error *err)
{
    const struct manifest_shard *described = &manifest->shard[manifest->part < 0 ? shard : 0];
    void *header = error_calloc(1, described->data_offset, err);
    char name[FILE_NAME_SIZE];
    uint32_t crc;

    name_shard(name, SHARD_DATA, shard, manifest->shards);
    if (!header)
        return NULL;
    if (file_read_at(fd, header, described->data_offset, 0, directory->path, name, err) == 0) {
        crc = crc32c(0, header, described->data_offset);
        if (crc == described->header_crc)
            return header;
        error_set(err, CODE_DATA,
                  "%s/%s: checksum mismatch in the header, bytes 0 to %" PRIu64 ": %08" PRIx32
                  ", the %s says %08" PRIx32,
                  directory->path, name, described->data_offset, crc, manifest->part < 0 ? "manifest" : "part",
                  described->header_crc);
    }
    free(header);
    return NULL;
}

int manifest_write(const struct manifest *manifest, const struct directory *directory, struct error *err)
{
    char name[FILE_NAME_SIZE] = MANIFEST_NAME;
    size_t bytes;
    char *text = manifest_encode(manifest, &bytes, err);
    int result = -1;

    if (manifest->part >= 0)
        name_shard(name, SHARD_PART, manifest->part, manifest->shards);
    if (text && file_write(directory, name, text, bytes, err) == 0)
        result = directory_sync(directory, err);
    free(text);
    return result;
}
