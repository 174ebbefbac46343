#include "tests/kernels/harness.h"

#include <math.h>

/* The norm of each head and the rotation of q and k, together and alone, against float64 and differences. */

struct shape {
    int rows, seq, heads, kv_heads, head_size;
};

static const struct shape shapes[] = {{1, 1, 1, 1, 2},    {6, 3, 2, 1, 10},     {35, 7, 4, 2, 64},
                                      {70, 35, 3, 3, 36}, {130, 65, 6, 2, 128}, {10, 5, 2, 1, 82}};

enum parts { NORM = 1, ROTATION = 2 };

/* The operands of one case in float64. qk and its like: [rows, heads + kv_heads, head_size]. */
struct plain {
    struct shape s;
    int parts;
    const int32_t *document_start;
    const float *angles;
    double *qkv, *gamma[2], *rstd, *out, *dout, *dqkv, *dgamma[2];
};

static size_t row_of(struct shape s)
{
    return attention_row(s.heads, s.kv_heads, s.head_size);
}

static int position_of(const struct plain *p, int row)
{
    return row % p->s.seq - (p->document_start ? p->document_start[row] : 0);
}

/* y = x rotated by the angles of the position, or back. */
static void rotate(const struct plain *p, int row, int sign, const double *x, double *y)
{
    int half = p->s.head_size / 2;
    const float *angles = p->angles + (size_t)position_of(p, row) * p->s.head_size;

    for (int i = 0; i < half; i++) {
        double cosine = angles[i], sine = sign * (double)angles[half + i];

        y[i] = x[i] * cosine - x[half + i] * sine;
        y[half + i] = x[half + i] * cosine + x[i] * sine;
    }
}

static void forward_head(const struct plain *p, int row, int head)
{
    int size = p->s.head_size;
    size_t at = (size_t)row * row_of(p->s) + (size_t)head * size,
           index = (size_t)row * (p->s.heads + p->s.kv_heads) + head;
    double normal[256], squares = 0;

    for (int i = 0; i < size; i++)
        squares += p->qkv[at + i] * p->qkv[at + i] / size;
    p->rstd[index] = 1 / sqrt(squares + 1e-6);
    for (int i = 0; i < size; i++)
        normal[i] =
            p->parts & NORM ? p->qkv[at + i] * p->rstd[index] * p->gamma[head >= p->s.heads][i] : p->qkv[at + i];
    if (p->parts & ROTATION)
        rotate(p, row, 1, normal, p->out + at);
    else
        memcpy(p->out + at, normal, size * sizeof *normal);
}

static void forward(const struct plain *p)
{
    memcpy(p->out, p->qkv, p->s.rows * row_of(p->s) * sizeof *p->out);
    for (int row = 0; row < p->s.rows; row++)
        for (int head = 0; head < p->s.heads + p->s.kv_heads; head++)
            forward_head(p, row, head);
}

static void backward_head(const struct plain *p, int row, int head)
{
    int size = p->s.head_size, is_key = head >= p->s.heads;
    size_t at = (size_t)row * row_of(p->s) + (size_t)head * size;
    double rstd = p->rstd[(size_t)row * (p->s.heads + p->s.kv_heads) + head], dy[256], mean = 0;

    memcpy(dy, p->dout + at, size * sizeof *dy);
    if (p->parts & ROTATION)
        rotate(p, row, -1, p->dout + at, dy);
    for (int i = 0; i < size; i++) {
        p->dgamma[is_key][i] += dy[i] * p->qkv[at + i] * rstd;
        mean += dy[i] * p->gamma[is_key][i] * p->qkv[at + i] * rstd / size;
    }
    for (int i = 0; i < size; i++)
        p->dqkv[at + i] = p->parts & NORM ? rstd * (dy[i] * p->gamma[is_key][i] - p->qkv[at + i] * rstd * mean) : dy[i];
}

static double loss(const void *arg)
{
    const struct plain *p = arg;
    double sum = 0;

    forward(p);
    for (size_t i = 0; i < p->s.rows * row_of(p->s); i++)
        sum += p->out[i] * p->dout[i];
    return sum;
}

/* What one call is given and yields. */
struct call {
    struct tensor qkv, dqkv, gamma[2], before;
    float *angles, *rstd, *dgamma[2];
    int32_t *document_start;
    struct query_key op;
};

static float *make_angles(struct device *dev, struct shape s)
{
    int half = s.head_size / 2;
    float *angles = poisoned_floats(dev, (size_t)s.seq * s.head_size);

    for (int position = 0; position < s.seq; position++)
        for (int i = 0; i < half; i++) {
            double angle = position * pow(1e4, -2.0 * i / s.head_size);

            angles[position * s.head_size + i] = (float)cos(angle);
            angles[position * s.head_size + half + i] = (float)sin(angle);
        }
    return angles;
}

/* A document of a third of seq, and one of the rest. */
static int32_t *make_documents(struct device *dev, struct shape s)
{
    int32_t *start = int_buffer(dev, s.rows);

    for (int row = 0; row < s.rows; row++)
        start[row] = row % s.seq < s.seq / 3 ? 0 : s.seq / 3;
    return start;
}

static struct call make_call(struct device *dev, enum dtype dtype, struct shape s, int parts, bool documents)
{
    size_t count = s.rows * row_of(s), heads = (size_t)(s.heads + s.kv_heads), size = (size_t)s.head_size;
    struct call c = {
        .qkv = random_tensor(dev, dtype, count, "qkv"),
        .dqkv = random_tensor(dev, dtype, count, "dqkv"),
        .gamma = {random_tensor(dev, dtype, size, "gamma_q"), random_tensor(dev, dtype, size, "gamma_k")},
        .before = poisoned_tensor(dev, dtype, s.rows * heads * size),
        .angles = make_angles(dev, s),
        .rstd = poisoned_floats(dev, s.rows * heads),
        .dgamma = {poisoned_floats(dev, size), poisoned_floats(dev, size)},
        .document_start = documents ? make_documents(dev, s) : NULL,
    };

    c.op = (struct query_key){.rows = s.rows,
                              .seq = s.seq,
                              .heads = s.heads,
                              .kv_heads = s.kv_heads,
                              .head_size = s.head_size,
                              .dtype = dtype,
                              .eps = 1e-6f,
                              .angles = parts & ROTATION ? c.angles : NULL,
                              .document_start = c.document_start};
    if (parts & NORM) {
        c.op.gamma_q = c.gamma[0].at;
        c.op.gamma_k = c.gamma[1].at;
        c.op.before = c.before.at;
        c.op.rstd = c.rstd;
        c.op.dgamma_q = c.dgamma[0];
        c.op.dgamma_k = c.dgamma[1];
    }
    return c;
}

static void run_forward(struct device *dev, struct call *c)
{
    c->op.qkv = c->qkv.at;
    device_kernels(dev)->query_key_forward(dev, &c->op);
}

static void run_backward(struct device *dev, struct call *c)
{
    c->op.qkv = c->dqkv.at;
    device_kernels(dev)->query_key_backward(dev, &c->op);
}

static struct plain make_plain(struct device *dev, const struct call *c, struct shape s, int parts)
{
    size_t count = c->qkv.count, size = (size_t)s.head_size;
    struct plain p = {
        .s = s,
        .parts = parts,
        .document_start = c->document_start,
        .angles = c->angles,
        .qkv = tensor_values(dev, c->qkv),
        .gamma = {tensor_values(dev, c->gamma[0]), tensor_values(dev, c->gamma[1])},
        .rstd = reference(dev, (size_t)s.rows * (s.heads + s.kv_heads)),
        .out = reference(dev, count),
        .dout = tensor_values(dev, c->dqkv),
        .dqkv = tensor_values(dev, c->dqkv),
        .dgamma = {reference(dev, size), reference(dev, size)},
    };

    forward(&p);
    for (int row = 0; row < s.rows; row++)
        for (int head = 0; head < s.heads + s.kv_heads; head++)
            backward_head(&p, row, head);
    return p;
}

static void compare_differences(struct device *dev, const struct plain *p, const struct call *c)
{
    double *want = tensor_values(dev, c->dqkv); /* that of V is copied from qkv to out */

    for (int row = 0; row < p->s.rows; row++)
        for (int i = 0; i < (p->s.heads + p->s.kv_heads) * p->s.head_size; i++) {
            size_t at = row * row_of(p->s) + i;

            want[at] = slope(loss, p, &p->qkv[at]);
        }
    expect_rounded("dqkv by differences", c->dqkv, want, c->dqkv.count, 1e-5);
    for (int which = 0; which < 2 && p->parts & NORM; which++) {
        for (int i = 0; i < p->s.head_size; i++)
            want[i] = slope(loss, p, &p->gamma[which][i]);
        expect_close("dgamma by differences", c->dgamma[which], want, p->s.head_size, 1e-5);
    }
}

static void check_call(struct device *dev, enum dtype dtype, struct shape s, int parts, bool documents)
{
    struct call c = make_call(dev, dtype, s, parts, documents);
    struct plain p = make_plain(dev, &c, s, parts);
    int heads = s.heads + s.kv_heads;

    run_forward(dev, &c);
    expect_rounded("qkv", c.qkv, p.out, c.qkv.count, 1e-6);
    if (parts & NORM) {
        expect_close("rstd", c.rstd, p.rstd, (size_t)s.rows * heads, 1e-6);
        for (int row = 0; row < s.rows; row++)
            expect_rounded("before", tensor_from(c.before, (size_t)row * heads * s.head_size), p.qkv + row * row_of(s),
                           heads * s.head_size, 0);
    }
    run_backward(dev, &c);
    expect_rounded("dqkv", c.dqkv, p.dqkv, c.dqkv.count, 2e-6);
    for (int which = 0; which < 2 && parts & NORM; which++)
        expect_close("dgamma", c.dgamma[which], p.dgamma[which], s.head_size, 1e-5);
    if (s.rows == 6 && dtype == DTYPE_F32)
        compare_differences(dev, &p, &c);
}

static void check_shapes(struct device *dev, enum dtype dtype)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int how = 0; how < 2 * (NORM | ROTATION) + 2; how++) {
            check_call(dev, dtype, shapes[s], how / 2, how % 2);
            finish_buffers(dev);
        }
}

static void test_shapes(void **state)
{
    each_device_and_type(check_shapes);
}

/* The last 7 rows of query heads 3 to 5, key head 1 and value head 1 of 14 rows of 6, 2 and 2. */
static void copy_slice(struct tensor to, struct tensor from)
{
    const size_t size = 20, first[] = {3, 7, 9}, count[] = {3, 1, 1}, place[] = {0, 3, 4};

    for (size_t row = 0; row < 7; row++)
        for (int part = 0; part < 3; part++)
            memcpy(tensor_from(to, (row * 5 + place[part]) * size).at,
                   tensor_from(from, ((7 + row) * 10 + first[part]) * size).at,
                   count[part] * size * dtype_size(to.dtype));
}

/* A kv head and its queries alone, as a tensor-parallel rank computes them: the same bits. */
static void check_slice(struct device *dev, enum dtype dtype)
{
    struct call c = make_call(dev, dtype, (struct shape){14, 7, 6, 2, 20}, NORM | ROTATION, false);
    struct call d = make_call(dev, dtype, (struct shape){7, 7, 3, 1, 20}, NORM | ROTATION, false);
    struct tensor want = poisoned_tensor(dev, dtype, d.qkv.count);

    copy_slice(d.qkv, c.qkv);
    copy_slice(d.dqkv, c.dqkv);
    run_forward(dev, &c);
    run_forward(dev, &d);
    copy_slice(want, c.qkv);
    expect_same("qkv", d.qkv.at, want.at, want.count * dtype_size(dtype));
    run_backward(dev, &c);
    run_backward(dev, &d);
    copy_slice(want, c.dqkv);
    expect_same("dqkv", d.dqkv.at, want.at, want.count * dtype_size(dtype));
}

static void test_slice(void **state)
{
    each_device_and_type(check_slice);
}

/* A rank that has no tokens. */
static void check_no_rows(struct device *dev, enum dtype dtype)
{
    struct call c = make_call(dev, dtype, (struct shape){1, 1, 2, 1, 20}, NORM | ROTATION, false);
    double zeros[20] = {0};

    c.op.rows = 0;
    run_forward(dev, &c);
    run_backward(dev, &c);
    expect_close("dgamma_q", c.dgamma[0], zeros, 20, 0);
    expect_close("dgamma_k", c.dgamma[1], zeros, 20, 0);
}

static void test_no_rows(void **state)
{
    each_device_and_type(check_no_rows);
}

static void expect_refused(int head_size, bool one_gamma)
{
    struct device *dev = make_device("baseline", 1);
    struct call c = make_call(dev, DTYPE_F32, (struct shape){1, 1, 1, 1, head_size}, NORM, false);
    struct error err = {0};

    if (one_gamma)
        c.op.gamma_k = NULL;
    run_forward(dev, &c);
    assert_int_equal(device_status(dev, &err), -1);
    assert_non_null(strstr(err.text, "even head_size"));
    abandon_device(dev);
}

static void test_wrong(void **state)
{
    expect_refused(3, false);
    expect_refused(4, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
