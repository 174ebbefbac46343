/*
 * diff.c - ckpt_diff: two checkpoints, whatever meshes wrote them, bit by bit in bounded memory.
 *
 * The tensors are read one after the other in windows that may hold many: large ones, since ckpt_read reads whole
 * blocks, and a window of one small tensor would read 4 MiB a kind for it.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/read/checkpoint.h"

#define WINDOW ((uint64_t)16 << 20) /* elements: 64 MiB a checkpoint */

struct diff {
    struct ckpt *ckpts[2];
    void (*differ)(const char *tensor, const char *kind, const char *reason, void *arg);
    void *arg;
    int differences;

    const char *kind;             /* the one being compared */
    struct ckpt_piece *pieces[2]; /* the tensors that both have, of each checkpoint */
    struct ckpt_piece *parts[2];  /* those of a window */
    size_t npieces;
    float *buffers[2];

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

/* All of the tensor has been compared: report its differences. */
static void finish_tensor(struct diff *diff)
{
    char reason[256];

    if (diff->tensor && diff->count > 0) {
        snprintf(reason, sizeof reason,
                 "%" PRIu64 " of %" PRIu64 " elements differ, first element %" PRIu64 ": %.9g (%08" PRIx32
                 ") and %.9g (%08" PRIx32 ")",
                 diff->count, box_elements(diff->tensor->shape, diff->tensor->ndim), diff->first,
                 (double)float_of_bits(diff->values[0]), diff->values[0], (double)float_of_bits(diff->values[1]),
                 diff->values[1]);
        report_difference(diff, diff->tensor->name, diff->kind, reason);
    }
    diff->tensor = NULL;
    diff->count = 0;
}

static void compare_piece(struct diff *diff, const struct ckpt_piece *piece, const float *left, const float *right)
{
    const struct ckpt_tensor *tensor = &diff->ckpts[0]->manifest->tensors[piece->tensor];
    const uint32_t *a = (const void *)left, *b = (const void *)right;

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

/* Elements [first, first + count) of all pieces one after the other. */
static int compare_window(struct diff *diff, uint64_t first, uint64_t count, struct error *err)
{
    size_t nparts = 0;
    uint64_t at = 0;

    for (int side = 0; side < 2; side++) {
        const struct manifest *manifest = diff->ckpts[side]->manifest;

        nparts = pieces_cut(diff->pieces[side], diff->npieces, first, count, diff->parts[side]);
        if (checkpoint_read_pieces(diff->ckpts[side], manifest->tensors, manifest->ntensors, diff->kind,
                                   diff->parts[side], nparts, diff->buffers[side], err) < 0)
            return -1;
    }
    for (size_t p = 0; p < nparts; at += diff->parts[0][p++].count)
        compare_piece(diff, &diff->parts[0][p], diff->buffers[0] + at, diff->buffers[1] + at);
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
    const char *a = (const char *)ckpt_progress(diff->ckpts[0]), *b = (const char *)ckpt_progress(diff->ckpts[1]);
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
    const struct ckpt *left = diff->ckpts[0], *right = diff->ckpts[1];
    uint64_t elements = 0;

    diff->kind = kind;
    diff->npieces = 0;
    for (size_t t = 0; t < left->manifest->ntensors; t++) {
        const struct ckpt_tensor *a = &left->manifest->tensors[t], *b = checkpoint_find(right, a->name);
        uint64_t count = box_elements(a->shape, a->ndim);

        if (b && !tensor_same_shape(a, b)) {
            report_difference(diff, a->name, kind, "the shapes differ");
        } else if (b) {
            uint32_t index = (uint32_t)(b - right->manifest->tensors);

            diff->pieces[0][diff->npieces] = piece_of_tensor((uint32_t)t, a, 0, count);
            diff->pieces[1][diff->npieces++] = piece_of_tensor(index, b, 0, count);
            elements += count;
        }
    }
    for (uint64_t first = 0; first < elements; first += WINDOW)
        if (compare_window(diff, first, elements - first < WINDOW ? elements - first : WINDOW, err) < 0)
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
    struct diff diff = {.ckpts = {a, b}, .differ = differ, .arg = arg};
    size_t most = a->manifest->ntensors;
    bool room = true;
    int result;

    for (int side = 0; side < 2; side++) {
        diff.pieces[side] = error_calloc(2 * most + 1, sizeof *diff.pieces[side], err);
        diff.parts[side] = diff.pieces[side] + most;
        diff.buffers[side] = error_calloc(WINDOW, sizeof(float), err);
        room = room && diff.pieces[side] && diff.buffers[side];
    }
    result = room ? compare_all(&diff, err) : -1;
    for (int side = 0; side < 2; side++) {
        free(diff.pieces[side]);
        free(diff.buffers[side]);
    }
    return result;
}
