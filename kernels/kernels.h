/*
 * kernels.h - arithmetic on one device. The one interface between the model and the hardware; kernels/cpu and
 * kernels/cuda implement it. Knows nothing of ranks, layers or files.
 *
 * Every tensor is row-major and contiguous, and lies in memory of the device that works on it (device_alloc). "rows"
 * are tokens of a micro-batch: row = sample * seq + position. Operations are enqueued in program order and may return
 * before they are done; device_wait is the end of the queue.
 *
 * Operations do not return errors. The device keeps the first failure, later operations do nothing, and device_status
 * returns it. The trainer asks once a step. This keeps the model's code as plain as the formulas.
 *
 *     struct device *dev = device_create("cpu", 2, &err);
 *     const struct kernels *k = device_kernels(dev);
 *     k->norm_forward(dev, &(struct norm){...});
 *     if (device_status(dev, &err) < 0) ...
 *
 * `dtype` is the type of activations and parameters: fp32, bf16 or fp16. Whatever it is, sums are accumulated in fp32
 * and rounded once, statistics are fp32, and gradients of parameters are fp32. Where a 16-bit type is not native to the
 * processor, the operation widens its operands and gives the same kind of result, slower.
 *
 * Results are bitwise repeatable on the same device with the same shapes and the same number of threads, at any
 * address. One exception: a GPU's library may compute a product differently when an operand's alignment, up to 16
 * bytes, differs. No operation reads the old contents of its output, unless `accumulate` is set or its description says
 * += or "in place".
 */
#ifndef MUSTER_KERNELS_KERNELS_H
#define MUSTER_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/attention_choice.h"
#include "common/dtype.h"
#include "common/error.h"
#include "common/philox.h"
#include "common/workspace/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device;
struct kernels;
struct CUstream_st;

/* ---- the device ------------------------------------------------------------------------------------------------- */

/*
 * kind: "cpu", "cuda" or "cuda:N" (N: this process's number on its node; it gets GPU N modulo the visible GPUs). A
 * build without CUDA has no "cuda"; a node without a driver or a GPU is an error that says so. threads: 0 takes
 * OMP_NUM_THREADS or the cores that this process may use. MUSTER_ISA=baseline|avx2|avx512 in the environment selects a
 * lower instruction set than the processor's best, for tests.
 *
 * No signal handler may run in a thread while it executes a CPU operation, nor in the threads that operations start:
 * oneDNN before 3.11.2 would overwrite the heap. A program that has handlers blocks their signals before it creates a
 * device. trainer/train.h has the reason.
 */
struct device *device_create(const char *kind, int threads, struct error *err);
void device_destroy(struct device *dev);
const struct kernels *device_kernels(const struct device *dev);

/* "cpu, avx512, 2 threads, oneDNN 2.6.3": for the log's first lines. Lives as long as the device. */
const char *device_describe(const struct device *dev);

/* 0, or the first failure since creation. */
int device_status(struct device *dev, struct error *err);
void device_wait(struct device *dev);

/* Allows fp32 products to round their factors to TF32's 10 bits, which is faster on a GPU. To be called before the
 * first product. */
void device_allow_tf32(struct device *dev, bool allow);

/*
 * Selects the kernels of attention_forward and attention_backward; to be called before the first of them. A new device
 * has ATTENTION_OWN. cuDNN's kernels are those that give the same bits each time. Shapes that cuDNN does not take are
 * computed by muster's own kernels: kernels_use_cudnn. Where there is no cuDNN, ATTENTION_AUTO becomes ATTENTION_OWN,
 * and ATTENTION_CUDNN is refused (-1 with CODE_CONFIG).
 */
int device_choose_attention(struct device *dev, enum attention_choice choice, struct error *err);

/* The device's measured rate on a large product of that type, in FLOP/s: the denominator of MFU if no peak is
 * configured. */
double device_measure_peak(struct device *dev, enum dtype dtype);

/* Two memory spaces. On a CPU both are host memory, counted separately. A GPU's MEMORY_HOST is pinned. Memory is
 * 64-byte aligned, and touched so that its pages exist. The operations' own workspace comes from device_alloc too, and
 * is counted. */
enum memory { MEMORY_DEVICE, MEMORY_HOST };

void *device_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err);
void device_free(struct device *dev, enum memory space, void *pointer);
size_t device_bytes_peak(const struct device *dev, enum memory space);

/* The free bytes of a GPU's memory; SIZE_MAX for a device without memory of its own. */
size_t device_bytes_unused(struct device *dev);

/* Allocates the workspace now. Without this, a GPU would stop to allocate when an operation first needs it. */
int device_reserve_workspace(struct device *dev, size_t bytes, struct error *err);

/* The number of calls of device_alloc so far, also for workspace. Only a run's first step changes it. */
size_t device_allocations(const struct device *dev);

/*
 * True when MEMORY_DEVICE is host memory: the host may read and write it, and operations take any address. Else the
 * device has discrete memory, as a GPU: all operands must be MEMORY_DEVICE of this device. Either side of copy and
 * device_transfer may also be MEMORY_HOST of this device, but no other host memory. The host must not read the result
 * of a copy, nor write its source, before device_wait has returned.
 */
bool device_is_host(const struct device *dev);

/* What the prediction of memory needs to know of a device. */
struct device_traits device_traits(const struct device *dev, enum dtype dtype);

/*
 * A copy that runs beside the queue of operations. It begins after every operation that was enqueued before it.
 * Transfers run one after the other, in the order of their calls. Nothing waits for a transfer implicitly, not even
 * device_wait. Until it has ended, its source must not be written, and its destination must not be read or written.
 *
 *     uint64_t ticket = device_transfer(dev, to, from, bytes);
 *     device_transfer_join(dev, ticket);    operations enqueued from now on run after it
 *     device_transfer_wait(dev, ticket);    the host waits for it and all earlier transfers
 *
 * Tickets increase. 0 is no transfer: waiting for it returns at once.
 */
uint64_t device_transfer(struct device *dev, void *y, const void *x, size_t bytes);
void device_transfer_join(struct device *dev, uint64_t ticket);
void device_transfer_wait(struct device *dev, uint64_t ticket);

/*
 * For a library that has its own streams on the GPU (NCCL). The stream of the operations is a cudaStream_t, valid as
 * long as the device; NULL on a device that is not a GPU.
 */
struct CUstream_st *device_stream(const struct device *dev);

/* A name of the GPU, or of its MIG slice, that is unique in the world: its UUID. Only where device_stream is not
 * NULL. */
enum { GPU_NAME = 16 };

int device_gpu_name(const struct device *dev, unsigned char name[], struct error *err);

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/*
 * c[m,n] = epilogue( op(a)[m,k] * op(b)[k,n] )   or, with accumulate,   c += op(a) * op(b)
 *
 * transpose_a: a is stored [k,m]; transpose_b: b is stored [n,k]. ld* are row strides of what is stored, in elements;
 * 0 means packed. Epilogues follow cuBLASLt, so that a GPU can fuse them:
 *   NONE       c = ab
 *   BIAS       c = ab + bias[n]
 *   BIAS_GELU  aux[m,n] = ab + bias, c = gelu(aux)           (aux is kept for the backward pass; gelu_forward of it
 *                                                             gives the bits of c)
 *   DGELU      c = ab * gelu'(aux)
 * gelu is the tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
 *
 * The product is summed in fp32. c is rounded to its type once, with one exception: where a 16-bit c has an epilogue,
 * a GPU's library may also round the product before the epilogue. accumulate therefore requires a c in fp32 and
 * EPILOGUE_NONE.
 *
 * sums, fp32, if not NULL: set to column sums, like bias_backward: [n] of b [k,n]; with sums_of_a, [m] of a [k,m]. When
 * the product is a weight gradient, x^T dy or dy^T x, this is the bias gradient. It requires EPILOGUE_NONE, and a packed
 * b that is not transposed or a packed a that is.
 */
enum epilogue { EPILOGUE_NONE, EPILOGUE_BIAS, EPILOGUE_BIAS_GELU, EPILOGUE_DGELU };

struct matmul {
    int m, n, k;
    bool transpose_a, transpose_b, accumulate;
    int lda, ldb, ldc;
    enum epilogue epilogue;
    enum dtype dtype; /* of a, b, bias, aux and c */
    bool c_fp32;      /* c is fp32 instead: gradients of weights */
    const void *a, *b, *bias;
    void *aux, *c;
    float *sums;
    bool sums_of_a;
};

/*
 * Dropout whose mask is the same on every mesh. Element i of a logical tensor is kept when the (i % 8)th 16-bit
 * half (the low half of word 0 first) of Philox block i / 8 of the stream is at least t = round(p * 65536), and is then
 * multiplied by 65536 / (65536 - t). `first` is the logical index of the first element of the operand at hand; its
 * elements follow in row-major order. Block b of a stream is philox4x32_10 of {low b, high b, site, step} by the seed.
 * The trainer leaves `step` 0: the masks of two steps differ because `first` counts the samples of the whole run.
 */
struct dropout {
    double p; /* 0: nothing is dropped, and the rest is not looked at */
    struct philox_stream stream;
    uint64_t first;
};

/*
 * Bias, dropout, residual sum and a norm, fused. x is the residual stream, branch what is added to it:
 *   sum = x + dropout(branch + bias)
 *   LayerNorm:              y = (sum - mean) * rstd * gamma + beta    rstd = 1 / sqrt(variance + eps)
 *   RMSNorm, mean is NULL:  y = sum * rstd * gamma                    rstd = 1 / sqrt(mean of sum^2 + eps)
 * (arXiv 1607.06450 and 1910.07467.) branch may be NULL: sum = x and is not written. bias [cols] and beta [cols] may be
 * NULL. sum is rounded to dtype before it is used. mean and rstd [rows] fp32 are kept for the backward pass.
 */
struct norm {
    int rows, cols;
    enum dtype dtype;
    float eps;
    const void *x, *branch, *bias, *gamma, *beta;
    struct dropout dropout;
    void *sum, *y;
    float *mean, *rstd;
};

/* The same without the norm: sum = x + dropout(branch + bias). sum may be x or branch; x may be NULL for zero. */
struct residual {
    int rows, cols;
    enum dtype dtype;
    const void *x, *branch, *bias;
    struct dropout dropout;
    void *sum;
};

/*
 * Backward, with xhat = (sum - mean) * rstd and g = dy * gamma:
 *   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dresidual
 *   dgamma = sum over rows of dy * xhat,  dbeta = sum over rows of dy
 * dresidual, where not NULL, is the gradient of the residual stream, which bypasses the norm; it may be the same buffer
 * as dx. mean is NULL for an RMSNorm, which has no mean(g) either. dgamma and dbeta [cols] are overwritten; dbeta may
 * be NULL. With rows = 0 they become 0.
 */
struct norm_backward {
    int rows, cols;
    enum dtype dtype;
    const void *dy, *sum, *gamma, *dresidual;
    const float *mean, *rstd;
    void *dx;
    float *dgamma, *dbeta;
};

/*
 * What happens to queries and keys between their product and attention, in place: a norm of each head, then rotary
 * positions. Either may be absent.
 *
 *   norm, gamma_q and gamma_k not NULL:   x = x * rstd * gamma, rstd = 1 / sqrt(mean over head_size of x^2 + eps)
 *   rotation, angles not NULL:            x[i]        = x[i] cos - x[i + half] sin
 *                                         x[i + half] = x[i + half] cos + x[i] sin,   half = head_size / 2
 *
 * (RoFormer, arXiv 2104.09864, with halves rotated as Hugging Face's Llama does; the norm as in Qwen3.) angles [seq,
 * head_size] fp32: the cosines of the half angles of a position, then their sines. A row's position is that in its
 * document (struct position_embedding). Both are computed in fp32, and rounded once.
 *
 * The forward pass keeps the norm's input in `before`, and its rstd. The backward pass works on the gradient: qkv is
 * dqkv, whose queries and keys become those of the product's output; dgamma_q and dgamma_k are overwritten with sums
 * over all rows and heads. V is neither read nor written. With xhat = before * rstd, dy turned back, g = dy * gamma:
 *   dx = rstd * (g - xhat * mean(g * xhat)),  dgamma = sum of dy * xhat
 */
struct query_key {
    int rows, seq, heads, kv_heads, head_size;
    enum dtype dtype;
    float eps;
    void *qkv; /* like struct attention's */
    const float *angles;
    const int32_t *document_start; /* [rows], or NULL */
    const void *gamma_q, *gamma_k; /* [head_size] */
    void *before;                  /* [rows, (heads + kv_heads) * head_size] */
    float *rstd;                   /* [rows, heads + kv_heads] */
    float *dgamma_q, *dgamma_k;    /* backward, [head_size] */
};

/*
 * y[rows, cols] = silu(gate) * up, where x [rows, 2 cols] holds gate | up, and silu(z) = z / (1 + exp(-z)) (SwiGLU, arXiv
 * 2002.05202). Backward, in place: dx [rows, 2 cols] has the gradient of y in its right half; it becomes that of x.
 */
struct gated {
    int rows, cols;
    enum dtype dtype;
    const void *x;
    void *y;  /* forward */
    void *dx; /* backward */
};

/*
 * Scaled dot-product attention over packed projections: qkv [batch*seq, (heads + 2 kv_heads) * head_size] holds Q | K |
 * V: `heads` heads of queries, and kv_heads, a divisor of heads, of keys and of values. Query head h reads head
 * h / (heads / kv_heads) of them. out [batch*seq, heads*head_size]. Computed in tiles with an online softmax
 * (FlashAttention, arXiv 2205.14135): no seq x seq matrix is ever stored. lse [batch, heads, seq] fp32, the log-sum-exp
 * of each row of scores, is kept for the backward pass, which recomputes the probabilities. Scale is 1/sqrt(head_size).
 * window: a query i sees the keys j with i - window < j; 0: all. It requires causal, and no lengths. Tiles outside it
 * are skipped.
 * lengths [batch]: keys at and after lengths[b] are masked (padding); NULL means all are seq. With length 0 there is
 * nothing to attend to: out is 0, lse minus infinity, and the gradients are 0.
 * document_start [batch*seq]: the position in its sample of the first token of each row's document. A query sees no key
 * before that: samples of several documents give the results of the documents alone, in less time. NULL: a sample is
 * one document. In a sample the values do not decrease, and none is more than its row's position. It requires causal,
 * and no lengths.
 * Dropout falls on the probabilities after the softmax: that of (sample b, head h, query i, key j) is element
 * dropout.first + b * dropout_stride + (h * seq + i) * seq + j, so that a slice of the heads finds the mask of the
 * whole.
 */
struct attention {
    int batch, seq, heads, kv_heads, head_size;
    bool causal;
    int window;
    enum dtype dtype;
    const void *qkv;
    const int32_t *lengths, *document_start;
    struct dropout dropout;
    uint64_t dropout_stride;
    void *out; /* the backward pass only reads out and lse */
    float *lse;
    const void *dout; /* backward */
    void *dqkv;       /* backward: like qkv, overwritten */
};

/* Elements of a row of out, and of Q; and of a row of qkv. */
static inline size_t attention_width(int heads, int head_size)
{
    return (size_t)heads * (size_t)head_size;
}

static inline size_t attention_row(int heads, int kv_heads, int head_size)
{
    return attention_width(heads + 2 * kv_heads, head_size);
}

/*
 * x[r,:] = wte[tokens[r] - vocab_first, :], or 0 for tokens outside [vocab_first, vocab_first + vocab): another
 * tensor-parallel rank has those rows. The backward pass is dwte[token - vocab_first, :] += x[r,:], where x is the
 * gradient. It is deterministic, and dwte is fp32. vocab_first and vocab are this rank's slice: its first token and its
 * number of rows.
 */
struct embedding {
    int rows, cols;
    int vocab_first, vocab;
    enum dtype dtype;
    const int32_t *tokens;
    const void *wte; /* forward */
    void *x;         /* output of the forward pass, input of the backward pass */
    float *dwte;     /* backward */
};

/*
 * Position and token type embeddings:
 *   x[r,:] = dropout(x[r,:] + wpe[p, :] + wtt[types[r], :]), in place; wtt [2, cols] may be NULL
 *   p = (first_row + r) % seq - document_start[r], the row's position in its document (struct attention).
 *   document_start [rows] may be NULL: then it is 0 everywhere
 * Backward, where x is the gradient: x is multiplied by the mask in place, then dwpe [seq, cols] and dwtt are
 * overwritten with its sums over the rows of each position and type.
 */
struct position_embedding {
    int rows, cols, seq, first_row;
    enum dtype dtype;
    const int32_t *types; /* [rows], 0 or 1; looked at only with wtt or dwtt */
    const int32_t *document_start;
    const void *wpe, *wtt;
    struct dropout dropout;
    void *x;
    float *dwpe, *dwtt;
};

/*
 * Cross-entropy over a slice of the vocabulary, in two passes, so that tensor-parallel ranks can combine between them
 * (maximum of max; then, with each sum rescaled by exp(max - global max), the sums of sum and target):
 *   stats:  max[r], sum[r] = sum_j exp(logits[r,j] - max[r]), target[r] = logits[r, target] or 0 if not in this slice
 *   finish: loss[r] = log(sum) + max - target;  logits <- (softmax - onehot) * scale, overwritten in place
 * Where the slice is the whole vocabulary, cross_entropy is both passes: a GPU then finds the row still in its cache.
 * Rows whose target is negative have loss 0 and gradient 0. Columns from `vocab` to `stride` are padding: they do not
 * count, and their gradient is 0. `vocab` is the columns of the slice. It may be 0: then max is minus infinity, sum and
 * target are 0.
 */
struct cross_entropy {
    int rows, vocab, stride; /* logits [rows, stride] */
    int vocab_first;
    enum dtype dtype;
    const int32_t *targets;
    void *logits;
    float *max, *sum, *target, *loss;
    float scale; /* of the gradient; usually loss_scale / tokens in the global batch */
};

/*
 * Between the two passes, where ranks share the vocabulary: stats [parts][3][rows] fp32 holds each rank's max, sum and
 * target, in rank order; max, sum and target become those of the whole.
 */
struct cross_entropy_combine {
    int rows, parts;
    const float *stats;
    float *max, *sum, *target;
};

/*
 * One AdamW step (decoupled decay; Loshchilov and Hutter, arXiv 1711.05101) on fp32 state:
 *   g = grad * grad_scale;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   p -= lr * ( m/bias1 / (sqrt(v/bias2) + eps) + weight_decay * p ),  bias_i = 1 - b_i^step
 * Element by element: the result of an element does not depend on where in the buffer it lies. param is the fp32 master
 * copy. copy, if not NULL, gets the new parameters rounded to copy_dtype, for the forward pass.
 */
struct adamw {
    size_t count;
    float *param, *exp_avg, *exp_avg_sq;
    const float *grad;
    void *copy;
    enum dtype copy_dtype;
    float grad_scale, lr, beta1, beta2, eps, weight_decay;
    float bias1, bias2;
};

/* An array of a sum of squares. */
struct squares {
    const float *x;
    size_t count;
};

/* ---- operations -------------------------------------------------------------------------------------------------- */

struct kernels {
    void (*matmul)(struct device *, const struct matmul *);
    /* db[n] = column sums of dy[rows, n]; added to db when accumulate */
    void (*bias_backward)(struct device *, enum dtype, float *db, const void *dy, int rows, int n, bool accumulate);

    void (*norm_forward)(struct device *, const struct norm *);
    void (*norm_backward)(struct device *, const struct norm_backward *);
    void (*residual)(struct device *, const struct residual *);
    /* dx = dy times the mask of rows * cols elements; dx may be dy */
    void (*dropout_backward)(struct device *, enum dtype, void *dx, const void *dy, size_t count,
                             const struct dropout *);
    void (*query_key_forward)(struct device *, const struct query_key *);
    void (*query_key_backward)(struct device *, const struct query_key *);
    void (*gated_forward)(struct device *, const struct gated *);
    void (*gated_backward)(struct device *, const struct gated *);
    void (*attention_forward)(struct device *, const struct attention *);
    void (*attention_backward)(struct device *, const struct attention *);
    void (*embedding_forward)(struct device *, const struct embedding *);
    void (*embedding_backward)(struct device *, const struct embedding *);
    void (*position_embedding_forward)(struct device *, const struct position_embedding *);
    void (*position_embedding_backward)(struct device *, const struct position_embedding *);
    void (*cross_entropy)(struct device *, const struct cross_entropy *);
    void (*cross_entropy_stats)(struct device *, const struct cross_entropy *);
    void (*cross_entropy_combine)(struct device *, const struct cross_entropy_combine *);
    void (*cross_entropy_finish)(struct device *, const struct cross_entropy *);
    /* steps of several arrays, in one launch on a GPU; copy_dtype is the same in all */
    void (*adamw)(struct device *, const struct adamw *arrays, int count);

    /* y = gelu(x); dx = dy * gelu'(x); y = tanh(x); dx = dy * (1 - y^2). Outputs may be dy or x. */
    void (*gelu_forward)(struct device *, enum dtype, void *y, const void *x, size_t count);
    void (*gelu_backward)(struct device *, enum dtype, void *dx, const void *dy, const void *x, size_t count);
    void (*tanh_forward)(struct device *, enum dtype, void *y, const void *x, size_t count);
    void (*tanh_backward)(struct device *, enum dtype, void *dx, const void *dy, const void *y, size_t count);

    /* y = x, between any two memory spaces; y += x, fp32 += any type; y = x with another type; y = 0 */
    void (*copy)(struct device *, void *y, const void *x, size_t bytes);
    void (*add)(struct device *, enum dtype, void *y, const void *x, size_t count);
    void (*accumulate)(struct device *, float *y, enum dtype, const void *x, size_t count);
    void (*cast)(struct device *, enum dtype to, void *y, enum dtype from, const void *x, size_t count);
    void (*zero)(struct device *, void *y, size_t bytes);

    /*
     * Sum of squares of several arrays in fp64. In each array, blocks of SQUARES_BLOCK elements are summed alone and
     * then in order, so the result does not depend on the number of threads; the arrays' sums are added in order.
     * *result is host memory and valid on return (the call waits once). NaN and infinity show in it.
     */
    void (*sum_of_squares)(struct device *, double *result, const struct squares *arrays, int count);
};

#ifdef __cplusplus
}
#endif

#endif
