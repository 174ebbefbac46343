#include "trainer/model/decoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Lists of numbers that a pass reads on the device. */
enum { LIST_TOKENS, LIST_SLOTS, LIST_POSITIONS, LIST_SELECTED, LIST_TARGETS, LISTS };

struct decoder {
    const struct context *c;
    const struct units *units;
    void *const *params;
    struct decoder_sizes sizes;
    char *cache, *workspace, *host;          /* the memory of all buffers below */
    char *keys, *values;                     /* [layers] of layer_bytes each */
    char *x, *y, *mid, *part;                /* [rows, d] */
    char *qkv, *att, *pre, *act;             /* [rows, 3d], [rows, d], [rows, 4d] twice */
    float *mean, *rstd;                      /* [rows] */
    char *chosen, *logits;                   /* [outputs, d], [outputs, padded vocabulary] */
    float *wide, *wide_host;                 /* [outputs, vocabulary]; copied from a discrete device, as stats are */
    float *stats;                            /* [3][outputs]: maximum, sum and target, of cross-entropy */
    int32_t *list[LISTS], *list_host[LISTS]; /* [rows]; only of a discrete device */
};

static size_t layer_bytes(const struct decoder *d)
{
    return buffer_bytes((size_t)d->sizes.slots * (size_t)d->sizes.room * (size_t)d->c->shape->hidden *
                        dtype_size(d->c->dtype));
}

/* ---- memory ---- */

struct decoder_layouts {
    struct buffer_layout cache, workspace, host;
};

static void place_pass(struct decoder *d, struct buffer_layout *to)
{
    size_t rows = (size_t)d->sizes.rows, bytes = rows * (size_t)d->c->shape->hidden * dtype_size(d->c->dtype);

    d->x = place_buffer(to, bytes);
    d->y = place_buffer(to, bytes);
    d->mid = place_buffer(to, bytes);
    d->part = place_buffer(to, bytes);
    d->qkv = place_buffer(to, 3 * bytes);
    d->att = place_buffer(to, bytes);
    d->pre = place_buffer(to, 4 * bytes);
    d->act = place_buffer(to, 4 * bytes);
    d->mean = place_buffer(to, rows * sizeof *d->mean);
    d->rstd = place_buffer(to, rows * sizeof *d->rstd);
}

static void place_outputs(struct decoder *d, struct decoder_layouts *to)
{
    size_t outputs = (size_t)d->sizes.outputs, element = dtype_size(d->c->dtype);
    size_t vocab = (size_t)d->c->shape->vocab, wide = outputs * (vocab > 3 ? vocab : 3) * sizeof *d->wide;

    d->chosen = place_buffer(&to->workspace, outputs * (size_t)d->c->shape->hidden * element);
    d->logits = place_buffer(&to->workspace, outputs * (size_t)d->units->vocab_padded * element);
    d->wide = place_buffer(&to->workspace, wide);
    d->stats = place_buffer(&to->workspace, 3 * outputs * sizeof *d->stats);
    d->wide_host = d->c->discrete ? place_buffer(&to->host, wide) : NULL;
    for (int i = 0; i < LISTS && d->c->discrete; i++) {
        d->list[i] = place_buffer(&to->workspace, (size_t)d->sizes.rows * sizeof *d->list[i]);
        d->list_host[i] = place_buffer(&to->host, (size_t)d->sizes.rows * sizeof *d->list[i]);
    }
}

/* With NULL bases it only counts the bytes. */
static void place_decoder(struct decoder *d, struct decoder_layouts *to)
{
    size_t layers = (size_t)d->c->shape->layers;

    d->keys = place_buffer(&to->cache, layers * layer_bytes(d));
    d->values = place_buffer(&to->cache, layers * layer_bytes(d));
    place_pass(d, &to->workspace);
    place_outputs(d, to);
}

static struct decoder describe_decoder(const struct context *c, const struct units *units,
                                       const struct decoder_sizes *sizes)
{
    struct decoder d = {.c = c, .units = units, .sizes = *sizes};

    d.sizes.room = (sizes->room + CACHE_GROUP - 1) / CACHE_GROUP * CACHE_GROUP;
    return d;
}

struct decoder_bytes decoder_predict(const struct context *c, const struct units *units,
                                     const struct decoder_sizes *sizes, const struct device_traits *traits)
{
    struct decoder d = describe_decoder(c, units, sizes);
    struct decoder_layouts counted = {0};
    int hidden = c->shape->hidden, head = units->vocab_padded + hidden;
    struct workspace kernels = {
        .gpu = traits->gpu,
        .threads = traits->threads,
        .dtype = c->dtype,
        .widens = traits->widens,
        .products = true,
        .rows = sizes->rows,
        .norm_cols = hidden,
        .bias_cols = 4 * hidden,
        .gelu_cols = 4 * hidden,
        .head_size = hidden / c->shape->heads,
        .heads = c->shape->heads,
        .cached = d.sizes.room,
        .few_rows_cols = head > 5 * hidden ? head : 5 * hidden,
    };

    place_decoder(&d, &counted);
    return (struct decoder_bytes){.cache = counted.cache.used,
                                  .workspace = counted.workspace.used + kernels_workspace_bytes(&kernels),
                                  .host = counted.host.used};
}

static int allocate_decoder(struct decoder *d, struct error *err)
{
    struct decoder_layouts counted = {0}, layouts;
    struct device *dev = d->c->dev;

    place_decoder(d, &counted);
    d->cache = device_alloc(dev, MEMORY_DEVICE, counted.cache.used, err);
    if (!d->cache)
        return error_prefix(err, "cache of %d sequences of %d tokens", d->sizes.slots, d->sizes.room);
    d->workspace = device_alloc(dev, MEMORY_DEVICE, counted.workspace.used, err);
    if (d->workspace && counted.host.used)
        d->host = device_alloc(dev, MEMORY_HOST, counted.host.used, err);
    if (!d->workspace || (counted.host.used && !d->host))
        return error_prefix(err, "activations of %d tokens", d->sizes.rows);
    layouts = (struct decoder_layouts){.cache.base = d->cache, .workspace.base = d->workspace, .host.base = d->host};
    place_decoder(d, &layouts);
    return 0;
}

struct decoder *decoder_create(const struct context *c, const struct units *units, void *const *params,
                               const struct decoder_sizes *sizes, struct error *err)
{
    struct decoder *d = error_calloc(1, sizeof *d, err);

    if (!d)
        return NULL;
    *d = describe_decoder(c, units, sizes);
    d->params = params;
    if (allocate_decoder(d, err) == 0)
        return d;
    decoder_destroy(d);
    return NULL;
}

void decoder_destroy(struct decoder *d)
{
    if (!d)
        return;
    device_free(d->c->dev, MEMORY_DEVICE, d->cache);
    device_free(d->c->dev, MEMORY_DEVICE, d->workspace);
    device_free(d->c->dev, MEMORY_HOST, d->host);
    free(d);
}

/* ---- a pass ---- */

/* The list in the device's memory. Every pass ends with a wait, so the staging buffer is free again. */
static const int32_t *send_list(struct decoder *d, int which, const int32_t *values, int count)
{
    size_t bytes = (size_t)count * sizeof *values;

    if (!d->c->discrete)
        return values;
    memcpy(d->list_host[which], values, bytes);
    d->c->k->copy(d->c->dev, d->list[which], d->list_host[which], bytes);
    return d->list[which];
}

static struct weights weights_of(const struct decoder *d, int unit)
{
    return (struct weights){.c = d->c, .unit = &d->units->units[unit], .param = d->params[unit]};
}

/* out[rows, n] = in[rows, k] W; with a bias, and gelu if aux is not NULL, where `biased`. */
static void multiply_rows(const struct weights *w, int tensor, void *out, const void *in, void *aux, bool biased,
                          int rows, int k, int n)
{
    struct matmul product = context_product(w->c, rows, n, k, in, weights_at(w, tensor), out);

    product.few_rows = rows <= DECODER_STEP;
    product.bias = biased ? weights_at(w, tensor + 1) : NULL;
    product.aux = aux;
    product.epilogue = aux ? EPILOGUE_BIAS_GELU : biased ? EPILOGUE_BIAS : EPILOGUE_NONE;
    w->c->k->matmul(w->c->dev, &product);
}

/* rows of a table [count, d], by number */
static void look_up(const struct decoder *d, void *to, const void *table, int count, const int32_t *numbers, int rows)
{
    d->c->k->embedding_forward(d->c->dev, &(struct embedding){.rows = rows,
                                                              .cols = d->c->shape->hidden,
                                                              .vocab = count,
                                                              .dtype = d->c->dtype,
                                                              .tokens = numbers,
                                                              .wte = table,
                                                              .x = to});
}

static void add_branch(const struct decoder *d, void *sum, const void *x, const void *branch, const void *bias,
                       int rows)
{
    d->c->k->residual(d->c->dev, &(struct residual){.rows = rows,
                                                    .cols = d->c->shape->hidden,
                                                    .dtype = d->c->dtype,
                                                    .x = x,
                                                    .branch = branch,
                                                    .bias = bias,
                                                    .sum = sum});
}

/* What the rows of a pass have in common, in the device's memory. */
struct pass_lists {
    int rows;
    const int32_t *slots, *positions;
};

/* att from y: the products of block.h, with the cache of this layer. */
static void attend_cached(const struct decoder *d, const struct weights *w, int layer, const struct pass_lists *pass)
{
    const struct model_shape *m = d->c->shape;
    size_t at = (size_t)layer * layer_bytes(d);

    multiply_rows(w, BLOCK_QKV_WEIGHT, d->qkv, d->y, NULL, true, pass->rows, m->hidden, 3 * m->hidden);
    d->c->k->attention_cached(d->c->dev, &(struct cached_attention){.rows = pass->rows,
                                                                    .heads = m->heads,
                                                                    .head_size = m->hidden / m->heads,
                                                                    .room = d->sizes.room,
                                                                    .dtype = d->c->dtype,
                                                                    .qkv = d->qkv,
                                                                    .slots = pass->slots,
                                                                    .positions = pass->positions,
                                                                    .keys = d->keys + at,
                                                                    .values = d->values + at,
                                                                    .out = d->att});
}

static void run_layer(const struct decoder *d, int layer, const struct pass_lists *pass)
{
    struct weights w = weights_of(d, UNIT_BLOCK0 + layer);
    int rows = pass->rows, hidden = d->c->shape->hidden;

    norm_forward(&w, BLOCK_LN_1_WEIGHT, d->x, d->y, d->mean, d->rstd, rows);
    attend_cached(d, &w, layer, pass);
    multiply_rows(&w, BLOCK_ATTN_PROJ_WEIGHT, d->part, d->att, NULL, false, rows, hidden, hidden);
    add_branch(d, d->mid, d->x, d->part, weights_at(&w, BLOCK_ATTN_PROJ_BIAS), rows);
    norm_forward(&w, BLOCK_LN_2_WEIGHT, d->mid, d->y, d->mean, d->rstd, rows);
    multiply_rows(&w, BLOCK_FC_WEIGHT, d->act, d->y, d->pre, true, rows, hidden, 4 * hidden);
    multiply_rows(&w, BLOCK_MLP_PROJ_WEIGHT, d->part, d->act, NULL, false, rows, 4 * hidden, hidden);
    add_branch(d, d->x, d->mid, d->part, weights_at(&w, BLOCK_MLP_PROJ_BIAS), rows);
}

void decoder_run(struct decoder *d, const struct decoder_rows *rows)
{
    struct weights positions = weights_of(d, UNIT_POSITION);
    struct pass_lists pass = {.rows = rows->count};

    device_wait(d->c->dev);
    pass.slots = send_list(d, LIST_SLOTS, rows->slots, rows->count);
    pass.positions = send_list(d, LIST_POSITIONS, rows->positions, rows->count);
    look_up(d, d->x, d->params[UNIT_WTE], d->c->shape->vocab, send_list(d, LIST_TOKENS, rows->tokens, rows->count),
            rows->count);
    look_up(d, d->part, weights_at(&positions, POSITION_WPE), d->c->shape->seq_length, pass.positions, rows->count);
    add_branch(d, d->x, d->x, d->part, NULL, rows->count);
    for (int layer = 0; layer < d->c->shape->layers; layer++)
        run_layer(d, layer, &pass);
}

/* ---- outputs ---- */

/* The logits of these rows of x. */
static void compute_logits(struct decoder *d, const int32_t *rows, int count)
{
    const struct context *c = d->c;
    struct weights w = weights_of(d, units_head(d->units));
    struct matmul product =
        context_product(c, count, d->units->vocab_padded, c->shape->hidden, d->y, d->params[UNIT_WTE], d->logits);

    device_wait(c->dev);
    look_up(d, d->chosen, d->x, d->sizes.rows, send_list(d, LIST_SELECTED, rows, count), count);
    norm_forward(&w, HEAD_LN_F_WEIGHT, d->chosen, d->y, d->mean, d->rstd, count);
    product.transpose_b = true;
    product.few_rows = count <= DECODER_STEP;
    c->k->matmul(c->dev, &product);
}

int decoder_logits(struct decoder *d, const int32_t *rows, int count, float *logits, struct error *err)
{
    const struct context *c = d->c;
    size_t vocab = (size_t)c->shape->vocab, padded = (size_t)d->units->vocab_padded;
    const float *read;

    compute_logits(d, rows, count);
    for (size_t i = 0; i < (size_t)count; i++)
        c->k->cast(c->dev, DTYPE_F32, d->wide + i * vocab, c->dtype, d->logits + i * padded * dtype_size(c->dtype),
                   vocab);
    read = context_read(c, d->wide_host, d->wide, (size_t)count * vocab);
    memcpy(logits, read, (size_t)count * vocab * sizeof *logits);
    return device_status(c->dev, err);
}

int decoder_scores(struct decoder *d, const int32_t *rows, const int32_t *targets, int count,
                   struct token_score *scores, struct error *err)
{
    const struct context *c = d->c;
    int most = d->sizes.outputs;

    for (int first = 0; first < count; first += most) {
        int n = count - first < most ? count - first : most;
        const float *read;

        compute_logits(d, rows + first, n);
        c->k->cross_entropy_stats(c->dev,
                                  &(struct cross_entropy){.rows = n,
                                                          .vocab = c->shape->vocab,
                                                          .stride = d->units->vocab_padded,
                                                          .dtype = c->dtype,
                                                          .targets = send_list(d, LIST_TARGETS, targets + first, n),
                                                          .logits = d->logits,
                                                          .max = d->stats,
                                                          .sum = d->stats + most,
                                                          .target = d->stats + 2 * most});
        read = context_read(c, d->wide_host, d->stats, 3 * (size_t)most);
        for (int i = 0; i < n; i++) {
            const float *at = read + i; /* loss = log(sum) + max - target */

            scores[first + i].loss = log((double)at[most]) + (double)at[0] - (double)at[2 * most];
            scores[first + i].greedy = at[2 * most] >= at[0];
        }
    }
    return device_status(c->dev, err);
}
