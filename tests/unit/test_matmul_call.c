#include <math.h>

#include "common/dtype.h"
#include "common/philox.h"
#include "kernels/cuda/matmul_call.h"
#include "tests/cmocka_test.h"

/*
 * What matmul_call.c makes of a struct matmul is carried out here as cuBLASLt documents its column-major call, and
 * compared with kernels.h's own formula, row-major. Small integers, so that every type and every order of sums is
 * exact.
 */

#define MOST 4096

static double a[MOST], b[MOST], bias[MOST], before[MOST];
static struct numbers {
    _Alignas(16) unsigned char at[MOST * 4];
} stored_a, stored_b, stored_bias, stored_aux, stored_c, scratch;

static double get(const void *at, enum dtype dtype, size_t i)
{
    if (dtype == DTYPE_F32)
        return ((const float *)at)[i];
    return dtype == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)at)[i]) : f16_to_float(((const uint16_t *)at)[i]);
}

static void put(void *at, enum dtype dtype, size_t i, double x)
{
    if (dtype == DTYPE_F32)
        ((float *)at)[i] = (float)x;
    else
        ((uint16_t *)at)[i] = dtype == DTYPE_BF16 ? bf16_of_float((float)x) : f16_of_float((float)x);
}

static void fill(double *x, struct numbers *numbers, enum dtype dtype, const char *name)
{
    for (size_t i = 0; i < MOST; i++) {
        x[i] = (double)(philox_u32((struct philox_stream){.site = philox_site(name)}, i) % 5) - 2;
        put(numbers->at, dtype, i, x[i]);
    }
}

/* Any function serves as gelu here: only the places matter. */
static double bent(double x)
{
    return x + 1;
}

static double element(const void *at, const struct matmul_matrix *matrix, bool transposed, int row, int col)
{
    int r = transposed ? col : row, c = transposed ? row : col;

    assert_in_range(r, 0, matrix->rows - 1);
    assert_in_range(c, 0, matrix->cols - 1);
    return get(at, matrix->dtype, (size_t)c * matrix->ld + r);
}

/* The call, as cuBLASLt's manual has it. */
static void carry_out(const struct matmul_call *p, const struct matmul *op, void *d)
{
    for (int row = 0; row < p->d.rows; row++)
        for (int col = 0; col < p->d.cols; col++) {
            size_t at = (size_t)col * p->d.ld + row, aux = (size_t)col * p->ld_aux + row;
            double sum = 0;

            for (int i = 0; i < op->k; i++)
                sum += element(op->b, &p->first, p->transpose_first, row, i) *
                       element(op->a, &p->second, p->transpose_second, i, col);
            if (p->accumulate)
                sum += get(d, p->d.dtype, at);
            if (p->epilogue == EPILOGUE_BIAS || p->epilogue == EPILOGUE_BIAS_GELU)
                sum += get(op->bias, p->first.dtype, row);
            if (p->epilogue == EPILOGUE_BIAS_GELU) {
                put(op->aux, p->first.dtype, aux, sum);
                sum = bent(sum);
            }
            if (p->epilogue == EPILOGUE_DGELU)
                sum *= get(op->aux, p->first.dtype, aux);
            put(d, p->d.dtype, at, sum);
        }
}

static void check_sizes(const struct matmul_call *p, const struct matmul *op)
{
    assert_int_equal(p->transpose_first ? p->first.cols : p->first.rows, op->n);
    assert_int_equal(p->transpose_first ? p->first.rows : p->first.cols, op->k);
    assert_int_equal(p->transpose_second ? p->second.cols : p->second.rows, op->k);
    assert_int_equal(p->transpose_second ? p->second.rows : p->second.cols, op->m);
    assert_int_equal(p->d.rows, op->n);
    assert_int_equal(p->d.cols, op->m);
    assert_true(p->first.ld >= p->first.rows && p->second.ld >= p->second.rows && p->d.ld >= p->d.rows);
    assert_int_equal(matmul_call_scratch(p), p->unfused ? sizeof(float) * op->m * op->n : 0);
}

static double wanted(const struct matmul *op, int row, int col)
{
    double ab = 0, aux;

    for (int i = 0; i < op->k; i++)
        ab += a[op->transpose_a ? i * op->lda + row : row * op->lda + i] *
              b[op->transpose_b ? col * op->ldb + i : i * op->ldb + col];
    aux = get(op->aux, op->dtype, (size_t)row * op->n + col);
    switch (op->epilogue) {
    case EPILOGUE_NONE:
        return op->accumulate ? ab + before[(size_t)row * op->ldc + col] : ab;
    case EPILOGUE_BIAS:
        return ab + bias[col];
    case EPILOGUE_BIAS_GELU:
        assert_true(aux == ab + bias[col]);
        return bent(aux);
    case EPILOGUE_DGELU:
        return ab * aux;
    }
    return NAN;
}

/* Returns whether everything was left to cuBLASLt. What was not, is a plain product in scratch. */
static bool check(struct matmul op)
{
    struct matmul_call p;
    enum dtype type_of_c = op.c_fp32 ? DTYPE_F32 : op.dtype;
    double aux[MOST];

    op = matmul_with_strides(&op);
    fill(a, &stored_a, op.dtype, "a");
    fill(b, &stored_b, op.dtype, "b");
    fill(bias, &stored_bias, op.dtype, "bias");
    fill(aux, &stored_aux, op.dtype, "aux");
    fill(before, &stored_c, type_of_c, "before");
    op.a = stored_a.at;
    op.b = stored_b.at;
    op.bias = stored_bias.at;
    op.aux = stored_aux.at;
    op.c = stored_c.at;
    matmul_call_of(&p, &op, 1);
    check_sizes(&p, &op);
    carry_out(&p, &op, p.unfused ? scratch.at : op.c);
    if (p.unfused) {
        assert_int_equal(p.d.dtype, DTYPE_F32);
        op.epilogue = EPILOGUE_NONE;
    }
    for (int row = 0; row < op.m; row++)
        for (int col = 0; col < op.n; col++) {
            double got = p.unfused ? get(scratch.at, DTYPE_F32, (size_t)row * op.n + col)
                                   : get(op.c, type_of_c, (size_t)row * op.ldc + col);

            assert_true(got == wanted(&op, row, col));
        }
    return !p.unfused;
}

static void test_every_layout(void **state)
{
    static const int shapes[][3] = {{1, 1, 1}, {3, 8, 5}, {16, 24, 7}, {5, 1, 3}, {1, 16, 9}};
    int fused = 0, unfused = 0;

    for (int i = 0; i < 5 * 4 * 64; i++) {
        const int *shape = shapes[i / 256];
        int choice = i % 64, gap = choice & 8 ? 8 : 0;
        struct matmul op = {.m = shape[0],
                            .n = shape[1],
                            .k = shape[2],
                            .transpose_a = choice & 1,
                            .transpose_b = choice & 2,
                            .c_fp32 = choice & 16,
                            .dtype = choice & 32 ? DTYPE_BF16 : DTYPE_F32,
                            .epilogue = (enum epilogue)(i / 64 % 4)};

        op.accumulate = choice & 4 && op.epilogue == EPILOGUE_NONE && (op.c_fp32 || op.dtype == DTYPE_F32);
        if (gap) {
            op.lda = (op.transpose_a ? op.m : op.k) + gap;
            op.ldb = (op.transpose_b ? op.k : op.n) + gap;
            op.ldc = op.n + gap;
        }
        check(op) ? fused++ : unfused++;
    }
    assert_true(fused > 500 && unfused > 300);
}

/* What the trainer's layers ask for in 16 bits is left to cuBLASLt whole; what it cannot do as kernels.h says is not.
 */
static void test_what_is_fused(void **state)
{
    struct matmul op = {.m = 16, .n = 24, .k = 8, .dtype = DTYPE_BF16};

    for (int epilogue = EPILOGUE_NONE; epilogue <= EPILOGUE_DGELU; epilogue++) {
        bool gelu = epilogue == EPILOGUE_BIAS_GELU || epilogue == EPILOGUE_DGELU;
        struct matmul other = op;

        op.epilogue = other.epilogue = (enum epilogue)epilogue;
        assert_true(check(op));
        other.c_fp32 = true;
        assert_int_equal(check(other), epilogue == EPILOGUE_NONE);
        other.c_fp32 = false;
        other.n = 20; /* rows of 40 bytes */
        assert_int_equal(check(other), !gelu);
        other.n = 24;
        other.dtype = DTYPE_F32;
        assert_int_equal(check(other), !gelu);
    }
}

static void test_alignment(void **state)
{
    struct matmul op = {.m = 16, .n = 24, .k = 9, .dtype = DTYPE_BF16, .a = stored_a.at, .b = stored_b.at + 4};
    struct matmul_call p, q;

    op.c = stored_c.at;
    op.epilogue = EPILOGUE_BIAS;
    op.bias = stored_bias.at + 2;
    op = matmul_with_strides(&op);
    matmul_call_of(&p, &op, 1);
    assert_int_equal(p.first.alignment, 4);  /* b's address */
    assert_int_equal(p.second.alignment, 2); /* a's rows of 18 bytes */
    assert_true(p.unfused);
    op.bias = stored_bias.at + 16;
    matmul_call_of(&p, &op, 1);
    assert_false(p.unfused);
    assert_int_equal(p.d.alignment, 16);
    op.a = stored_aux.at; /* another address, but as good */
    matmul_call_of(&q, &op, 1);
    assert_memory_equal(&p, &q, sizeof p);
    matmul_call_of(&q, &op, 0);
    assert_true(q.unfused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layout),
        cmocka_unit_test(test_what_is_fused),
        cmocka_unit_test(test_alignment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
