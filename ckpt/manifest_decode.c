/*
 * manifest_decode.c - a manifest out of JSON, believing nothing. Doubled members are refused; unknown and missing ones
 * beneath a right checksum are of another release (form.h).
 */
#include "config.h"

#include "ckpt/form.h"
#include "ckpt/interval.h"
#include "ckpt/json_get.h"
#include "ckpt/manifest_json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS       "crc32c format version muster attempt state job kinds tensors shards files"
#define SHARD_MEMBERS "file bytes data_offset header_crc32c block_bytes block_crc32c pieces host written"

/* Members of "state"; the later ones came with a dynamic loss scale and a running mean of the loss. */
#define STATE_EARLY         "step consumed_samples seed skipped_steps loss_scale dp tp pp zero"
#define STATE_LATER         "skipped_in_a_row loss_scale_good_steps loss_scale_hysteresis loss_mean loss_count"
#define STATE_MEMBERS_EARLY 9

static int decode_later_state(struct ckpt_state *state, json_t *object, struct error *err)
{
    if (json_get_integer(object, "skipped_in_a_row", INT64_MAX, &state->skipped_in_a_row, err) < 0 ||
        json_get_int(object, "loss_scale_good_steps", &state->loss_scale_good_steps, err) < 0 ||
        json_get_int(object, "loss_scale_hysteresis", &state->loss_scale_hysteresis, err) < 0 ||
        json_get_number(object, "loss_mean", &state->loss_mean, err) < 0 ||
        json_get_integer(object, "loss_count", INT64_MAX, &state->loss_count, err) < 0)
        return error_prefix(err, "state");
    return 0;
}

static int decode_state(struct ckpt_state *state, json_t *object, struct error *err)
{
    bool early = json_object_size(object) == STATE_MEMBERS_EARLY;

    if (form_check_members(object, early ? STATE_EARLY : STATE_EARLY " " STATE_LATER, err) < 0 ||
        json_get_number(object, "loss_scale", &state->loss_scale, err) < 0 ||
        json_get_integer(object, "step", INT64_MAX, &state->step, err) < 0 ||
        json_get_integer(object, "consumed_samples", INT64_MAX, &state->consumed_samples, err) < 0 ||
        json_get_hex(object, "seed", 16, &state->seed, err) < 0 ||
        json_get_integer(object, "skipped_steps", INT64_MAX, &state->skipped_steps, err) < 0 ||
        json_get_int(object, "dp", &state->dp, err) < 0 || json_get_int(object, "tp", &state->tp, err) < 0 ||
        json_get_int(object, "pp", &state->pp, err) < 0 || json_get_int(object, "zero", &state->zero, err) < 0)
        return error_prefix(err, "state");
    return early ? 0 : decode_later_state(state, object, err);
}

static int decode_kinds(struct manifest *manifest, json_t *root, struct error *err)
{
    json_t *array;

    if (json_get_array(root, "kinds", &array, err) < 0)
        return -1;
    manifest->kinds = calloc(json_array_size(array) + 1, sizeof *manifest->kinds);
    if (!manifest->kinds)
        return error_errno(err, CODE_IO, "kinds");
    manifest->nkinds = json_array_size(array);
    for (size_t k = 0; k < manifest->nkinds; k++) {
        const char *kind = json_string_value(json_array_get(array, k));

        if (!kind)
            return error_set(err, CODE_DATA, "\"kinds\" must be an array of strings");
        manifest->kinds[k] = strdup(kind);
        if (!manifest->kinds[k])
            return error_errno(err, CODE_IO, "kinds");
    }
    return 0;
}

/* An array of exactly `count` numbers; -1 if it is anything else. */
static int decode_numbers(json_t *array, size_t count, uint64_t *out)
{
    if (!json_is_array(array) || json_array_size(array) != count)
        return -1;
    for (size_t i = 0; i < count; i++) {
        json_t *value = json_array_get(array, i);

        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return -1;
        out[i] = (uint64_t)json_integer_value(value);
    }
    return 0;
}

/* ["name", [sizes]] */
static int decode_tensor(struct ckpt_tensor *tensor, json_t *value, struct error *err)
{
    const char *name = json_string_value(json_array_get(value, 0));
    json_t *shape = json_array_get(value, 1);
    size_t dims = json_array_size(shape);

    if (json_array_size(value) != 2 || !name || strlen(name) >= CKPT_NAME_SIZE)
        return error_set(err, CODE_DATA, "must be [\"name\", [sizes]], the name of at most %d bytes",
                         CKPT_NAME_SIZE - 1);
    memcpy(tensor->name, name, strlen(name) + 1);
    error_tame(tensor->name);
    if (dims < 1 || dims > CKPT_MAX_DIMS || decode_numbers(shape, dims, tensor->shape) < 0)
        return error_set(err, CODE_DATA, "its shape must be 1 to %d sizes", CKPT_MAX_DIMS);
    tensor->ndim = (int)dims;
    return 0;
}

static int decode_tensors(struct manifest *manifest, json_t *root, struct error *err)
{
    json_t *array;

    if (json_get_array(root, "tensors", &array, err) < 0)
        return -1;
    if (json_array_size(array) > UINT32_MAX)
        return error_set(err, CODE_DATA, "more than 2^32 tensors");
    manifest->tensors = calloc(json_array_size(array) + 1, sizeof *manifest->tensors);
    if (!manifest->tensors)
        return error_errno(err, CODE_IO, "a table of %zu tensors", json_array_size(array));
    manifest->ntensors = json_array_size(array);
    for (size_t i = 0; i < manifest->ntensors; i++)
        if (decode_tensor(&manifest->tensors[i], json_array_get(array, i), err) < 0)
            return error_prefix(err, "tensor %zu", i);
    return 0;
}

/* [tensor, first, count] or [tensor, first, count, [start], [shape]] */
static int decode_piece(const struct manifest *manifest, struct ckpt_piece *piece, json_t *value)
{
    uint64_t numbers[3];
    const struct ckpt_tensor *tensor;

    for (size_t i = 0; i < 3; i++) {
        json_t *number = json_array_get(value, i);

        if (!json_is_integer(number) || json_integer_value(number) < 0)
            return -1;
        numbers[i] = (uint64_t)json_integer_value(number);
    }
    if (numbers[0] >= manifest->ntensors)
        return -1;
    tensor = &manifest->tensors[numbers[0]];
    *piece = piece_of_tensor((uint32_t)numbers[0], tensor, numbers[1], numbers[2]);
    if (json_array_size(value) == 3)
        return 0;
    if (json_array_size(value) != 5)
        return -1;
    if (decode_numbers(json_array_get(value, 3), (size_t)tensor->ndim, piece->start) < 0)
        return -1;
    return decode_numbers(json_array_get(value, 4), (size_t)tensor->ndim, piece->shape);
}

static int decode_pieces(const struct manifest *manifest, struct manifest_shard *shard, json_t *object,
                         struct error *err)
{
    json_t *array;

    if (json_get_array(object, "pieces", &array, err) < 0)
        return -1;
    shard->pieces = calloc(json_array_size(array) + 1, sizeof *shard->pieces);
    if (!shard->pieces)
        return error_errno(err, CODE_IO, "%zu pieces", json_array_size(array));
    shard->npieces = json_array_size(array);
    for (size_t p = 0; p < shard->npieces; p++)
        if (decode_piece(manifest, &shard->pieces[p], json_array_get(array, p)) < 0)
            return error_set(err, CODE_DATA, "piece %zu must be [tensor, first, count] or these and [start], [shape]",
                             p);
    return 0;
}

static int decode_blocks(struct manifest_shard *shard, json_t *object, struct error *err)
{
    json_t *value = json_object_get(object, "block_crc32c");
    const char *text = json_string_value(value);
    size_t blocks = json_string_length(value) / 8;

    if (!text || json_string_length(value) % 8 != 0)
        return error_set(err, CODE_DATA, "\"block_crc32c\" must be a string of 8 hexadecimal digits a block");
    shard->block_crcs = calloc(blocks + 1, sizeof *shard->block_crcs);
    if (!shard->block_crcs)
        return error_errno(err, CODE_IO, "checksums of %zu blocks", blocks);
    shard->layout.blocks = blocks; /* until manifest_check computes what it must be */
    for (size_t b = 0; b < blocks; b++) {
        uint64_t crc;

        if (json_parse_hex(text + 8 * b, 8, &crc) < 0)
            return error_set(err, CODE_DATA, "\"block_crc32c\": block %zu is not 8 hexadecimal digits", b);
        shard->block_crcs[b] = (uint32_t)crc;
    }
    return 0;
}

/* The file's name must be the one that this shard has: no path in a manifest is ever followed. */
static int check_file_name(json_t *object, int index, int shards, struct error *err)
{
    const char *name = json_string_value(json_object_get(object, "file"));
    char expected[LAYOUT_NAME_SIZE];

    layout_shard_name(expected, index, shards);
    if (!name || strcmp(name, expected) != 0)
        return error_set(err, CODE_DATA, "\"file\" is \"%s\", must be \"%s\"", name ? name : "", expected);
    return 0;
}

static int decode_shard(const struct manifest *manifest, struct manifest_shard *shard, json_t *object, uint64_t *bytes,
                        struct error *err)
{
    uint64_t block_bytes, crc;

    if (json_get_integer(object, "bytes", INT64_MAX, bytes, err) < 0 ||
        json_get_integer(object, "data_offset", INT32_MAX, &shard->data_offset, err) < 0 ||
        json_get_hex(object, "header_crc32c", 8, &crc, err) < 0 ||
        json_get_integer(object, "block_bytes", INT32_MAX, &block_bytes, err) < 0 ||
        decode_blocks(shard, object, err) < 0 || decode_pieces(manifest, shard, object, err) < 0 ||
        json_get_string(object, "host", shard->host, sizeof shard->host, err) < 0 ||
        json_get_integer(object, "written", INT64_MAX, &shard->written, err) < 0)
        return -1;
    error_tame(shard->host); /* a checkpoint may be somebody else's, and is shown on terminals */
    shard->header_crc = (uint32_t)crc;
    if (block_bytes != LAYOUT_BLOCK)
        return error_set(err, CODE_DATA, "\"block_bytes\" is %" PRIu64 ", must be %zu", block_bytes, LAYOUT_BLOCK);
    if (shard->data_offset == 0 || shard->data_offset % LAYOUT_ALIGN != 0)
        return error_set(err, CODE_DATA, "\"data_offset\" is %" PRIu64 ", must be a multiple of %d", shard->data_offset,
                         LAYOUT_ALIGN);
    return 0;
}

/* The sizes that are written must be those that follow from the pieces. */
static int check_sizes(const struct manifest *manifest, const uint64_t *bytes, const uint64_t *blocks,
                       struct error *err)
{
    char name[LAYOUT_NAME_SIZE];

    for (int i = 0; i < manifest_count(manifest); i++) {
        const struct manifest_shard *shard = &manifest->shard[i];

        layout_shard_name(name, manifest->part < 0 ? i : manifest->part, manifest->shards);
        if (bytes[i] != manifest_shard_bytes(shard))
            return error_set(err, CODE_DATA, "%s: \"bytes\" is %" PRIu64 ", the pieces make %" PRIu64, name, bytes[i],
                             manifest_shard_bytes(shard));
        if (blocks[i] != shard->layout.blocks)
            return error_set(err, CODE_DATA, "%s: checksums of %" PRIu64 " blocks, the pieces make %" PRIu64, name,
                             blocks[i], shard->layout.blocks);
    }
    return 0;
}

static int decode_files(struct manifest *manifest, json_t *files, struct error *err)
{
    size_t count = (size_t)manifest_count(manifest);
    uint64_t *bytes = calloc(count, sizeof *bytes), *blocks = calloc(count, sizeof *blocks);
    int result = -1;

    manifest->shard = calloc(count, sizeof *manifest->shard);
    if (!bytes || !blocks || !manifest->shard) {
        error_errno(err, CODE_IO, "%zu shards", count);
        goto out;
    }
    for (size_t i = 0; i < count; i++) {
        json_t *object = json_array_get(files, i);

        if (form_check_members(object, SHARD_MEMBERS, err) < 0 ||
            check_file_name(object, manifest->part < 0 ? (int)i : manifest->part, manifest->shards, err) < 0 ||
            decode_shard(manifest, &manifest->shard[i], object, &bytes[i], err) < 0) {
            error_prefix(err, "files[%zu]", i);
            goto out;
        }
        blocks[i] = manifest->shard[i].layout.blocks;
    }
    if (manifest_check(manifest, err) == 0)
        result = check_sizes(manifest, bytes, blocks, err);
out:
    free(bytes);
    free(blocks);
    return result;
}

static int decode_head(struct manifest *manifest, json_t *root, int part, int shards, struct error *err)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *wanted = part < 0 ? MANIFEST_FORMAT : MANIFEST_PART_FORMAT;
    json_t *job = json_object_get(root, "job");

    if (format && strcmp(format, part < 0 ? MANIFEST_PART_FORMAT : MANIFEST_FORMAT) == 0)
        return error_set(err, CODE_DATA, "\"format\" must be \"%s\"", wanted);
    if (form_check(root, wanted, MANIFEST_VERSION, err) < 0 || form_check_members(root, MEMBERS, err) < 0)
        return -1;
    if (json_get_string(root, "muster", manifest->version, sizeof manifest->version, err) < 0 ||
        json_get_string(root, "attempt", manifest->attempt, sizeof manifest->attempt, err) < 0 ||
        json_get_int(root, "shards", &manifest->shards, err) < 0)
        return -1;
    error_tame(manifest->version);
    if (!json_is_string(job))
        return error_set(err, CODE_DATA, "\"job\" must be a string");
    manifest->job_text = strdup(json_string_value(job));
    if (!manifest->job_text)
        return error_errno(err, CODE_IO, "job text");
    if (manifest->shards < 1 || manifest->shards > LAYOUT_MAX_SHARDS || (part >= 0 && manifest->shards != shards))
        return error_set(err, CODE_DATA, "\"shards\" is %d", manifest->shards);
    return 0;
}

static int decode(struct manifest *manifest, json_t *root, int part, int shards, struct error *err)
{
    json_t *files;

    manifest->part = part;
    if (!json_is_object(root))
        return error_set(err, CODE_DATA, "must be a JSON object");
    if (decode_head(manifest, root, part, shards, err) < 0 ||
        decode_state(&manifest->state, json_object_get(root, "state"), err) < 0 ||
        decode_kinds(manifest, root, err) < 0 || decode_tensors(manifest, root, err) < 0 ||
        json_get_array(root, "files", &files, err) < 0)
        return -1;
    if (json_array_size(files) != (size_t)manifest_count(manifest))
        return error_set(err, CODE_DATA, "\"files\" has %zu, must have %d", json_array_size(files),
                         manifest_count(manifest));
    return decode_files(manifest, files, err);
}

/* A later format may have its checksum elsewhere. Its number tells: damage does not change both. */
static int check_later(const char *text, size_t bytes, struct error *err)
{
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    json_t *version = json_object_get(root, "version");
    int result;

    if (json_is_integer(version) && json_integer_value(version) > MANIFEST_VERSION) {
        error_set(err, CODE_CONFIG, "must begin with " MANIFEST_START " and 8 hexadecimal digits");
        result = form_explain(root, MANIFEST_VERSION, err);
    } else {
        result = error_set(err, CODE_DATA, "must begin with " MANIFEST_START " and 8 hexadecimal digits");
    }
    json_decref(root);
    return result;
}

static int check_crc(const char *text, size_t bytes, struct error *err)
{
    uint64_t crc;

    if (bytes < MANIFEST_CRC_AT + 8 || memcmp(text, MANIFEST_START, MANIFEST_CRC_AT) != 0 ||
        json_parse_hex(text + MANIFEST_CRC_AT, 8, &crc) < 0)
        return check_later(text, bytes, err);
    if (crc != manifest_crc(text, bytes))
        return error_set(err, CODE_DATA, "checksum mismatch: says %08" PRIx64 ", its %zu bytes have %08" PRIx32, crc,
                         bytes, manifest_crc(text, bytes));
    return 0;
}

struct manifest *manifest_decode(const char *text, size_t bytes, int part, int shards, struct error *err)
{
    struct manifest *manifest;
    json_error_t where;
    json_t *root;

    if (check_crc(text, bytes, err) < 0)
        return NULL;
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!root) {
        error_set(err, CODE_DATA, "offset %d: %s", where.position, where.text);
        return NULL;
    }
    manifest = calloc(1, sizeof *manifest);
    if (!manifest) {
        error_errno(err, CODE_IO, "a manifest");
    } else if (decode(manifest, root, part, shards, err) < 0) {
        form_explain(root, MANIFEST_VERSION, err);
        manifest_destroy(manifest);
        manifest = NULL;
    }
    json_decref(root);
    return manifest;
}
