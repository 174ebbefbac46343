/* manifest.c - what makes a manifest valid; its JSON is in manifest_json.c. */
#include "config.h"

#include "ckpt/format/manifest.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/format/pieces.h"

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Check that no two of the names are equal. Sorts them. */
static int check_unique(const char **names, size_t count, const char *what, struct error *err)
{
    if (count)
        qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return error_set(err, CODE_DATA, "%s \"%s\" is there twice", what, names[i]);
    return 0;
}

static int check_tensors(const struct manifest *manifest, struct error *err)
{
    const char **names = calloc(manifest->ntensors + 1, sizeof *names);
    int result = -1;

    if (!names)
        return error_errno(err, CODE_IO, "a table of %zu tensors", manifest->ntensors);
    for (size_t i = 0; i < manifest->ntensors; i++) {
        const struct ckpt_tensor *tensor = &manifest->tensors[i];

        names[i] = tensor->name;
        if (tensor->name[0] == '\0' || strnlen(tensor->name, CKPT_NAME_SIZE) == CKPT_NAME_SIZE) {
            error_set(err, CODE_DATA, "tensor %zu: its name must have 1 to %d bytes", i, CKPT_NAME_SIZE - 1);
            goto out;
        }
        if (!tensor_is_valid(tensor)) {
            error_set(err, CODE_DATA,
                      "tensor \"%s\": its shape must be 1 to %d sizes of at least 1, and 62 bits of bytes in all",
                      tensor->name, CKPT_MAX_DIMS);
            goto out;
        }
    }
    result = check_unique(names, manifest->ntensors, "tensor", err);
out:
    free(names);
    return result;
}

/* Kinds are the names of the shard's own tensors, so '_' is kept for safetensors' __metadata__ and our pads. */
static int check_kinds(const struct manifest *manifest, struct error *err)
{
    const char **names;
    int result;

    if (manifest->nkinds < 1 || manifest->nkinds > 64)
        return error_set(err, CODE_DATA, "%zu kinds, there must be 1 to 64", manifest->nkinds);
    names = calloc(manifest->nkinds, sizeof *names);
    if (!names)
        return error_errno(err, CODE_IO, "a table of %zu kinds", manifest->nkinds);
    for (size_t k = 0; k < manifest->nkinds; k++)
        names[k] = manifest->kinds[k];
    result = check_unique(names, manifest->nkinds, "kind", err);
    for (size_t k = 0; result == 0 && k < manifest->nkinds; k++)
        if (names[k][0] == '\0' || names[k][0] == '_' || strlen(names[k]) >= CKPT_NAME_SIZE)
            result =
                error_set(err, CODE_DATA, "kind \"%s\": a kind's name must have 1 to %d bytes and not begin with '_'",
                          names[k], CKPT_NAME_SIZE - 1);
    free(names);
    return result;
}

static int check_state(const struct ckpt_state *state, struct error *err)
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

static int check_shard(const struct manifest *manifest, struct manifest_shard *shard, struct error *err)
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
            return error_set(err, CODE_DATA, "piece %zu: the elements pass 64 bits", p);
    }
    if (shard_layout_of(&shard->layout, elements, manifest->nkinds) < 0)
        return error_set(err, CODE_DATA, "the shard's bytes pass 62 bits");
    return 0;
}

int manifest_check(struct manifest *manifest, struct error *err)
{
    char name[FILE_NAME_SIZE];

    if (manifest->shards < 1 || manifest->shards > CKPT_MAX_SHARDS)
        return error_set(err, CODE_DATA, "%d shards, there must be 1 to %d", manifest->shards, CKPT_MAX_SHARDS);
    if (manifest->part < -1 || manifest->part >= manifest->shards)
        return error_set(err, CODE_DATA, "shard %d of %d", manifest->part, manifest->shards);
    if (!name_is_attempt(manifest->attempt))
        return error_set(err, CODE_DATA, "attempt \"%s\": must be 1 to %d letters, digits, '.', '_' and '-'",
                         manifest->attempt, CKPT_ATTEMPT_SIZE - 1);
    if (check_state(&manifest->state, err) < 0 || check_kinds(manifest, err) < 0 || check_tensors(manifest, err) < 0)
        return -1;
    for (int i = 0; i < manifest_count(manifest); i++)
        if (check_shard(manifest, &manifest->shard[i], err) < 0) {
            name_shard(name, manifest->part < 0 ? i : manifest->part, manifest->shards);
            return error_prefix(err, "%s", name);
        }
    return 0;
}

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

static bool same_state(const struct ckpt_state *a, const struct ckpt_state *b)
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
