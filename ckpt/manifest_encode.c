/* manifest_encode.c - a manifest as JSON. What the members mean is in muster-checkpoint(5). */
#include "config.h"

#include "ckpt/json_text.h"
#include "ckpt/manifest_json.h"
#include "common/crc32c.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* jansson's functions give NULL when memory is short, and take NULL as failure: one check at the end is enough. */

static json_t *encode_state(const struct ckpt_state *state)
{
    char seed[17];

    /* JSON has no unsigned 64-bit numbers, and a seed may be any of them. */
    snprintf(seed, sizeof seed, "%016" PRIx64, state->seed);
    return json_pack("{s:I, s:I, s:s, s:I, s:I, s:f, s:i, s:i, s:f, s:I, s:i, s:i, s:i, s:i}", "step",
                     (json_int_t)state->step, "consumed_samples", (json_int_t)state->consumed_samples, "seed", seed,
                     "skipped_steps", (json_int_t)state->skipped_steps, "skipped_in_a_row",
                     (json_int_t)state->skipped_in_a_row, "loss_scale", state->loss_scale, "loss_scale_good_steps",
                     state->loss_scale_good_steps, "loss_scale_hysteresis", state->loss_scale_hysteresis, "loss_mean",
                     state->loss_mean, "loss_count", (json_int_t)state->loss_count, "dp", state->dp, "tp", state->tp,
                     "pp", state->pp, "zero", state->zero);
}

static json_t *encode_numbers(const uint64_t *numbers, int count)
{
    json_t *array = json_array();

    for (int i = 0; i < count; i++)
        json_array_append_new(array, json_integer((json_int_t)numbers[i]));
    return array;
}

static json_t *encode_tensors(const struct manifest *manifest)
{
    json_t *array = json_array();

    for (size_t i = 0; i < manifest->ntensors; i++) {
        const struct ckpt_tensor *tensor = &manifest->tensors[i];

        if (json_array_append_new(array,
                                  json_pack("[s, o]", tensor->name, encode_numbers(tensor->shape, tensor->ndim))) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *encode_kinds(const struct manifest *manifest)
{
    json_t *array = json_array();

    for (size_t k = 0; k < manifest->nkinds; k++)
        if (json_array_append_new(array, json_string(manifest->kinds[k])) < 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static bool is_whole_box(const struct ckpt_piece *piece, const struct ckpt_tensor *tensor)
{
    for (int d = 0; d < tensor->ndim; d++)
        if (piece->start[d] != 0 || piece->shape[d] != tensor->shape[d])
            return false;
    return true;
}

/* [tensor, first, count], and the box's [start], [shape] where that is not the whole tensor. */
static json_t *encode_piece(const struct ckpt_piece *piece, const struct ckpt_tensor *tensor)
{
    json_t *array =
        json_pack("[I, I, I]", (json_int_t)piece->tensor, (json_int_t)piece->first, (json_int_t)piece->count);

    if (!is_whole_box(piece, tensor)) {
        json_array_append_new(array, encode_numbers(piece->start, tensor->ndim));
        json_array_append_new(array, encode_numbers(piece->shape, tensor->ndim));
    }
    return array;
}

static json_t *encode_pieces(const struct manifest *manifest, const struct manifest_shard *shard)
{
    json_t *array = json_array();

    for (size_t p = 0; p < shard->npieces; p++)
        json_array_append_new(array, encode_piece(&shard->pieces[p], &manifest->tensors[shard->pieces[p].tensor]));
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
    char name[LAYOUT_NAME_SIZE], crc[9];

    layout_shard_name(name, manifest->part < 0 ? index : manifest->part, manifest->shards);
    snprintf(crc, sizeof crc, "%08" PRIx32, shard->header_crc);
    return json_pack("{s:s, s:I, s:I, s:s, s:I, s:o, s:o, s:s, s:I}", "file", name, "bytes",
                     (json_int_t)manifest_shard_bytes(shard), "data_offset", (json_int_t)shard->data_offset,
                     "header_crc32c", crc, "block_bytes", (json_int_t)LAYOUT_BLOCK, "block_crc32c",
                     encode_blocks(shard), "pieces", encode_pieces(manifest, shard), "host", shard->host, "written",
                     (json_int_t)shard->written);
}

static json_t *encode(const struct manifest *manifest)
{
    json_t *files = json_array();

    for (int i = 0; i < manifest_count(manifest); i++)
        if (json_array_append_new(files, encode_shard(manifest, i)) < 0) {
            json_decref(files);
            return NULL;
        }
    /* "crc32c" must come first: its digits are found by their place in the file. */
    return json_pack("{s:s, s:s, s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:i, s:o}", "crc32c", "00000000", "format",
                     manifest->part < 0 ? MANIFEST_FORMAT : MANIFEST_PART_FORMAT, "version", MANIFEST_VERSION, "muster",
                     manifest->version, "attempt", manifest->attempt, "state", encode_state(&manifest->state), "job",
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
    json_t *root = encode(manifest);
    char *text = NULL, crc[9];

    if (root) {
        *bytes = json_dumpb(root, NULL, 0, JSON_COMPACT);
        text = malloc(*bytes + 2);
        if (text && json_dumpb(root, text, *bytes, JSON_COMPACT) != *bytes) {
            free(text);
            text = NULL;
        }
    }
    json_decref(root);
    if (!text) {
        error_set(err, CODE_IO, "cannot write the manifest's JSON: no memory, or a name that is not UTF-8");
        return NULL;
    }
    text[(*bytes)++] = '\n';
    text[*bytes] = '\0';
    snprintf(crc, sizeof crc, "%08" PRIx32, manifest_crc(text, *bytes));
    memcpy(text + MANIFEST_CRC_AT, crc, 8);
    return text;
}
