#include "tests/kernels/harness.h"

#include <math.h>

#include "common/philox.h"

struct tensor random_tensor(struct device *dev, enum dtype dtype, size_t count, const char *name)
{
    struct tensor t = poisoned_tensor(dev, dtype, count);
    float *x = malloc((count + 1) * sizeof *x);

    assert_non_null(x);
    philox_normal(x, count, (struct philox_stream){SEED, philox_site(name), 0}, 0, 0.0, 1.0);
    for (size_t i = 0; i < count; i++)
        tensor_set(t, i, x[i]);
    free(x);
    return t;
}

static const struct format {
    int bits, lowest, highest; /* of the significand, the hidden one too; exponents of the least and greatest normal */
} formats[] = {[DTYPE_F32] = {24, -126, 127}, [DTYPE_BF16] = {8, -126, 127}, [DTYPE_F16] = {11, -14, 15}};

double rounded(enum dtype dtype, double x)
{
    struct format f = formats[dtype];
    int exponent;
    double unit, y;

    if (x == 0 || isnan(x) || isinf(x))
        return x;
    frexp(x, &exponent); /* x is in [2^(exponent-1), 2^exponent) */
    exponent = exponent - 1 < f.lowest ? f.lowest : exponent - 1;
    unit = ldexp(1, exponent - f.bits + 1);
    y = nearbyint(x / unit) * unit;
    return fabs(y) >= ldexp(1, f.highest + 1) ? copysign(INFINITY, y) : y;
}

static double from_bits(enum dtype dtype, uint16_t h)
{
    struct format f = formats[dtype];
    int fraction_bits = f.bits - 1, exponent = (h & 0x7fff) >> fraction_bits, fraction = h & ((1 << fraction_bits) - 1);
    double size;

    if (exponent == f.highest - f.lowest + 2)
        size = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        size = ldexp(fraction, f.lowest - fraction_bits);
    else
        size = ldexp(fraction + (1 << fraction_bits), exponent - 1 + f.lowest - fraction_bits);
    return h & 0x8000 ? -size : size;
}

static uint16_t to_bits(enum dtype dtype, double x)
{
    struct format f = formats[dtype];
    int fraction_bits = f.bits - 1, exponent;
    unsigned sign = signbit(x) ? 0x8000 : 0, top = (unsigned)(f.highest - f.lowest + 2) << fraction_bits;
    double size = fabs(rounded(dtype, x));

    if (isnan(x))
        return (uint16_t)(sign | top | 1u << (fraction_bits - 1));
    if (isinf(size))
        return (uint16_t)(sign | top);
    if (size < ldexp(1, f.lowest))
        return (uint16_t)(sign | (unsigned)ldexp(size, fraction_bits - f.lowest));
    frexp(size, &exponent);
    /* the hidden bit adds one to the exponent */
    return (uint16_t)((sign | (unsigned)(exponent - 1 - f.lowest) << fraction_bits) +
                      (unsigned)ldexp(size, fraction_bits - exponent + 1));
}

double tensor_get(struct tensor t, size_t i)
{
    assert_true(i < t.count);
    return t.dtype == DTYPE_F32 ? (double)((const float *)t.at)[i] : from_bits(t.dtype, ((const uint16_t *)t.at)[i]);
}

void tensor_set(struct tensor t, size_t i, double x)
{
    assert_true(i < t.count);
    if (t.dtype == DTYPE_F32)
        ((float *)t.at)[i] = (float)x;
    else
        ((uint16_t *)t.at)[i] = to_bits(t.dtype, x);
}

double *tensor_values(struct device *dev, struct tensor t)
{
    double *x = reference(dev, t.count);

    for (size_t i = 0; i < t.count; i++)
        x[i] = tensor_get(t, i);
    return x;
}

struct tensor tensor_from(struct tensor t, size_t first)
{
    assert_true(first <= t.count);
    return (struct tensor){t.dtype, t.count - first, (char *)t.at + first * dtype_size(t.dtype)};
}

static uint32_t dropout_least(const struct dropout *dropout)
{
    return (uint32_t)lround(dropout->p * 65536);
}

bool dropout_keeps(const struct dropout *dropout, uint64_t i)
{
    uint64_t block = i / 8;
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), dropout->stream.site, dropout->stream.step};
    uint32_t key[2] = {(uint32_t)dropout->stream.seed, (uint32_t)(dropout->stream.seed >> 32)}, word[4];

    if (dropout->p <= 0)
        return true;
    philox4x32_10(counter, key, word);
    return (word[i % 8 / 2] >> (i % 2 * 16) & 0xffff) >= dropout_least(dropout);
}

double dropout_factor(const struct dropout *dropout)
{
    return dropout->p > 0 ? 65536.0 / (65536.0 - dropout_least(dropout)) : 1;
}

void expect_rounded(const char *name, struct tensor got, const double *want, size_t count, double tolerance)
{
    double size = root_mean_square(want, count), half = ldexp(0.5, 1 - formats[got.dtype].bits);

    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        double least = ldexp(half, formats[got.dtype].lowest),
               rounding = fmax(half * fabs(want[i]) * (1 + half), least);
        double error = fabs(tensor_get(got, i) - want[i]);

        if (!(error <= tolerance * (fabs(want[i]) + size) + (got.dtype == DTYPE_F32 ? 0 : rounding)))
            fail_msg("%s[%zu of %zu] in type %d is %.9g, should be %.9g (rms %.3g)", name, i, count, (int)got.dtype,
                     tensor_get(got, i), want[i], size);
    }
}
