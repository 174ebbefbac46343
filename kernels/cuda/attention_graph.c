#include "kernels/cuda/cudnn_graph.h"

/* The graph as it is built. Scores are [batch, heads, seq, seq], but are never stored. */
struct building {
    struct cudnn_graph *graph;
    int64_t batch, heads, kv_heads, seq, size;
    int64_t row; /* of qkv: elements from one to the next */
    bool causal;
    cudnnDataType_t type;
};

static struct building begin_graph(const struct cudnn *cudnn, const struct attention_call *call)
{
    return (struct building){
        .graph = cudnn_graph_create(cudnn),
        .batch = call->batch,
        .heads = call->heads,
        .kv_heads = attention_kv_heads(call),
        .seq = call->seq,
        .size = call->head_size,
        .row = call->row,
        .causal = call->causal,
        .type = call->dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
    };
}

/* Rows of `heads` heads, `row` elements apart: [seq, size], or [size, seq] when transposed. */
static cudnn_descriptor rows_tensor(const struct building *b, int64_t id, int64_t heads, int64_t row, bool transposed)
{
    struct cudnn_tensor x = {
        .id = id,
        .type = b->type,
        .size = {b->batch, heads, b->seq, b->size},
        .stride = {b->seq * row, b->size, row, 1},
    };

    if (transposed) {
        x.size[2] = b->size;
        x.size[3] = b->seq;
        x.stride[2] = 1;
        x.stride[3] = row;
    }
    return cudnn_tensor(b->graph, &x);
}

/* Q or dQ */
static cudnn_descriptor query_rows(const struct building *b, int64_t id)
{
    return rows_tensor(b, id, b->heads, b->row, false);
}

/* K, V, dK or dV. A product with it reads a head for each of its group of heads of queries. */
static cudnn_descriptor key_rows(const struct building *b, int64_t id, bool transposed)
{
    return rows_tensor(b, id, b->kv_heads, b->row, transposed);
}

/* out or dout */
static cudnn_descriptor out_rows(const struct building *b, int64_t id)
{
    return rows_tensor(b, id, b->heads, b->heads * b->size, false);
}

static cudnn_descriptor strided_scores(const struct building *b, cudnnDataType_t type, int64_t row, int64_t column)
{
    return cudnn_tensor(b->graph, &(struct cudnn_tensor){
                                      .type = type,
                                      .size = {b->batch, b->heads, b->seq, b->seq},
                                      .stride = {b->heads * b->seq * b->seq, b->seq * b->seq, row, column},
                                  });
}

static cudnn_descriptor scores_tensor(const struct building *b, cudnnDataType_t type)
{
    return strided_scores(b, type, b->seq, 1);
}

static cudnn_descriptor transpose_scores(const struct building *b, cudnn_descriptor x)
{
    cudnn_descriptor y = strided_scores(b, b->type, 1, b->seq);

    cudnn_reshape(b->graph, x, y);
    return y;
}

/* One number a query. */
static cudnn_descriptor column_tensor(const struct building *b, int64_t id)
{
    return cudnn_tensor(b->graph, &(struct cudnn_tensor){
                                      .id = id,
                                      .type = CUDNN_DATA_FLOAT,
                                      .size = {b->batch, b->heads, b->seq, 1},
                                      .stride = {b->heads * b->seq, b->seq, 1, 1},
                                  });
}

static cudnn_descriptor scalar_tensor(const struct building *b, int64_t id)
{
    return cudnn_tensor(b->graph, &(struct cudnn_tensor){
                                      .id = id,
                                      .type = CUDNN_DATA_FLOAT,
                                      .size = {1, 1, 1, 1},
                                      .stride = {1, 1, 1, 1},
                                      .scalar = true,
                                  });
}

/* y = mode(x, other), in fp32; returns y. */
static cudnn_descriptor apply_pointwise(const struct building *b, cudnnPointwiseMode_t mode, cudnn_descriptor x,
                                        cudnn_descriptor other, cudnn_descriptor y)
{
    cudnn_pointwise(b->graph, &(struct cudnn_pointwise){mode, CUDNN_DATA_FLOAT, 0, x, other, NULL, y});
    return y;
}

static cudnn_descriptor scaled_scores(const struct building *b, cudnn_descriptor s, cudnn_descriptor scale)
{
    return apply_pointwise(b, CUDNN_POINTWISE_MUL, s, scale, scores_tensor(b, CUDNN_DATA_FLOAT));
}

/* Scores whose query comes before their key become minus infinity. */
static cudnn_descriptor causal_mask(const struct building *b, cudnn_descriptor s)
{
    cudnn_descriptor query = scores_tensor(b, CUDNN_DATA_INT32), key = scores_tensor(b, CUDNN_DATA_INT32);
    cudnn_descriptor seen = scores_tensor(b, CUDNN_DATA_BOOLEAN), masked = scores_tensor(b, CUDNN_DATA_FLOAT);

    cudnn_pointwise(b->graph,
                    &(struct cudnn_pointwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2, s, NULL, NULL, query});
    cudnn_pointwise(b->graph,
                    &(struct cudnn_pointwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3, s, NULL, NULL, key});
    cudnn_pointwise(b->graph,
                    &(struct cudnn_pointwise){CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0, query, key, NULL, seen});
    cudnn_pointwise(b->graph, &(struct cudnn_pointwise){CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, s,
                                                        scalar_tensor(b, ATTENTION_MINUS_INFINITY), seen, masked});
    return masked;
}

struct cudnn_graph *attention_graph_forward(const struct cudnn *cudnn, const struct attention_call *call)
{
    struct building b = begin_graph(cudnn, call);
    cudnn_descriptor s, most, sum, log, p;

    if (!b.graph)
        return NULL;
    s = scores_tensor(&b, CUDNN_DATA_FLOAT);
    cudnn_matmul(b.graph, query_rows(&b, ATTENTION_Q), key_rows(&b, ATTENTION_K, true), s);
    s = scaled_scores(&b, s, scalar_tensor(&b, ATTENTION_SCALE));
    if (b.causal)
        s = causal_mask(&b, s);
    most = column_tensor(&b, 0);
    cudnn_reduction(b.graph, CUDNN_REDUCE_TENSOR_MAX, s, most);
    s = apply_pointwise(&b, CUDNN_POINTWISE_SUB, s, most, scores_tensor(&b, CUDNN_DATA_FLOAT));
    s = apply_pointwise(&b, CUDNN_POINTWISE_EXP, s, NULL, scores_tensor(&b, CUDNN_DATA_FLOAT));
    sum = column_tensor(&b, 0);
    cudnn_reduction(b.graph, CUDNN_REDUCE_TENSOR_ADD, s, sum);
    log = apply_pointwise(&b, CUDNN_POINTWISE_LOG, sum, NULL, column_tensor(&b, 0));
    apply_pointwise(&b, CUDNN_POINTWISE_ADD, most, log, column_tensor(&b, ATTENTION_LSE));
    p = apply_pointwise(&b, CUDNN_POINTWISE_DIV, s, sum, scores_tensor(&b, b.type));
    cudnn_matmul(b.graph, p, key_rows(&b, ATTENTION_V, false), out_rows(&b, ATTENTION_OUT));
    return b.graph;
}

/* delta = rowsum(dout * out), stored. The factor 1 stands where dropout's would: the fused kernel looks for one. */
static cudnn_descriptor delta_of(const struct building *b, cudnn_descriptor dout)
{
    cudnn_descriptor out = out_rows(b, ATTENTION_OUT), sum = column_tensor(b, 0), product;

    product =
        cudnn_tensor(b->graph, &(struct cudnn_tensor){
                                   .type = CUDNN_DATA_FLOAT,
                                   .size = {b->batch, b->heads, b->seq, b->size},
                                   .stride = {b->heads * b->seq * b->size, b->seq * b->size, b->heads * b->size, 1},
                               });
    apply_pointwise(b, CUDNN_POINTWISE_MUL, dout, out, product);
    cudnn_reduction(b->graph, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    return apply_pointwise(b, CUDNN_POINTWISE_MUL, sum, scalar_tensor(b, ATTENTION_ONE),
                           column_tensor(b, ATTENTION_DELTA));
}

/* dK or dV. Where several heads of queries read a head of keys, their gradients of it are made first, and then added. */
static void key_gradient(const struct building *b, cudnn_descriptor turned, cudnn_descriptor rows, int64_t id)
{
    cudnn_descriptor sum = key_rows(b, id, false), each = sum;

    if (b->kv_heads < b->heads)
        each = rows_tensor(b, id == ATTENTION_DK ? ATTENTION_DK_OF_QUERIES : ATTENTION_DV_OF_QUERIES, b->heads,
                           b->heads * b->size, false);
    cudnn_matmul(b->graph, turned, rows, each);
    if (each != sum)
        cudnn_reduction(b->graph, CUDNN_REDUCE_TENSOR_ADD, each, sum);
}

struct cudnn_graph *attention_graph_backward(const struct cudnn *cudnn, const struct attention_call *call)
{
    struct building b = begin_graph(cudnn, call);
    cudnn_descriptor q, k, dout, scale, delta, p, ds, turned, k_rows;

    if (!b.graph)
        return NULL;
    q = query_rows(&b, ATTENTION_Q);
    k = key_rows(&b, ATTENTION_K, true);
    dout = out_rows(&b, ATTENTION_DOUT);
    scale = scalar_tensor(&b, ATTENTION_SCALE);
    delta = delta_of(&b, dout);

    p = scores_tensor(&b, CUDNN_DATA_FLOAT);
    cudnn_matmul(b.graph, q, k, p);
    p = scaled_scores(&b, p, scale);
    p = apply_pointwise(&b, CUDNN_POINTWISE_SUB, p, column_tensor(&b, ATTENTION_LSE),
                        scores_tensor(&b, CUDNN_DATA_FLOAT));
    if (b.causal)
        p = causal_mask(&b, p);
    p = apply_pointwise(&b, CUDNN_POINTWISE_EXP, p, NULL, scores_tensor(&b, CUDNN_DATA_FLOAT));
    turned = transpose_scores(&b, p);
    key_gradient(&b, turned, dout, ATTENTION_DV);

    ds = scores_tensor(&b, CUDNN_DATA_FLOAT);
    cudnn_matmul(b.graph, dout, key_rows(&b, ATTENTION_V, true), ds);
    ds = apply_pointwise(&b, CUDNN_POINTWISE_SUB, ds, delta, scores_tensor(&b, CUDNN_DATA_FLOAT));
    ds = apply_pointwise(&b, CUDNN_POINTWISE_MUL, ds, p, scores_tensor(&b, CUDNN_DATA_FLOAT));
    ds = scaled_scores(&b, ds, scale);
    turned = transpose_scores(&b, ds);
    key_gradient(&b, turned, q, ATTENTION_DK);
    k_rows = key_rows(&b, 0, false);
    cudnn_reshape(b.graph, k, k_rows);
    cudnn_matmul(b.graph, ds, k_rows, query_rows(&b, ATTENTION_DQ));
    return b.graph;
}
