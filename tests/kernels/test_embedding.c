#include "tests/kernels/harness.h"

/* Token rows, then positions, types and dropout; each backward pass is the transpose of its forward pass. */

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

static bool in_slice(int32_t token, int first, int vocab)
{
    return token >= first && token < first + vocab;
}

static void check_tokens(struct device *dev, enum dtype dtype, int cols, int first, int vocab)
{
    int32_t *tokens = make_tokens(dev);
    size_t count = (size_t)ROWS * cols;
    struct tensor wte = random_tensor(dev, dtype, (size_t)VOCAB * cols, "wte");
    struct tensor x = poisoned_tensor(dev, dtype, count), dx = random_tensor(dev, dtype, count, "dx");
    float *dwte = random_floats(dev, (size_t)VOCAB * cols, "dwte");
    double *want = reference(dev, count), *want_dwte = reference(dev, (size_t)VOCAB * cols);
    struct embedding op = {.rows = ROWS, .cols = cols, .vocab_first = first, .vocab = vocab, .dtype = dtype};

    for (int i = 0; i < VOCAB * cols; i++)
        want_dwte[i] = dwte[i];
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < cols && in_slice(tokens[row], first, vocab); i++) {
            want[row * cols + i] = tensor_get(wte, (tokens[row] - first) * cols + i);
            want_dwte[(tokens[row] - first) * cols + i] += tensor_get(dx, row * cols + i);
        }
    op.tokens = tokens;
    op.wte = vocab ? wte.at : NULL;
    op.x = x.at;
    device_kernels(dev)->embedding_forward(dev, &op);
    expect_rounded("x", x, want, count, 0);
    op.x = dx.at;
    op.dwte = dwte;
    device_kernels(dev)->embedding_backward(dev, &op);
    expect_close("dwte", dwte, want_dwte, (size_t)VOCAB * cols, 1e-6);
    finish_buffers(dev);
}

static void check_all_tokens(struct device *dev, enum dtype dtype)
{
    check_tokens(dev, dtype, 1, 0, VOCAB);
    check_tokens(dev, dtype, 20, 4, VOCAB);
    check_tokens(dev, dtype, 64, 9, VOCAB);
    check_tokens(dev, dtype, 100, 100, VOCAB); /* no token is in this slice: all zeros, and not what x held */
    check_tokens(dev, dtype, 20, 0, 0);        /* nor in an empty one */
}

static void test_tokens(void **state)
{
    each_device_and_type(check_all_tokens);
}

struct tables {
    struct tensor x, wpe, wtt;
    double *want, *dwpe, *dwtt;
};

/* x is input of the forward pass and of the backward pass alike. */
static struct tables make_tables(struct device *dev, const struct position_embedding *op)
{
    size_t cols = op->cols, count = op->rows * cols;
    struct tables t = {
        .x = random_tensor(dev, op->dtype, count ? count : 1, "x"),
        .wpe = random_tensor(dev, op->dtype, op->seq * cols, "wpe"),
        .wtt = random_tensor(dev, op->dtype, 2 * cols, "wtt"),
        .want = reference(dev, count),
        .dwpe = reference(dev, op->seq * cols),
        .dwtt = reference(dev, 2 * cols),
    };

    for (size_t i = 0; i < count; i++) {
        int row = (int)(i / cols);
        int start = op->document_start ? op->document_start[row] : 0;
        size_t position = (size_t)((op->first_row + row) % op->seq - start) * cols + i % cols;
        size_t type = op->types[row] * cols + i % cols;
        double factor = dropout_keeps(&op->dropout, op->dropout.first + i) ? dropout_factor(&op->dropout) : 0;
        double x = tensor_get(t.x, i), gradient = rounded(op->dtype, x * factor);

        t.want[i] = (x + tensor_get(t.wpe, position) + (op->wtt ? tensor_get(t.wtt, type) : 0)) * factor;
        t.dwpe[position] += gradient;
        t.dwtt[type] += gradient;
    }
    return t;
}

/* Documents of 1 to 4 rows. */
static int32_t *make_starts(struct device *dev, int first_row)
{
    int32_t *starts = int_buffer(dev, ROWS);

    for (int row = 0, start = 0; row < ROWS; row++) {
        int position = (first_row + row) % SEQ;

        if (position == 0 || row % 7 == 3 || row % 4 == 1)
            start = position;
        starts[row] = row == 0 ? 0 : start;
    }
    return starts;
}

static void check_positions(struct device *dev, struct position_embedding op, bool types, bool documents)
{
    int32_t *type = int_buffer(dev, ROWS);
    struct tables t;
    struct tensor dx;
    size_t count = (size_t)op.rows * op.cols;
    float *dwpe = poisoned_floats(dev, (size_t)SEQ * op.cols), *dwtt = poisoned_floats(dev, (size_t)2 * op.cols);

    for (int row = 0; row < ROWS; row++)
        type[row] = row / 3 % 2;
    op.seq = SEQ;
    op.document_start = documents ? make_starts(dev, op.first_row) : NULL;
    op.types = type;
    op.wtt = types ? type : NULL; /* any address: make_tables asks whether there is one */
    t = make_tables(dev, &op);
    dx = random_tensor(dev, op.dtype, count ? count : 1, "x");
    op.wpe = t.wpe.at;
    op.wtt = types ? t.wtt.at : NULL;
    op.types = types ? type : NULL;
    op.x = t.x.at;
    device_kernels(dev)->position_embedding_forward(dev, &op);
    if (count)
        expect_rounded("x", t.x, t.want, count, 1e-6);
    op.x = dx.at;
    op.dwpe = dwpe;
    op.dwtt = types ? dwtt : NULL;
    device_kernels(dev)->position_embedding_backward(dev, &op);
    expect_close("dwpe", dwpe, t.dwpe, (size_t)SEQ * op.cols, 1e-6);
    if (types)
        expect_close("dwtt", dwtt, t.dwtt, (size_t)2 * op.cols, 1e-6);
    else
        expect_untouched("dwtt", dwtt, (size_t)2 * op.cols);
    finish_buffers(dev);
}

static void check_all_positions(struct device *dev, enum dtype dtype)
{
    const struct dropout dropout = {0.4, {3, 4, 5}, 999};
    const struct {
        struct position_embedding op;
        bool types;
    } cases[] = {
        {{.rows = ROWS, .cols = 1}, false},
        {{.rows = ROWS, .cols = 20}, true},
        {{.rows = 7, .cols = 64, .first_row = 8}, true},
        {{.rows = ROWS, .cols = 33, .dropout = dropout}, true},
        {{.rows = ROWS, .cols = 100, .dropout = dropout}, false},
        {{.rows = 0, .cols = 20}, true}, /* gradients are 0 */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int documents = 0; documents < 2; documents++) {
            struct position_embedding op = cases[i].op;

            op.dtype = dtype;
            check_positions(dev, op, cases[i].types, documents);
        }
}

static void test_positions(void **state)
{
    each_device_and_type(check_all_positions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_positions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
