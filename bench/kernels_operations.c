#include "bench/kernels_operations.h"

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
    static void name##_forward(const struct bench *b)                                                                  \
    {                                                                                                                  \
        forward(b, name, EPILOGUE_BIAS);                                                                               \
    }                                                                                                                  \
    static void name##_data(const struct bench *b)                                                                     \
    {                                                                                                                  \
        backward_data(b, name, EPILOGUE_NONE);                                                                         \
    }                                                                                                                  \
    static void name##_weight(const struct bench *b)                                                                   \
    {                                                                                                                  \
        backward_weight(b, name);                                                                                      \
    }                                                                                                                  \
    static void name##_bias(const struct bench *b)                                                                     \
    {                                                                                                                  \
        b->k->bias_backward(b->dev, DTYPE_F32, b->bias, b->x, ROWS, name.out, false);                                  \
    }

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

/* A backward pass follows its forward pass in the table, and reads its out and lse. */
static struct attention attention_of(const struct bench *b, const int32_t *document_start)
{
    return (struct attention){.batch = BATCH,
                              .seq = SEQ,
                              .heads = HEADS,
                              .kv_heads = HEADS,
                              .head_size = D / HEADS,
                              .causal = true,
                              .document_start = document_start,
                              .qkv = b->x,
                              .out = b->y,
                              .lse = b->row[3],
                              .dout = b->z,
                              .dqkv = b->d_wide};
}

static struct attention grouped(struct attention op)
{
    op.kv_heads = HEADS / 3;
    return op;
}

static struct attention windowed(struct attention op)
{
    op.window = DOCUMENT;
    return op;
}

#define ATTENTION(name, described)                                                                                     \
    static void name(const struct bench *b)                                                                            \
    {                                                                                                                  \
        struct attention op = described;                                                                               \
                                                                                                                       \
        b->k->attention_forward(b->dev, &op);                                                                          \
    }                                                                                                                  \
    static void name##_back(const struct bench *b)                                                                     \
    {                                                                                                                  \
        struct attention op = described;                                                                               \
                                                                                                                       \
        b->k->attention_backward(b->dev, &op);                                                                         \
    }

ATTENTION(attention, attention_of(b, NULL))
ATTENTION(attention_documents, attention_of(b, b->document_start))
ATTENTION(attention_grouped, grouped(attention_of(b, NULL)))
ATTENTION(attention_window, windowed(attention_of(b, NULL)))

static void norm(const struct bench *b)
{
    b->k->norm_forward(b->dev, &(struct norm){.eps = 1e-5f,
                                              .rows = ROWS,
                                              .cols = D,
                                              .x = b->x,
                                              .gamma = b->bias,
                                              .beta = b->bias,
                                              .y = b->y,
                                              .mean = b->row[0],
                                              .rstd = b->row[1]});
}

static void norm_residual(const struct bench *b)
{
    b->k->norm_forward(b->dev, &(struct norm){.eps = 1e-5f,
                                              .rows = ROWS,
                                              .cols = D,
                                              .x = b->x,
                                              .branch = b->z,
                                              .sum = b->wide,
                                              .gamma = b->bias,
                                              .beta = b->bias,
                                              .y = b->y,
                                              .mean = b->row[0],
                                              .rstd = b->row[1]});
}

static void norm_backward(const struct bench *b)
{
    b->k->norm_backward(b->dev, &(struct norm_backward){.rows = ROWS,
                                                        .cols = D,
                                                        .dy = b->y,
                                                        .sum = b->x,
                                                        .gamma = b->bias,
                                                        .dresidual = b->z,
                                                        .dx = b->z,
                                                        .mean = b->row[0],
                                                        .rstd = b->row[1],
                                                        .dgamma = b->bias2,
                                                        .dbeta = b->d_weight});
}

static void rms_norm(const struct bench *b)
{
    b->k->norm_forward(
        b->dev, &(struct norm){
                    .eps = 1e-5f, .rows = ROWS, .cols = D, .x = b->x, .gamma = b->bias, .y = b->y, .rstd = b->row[1]});
}

static void rms_norm_backward(const struct bench *b)
{
    b->k->norm_backward(b->dev, &(struct norm_backward){.rows = ROWS,
                                                        .cols = D,
                                                        .dy = b->y,
                                                        .sum = b->x,
                                                        .gamma = b->bias,
                                                        .dresidual = b->z,
                                                        .dx = b->z,
                                                        .rstd = b->row[1],
                                                        .dgamma = b->bias2});
}

/* In place; the values need not be those of angles. */
static struct query_key query_key_of(const struct bench *b)
{
    return (struct query_key){.rows = ROWS,
                              .seq = SEQ,
                              .heads = HEADS,
                              .kv_heads = HEADS,
                              .head_size = D / HEADS,
                              .eps = 1e-6f,
                              .qkv = b->d_wide,
                              .angles = b->weight};
}

static void rotation(const struct bench *b)
{
    struct query_key op = query_key_of(b);

    b->k->query_key_forward(b->dev, &op);
}

static void query_key(const struct bench *b)
{
    struct query_key op = query_key_of(b);

    op.gamma_q = op.gamma_k = b->bias;
    op.before = b->wide;
    op.rstd = b->d_weight;
    b->k->query_key_forward(b->dev, &op);
}

static void query_key_back(const struct bench *b)
{
    struct query_key op = query_key_of(b);

    op.gamma_q = op.gamma_k = b->bias;
    op.before = b->wide;
    op.rstd = b->d_weight;
    op.dgamma_q = b->bias2;
    op.dgamma_k = b->bias2 + D;
    b->k->query_key_backward(b->dev, &op);
}

static void gated(const struct bench *b)
{
    b->k->gated_forward(b->dev, &(struct gated){.rows = ROWS, .cols = 2 * D, .x = b->x, .y = b->y});
}

static void gated_back(const struct bench *b)
{
    b->k->gated_backward(b->dev, &(struct gated){.rows = ROWS, .cols = 2 * D, .x = b->x, .dx = b->d_wide});
}

static void add(const struct bench *b)
{
    b->k->add(b->dev, DTYPE_F32, b->z, b->x, (size_t)ROWS * D);
}

static void embedding(const struct bench *b)
{
    b->k->embedding_forward(
        b->dev,
        &(struct embedding){.rows = ROWS, .cols = D, .vocab = VOCAB, .tokens = b->tokens, .wte = b->table, .x = b->y});
}

static void embedding_back(const struct bench *b)
{
    b->k->embedding_backward(
        b->dev,
        &(struct embedding){.rows = ROWS, .cols = D, .vocab = VOCAB, .tokens = b->tokens, .x = b->x, .dwte = b->table});
}

static struct cross_entropy loss(const struct bench *b)
{
    return (struct cross_entropy){.rows = ROWS,
                                  .vocab = VOCAB,
                                  .stride = STRIDE,
                                  .targets = b->tokens,
                                  .logits = b->logits,
                                  .max = b->row[0],
                                  .sum = b->row[1],
                                  .target = b->row[2],
                                  .loss = b->row[3],
                                  .scale = 1};
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

static void adamw(const struct bench *b)
{
    b->k->adamw(b->dev,
                &(struct adamw){.count = PARAMETERS,
                                .param = b->logits,
                                .exp_avg = b->logits + PARAMETERS,
                                .exp_avg_sq = b->logits + 2 * PARAMETERS,
                                .grad = b->logits + 3 * PARAMETERS,
                                .grad_scale = 1,
                                .lr = 1e-4f,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .eps = 1e-8f,
                                .weight_decay = 0.1f,
                                .bias1 = 0.5f,
                                .bias2 = 0.5f},
                1);
}

static void norm_of_gradient(const struct bench *b)
{
    double result;

    b->k->sum_of_squares(b->dev, &result, &(struct squares){b->logits, 4 * PARAMETERS}, 1);
}

#define LINEAR_FLOPS(in, out) (2.0 * ROWS * (in) * (out))
#define FLOATS(n)             (4.0 * (n)*ROWS) /* bytes of n floats a row */

const struct bench_entry bench_entries[] = {
    {"matmul qkv", qkv_forward, LINEAR_FLOPS(D, 3 * D), 0, 1, true, 0},
    {"matmul proj", proj_forward, LINEAR_FLOPS(D, D), 0, 1, true, 0},
    {"matmul up", up_forward, LINEAR_FLOPS(D, 4 * D), 0, 1, true, -1},
    {"matmul down", down_forward, LINEAR_FLOPS(4 * D, D), 0, 1, true, 0},
    {"matmul d(qkv in)", qkv_data, LINEAR_FLOPS(D, 3 * D), 0, 1, true, 0},
    {"matmul d(proj in)", proj_data, LINEAR_FLOPS(D, D), 0, 1, true, 0},
    {"matmul d(up in)", up_data, LINEAR_FLOPS(D, 4 * D), 0, 1, true, 0},
    {"matmul d(down in)", down_data, LINEAR_FLOPS(4 * D, D), 0, 1, true, -1},
    {"matmul d(qkv W)", qkv_weight, LINEAR_FLOPS(D, 3 * D), 0, 1, true, 0},
    {"matmul d(proj W)", proj_weight, LINEAR_FLOPS(D, D), 0, 1, true, 0},
    {"matmul d(up W)", up_weight, LINEAR_FLOPS(D, 4 * D), 0, 1, true, 0},
    {"matmul d(down W)", down_weight, LINEAR_FLOPS(4 * D, D), 0, 1, true, 0},
    {"matmul up + gelu", up_gelu, LINEAR_FLOPS(D, 4 * D), 0, 0, false, 1},
    {"matmul d(down in) * gelu'", down_dgelu, LINEAR_FLOPS(4 * D, D), 0, 0, false, 1},
    {"bias_backward qkv", qkv_bias, 0, FLOATS(3 * D), 1, false, 0},
    {"bias_backward proj", proj_bias, 0, FLOATS(D), 1, false, 0},
    {"bias_backward up", up_bias, 0, FLOATS(4 * D), 1, false, 0},
    {"bias_backward down", down_bias, 0, FLOATS(D), 1, false, 0},
    {"attention_forward", attention, ATTENTION_FLOPS, 0, 1, false, 0},
    {"attention_backward", attention_back, 2 * ATTENTION_FLOPS, 0, 1, false, 0},
    {"attention_forward, documents", attention_documents, ATTENTION_FLOPS, 0, 0, false, 0},
    {"attention_backward, documents", attention_documents_back, 2 * ATTENTION_FLOPS, 0, 0, false, 0},
    {"attention_forward, 4 kv heads", attention_grouped, ATTENTION_FLOPS, 0, 0, false, 0},
    {"attention_backward, 4 kv heads", attention_grouped_back, 2 * ATTENTION_FLOPS, 0, 0, false, 0},
    {"attention_forward, window 128", attention_window, ATTENTION_FLOPS, 0, 0, false, 0},
    {"attention_backward, window 128", attention_window_back, 2 * ATTENTION_FLOPS, 0, 0, false, 0},
    {"norm_forward", norm, 0, FLOATS(2 * D), 1, false, 0},
    {"norm_forward, residual", norm_residual, 0, FLOATS(4 * D), 1, false, 0},
    {"norm_backward", norm_backward, 0, FLOATS(4 * D), 2, false, 0},
    {"norm_forward, RMS", rms_norm, 0, FLOATS(2 * D), 0, false, 0},
    {"norm_backward, RMS", rms_norm_backward, 0, FLOATS(4 * D), 0, false, 0},
    {"query_key_forward, rotation", rotation, 0, FLOATS(4 * D), 0, false, 0},
    {"query_key_forward, norm", query_key, 0, FLOATS(6 * D), 0, false, 0},
    {"query_key_backward, norm", query_key_back, 0, FLOATS(6 * D), 0, false, 0},
    {"gated_forward", gated, 0, FLOATS(6 * D), 0, false, 0},
    {"gated_backward", gated_back, 0, FLOATS(10 * D), 0, false, 0},
    {"add", add, 0, FLOATS(3 * D), 1, false, 0},
    {"embedding_forward", embedding, 0, FLOATS(3 * D), 0, false, 0},
    {"embedding_backward", embedding_back, 0, FLOATS(5 * D), 0, false, 0},
    {"matmul head", head_forward, LINEAR_FLOPS(D, STRIDE), 0, 0, false, 0},
    {"cross_entropy_stats", loss_stats, 0, FLOATS(VOCAB), 0, false, 0},
    {"cross_entropy_finish", loss_finish, 0, FLOATS(2.0 * VOCAB), 0, false, 0},
    {"adamw", adamw, 0, 28.0 * PARAMETERS, 0, false, 0},
    {"sum_of_squares", norm_of_gradient, 0, 16.0 * PARAMETERS, 0, false, 0},
};

const int bench_entry_count = sizeof bench_entries / sizeof *bench_entries;
