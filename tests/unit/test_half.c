/* The two 16-bit types of common/dtype.h: every value there is, and rounding against float64. */
#include <math.h>

#include "common/dtype.h"
#include "common/philox.h"
#include "tests/cmocka_test.h"

enum { DRAWS = 2000000 };

struct type {
    const char *name;
    float (*to_float)(uint16_t);
    uint16_t (*of_float)(float);
    int mantissa, least_exponent; /* bits behind the point; of the smallest normal number */
    double largest;
    uint16_t infinity;
};

static const struct type types[] = {
    {"bf16", bf16_to_float, bf16_of_float, 7, -126, 0x1.fep127, 0x7f80},
    {"fp16", f16_to_float, f16_of_float, 10, -14, 65504, 0x7c00},
};

enum { TYPES = sizeof types / sizeof *types };

/* By the definition: 1 + exponent bits + mantissa bits. */
static double value_of(const struct type *type, uint16_t half)
{
    int mantissa = half & ((1 << type->mantissa) - 1), exponent = (half & 0x7fff) >> type->mantissa;
    double value = mantissa + (exponent ? 1 << type->mantissa : 0);

    value = ldexp(value, type->least_exponent - type->mantissa + (exponent ? exponent - 1 : 0));
    return half & 0x8000 ? -value : value;
}

static void every_half_comes_back(void **state)
{
    for (int t = 0; t < TYPES; t++)
        for (int i = 0; i < 65536; i++) {
            uint16_t half = (uint16_t)i;
            float value = types[t].to_float(half);

            if ((half & 0x7fff) > types[t].infinity) {
                assert_true(isnan(value));
                assert_true((types[t].of_float(value) & 0x7fff) > types[t].infinity);
                continue;
            }
            if ((half & 0x7fff) == types[t].infinity)
                assert_true(isinf(value));
            else
                assert_true((double)value == value_of(&types[t], half));
            assert_true(!signbit(value) == !(half & 0x8000));
            assert_int_equal(types[t].of_float(value), half);
        }
}

/* The nearest multiple of the last place, ties to even, in float64, where nothing here is rounded. */
static double round_reference(const struct type *type, double value)
{
    double unit, rounded;
    int exponent;

    frexp(value, &exponent);
    if (--exponent < type->least_exponent)
        exponent = type->least_exponent;
    unit = ldexp(1, exponent - type->mantissa);
    rounded = nearbyint(value / unit) * unit;
    return fabs(rounded) > type->largest ? copysign(INFINITY, value) : rounded;
}

static void check_rounding(const struct type *type, float value)
{
    double expected = round_reference(type, value), seen = type->to_float(type->of_float(value));

    if (seen != expected || !signbit(seen) != !signbit(value))
        fail_msg("%s of %a is %a, not %a", type->name, value, seen, expected);
}

/* Bits drawn from all floats, so that every exponent is as likely. */
static void rounded_as_in_float64(void **state)
{
    struct philox_stream stream = {.seed = 1};

    for (int t = 0; t < TYPES; t++)
        for (uint64_t i = 0; i < DRAWS; i++) {
            float value = float_of_bits(philox_u32(stream, i));

            if (isfinite(value))
                check_rounding(&types[t], value);
        }
}

/* Half way between two neighbours, and the floats next to that, for all neighbours there are: the largest and what
 * would be next to it, the last subnormal and the first normal number, zero and the least. */
static void ties_and_what_is_beside_them(void **state)
{
    for (int t = 0; t < TYPES; t++)
        for (uint16_t half = 0; half < types[t].infinity; half++) {
            double low = value_of(&types[t], half), high = value_of(&types[t], (uint16_t)(half + 1));
            float middle = (float)((low + high) / 2);

            check_rounding(&types[t], middle);
            check_rounding(&types[t], nextafterf(middle, 0));
            check_rounding(&types[t], nextafterf(middle, INFINITY));
            check_rounding(&types[t], -middle);
        }
}

static void not_a_number_stays_one(void **state)
{
    /* NaNs whose bits are all in the half that is cut off must not become infinity */
    static const uint32_t bits[] = {0x7fc00000, 0x7f800001, 0x7f801000, 0xff800001, 0xffffffff, 0x7fffffff};

    for (int t = 0; t < TYPES; t++)
        for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
            assert_true(isnan(types[t].to_float(types[t].of_float(float_of_bits(bits[i])))));
            assert_int_equal(types[t].of_float(float_of_bits(bits[i])) >> 15, bits[i] >> 31);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_comes_back),
        cmocka_unit_test(rounded_as_in_float64),
        cmocka_unit_test(ties_and_what_is_beside_them),
        cmocka_unit_test(not_a_number_stays_one),
    };

    return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
