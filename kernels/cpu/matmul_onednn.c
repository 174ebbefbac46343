#include "kernels/cpu/cpu.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * oneDNN generates code for a product's exact shape and strides. That takes milliseconds, so the code is kept. A
 * training step uses some twenty shapes. When all slots are taken, the least recently used is removed.
 */
#define SLOTS 64

typedef dnnl_memory_desc_t layout;

/* oneDNN 3 made descriptors opaque and gave "sum" more parameters. Everything else here is common to 2 and 3. */
#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t layout_init(layout *md, dnnl_data_type_t type, const dnnl_dims_t size, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(md, 2, size, type, strides);
}

static void layout_destroy(layout md)
{
    dnnl_memory_desc_destroy(md);
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const layout md[4], bool bias,
                                     const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, md[0], md[1], bias ? md[2] : NULL, md[3], attr);
}

#define LAYOUT_HANDLE(md)          (md)
#define SCRATCHPAD_LAYOUT          const_dnnl_memory_desc_t
#define APPEND_SUM(post_ops, type) dnnl_post_ops_append_sum(post_ops, 1.0f, 0, type)
#else
static dnnl_status_t layout_init(layout *md, dnnl_data_type_t type, const dnnl_dims_t size, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(md, 2, size, type, strides);
}

static void layout_destroy(layout md)
{
    (void)md;
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const layout md[4], bool bias,
                                     const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, &md[0], &md[1], bias ? &md[2] : NULL, &md[3]);

    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, attr, engine, NULL) : status;
}

#define LAYOUT_HANDLE(md)          (&(md))
#define SCRATCHPAD_LAYOUT          const dnnl_memory_desc_t *
#define APPEND_SUM(post_ops, type) ((void)(type), dnnl_post_ops_append_sum(post_ops, 1.0f))
#endif

/* All that the generated code depends on. Compared as bytes: no padding. */
struct matmul_key {
    int m, n, k, lda, ldb, ldc;
    int transpose_a, transpose_b, accumulate, bias;
    int type, type_of_c; /* enum dtype */
};

/* OPERAND_SCRATCHPAD is oneDNN's own workspace. */
enum operand { OPERAND_A, OPERAND_B, OPERAND_BIAS, OPERAND_C, OPERAND_SCRATCHPAD, OPERANDS };

struct matmul_slot {
    struct matmul_key key;
    long last_use; /* 0: free */
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[OPERANDS]; /* its layout; the address is set at each use */
    size_t scratchpad;              /* bytes */
};

struct matmul_library {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct matmul_slot slots[SLOTS];
    long uses;
    bool native[DTYPES]; /* by enum dtype */
    bool packs_b;        /* oneDNN packs an fp32 b even if it is not transposed */
};

void matmul_library_name(char *name, size_t size)
{
    const dnnl_version_t *version = dnnl_version();

    snprintf(name, size, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
}

static void slot_clear(struct matmul_slot *slot)
{
    for (int i = 0; i < OPERANDS; i++)
        if (slot->memory[i])
            dnnl_memory_destroy(slot->memory[i]);
    if (slot->primitive)
        dnnl_primitive_destroy(slot->primitive);
    memset(slot, 0, sizeof *slot);
}

void matmul_library_close(struct matmul_library *lib)
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

static const dnnl_data_type_t data_type[] = {[DTYPE_F32] = dnnl_f32, [DTYPE_BF16] = dnnl_bf16, [DTYPE_F16] = dnnl_f16};

/* A transposed operand is described by its strides: its rows are one element apart. */
static dnnl_status_t make_layouts(const struct matmul_key *key, layout md[OPERANDS])
{
    const struct {
        dnnl_dims_t size, strides;
    } operands[] = {
        [OPERAND_A] = {{key->m, key->k}, {key->transpose_a ? 1 : key->lda, key->transpose_a ? key->lda : 1}},
        [OPERAND_B] = {{key->k, key->n}, {key->transpose_b ? 1 : key->ldb, key->transpose_b ? key->ldb : 1}},
        [OPERAND_BIAS] = {{1, key->n}, {key->n, 1}},
        [OPERAND_C] = {{key->m, key->n}, {key->ldc, 1}},
    };
    dnnl_status_t status = dnnl_success;

    for (int i = 0; i < OPERAND_SCRATCHPAD && status == dnnl_success; i++)
        status = layout_init(&md[i], data_type[i == OPERAND_C ? key->type_of_c : key->type], operands[i].size,
                             operands[i].strides);
    return status;
}

static dnnl_status_t make_attributes(dnnl_primitive_attr_t *attr, const struct matmul_key *key)
{
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    dnnl_post_ops_t post_ops;

    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (status != dnnl_success || !key->accumulate)
        return status;
    status = dnnl_post_ops_create(&post_ops);
    if (status != dnnl_success)
        return status;
    status = APPEND_SUM(post_ops, data_type[key->type_of_c]);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*attr, post_ops);
    dnnl_post_ops_destroy(post_ops);
    return status;
}

static dnnl_status_t make_primitive(struct matmul_slot *slot, const layout md[OPERANDS], dnnl_engine_t engine)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = make_attributes(&attr, &slot->key);

    if (status == dnnl_success)
        status = describe_matmul(&pd, engine, md, slot->key.bias, attr);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&slot->primitive, pd);
    if (status == dnnl_success) {
        SCRATCHPAD_LAYOUT scratchpad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);

        slot->scratchpad = scratchpad ? dnnl_memory_desc_get_size(scratchpad) : 0;
        if (slot->scratchpad)
            status = dnnl_memory_create(&slot->memory[OPERAND_SCRATCHPAD], scratchpad, engine, DNNL_MEMORY_NONE);
    }
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t slot_fill(struct matmul_slot *slot, const struct matmul_key *key, dnnl_engine_t engine)
{
    layout md[OPERANDS];
    dnnl_status_t status;

    memset(md, 0, sizeof md);
    slot->key = *key;
    status = make_layouts(key, md);
    if (status == dnnl_success)
        status = make_primitive(slot, md, engine);
    for (int i = 0; i < OPERAND_SCRATCHPAD && status == dnnl_success; i++)
        status = dnnl_memory_create(&slot->memory[i], LAYOUT_HANDLE(md[i]), engine, DNNL_MEMORY_NONE);
    for (int i = 0; i < OPERAND_SCRATCHPAD; i++)
        layout_destroy(md[i]);
    return status;
}

/* Whether oneDNN supports this type on this processor; found by creating a small product. */
static bool has_type(dnnl_engine_t engine, enum dtype dtype)
{
    const struct matmul_key key = {8, 8, 8, 8, 8, 8, .type = dtype, .type_of_c = dtype};
    struct matmul_slot slot = {0};
    bool made = slot_fill(&slot, &key, engine) == dnnl_success;

    slot_clear(&slot);
    return made;
}

/* oneDNN's brgemm kernels ("brg") pack b only if b is transposed or 16-bit; its gemm kernels always do. */
static bool packs_b(dnnl_engine_t engine)
{
    const struct matmul_key key = {256, 256, 256, 256, 256, 256, .type = DTYPE_F32, .type_of_c = DTYPE_F32};
    struct matmul_slot slot = {0};
    const_dnnl_primitive_desc_t pd;
    const char *name = "";
    bool packs = true;

    if (slot_fill(&slot, &key, engine) == dnnl_success &&
        dnnl_primitive_get_primitive_desc(slot.primitive, &pd) == dnnl_success &&
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success)
        packs = strncmp(name, "brg", 3) != 0;
    slot_clear(&slot);
    return packs;
}

/*
 * Rows of b that are a multiple of 4 KiB apart map to one set of the L1 cache; rows 1 KiB apart map to four sets.
 * Measured with oneDNN 2.6 and 3.2, such products run at half and at nine tenths of the rate of others. If a has fewer
 * than 128 rows, copying b costs as much as it saves.
 */
bool matmul_wants_copy(const struct matmul_library *lib, const struct matmul *op)
{
    if (op->dtype != DTYPE_F32 || op->transpose_b || lib->packs_b || op->m < 128)
        return false;
    return op->ldb % 1024 == 0 || (op->ldb % 256 == 0 && workspace_copy_columns(op->k, op->n) == op->n);
}

bool matmul_native(const struct matmul_library *lib, enum dtype dtype)
{
    return lib->native[dtype];
}

int matmul_library_open(struct device *dev, struct error *err)
{
    struct matmul_library *lib = calloc(1, sizeof *lib);

    device_cpu(dev)->library = lib;
    if (!lib)
        return error_errno(err, CODE_IO, "cpu device");
    if (dnnl_engine_create(&lib->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&lib->stream, lib->engine, dnnl_stream_default_flags) != dnnl_success)
        return error_set(err, CODE_INTERNAL, "cpu device: oneDNN found no CPU engine");
    for (int i = 0; i < DTYPES; i++)
        lib->native[i] = has_type(lib->engine, (enum dtype)i);
    lib->packs_b = packs_b(lib->engine);
    return 0;
}

static dnnl_status_t find_slot(struct matmul_library *lib, const struct matmul_key *key, struct matmul_slot **found)
{
    struct matmul_slot *oldest = &lib->slots[0];
    dnnl_status_t status;

    for (int i = 0; i < SLOTS; i++) {
        struct matmul_slot *slot = &lib->slots[i];

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

static dnnl_status_t execute_matmul(struct matmul_library *lib, struct matmul_slot *slot, const struct matmul *op,
                                    void *scratchpad)
{
    const void *address[OPERANDS] = {op->a, op->b, op->bias, op->c, scratchpad};
    const int argument[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t arguments[OPERANDS];
    dnnl_status_t status = dnnl_success;
    int count = 0;

    for (int i = 0; i < OPERANDS && status == dnnl_success; i++) {
        if (!slot->memory[i] || (i == OPERAND_BIAS && !op->bias))
            continue;
        status = dnnl_memory_set_data_handle(slot->memory[i], (void *)address[i]);
        arguments[count++] = (dnnl_exec_arg_t){argument[i], slot->memory[i]};
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(slot->primitive, lib->stream, count, arguments);
    return status == dnnl_success ? dnnl_stream_wait(lib->stream) : status;
}

void matmul_library_run(struct device *dev, const struct matmul *op)
{
    struct cpu *cpu = device_cpu(dev);
    struct matmul_library *lib = cpu->library;
    const struct matmul_key key = {op->m,           op->n,
                                   op->k,           op->lda,
                                   op->ldb,         op->ldc,
                                   op->transpose_a, op->transpose_b,
                                   op->accumulate,  op->bias != NULL,
                                   op->dtype,       op->c_fp32 ? DTYPE_F32 : op->dtype};
    size_t scratchpad = (size_t)dev->threads * MATMUL_SCRATCHPAD;
    struct matmul_slot *slot;
    dnnl_status_t status;

    /* oneDNN takes as many threads as OpenMP would give to the calling thread. */
    if (omp_get_max_threads() != dev->threads)
        omp_set_num_threads(dev->threads);
    status = find_slot(lib, &key, &slot);
    if (status == dnnl_success) {
        slot->last_use = ++lib->uses;
        if (!cpu_grow(dev, &cpu->scratchpad, slot->scratchpad > scratchpad ? slot->scratchpad : scratchpad))
            return;
        status = execute_matmul(lib, slot, op, cpu->scratchpad.at);
    }
    if (status != dnnl_success)
        device_fail(dev, CODE_INTERNAL, "cpu: matmul of %d x %d x %d: oneDNN failed with status %d", op->m, op->n,
                    op->k, (int)status);
}
