/*
 * diff.c - ckpt_diff: two checkpoints, whatever topologies wrote them, bit by bit in bounded memory.
 *
 * The logical tensors are read in batches of pieces, as many as fit the buffers: large, since ckpt_read reads whole
 * blocks and a batch of one small tensor would read 4 MiB a kind for it.
 */

#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/format/pieces.h"
#include "ckpt/read/checkpoint.h"

#define BATCH_ELEMENTS ((uint64_t)16 << 20) /* 64 MiB a checkpoint */
#define BATCH_PIECES   4096

struct diff {
    struct ckpt *ckpts[2];
    void (*differ)(const char *tensor, const char *kind, const char *reason, void *arg);
    void *arg;
    int differences;

    const char *kind; /* the one being compared */
    struct ckpt_piece pieces[2][BATCH_PIECES];
    void *targets[2][BATCH_PIECES];
    float *buffers[2];
    size_t npieces;
    uint64_t filled; /* elements of the buffers */

    /* The tensor that is being compared: its differences so far. */
    const struct ckpt_tensor *tensor;
    uint64_t count, first;
    uint32_t values[2];
};

static void report_difference(struct diff *diff, const char *tensor, const char *kind, const char *reason)
{
    diff->differences++;
    if (diff->differ)
        diff->differ(tensor, kind, reason, diff->arg);
}

static float as_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* All of the tensor has been compared: report its differences. */
static void finish_tensor(struct diff *diff)
{
    char reason[256];

    if (diff->tensor && diff->count > 0) {
        snprintf(reason, sizeof reason,
                 "%" PRIu64 " of %" PRIu64 " elements differ, first element %" PRIu64 ": %.9g (%08" PRIx32
                 ") and %.9g (%08" PRIx32 ")",
                 diff->count, box_elements(diff->tensor->shape, diff->tensor->ndim), diff->first,
                 (double)as_float(diff->values[0]), diff->values[0], (double)as_float(diff->values[1]),
                 diff->values[1]);
        report_difference(diff, diff->tensor->name, diff->kind, reason);
    }
    diff->tensor = NULL;
    diff->count = 0;
}

static void compare_piece(struct diff *diff, size_t p)
{
    const struct ckpt_piece *piece = &diff->pieces[0][p];
    const struct ckpt_tensor *tensor = &diff->ckpts[0]->manifest->tensors[piece->tensor];
    const uint32_t *a = diff->targets[0][p], *b = diff->targets[1][p];

    if (tensor != diff->tensor)
        finish_tensor(diff);
    diff->tensor = tensor;
    if (memcmp(a, b, piece->count * 4) == 0)
        return;
    for (uint64_t i = 0; i < piece->count; i++)
        if (a[i] != b[i] && diff->count++ == 0) {
            diff->first = piece->first + i;
            diff->values[0] = a[i];
            diff->values[1] = b[i];
        }
}

/* Reads the batch's pieces from both and compares them. */
static int compare_batch(struct diff *diff, struct error *err)
{
    for (int side = 0; side < 2; side++) {
        const struct manifest *manifest = diff->ckpts[side]->manifest;

        if (diff->npieces > 0 && ckpt_read(diff->ckpts[side], manifest->tensors, manifest->ntensors, &diff->kind, 1,
                                           diff->pieces[side], diff->npieces, diff->targets[side], err) < 0)
            return -1;
    }
    for (size_t p = 0; p < diff->npieces; p++)
        compare_piece(diff, p);
    diff->npieces = 0;
    diff->filled = 0;
    return 0;
}

/* Add the tensor to the batch, in as many pieces as it takes. */
static int add_tensor(struct diff *diff, const struct ckpt_tensor *a, const struct ckpt_tensor *b, struct error *err)
{
    const struct ckpt_tensor *tensors[2] = {a, b};
    uint64_t elements = box_elements(a->shape, a->ndim), count;

    for (uint64_t first = 0; first < elements; first += count) {
        if ((diff->filled == BATCH_ELEMENTS || diff->npieces == BATCH_PIECES) && compare_batch(diff, err) < 0)
            return -1;
        count = elements - first;
        if (count > BATCH_ELEMENTS - diff->filled)
            count = BATCH_ELEMENTS - diff->filled;
        for (int side = 0; side < 2; side++) {
            uint32_t index = (uint32_t)(tensors[side] - diff->ckpts[side]->manifest->tensors);

            diff->pieces[side][diff->npieces] = piece_of_tensor(index, tensors[side], first, count);
            diff->targets[side][diff->npieces] = diff->buffers[side] + diff->filled;
        }
        diff->filled += count;
        diff->npieces++;
    }
    return 0;
}

/* Reports tensors, with each of their kinds, and kinds that are not in the other. */
static void compare_tables(struct diff *diff, int side)
{
    const struct ckpt *mine = diff->ckpts[side], *other = diff->ckpts[!side];
    const char *reason = side == 0 ? "only in the first" : "only in the second";

    for (size_t t = 0; t < mine->manifest->ntensors; t++)
        if (!checkpoint_find(other, mine->manifest->tensors[t].name))
            for (size_t k = 0; k < mine->manifest->nkinds; k++)
                report_difference(diff, mine->manifest->tensors[t].name, mine->manifest->kinds[k], reason);
    for (size_t k = 0; k < mine->manifest->nkinds; k++)
        if (checkpoint_find_kind(other, mine->manifest->kinds[k]) < 0)
            report_difference(diff, "(all tensors)", mine->manifest->kinds[k], reason);
}

/* Every field but the mesh that wrote it. */
static void compare_state(struct diff *diff)
{
    const char *a = (const char *)ckpt_state(diff->ckpts[0]), *b = (const char *)ckpt_state(diff->ckpts[1]);
    char reason[256];

    for (const struct json_field *field = ckpt_state_fields; strcmp(field->name, "dp") != 0; field++) {
        const void *x = a + field->offset, *y = b + field->offset;

        if (memcmp(x, y, field->size) == 0)
            continue;
        if (field->kind == FIELD_DOUBLE)
            snprintf(reason, sizeof reason, "%.17g and %.17g", *(const double *)x, *(const double *)y);
        else if (field->kind == FIELD_INT)
            snprintf(reason, sizeof reason, "%d and %d", *(const int *)x, *(const int *)y);
        else
            snprintf(reason, sizeof reason, "%" PRIu64 " and %" PRIu64, *(const uint64_t *)x, *(const uint64_t *)y);
        report_difference(diff, "state", field->name, reason);
    }
}

/* All tensors that both have, of one kind that both have. */
static int compare_kind(struct diff *diff, const char *kind, struct error *err)
{
    const struct manifest *manifest = diff->ckpts[0]->manifest;

    diff->kind = kind;
    for (size_t t = 0; t < manifest->ntensors; t++) {
        const struct ckpt_tensor *a = &manifest->tensors[t], *b = checkpoint_find(diff->ckpts[1], a->name);

        if (b && !tensor_same_shape(a, b))
            report_difference(diff, a->name, kind, "the shapes differ");
        else if (b && add_tensor(diff, a, b, err) < 0)
            return -1;
    }
    if (compare_batch(diff, err) < 0)
        return -1;
    finish_tensor(diff);
    return 0;
}

static int compare_all(struct diff *diff, struct error *err)
{
    const struct manifest *manifest = diff->ckpts[0]->manifest;

    compare_state(diff);
    compare_tables(diff, 0);
    compare_tables(diff, 1);
    for (size_t k = 0; k < manifest->nkinds; k++)
        if (checkpoint_find_kind(diff->ckpts[1], manifest->kinds[k]) >= 0 &&
            compare_kind(diff, manifest->kinds[k], err) < 0)
            return -1;
    return diff->differences;
}

int ckpt_diff(struct ckpt *a, struct ckpt *b,
              void (*differ)(const char *tensor, const char *kind, const char *reason, void *arg), void *arg,
              struct error *err)
{
    struct diff *diff = calloc(1, sizeof *diff);
    int result = -1;

    if (!diff)
        return error_errno(err, CODE_IO, "buffers to compare");
    *diff = (struct diff){.ckpts = {a, b}, .differ = differ, .arg = arg};
    for (int side = 0; side < 2; side++)
        diff->buffers[side] = malloc(BATCH_ELEMENTS * 4);
    if (!diff->buffers[0] || !diff->buffers[1])
        error_errno(err, CODE_IO, "two buffers of %" PRIu64 " bytes", BATCH_ELEMENTS * 4);
    else
        result = compare_all(diff, err);
    free(diff->buffers[0]);
    free(diff->buffers[1]);
    free(diff);
    return result;
}
