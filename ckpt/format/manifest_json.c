/*
 * manifest_json.c - a manifest to JSON and back. muster-checkpoint(5) describes the members. Reading trusts nothing: a
 * member that occurs twice is refused. If the checksum is right, an unknown or missing member means that another
 * release wrote the file.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/format/pieces.h"
#include "common/crc32c.h"

const struct file_format manifest_format = {"muster-checkpoint", 1}, part_format = {"muster-checkpoint-part", 1};

static const char *const members[] = {"crc32c", "format", "version", "muster", "attempt", "state",
                                      "job",    "kinds",  "tensors", "shards", "files",   NULL};
static const char *const shard_members[] = {"file",         "bytes",  "data_offset", "header_crc32c", "block_bytes",
                                            "block_crc32c", "pieces", "host",        "written",       NULL};

/* The later members came with a dynamic loss scale and a running mean of the loss. */
const struct json_field ckpt_state_fields[] = {
    {"step", FIELD_COUNT, JSON_PLACE(struct ckpt_progress, step), false},
    {"consumed_samples", FIELD_COUNT, JSON_PLACE(struct ckpt_progress, consumed_samples), false},
    {"seed", FIELD_SEED, JSON_PLACE(struct ckpt_progress, seed), false},
    {"skipped_steps", FIELD_COUNT, JSON_PLACE(struct ckpt_progress, skipped_steps), false},
    {"skipped_in_a_row", FIELD_COUNT, JSON_PLACE(struct ckpt_progress, skipped_in_a_row), true},
    {"loss_scale", FIELD_DOUBLE, JSON_PLACE(struct ckpt_progress, loss_scale), false},
    {"loss_scale_good_steps", FIELD_INT, JSON_PLACE(struct ckpt_progress, loss_scale_good_steps), true},
    {"loss_scale_hysteresis", FIELD_INT, JSON_PLACE(struct ckpt_progress, loss_scale_hysteresis), true},
    {"loss_mean", FIELD_DOUBLE, JSON_PLACE(struct ckpt_progress, loss_mean), true},
    {"loss_count", FIELD_COUNT, JSON_PLACE(struct ckpt_progress, loss_count), true},
    {"dp", FIELD_INT, JSON_PLACE(struct ckpt_progress, dp), false},
    {"tp", FIELD_INT, JSON_PLACE(struct ckpt_progress, tp), false},
    {"pp", FIELD_INT, JSON_PLACE(struct ckpt_progress, pp), false},
    {"zero", FIELD_INT, JSON_PLACE(struct ckpt_progress, zero), false},
    {0},
};

static const struct file_format *format_of(int part)
{
    return part < 0 ? &manifest_format : &part_format;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* jansson's functions give NULL when memory is short, and take NULL as failure: one check at the end is enough. */

/* Appends to an array, and frees that on failure. */
static void append_item(json_t **array, json_t *value)
{
    if (json_array_append_new(*array, value) < 0) {
        json_decref(*array);
        *array = NULL;
    }
}

static json_t *encode_numbers(const uint64_t *numbers, int count)
{
    json_t *array = json_array();

    for (int i = 0; i < count; i++)
        append_item(&array, json_integer((json_int_t)numbers[i]));
    return array;
}

static json_t *encode_tensors(const struct manifest *manifest)
{
    json_t *array = json_array();

    for (size_t i = 0; i < manifest->ntensors; i++) {
        const struct ckpt_tensor *tensor = &manifest->tensors[i];

        append_item(&array, json_pack("[s, o]", tensor->name, encode_numbers(tensor->shape, tensor->ndim)));
    }
    return array;
}

static json_t *encode_kinds(const struct manifest *manifest)
{
    json_t *array = json_array();

    for (size_t k = 0; k < manifest->nkinds; k++)
        append_item(&array, json_string(manifest->kinds[k]));
    return array;
}

/* [tensor, first, count], and the box's [start], [shape] where that is not the whole tensor. */
static json_t *encode_piece(const struct ckpt_piece *piece, const struct ckpt_tensor *tensor)
{
    json_t *array =
        json_pack("[I, I, I]", (json_int_t)piece->tensor, (json_int_t)piece->first, (json_int_t)piece->count);

    if (box_elements(piece->shape, tensor->ndim) != box_elements(tensor->shape, tensor->ndim)) {
        append_item(&array, encode_numbers(piece->start, tensor->ndim));
        append_item(&array, encode_numbers(piece->shape, tensor->ndim));
    }
    return array;
}

static json_t *encode_pieces(const struct manifest *manifest, const struct manifest_shard *shard)
{
    json_t *array = json_array();

    for (size_t p = 0; p < shard->npieces; p++)
        append_item(&array, encode_piece(&shard->pieces[p], &manifest->tensors[shard->pieces[p].tensor]));
    return array;
}

/* Eight hexadecimal digits a block, one after the other. */
static json_t *encode_blocks(const struct manifest_shard *shard)
{
    char *text = malloc(shard->layout.blocks * 8 + 1);
    json_t *json;

    if (!text)
        return NULL;
    text[0] = '\0';
    for (uint64_t b = 0; b < shard->layout.blocks; b++)
        snprintf(text + b * 8, 9, "%08" PRIx32, shard->block_crcs[b]);
    json = json_string(text);
    free(text);
    return json;
}

static json_t *encode_shard(const struct manifest *manifest, int index)
{
    const struct manifest_shard *shard = &manifest->shard[index];
    char name[FILE_NAME_SIZE], crc[9];

    name_shard(name, SHARD_DATA, manifest->part < 0 ? index : manifest->part, manifest->shards);
    snprintf(crc, sizeof crc, "%08" PRIx32, shard->header_crc);
    return json_pack("{s:s, s:I, s:I, s:s, s:I, s:o, s:o, s:s, s:I}", "file", name, "bytes",
                     (json_int_t)manifest_shard_bytes(shard), "data_offset", (json_int_t)shard->data_offset,
                     "header_crc32c", crc, "block_bytes", (json_int_t)SHARD_BLOCK, "block_crc32c", encode_blocks(shard),
                     "pieces", encode_pieces(manifest, shard), "host", shard->host, "written",
                     (json_int_t)shard->written);
}

static json_t *encode_manifest(const struct manifest *manifest)
{
    const struct file_format *format = format_of(manifest->part);
    json_t *files = json_array();

    for (int i = 0; i < manifest_count(manifest); i++)
        append_item(&files, encode_shard(manifest, i));
    /* "crc32c" must come first: its digits are found by their place in the file. */
    return json_pack("{s:s, s:s, s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:i, s:o}", "crc32c", "00000000", "format",
                     format->name, "version", format->number, "muster", manifest->version, "attempt", manifest->attempt,
                     "state", json_write_fields(ckpt_state_fields, &manifest->state), "job",
                     json_text(manifest->job_text), "kinds", encode_kinds(manifest), "tensors",
                     encode_tensors(manifest), "shards", manifest->shards, "files", files);
}

uint32_t manifest_crc(const char *text, size_t bytes)
{
    uint32_t crc = crc32c(0, text, MANIFEST_CRC_AT);

    crc = crc32c(crc, "00000000", 8);
    return crc32c(crc, text + MANIFEST_CRC_AT + 8, bytes - MANIFEST_CRC_AT - 8);
}

char *manifest_encode(const struct manifest *manifest, size_t *bytes, struct error *err)
{
    json_t *root = encode_manifest(manifest);
    char *dump = root ? json_dumps(root, JSON_COMPACT) : NULL, crc[9];
    char *text = dump ? realloc(dump, strlen(dump) + 2) : NULL;

    json_decref(root);
    if (!text) {
        free(dump);
        error_set(err, CODE_IO, "cannot write the manifest's JSON: no memory, or a name that is not UTF-8");
        return NULL;
    }
    *bytes = strlen(text);
    text[(*bytes)++] = '\n';
    text[*bytes] = '\0';
    snprintf(crc, sizeof crc, "%08" PRIx32, manifest_crc(text, *bytes));
    memcpy(text + MANIFEST_CRC_AT, crc, 8);
    return text;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A member that is an array; gives *items room for *count elements of `size` bytes, all zeros. */
static json_t *take_array(json_t *object, const char *key, void *items, size_t *count, size_t size, struct error *err)
{
    json_t *array;

    if (json_get_array(object, key, &array, err) < 0 ||
        !(*(void **)items = error_calloc(json_array_size(array) + 1, size, err)))
        return NULL;
    *count = json_array_size(array);
    return array;
}

static int decode_kinds(struct manifest *manifest, json_t *root, struct error *err)
{
    json_t *array = take_array(root, "kinds", &manifest->kinds, &manifest->nkinds, sizeof *manifest->kinds, err);

    for (size_t k = 0; array && k < manifest->nkinds; k++) {
        const char *kind = json_string_value(json_array_get(array, k));

        if (!kind)
            return error_set(err, CODE_DATA, "\"kinds\" must be an array of strings");
        manifest->kinds[k] = strdup(kind);
        if (!manifest->kinds[k])
            return error_errno(err, CODE_IO, "kinds");
    }
    return array ? 0 : -1;
}

static int decode_number(json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return -1;
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

/* An array of exactly `count` numbers. */
static int decode_numbers(json_t *array, size_t count, uint64_t *out)
{
    if (!json_is_array(array) || json_array_size(array) != count)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (decode_number(json_array_get(array, i), &out[i]) < 0)
            return -1;
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
    json_t *array =
        take_array(root, "tensors", &manifest->tensors, &manifest->ntensors, sizeof *manifest->tensors, err);

    for (size_t i = 0; array && i < manifest->ntensors; i++)
        if (decode_tensor(&manifest->tensors[i], json_array_get(array, i), err) < 0)
            return error_prefix(err, "tensor %zu", i);
    return array ? 0 : -1;
}

/* [tensor, first, count] or [tensor, first, count, [start], [shape]] */
static int decode_piece(const struct manifest *manifest, struct ckpt_piece *piece, json_t *value)
{
    uint64_t numbers[3];
    const struct ckpt_tensor *tensor;

    for (size_t i = 0; i < 3; i++)
        if (decode_number(json_array_get(value, i), &numbers[i]) < 0)
            return -1;
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
    json_t *array = take_array(object, "pieces", &shard->pieces, &shard->npieces, sizeof *shard->pieces, err);

    for (size_t p = 0; array && p < shard->npieces; p++)
        if (decode_piece(manifest, &shard->pieces[p], json_array_get(array, p)) < 0)
            return error_set(err, CODE_DATA, "piece %zu must be [tensor, first, count] or these and [start], [shape]",
                             p);
    return array ? 0 : -1;
}

/* The checksums of the blocks of a shard that has a layout. */
static int decode_blocks(struct manifest_shard *shard, json_t *object, struct error *err)
{
    json_t *value = json_object_get(object, "block_crc32c");
    const char *text = json_string_value(value);
    size_t blocks = json_string_length(value) / 8;

    if (!text || json_string_length(value) % 8 != 0)
        return error_set(err, CODE_DATA, "\"block_crc32c\" must be a string of 8 hexadecimal digits a block");
    if (!(shard->block_crcs = error_calloc(blocks + 1, sizeof *shard->block_crcs, err)))
        return -1;
    for (size_t b = 0; b < blocks; b++) {
        uint64_t crc;

        if (json_parse_hex(text + 8 * b, 8, &crc) < 0)
            return error_set(err, CODE_DATA, "\"block_crc32c\": block %zu is not 8 hexadecimal digits", b);
        shard->block_crcs[b] = (uint32_t)crc;
    }
    if (blocks != shard->layout.blocks)
        return error_set(err, CODE_DATA, "checksums of %zu blocks, the pieces make %" PRIu64, blocks,
                         shard->layout.blocks);
    return 0;
}

/* The file's name must be the one that this shard has: no path in a manifest is ever followed. */
static int check_file_name(json_t *object, int index, int shards, struct error *err)
{
    const char *name = json_string_value(json_object_get(object, "file"));
    char expected[FILE_NAME_SIZE];

    name_shard(expected, SHARD_DATA, index, shards);
    if (!name || strcmp(name, expected) != 0)
        return error_set(err, CODE_DATA, "\"file\" is \"%s\", must be \"%s\"", name ? name : "", expected);
    return 0;
}

/* The sizes that are written must be those that follow from the pieces. */
static int decode_shard(const struct manifest *manifest, struct manifest_shard *shard, json_t *object,
                        struct error *err)
{
    uint64_t bytes, block_bytes, crc;

    if (json_get_integer(object, "bytes", INT64_MAX, &bytes, err) < 0 ||
        json_get_integer(object, "data_offset", SHARD_BLOCK, &shard->data_offset, err) < 0 ||
        json_get_hex(object, "header_crc32c", 8, &crc, err) < 0 ||
        json_get_integer(object, "block_bytes", INT32_MAX, &block_bytes, err) < 0 ||
        json_get_string(object, "host", shard->host, sizeof shard->host, err) < 0 ||
        json_get_integer(object, "written", INT64_MAX, &shard->written, err) < 0)
        return -1;
    error_tame(shard->host); /* a checkpoint may be another user's, and is shown on terminals */
    shard->header_crc = (uint32_t)crc;
    if (block_bytes != SHARD_BLOCK)
        return error_set(err, CODE_DATA, "\"block_bytes\" is %" PRIu64 ", must be %zu", block_bytes, SHARD_BLOCK);
    if (shard->data_offset == 0 || shard->data_offset % SHARD_ALIGN != 0)
        return error_set(err, CODE_DATA, "\"data_offset\" is %" PRIu64 ", must be a multiple of %d", shard->data_offset,
                         SHARD_ALIGN);
    if (decode_pieces(manifest, shard, object, err) < 0 || manifest_lay_out(manifest, shard, err) < 0)
        return -1;
    if (bytes != manifest_shard_bytes(shard))
        return error_set(err, CODE_DATA, "\"bytes\" is %" PRIu64 ", the pieces make %" PRIu64, bytes,
                         manifest_shard_bytes(shard));
    return decode_blocks(shard, object, err);
}

static int decode_files(struct manifest *manifest, json_t *files, struct error *err)
{
    size_t count = (size_t)manifest_count(manifest);

    if (json_array_size(files) != count)
        return error_set(err, CODE_DATA, "\"files\" has %zu, must have %zu", json_array_size(files), count);
    if (!(manifest->shard = error_calloc(count, sizeof *manifest->shard, err)))
        return -1;
    for (size_t i = 0; i < count; i++) {
        json_t *object = json_array_get(files, i);

        if (format_check_members(object, shard_members, NULL, err) < 0 ||
            check_file_name(object, manifest->part < 0 ? (int)i : manifest->part, manifest->shards, err) < 0 ||
            decode_shard(manifest, &manifest->shard[i], object, err) < 0)
            return error_prefix(err, "files[%zu]", i);
    }
    return 0;
}

static int decode_head(struct manifest *manifest, json_t *root, int part, int shards, struct error *err)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const struct file_format *wanted = format_of(part);
    json_t *job = json_object_get(root, "job");

    if (format && strcmp(format, format_of(part < 0 ? 0 : -1)->name) == 0)
        return error_set(err, CODE_DATA, "\"format\" must be \"%s\"", wanted->name);
    if (format_check(root, wanted, err) < 0 || format_check_members(root, members, NULL, err) < 0)
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
    if (manifest->shards < 1 || manifest->shards > CKPT_MAX_SHARDS || (part >= 0 && manifest->shards != shards))
        return error_set(err, CODE_DATA, "\"shards\" is %d", manifest->shards);
    return 0;
}

static int decode_manifest(struct manifest *manifest, json_t *root, int part, int shards, struct error *err)
{
    json_t *files, *state = json_object_get(root, "state");

    manifest->part = part;
    if (!json_is_object(root))
        return error_set(err, CODE_DATA, "must be a JSON object");
    if (decode_head(manifest, root, part, shards, err) < 0)
        return -1;
    if (format_check_members(state, NULL, ckpt_state_fields, err) < 0 ||
        json_read_fields(state, ckpt_state_fields, &manifest->state, err) < 0)
        return error_prefix(err, "state");
    if (decode_kinds(manifest, root, err) < 0 || decode_tensors(manifest, root, err) < 0 ||
        manifest_check(manifest, err) < 0 || json_get_array(root, "files", &files, err) < 0)
        return -1;
    return decode_files(manifest, files, err);
}

/* A later format may have its checksum elsewhere. Then its number is higher: damage does not change both. */
static int check_later(const char *text, size_t bytes, const struct file_format *known, struct error *err)
{
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    json_t *version = json_object_get(root, "version");
    bool later = json_is_integer(version) && json_integer_value(version) > known->number;

    error_set(err, later ? CODE_CONFIG : CODE_DATA, "must begin with " MANIFEST_START " and 8 hexadecimal digits");
    format_explain(root, known, err);
    json_decref(root);
    return -1;
}

static int check_crc(const char *text, size_t bytes, const struct file_format *known, struct error *err)
{
    uint64_t crc;

    if (bytes < MANIFEST_CRC_AT + 8 || memcmp(text, MANIFEST_START, MANIFEST_CRC_AT) != 0 ||
        json_parse_hex(text + MANIFEST_CRC_AT, 8, &crc) < 0)
        return check_later(text, bytes, known, err);
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

    if (check_crc(text, bytes, format_of(part), err) < 0)
        return NULL;
    errno = 0;
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!root) { /* jansson calls it a wrong token when malloc fails */
        error_set(err, errno == ENOMEM ? CODE_IO : CODE_DATA, "offset %d: %s", where.position,
                  errno == ENOMEM ? "no memory" : where.text);
        return NULL;
    }
    manifest = error_calloc(1, sizeof *manifest, err);
    if (manifest && decode_manifest(manifest, root, part, shards, err) < 0) {
        format_explain(root, format_of(part), err);
        manifest_destroy(manifest);
        manifest = NULL;
    }
    json_decref(root);
    return manifest;
}
