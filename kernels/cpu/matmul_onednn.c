#include "kernels/cpu/cpu.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * oneDNN generates code for a product's exact shape and strides, which takes milliseconds, so what was made is kept. A
 * training step uses some twenty shapes; the least recently used goes when all slots are taken.
 */
#define SLOTS 64

/* oneDNN 3 made descriptors opaque and gave "sum" more parameters; otherwise we use what 2 and 3 have in common. */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t layout;

static dnnl_status_t layout_init(layout *md, int rows, int cols, dnnl_dim_t row_stride, dnnl_dim_t col_stride)
{
    return dnnl_memory_desc_create_with_strides(md, 2, (dnnl_dims_t){rows, cols}, dnnl_f32,
                                                (dnnl_dims_t){row_stride, col_stride});
}

static void layout_destroy(layout md)
{
    dnnl_memory_desc_destroy(md);
}

static dnnl_status_t describe(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const layout md[4], bool bias,
                              const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, md[0], md[1], bias ? md[2] : NULL, md[3], attr);
}

#define LAYOUT_HANDLE(md)    (md)
#define APPEND_SUM(post_ops) dnnl_post_ops_append_sum(post_ops, 1.0f, 0, dnnl_f32)
#else
typedef dnnl_memory_desc_t layout;

static dnnl_status_t layout_init(layout *md, int rows, int cols, dnnl_dim_t row_stride, dnnl_dim_t col_stride)
{
    return dnnl_memory_desc_init_by_strides(md, 2, (dnnl_dims_t){rows, cols}, dnnl_f32,
                                            (dnnl_dims_t){row_stride, col_stride});
}

static void layout_destroy(layout md)
{
    (void)md;
}

static dnnl_status_t describe(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const layout md[4], bool bias,
                              const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, &md[0], &md[1], bias ? &md[2] : NULL, &md[3]);

    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, attr, engine, NULL) : status;
}

#define LAYOUT_HANDLE(md)    (&(md))
#define APPEND_SUM(post_ops) dnnl_post_ops_append_sum(post_ops, 1.0f)
#endif

/* All that the generated code depends on. Compared as bytes: no padding. */
struct key {
    int m, n, k, lda, ldb, ldc;
    int transpose_a, transpose_b, accumulate, bias;
};

enum operand { OPERAND_A, OPERAND_B, OPERAND_BIAS, OPERAND_C, OPERANDS };

struct slot {
    struct key key;
    long last_use; /* 0: free */
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[OPERANDS]; /* its layout; the address is set at each use */
};

struct product_library {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct slot slots[SLOTS];
    long uses;
};

void product_library_name(char *name, size_t size)
{
    const dnnl_version_t *version = dnnl_version();

    snprintf(name, size, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
}

struct product_library *product_library_open(struct device *dev, struct error *err)
{
    struct product_library *lib = calloc(1, sizeof *lib);

    (void)dev;
    if (!lib) {
        error_errno(err, CODE_IO, "cpu device");
        return NULL;
    }
    if (dnnl_engine_create(&lib->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&lib->stream, lib->engine, dnnl_stream_default_flags) != dnnl_success) {
        error_set(err, CODE_INTERNAL, "cpu device: oneDNN found no CPU engine");
        product_library_close(lib);
        return NULL;
    }
    return lib;
}

static void slot_clear(struct slot *slot)
{
    for (int i = 0; i < OPERANDS; i++)
        if (slot->memory[i])
            dnnl_memory_destroy(slot->memory[i]);
    if (slot->primitive)
        dnnl_primitive_destroy(slot->primitive);
    memset(slot, 0, sizeof *slot);
}

void product_library_close(struct product_library *lib)
{
    if (!lib)
        return;
    for (int i = 0; i < SLOTS; i++)
        slot_clear(&lib->slots[i]);
    if (lib->stream)
        dnnl_stream_destroy(lib->stream);
    if (lib->engine)
        dnnl_engine_destroy(lib->engine);
    free(lib);
}

/* Strides say everything: a transposed operand is one whose rows are a step apart. */
static dnnl_status_t make_layouts(const struct key *key, layout md[OPERANDS])
{
    dnnl_status_t status;

    status =
        layout_init(&md[OPERAND_A], key->m, key->k, key->transpose_a ? 1 : key->lda, key->transpose_a ? key->lda : 1);
    if (status == dnnl_success)
        status = layout_init(&md[OPERAND_B], key->k, key->n, key->transpose_b ? 1 : key->ldb,
                             key->transpose_b ? key->ldb : 1);
    if (status == dnnl_success)
        status = layout_init(&md[OPERAND_BIAS], 1, key->n, key->n, 1);
    if (status == dnnl_success)
        status = layout_init(&md[OPERAND_C], key->m, key->n, key->ldc, 1);
    return status;
}

static dnnl_status_t make_attributes(dnnl_primitive_attr_t *attr, bool accumulate)
{
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    dnnl_post_ops_t post_ops;

    if (status != dnnl_success || !accumulate)
        return status;
    status = dnnl_post_ops_create(&post_ops);
    if (status != dnnl_success)
        return status;
    status = APPEND_SUM(post_ops);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*attr, post_ops);
    dnnl_post_ops_destroy(post_ops);
    return status;
}

static dnnl_status_t slot_fill(struct slot *slot, const struct key *key, dnnl_engine_t engine)
{
    layout md[OPERANDS];
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status;

    memset(md, 0, sizeof md);
    slot->key = *key;
    status = make_layouts(key, md);
    if (status == dnnl_success)
        status = make_attributes(&attr, key->accumulate);
    if (status == dnnl_success)
        status = describe(&pd, engine, md, key->bias, attr);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&slot->primitive, pd);
    for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
        status = dnnl_memory_create(&slot->memory[i], LAYOUT_HANDLE(md[i]), engine, DNNL_MEMORY_NONE);
    for (int i = 0; i < OPERANDS; i++)
        layout_destroy(md[i]);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t find_slot(struct product_library *lib, const struct key *key, struct slot **found)
{
    struct slot *oldest = &lib->slots[0];
    dnnl_status_t status;

    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &lib->slots[i];

        if (slot->last_use && memcmp(&slot->key, key, sizeof *key) == 0) {
            *found = slot;
            return dnnl_success;
        }
        if (slot->last_use < oldest->last_use)
            oldest = slot;
    }
    slot_clear(oldest);
    status = slot_fill(oldest, key, lib->engine);
    if (status != dnnl_success)
        slot_clear(oldest);
    *found = oldest;
    return status;
}

static dnnl_status_t execute(struct product_library *lib, struct slot *slot, const struct matmul *op)
{
    const void *address[OPERANDS] = {op->a, op->b, op->bias, op->c};
    const int argument[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST};
    dnnl_exec_arg_t arguments[OPERANDS];
    dnnl_status_t status = dnnl_success;
    int count = 0;

    for (int i = 0; i < OPERANDS && status == dnnl_success; i++) {
        if (i == OPERAND_BIAS && !op->bias)
            continue;
        status = dnnl_memory_set_data_handle(slot->memory[i], (void *)address[i]);
        arguments[count++] = (dnnl_exec_arg_t){argument[i], slot->memory[i]};
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(slot->primitive, lib->stream, count, arguments);
    return status == dnnl_success ? dnnl_stream_wait(lib->stream) : status;
}

void product(struct device *dev, const struct matmul *op)
{
    struct product_library *lib = device_cpu(dev)->library;
    struct key key = {op->m,   op->n,           op->k,           op->lda,        op->ldb,
                      op->ldc, op->transpose_a, op->transpose_b, op->accumulate, op->bias != NULL};
    struct slot *slot;
    dnnl_status_t status;

    /* oneDNN takes as many threads as OpenMP would give to the calling thread. */
    if (omp_get_max_threads() != dev->threads)
        omp_set_num_threads(dev->threads);
    status = find_slot(lib, &key, &slot);
    if (status == dnnl_success) {
        slot->last_use = ++lib->uses;
        status = execute(lib, slot, op);
    }
    if (status != dnnl_success)
        device_fail(dev, CODE_INTERNAL, "cpu: matmul of %d x %d x %d: oneDNN failed with status %d", op->m, op->n,
                    op->k, (int)status);
}
