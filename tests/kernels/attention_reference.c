#include "tests/kernels/attention_reference.h"

#include <math.h>

#include "tests/kernels/harness.h"

/* Of the query, key or value (part 0, 1 or 2) that query head `head` has. */
static size_t qkv_at(const struct attention_case *x, int sample, int row, int part, int head)
{
    int kv_heads = attention_kv_heads(x), place = head;

    if (part > 0)
        place = x->heads + (part - 1) * kv_heads + head / (x->heads / kv_heads);
    return ((size_t)sample * (size_t)x->seq + (size_t)row) * attention_row(x->heads, kv_heads, x->head_size) +
           (size_t)place * (size_t)x->head_size;
}

static size_t out_at(const struct attention_case *x, int sample, int row, int head)
{
    return (((size_t)sample * (size_t)x->seq + (size_t)row) * (size_t)x->heads + (size_t)head) * (size_t)x->head_size;
}

static int keys_of(const struct attention_case *x, int sample, int row)
{
    int keys = x->lengths && x->lengths[sample] < x->seq ? x->lengths[sample] : x->seq;

    return x->causal && row + 1 < keys ? row + 1 : keys;
}

static int first_key(const struct attention_case *x, int sample, int row)
{
    int first = x->document_start ? x->document_start[sample * x->seq + row] : 0;

    return x->window && row - x->window + 1 > first ? row - x->window + 1 : first;
}

static double dot(const double *x, const double *y, int size)
{
    double sum = 0;

    for (int i = 0; i < size; i++)
        sum += x[i] * y[i];
    return sum;
}

static double factor_of(const struct attention_case *x, int sample, int head, int row, int key)
{
    uint64_t seq = (uint64_t)x->seq, element = x->dropout.first + (uint64_t)sample * x->dropout_stride +
                                               ((uint64_t)head * seq + (uint64_t)row) * seq + (uint64_t)key;

    return dropout_keeps(&x->dropout, element) ? dropout_factor(&x->dropout) : 0;
}

/* Of one query: p from its first key to its last. Returns the log-sum-exp. */
static double probabilities(const struct attention_case *x, const double *qkv, int sample, int head, int row, double *p)
{
    int keys = keys_of(x, sample, row), first = first_key(x, sample, row);
    double most = -INFINITY, sum = 0;

    for (int j = first; j < keys; j++) {
        p[j] = dot(qkv + qkv_at(x, sample, row, 0, head), qkv + qkv_at(x, sample, j, 1, head), x->head_size) /
               sqrt(x->head_size);
        most = fmax(most, p[j]);
    }
    for (int j = first; j < keys; j++)
        sum += p[j] = exp(p[j] - most);
    for (int j = first; j < keys; j++)
        p[j] /= sum;
    return keys > first ? most + log(sum) : -INFINITY;
}

static void forward_row(const struct attention_case *x, const double *qkv, double *out, double *lse, int sample,
                        int head, int row)
{
    double *p = malloc((size_t)x->seq * sizeof *p), *o = out + out_at(x, sample, row, head);

    lse[((size_t)sample * (size_t)x->heads + (size_t)head) * (size_t)x->seq + (size_t)row] =
        probabilities(x, qkv, sample, head, row, p);
    memset(o, 0, (size_t)x->head_size * sizeof *o);
    for (int j = first_key(x, sample, row); j < keys_of(x, sample, row); j++) {
        const double weight = p[j] * factor_of(x, sample, head, row, j), *v = qkv + qkv_at(x, sample, j, 2, head);

        for (int d = 0; d < x->head_size; d++)
            o[d] += weight * v[d];
    }
    free(p);
}

void attention_reference_forward(const struct attention_case *x, const double *qkv, double *out, double *lse)
{
    for (int sample = 0; sample < x->batch; sample++)
        for (int head = 0; head < x->heads; head++)
            for (int row = 0; row < x->seq; row++)
                forward_row(x, qkv, out, lse, sample, head, row);
}

static void backward_row(const struct attention_case *x, const double *qkv, const double *out, const double *dout,
                         double *dqkv, int sample, int head, int row)
{
    double *p = malloc((size_t)x->seq * sizeof *p), *dq = dqkv + qkv_at(x, sample, row, 0, head);
    const double *q = qkv + qkv_at(x, sample, row, 0, head), *gradient = dout + out_at(x, sample, row, head);
    double delta = dot(gradient, out + out_at(x, sample, row, head), x->head_size);

    probabilities(x, qkv, sample, head, row, p);
    for (int j = first_key(x, sample, row); j < keys_of(x, sample, row); j++) {
        size_t k = qkv_at(x, sample, j, 1, head), v = qkv_at(x, sample, j, 2, head);
        double factor = factor_of(x, sample, head, row, j), weight = factor * p[j];
        double ds = p[j] * (factor * dot(gradient, qkv + v, x->head_size) - delta) / sqrt(x->head_size);

        for (int d = 0; d < x->head_size; d++) {
            dq[d] += ds * qkv[k + (size_t)d];
            dqkv[k + (size_t)d] += ds * q[d];
            dqkv[v + (size_t)d] += weight * gradient[d];
        }
    }
    free(p);
}

void attention_reference_backward(const struct attention_case *x, const double *qkv, const double *out_given,
                                  const double *dout, double *dqkv)
{
    memset(dqkv, 0, attention_qkv_count(x) * sizeof *dqkv);
    for (int sample = 0; sample < x->batch; sample++)
        for (int head = 0; head < x->heads; head++)
            for (int row = 0; row < x->seq; row++)
                backward_row(x, qkv, out_given, dout, dqkv, sample, head, row);
}
