/*
 * kernels - times every operation of kernels.h at the shapes of gpt-125m (batch 4 x 512), against two ceilings that are
 * measured in the same run: the rate of a large product, and the bandwidth of a copy. Then adds up one layer.
 *
 *     bench/kernels [THREADS]
 *
 * Each time is the best of several, since whatever else the machine does only makes a run slower. Ratios travel between
 * machines better than times do. More than 100% is no mistake: what fits in the cache is faster than the copy, which does
 * not, and attention is credited with the whole square of scores, of which causality spares it half.
 */
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/philox.h"

#define BATCH   4
#define SEQ     512
#define HEADS   12
#define D       768
#define ROWS    (BATCH * SEQ)
#define VOCAB   50257
#define STRIDE  50304
#define REPEATS 7

struct bench {
    struct device *dev;
    const struct kernels *k;
    double peak, bandwidth; /* FLOP/s, bytes/s */
    float *x, *y, *z;       /* [ROWS, 4 D] each */
    float *wide, *d_wide;   /* [ROWS, 4 D] each */
    float *weight, *d_weight; /* [4 D, D] each */
    float *bias, *bias2, *row[4];
    float *logits;            /* [ROWS, STRIDE]; also the optimizer's four arrays */
    float *table;             /* [VOCAB, D] */
    int32_t *tokens;
};

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- the operations ---- */

struct linear {
    int in, out;
};

static const struct linear qkv = {D, 3 * D}, proj = {D, D}, up = {D, 4 * D}, down = {4 * D, D};

static struct matmul product(const struct bench *b, int m, int n, int k)
{
    return (struct matmul){.m = m, .n = n, .k = k, .a = b->x, .b = b->weight, .c = b->y};
}

static void forward(const struct bench *b, struct linear l, enum epilogue epilogue)
{
    struct matmul op = product(b, ROWS, l.out, l.in);

    op.epilogue = epilogue;
    op.bias = b->bias;
    op.aux = b->wide;
    b->k->matmul(b->dev, &op);
}

static void backward_data(const struct bench *b, struct linear l, enum epilogue epilogue)
{
    struct matmul op = product(b, ROWS, l.in, l.out);

    op.transpose_b = true;
    op.epilogue = epilogue;
    op.aux = b->wide;
    b->k->matmul(b->dev, &op);
}

static void backward_weight(const struct bench *b, struct linear l)
{
    struct matmul op = product(b, l.in, l.out, ROWS);

    op.transpose_a = true;
    op.b = b->wide;
    op.c = b->d_weight;
    b->k->matmul(b->dev, &op);
}

#define LINEAR(name)                                                                                                   \
    static void name##_forward(const struct bench *b) { forward(b, name, EPILOGUE_BIAS); }                            \
    static void name##_data(const struct bench *b) { backward_data(b, name, EPILOGUE_NONE); }                         \
    static void name##_weight(const struct bench *b) { backward_weight(b, name); }                                    \
    static void name##_bias(const struct bench *b) { b->k->bias_backward(b->dev, DTYPE_F32, b->bias, b->x, ROWS, name.out); }

LINEAR(qkv)
LINEAR(proj)
LINEAR(up)
LINEAR(down)

static void up_gelu(const struct bench *b)
{
    forward(b, up, EPILOGUE_BIAS_GELU);
}

static void down_dgelu(const struct bench *b)
{
    backward_data(b, down, EPILOGUE_DGELU);
}

static void attention(const struct bench *b)
{
    b->k->attention_forward(b->dev, &(struct attention){.batch = BATCH, .seq = SEQ, .heads = HEADS, .head_size = D / HEADS,
                                                        .causal = true, .qkv = b->x, .out = b->y, .lse = b->row[3]});
}

static void attention_back(const struct bench *b)
{
    b->k->attention_backward(b->dev, &(struct attention_backward){
                                         .batch = BATCH, .seq = SEQ, .heads = HEADS, .head_size = D / HEADS, .causal = true,
                                         .qkv = b->x, .out = b->y, .dout = b->z, .lse = b->row[3], .dqkv = b->d_wide});
}

static void norm(const struct bench *b)
{
    b->k->layernorm_forward(b->dev, &(struct layernorm){.rows = ROWS, .cols = D, .x = b->x, .gamma = b->bias,
                                                        .beta = b->bias, .y = b->y, .mean = b->row[0], .rstd = b->row[1]});
}

static void norm_residual(const struct bench *b)
{
    b->k->layernorm_forward(b->dev, &(struct layernorm){.rows = ROWS, .cols = D, .x = b->x, .residual = b->z, .sum = b->wide,
                                                        .gamma = b->bias, .beta = b->bias, .y = b->y, .mean = b->row[0],
                                                        .rstd = b->row[1]});
}

static void norm_backward(const struct bench *b)
{
    b->k->layernorm_backward(b->dev, &(struct layernorm_backward){
                                         .rows = ROWS, .cols = D, .dy = b->y, .sum = b->x, .gamma = b->bias,
                                         .dresidual = b->z, .dx = b->z, .mean = b->row[0], .rstd = b->row[1],
                                         .dgamma = b->bias2, .dbeta = b->d_weight});
}

static void add(const struct bench *b)
{
    b->k->add(b->dev, DTYPE_F32, b->z, b->x, (size_t)ROWS * D);
}

static void embedding(const struct bench *b)
{
    b->k->embedding_forward(b->dev, &(struct embedding){.rows = ROWS, .seq = SEQ, .cols = D, .vocab = VOCAB,
                                                        .tokens = b->tokens, .wte = b->table, .wpe = b->weight, .x = b->y});
}

static void embedding_back(const struct bench *b)
{
    b->k->embedding_backward(b->dev, &(struct embedding_backward){.rows = ROWS, .seq = SEQ, .cols = D, .vocab = VOCAB,
                                                                  .tokens = b->tokens, .dx = b->x, .dwte = b->table,
                                                                  .dwpe = b->d_weight});
}

static struct cross_entropy loss(const struct bench *b)
{
    return (struct cross_entropy){.rows = ROWS, .vocab = VOCAB, .stride = STRIDE, .targets = b->tokens, .logits = b->logits,
                                  .max = b->row[0], .sum = b->row[1], .target = b->row[2], .loss = b->row[3], .scale = 1};
}

static void loss_stats(const struct bench *b)
{
    struct cross_entropy op = loss(b);

    b->k->cross_entropy_stats(b->dev, &op);
}

static void loss_finish(const struct bench *b)
{
    struct cross_entropy op = loss(b);

    b->k->cross_entropy_finish(b->dev, &op);
}

static void head_forward(const struct bench *b)
{
    struct matmul op = {.m = ROWS, .n = STRIDE, .k = D, .transpose_b = true, .a = b->x, .b = b->table, .c = b->logits};

    b->k->matmul(b->dev, &op);
}

#define PARAMETERS ((size_t)7 << 20) /* about a layer's */

static void adamw(const struct bench *b)
{
    b->k->adamw(b->dev, &(struct adamw){.count = PARAMETERS, .param = b->logits, .exp_avg = b->logits + PARAMETERS,
                                        .exp_avg_sq = b->logits + 2 * PARAMETERS, .grad = b->logits + 3 * PARAMETERS,
                                        .grad_scale = 1, .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
                                        .weight_decay = 0.1f, .bias1 = 0.5f, .bias2 = 0.5f});
}

static void norm_of_gradient(const struct bench *b)
{
    double result;

    b->k->sum_of_squares(b->dev, &result, b->logits, 4 * PARAMETERS);
}

/* ---- the table ---- */

#define LINEAR_FLOPS(in, out) (2.0 * ROWS * (in) * (out))
#define ATTENTION_FLOPS       (4.0 * BATCH * SEQ * SEQ * D) /* the whole square, as PaLM counts it */
#define FLOATS(n)             (4.0 * (n) * ROWS)            /* bytes of n floats a row */

struct entry {
    const char *name;
    void (*run)(const struct bench *);
    double flops, bytes;
    int in_layer; /* how often in a layer's forward and backward */
    bool matmul;  /* in the layer's sum, counts as matmul */
};

static const struct entry entries[] = {
    {"matmul qkv", qkv_forward, LINEAR_FLOPS(D, 3 * D), 0, 1, true},
    {"matmul proj", proj_forward, LINEAR_FLOPS(D, D), 0, 1, true},
    {"matmul up", up_forward, LINEAR_FLOPS(D, 4 * D), 0, 1, true},
    {"matmul down", down_forward, LINEAR_FLOPS(4 * D, D), 0, 1, true},
    {"matmul d(qkv in)", qkv_data, LINEAR_FLOPS(D, 3 * D), 0, 1, true},
    {"matmul d(proj in)", proj_data, LINEAR_FLOPS(D, D), 0, 1, true},
    {"matmul d(up in)", up_data, LINEAR_FLOPS(D, 4 * D), 0, 1, true},
    {"matmul d(down in)", down_data, LINEAR_FLOPS(4 * D, D), 0, 1, true},
    {"matmul d(qkv W)", qkv_weight, LINEAR_FLOPS(D, 3 * D), 0, 1, true},
    {"matmul d(proj W)", proj_weight, LINEAR_FLOPS(D, D), 0, 1, true},
    {"matmul d(up W)", up_weight, LINEAR_FLOPS(D, 4 * D), 0, 1, true},
    {"matmul d(down W)", down_weight, LINEAR_FLOPS(4 * D, D), 0, 1, true},
    {"matmul up + gelu", up_gelu, LINEAR_FLOPS(D, 4 * D), 0, 0, false},
    {"matmul d(down in) * gelu'", down_dgelu, LINEAR_FLOPS(4 * D, D), 0, 0, false},
    {"bias_backward qkv", qkv_bias, 0, FLOATS(3 * D), 1, false},
    {"bias_backward proj", proj_bias, 0, FLOATS(D), 1, false},
    {"bias_backward up", up_bias, 0, FLOATS(4 * D), 1, false},
    {"bias_backward down", down_bias, 0, FLOATS(D), 1, false},
    {"attention_forward", attention, ATTENTION_FLOPS, 0, 1, false},
    {"attention_backward", attention_back, 2 * ATTENTION_FLOPS, 0, 1, false},
    {"layernorm_forward", norm, 0, FLOATS(2 * D), 1, false},
    {"layernorm_forward, residual", norm_residual, 0, FLOATS(4 * D), 1, false},
    {"layernorm_backward", norm_backward, 0, FLOATS(4 * D), 2, false},
    {"add", add, 0, FLOATS(3 * D), 1, false},
    {"embedding_forward", embedding, 0, FLOATS(3 * D), 0, false},
    {"embedding_backward", embedding_back, 0, FLOATS(5 * D), 0, false},
    {"matmul head", head_forward, LINEAR_FLOPS(D, STRIDE), 0, 0, false},
    {"cross_entropy_stats", loss_stats, 0, FLOATS(VOCAB), 0, false},
    {"cross_entropy_finish", loss_finish, 0, FLOATS(2.0 * VOCAB), 0, false},
    {"adamw", adamw, 0, 28.0 * PARAMETERS, 0, false},
    {"sum_of_squares", norm_of_gradient, 0, 16.0 * PARAMETERS, 0, false},
};

static double time_of(const struct bench *b, void (*run)(const struct bench *))
{
    double best = 1e9;

    run(b);
    for (int i = 0; i < REPEATS; i++) {
        double start = now(), seconds;

        run(b);
        device_wait(b->dev);
        seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void copy_table(const struct bench *b)
{
    b->k->copy(b->dev, b->logits, b->table, (size_t)VOCAB * D * sizeof(float));
}

static void print_entry(const struct bench *b, const struct entry *e, double seconds)
{
    if (e->flops > 0)
        printf("%-28s %9.3f %9.1f GFLOP/s %6.0f%%\n", e->name, seconds * 1e3, e->flops / seconds * 1e-9,
               100 * e->flops / seconds / b->peak);
    else
        printf("%-28s %9.3f %9.1f GB/s    %6.0f%%\n", e->name, seconds * 1e3, e->bytes / seconds * 1e-9,
               100 * e->bytes / seconds / b->bandwidth);
}

/* gelu has no line of its own: it is what the fused products take beyond the plain ones. */
static double print_table(const struct bench *b, double *matmul, double *flops)
{
    double other = 0, gelu = 0;

    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const struct entry *e = &entries[i];
        double seconds = time_of(b, e->run);

        print_entry(b, e, seconds);
        *(e->matmul ? matmul : &other) += e->in_layer * seconds;
        *flops += e->in_layer * e->flops;
        if (e->run == up_gelu || e->run == down_dgelu)
            gelu += seconds;
        if (e->run == up_forward || e->run == down_data)
            gelu -= seconds;
    }
    return other + (gelu > 0 ? gelu : 0);
}

static float *allocate(const struct bench *b, size_t count)
{
    struct error err = {0};
    float *x = device_alloc(b->dev, MEMORY_DEVICE, count * sizeof *x, &err);

    if (!x)
        exit(error_report(&err));
    for (size_t i = 0; i < count; i++)
        x[i] = (float)((i * 2654435761u >> 8 & 0xffff) / 65536.0 - 0.5);
    return x;
}

static void make_buffers(struct bench *b)
{
    struct philox_stream stream = {.seed = 1, .site = philox_site("bench/kernels")};
    size_t wide = (size_t)ROWS * 4 * D;

    b->x = allocate(b, wide);
    b->y = allocate(b, wide);
    b->z = allocate(b, wide);
    b->wide = allocate(b, wide);
    b->d_wide = allocate(b, wide);
    b->weight = allocate(b, (size_t)4 * D * D);
    b->d_weight = allocate(b, (size_t)4 * D * D);
    b->bias = allocate(b, 4 * D);
    b->bias2 = allocate(b, 4 * D);
    for (int i = 0; i < 4; i++)
        b->row[i] = allocate(b, (size_t)ROWS * HEADS);
    b->logits = allocate(b, (size_t)ROWS * STRIDE);
    b->table = allocate(b, (size_t)STRIDE * D);
    b->tokens = (int32_t *)allocate(b, ROWS);
    for (int i = 0; i < ROWS; i++)
        b->tokens[i] = (int32_t)(philox_uniform(stream, i) * VOCAB);
}

int main(int argc, char **argv)
{
    struct error err = {0};
    struct bench b = {.dev = device_create("cpu", argc > 1 ? atoi(argv[1]) : 0, &err)};
    double matmul = 0, flops = 0, other;

    if (!b.dev)
        return error_report(&err);
    b.k = device_kernels(b.dev);
    make_buffers(&b);
    b.peak = device_measure_peak(b.dev);
    b.bandwidth = 8.0 * VOCAB * D / time_of(&b, copy_table);
    printf("%s: product of 2048^3 %.1f GFLOP/s, copy %.1f GB/s\n\n", device_describe(b.dev), b.peak * 1e-9,
           b.bandwidth * 1e-9);
    printf("%-28s %9s %17s %7s\n", "operation", "ms", "rate", "ceiling");
    other = print_table(&b, &matmul, &flops);
    printf("\none layer, forward and backward: matmul %.1f ms at %.0f%% of the ceiling, all else %.1f ms (%.1f%% of matmul)\n",
           matmul * 1e3, 100 * (flops - 3 * ATTENTION_FLOPS) / matmul / b.peak, other * 1e3, 100 * other / matmul);
    printf("model FLOPs %.1f%% of the ceiling\n", 100 * flops / (matmul + other) / b.peak);
    if (device_status(b.dev, &err) < 0)
        return error_report(&err);
    device_destroy(b.dev);
    return 0;
}
