#include "tests/kernels/harness.h"

#include <string.h>

#define SEQ     5
#define SAMPLES 13
#define ROWS    (SEQ * SAMPLES)
#define VOCAB   11

/* Tokens 0 to 19, of which a slice of the vocabulary has 11, from `first`. Tokens repeat, so that gradients add up. */
static int32_t *make_tokens(struct device *dev)
{
    int32_t *tokens = int_buffer(dev, ROWS);

    for (int row = 0; row < ROWS; row++)
        tokens[row] = row * 7 % 20;
    return tokens;
}

static bool in_slice(int32_t token, int first)
{
    return token >= first && token < first + VOCAB;
}

static void check_forward(struct device *dev, int cols, int first, bool positions)
{
    int32_t *tokens = make_tokens(dev);
    float *wte = random_floats(dev, (size_t)VOCAB * cols, "wte"), *wpe = random_floats(dev, (size_t)SEQ * cols, "wpe");
    float *x = poisoned_floats(dev, (size_t)ROWS * cols);
    double *want = reference(dev, (size_t)ROWS * cols);

    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < cols; i++) {
            if (in_slice(tokens[row], first))
                want[row * cols + i] += wte[(tokens[row] - first) * cols + i];
            if (positions)
                want[row * cols + i] += wpe[row % SEQ * cols + i];
        }
    device_kernels(dev)->embedding_forward(
        dev,
        &(struct embedding){
            .rows = ROWS, .cols = cols, .vocab_first = first, .vocab = VOCAB, .tokens = tokens, .wte = wte, .x = x});
    if (positions)
        device_kernels(dev)->positions_forward(
            dev, &(struct positions){.rows = ROWS, .cols = cols, .seq = SEQ, .wpe = wpe, .x = x});
    expect_close("x", x, want, (size_t)ROWS * cols, 1e-6);
}

/* The operation is linear, so its gradient is its transpose: what forward reads, backward adds to. */
static void check_backward(struct device *dev, int cols, int first, bool positions)
{
    int32_t *tokens = make_tokens(dev);
    float *dx = random_floats(dev, (size_t)ROWS * cols, "dx"), *dwte = random_floats(dev, (size_t)VOCAB * cols, "dwte");
    float *dwpe = poisoned_floats(dev, (size_t)SEQ * cols);
    double *want = reference(dev, (size_t)VOCAB * cols), *want_positions = reference(dev, (size_t)SEQ * cols);

    for (int i = 0; i < VOCAB * cols; i++)
        want[i] = dwte[i];
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < cols; i++) {
            if (in_slice(tokens[row], first))
                want[(tokens[row] - first) * cols + i] += dx[row * cols + i];
            want_positions[row % SEQ * cols + i] += dx[row * cols + i];
        }
    device_kernels(dev)->embedding_backward(
        dev,
        &(struct embedding){
            .rows = ROWS, .cols = cols, .vocab_first = first, .vocab = VOCAB, .tokens = tokens, .x = dx, .dwte = dwte});
    if (positions)
        device_kernels(dev)->positions_backward(
            dev, &(struct positions){.rows = ROWS, .cols = cols, .seq = SEQ, .x = dx, .dwpe = dwpe});
    expect_close("dwte", dwte, want, (size_t)VOCAB * cols, 1e-6);
    if (positions)
        expect_close("dwpe", dwpe, want_positions, (size_t)SEQ * cols, 1e-6);
    else
        expect_untouched("dwpe", dwpe, (size_t)SEQ * cols);
}

static void check_all_forward(struct device *dev)
{
    check_forward(dev, 1, 0, true);
    check_forward(dev, 20, 4, true);
    check_forward(dev, 64, 9, false);
    check_forward(dev, 100, 100, false); /* no token is in this slice: all zeros, and not what x held */
}

static void check_all_backward(struct device *dev)
{
    check_backward(dev, 1, 0, true);
    check_backward(dev, 20, 4, true);
    check_backward(dev, 64, 9, false);
    check_backward(dev, 100, 100, true);
}

static void test_forward(void **state)
{
    (void)state;
    each_device(check_all_forward);
}

static void test_backward(void **state)
{
    (void)state;
    each_device(check_all_backward);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_backward),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
