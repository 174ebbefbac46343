/*
 * orientation - times the three products of a linear layer with its weights stored [in, out] and [out, in], in turns.
 *
 *     bench/orientation [ROUNDS [THREADS]]
 *
 *                    [in, out]         [out, in]
 *     forward        y = x W           y = x W^T
 *     input          dx = dy W^T       dx = dy W
 *     weight         dW = x^T dy       dW = dy^T x      (fp32)
 *
 * A ratio is the time with [out, in] divided by that with [in, out]: the median over the rounds. "all" weighs the ratios
 * of a model's products by their times. A run before the first round generates the library's code.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "kernels/kernels.h"

#define MOST_ROUNDS 101
#define OF_A_MODEL  4 /* layers that follow each other */

struct linear {
    const char *name;
    int rows, in, out;
};

static const struct linear layers[] = {
    {"smollm2-135m qkv", 2048, 576, 960},  {"smollm2-135m out", 2048, 576, 576},
    {"smollm2-135m up", 2048, 576, 3072},  {"smollm2-135m down", 2048, 1536, 576},
    {"llama-3.2-1b qkv", 512, 2048, 3072}, {"llama-3.2-1b out", 512, 2048, 2048},
    {"llama-3.2-1b up", 512, 2048, 16384}, {"llama-3.2-1b down", 512, 8192, 2048},
};

enum which { FORWARD, INPUT, WEIGHT, PRODUCTS };

struct operands {
    void *x, *y, *weight, *gradient; /* weight's gradient, fp32 */
};

static struct matmul product_of(const struct linear *l, enum which which, bool out_in, enum dtype dtype,
                                const struct operands *o)
{
    switch (which) {
    case FORWARD:
        return (struct matmul){l->rows,        l->out,    l->in,          .transpose_b = out_in,
                               .dtype = dtype, .a = o->x, .b = o->weight, .c = o->y};
    case INPUT:
        return (struct matmul){l->rows,        l->in,     l->out,         .transpose_b = !out_in,
                               .dtype = dtype, .a = o->y, .b = o->weight, .c = o->x};
    default:
        return (struct matmul){
            .m = out_in ? l->out : l->in,
            .n = out_in ? l->in : l->out,
            .k = l->rows,
            .transpose_a = true,
            .dtype = dtype,
            .c_fp32 = true,
            .a = out_in ? o->y : o->x,
            .b = out_in ? o->x : o->y,
            .c = o->gradient,
        };
    }
}

static double seconds_of(struct device *dev, const struct matmul *op)
{
    double begin = clock_monotonic();

    device_kernels(dev)->matmul(dev, op);
    device_wait(dev);
    return clock_monotonic() - begin;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *x, int count)
{
    qsort(x, (size_t)count, sizeof *x, ascending);
    return x[count / 2];
}

/* Prints the rate with [in, out] and the ratio. Adds both times to `total`. */
static void compare(struct device *dev, const struct linear *l, enum which which, enum dtype dtype,
                    const struct operands *o, int rounds, double total[2])
{
    struct matmul op[2] = {product_of(l, which, false, dtype, o), product_of(l, which, true, dtype, o)};
    double ratio[MOST_ROUNDS], first[MOST_ROUNDS], time, times;

    for (int i = -1; i < rounds; i++) {
        double seconds[2];

        for (int turn = 0; turn < 2; turn++) {
            int form = (turn + i) & 1;

            seconds[form] = seconds_of(dev, &op[form]);
        }
        if (i >= 0)
            ratio[i] = seconds[1] / (first[i] = seconds[0]);
    }
    time = median(first, rounds);
    times = median(ratio, rounds);
    total[0] += time;
    total[1] += time * times;
    printf(" %8.1f %6.3f", 2e-9 * l->rows * l->in * l->out / time, times);
    fflush(stdout);
}

/* Numbers in [-1, 1) of the type, none of them denormal. */
static void *operand(struct device *dev, enum dtype dtype, size_t count)
{
    struct error err = {0};
    void *x = device_alloc(dev, MEMORY_DEVICE, count * dtype_size(dtype), &err);
    float *values = malloc(count * sizeof *values);

    if (!x || !values) {
        fprintf(stderr, "bench/orientation: no memory\n");
        exit(1);
    }
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((uint32_t)i * 2654435761u >> 8) * 0x1p-23f - 1;
    device_kernels(dev)->cast(dev, dtype, x, DTYPE_F32, values, count);
    free(values);
    return x;
}

static void one_layer(struct device *dev, const struct linear *l, enum dtype dtype, int rounds, double total[2])
{
    size_t rows = (size_t)l->rows, in = (size_t)l->in, out = (size_t)l->out;
    struct operands o = {operand(dev, dtype, rows * in), operand(dev, dtype, rows * out), operand(dev, dtype, in * out),
                         operand(dev, DTYPE_F32, in * out)};

    printf("%-18s %-5s", l->name, dtype == DTYPE_F32 ? "fp32" : "bf16");
    for (int which = FORWARD; which < PRODUCTS; which++)
        compare(dev, l, (enum which)which, dtype, &o, rounds, total);
    printf("\n");
    device_free(dev, MEMORY_DEVICE, o.x);
    device_free(dev, MEMORY_DEVICE, o.y);
    device_free(dev, MEMORY_DEVICE, o.weight);
    device_free(dev, MEMORY_DEVICE, o.gradient);
}

int main(int argc, char **argv)
{
    struct error err = {0};
    int rounds = argc > 1 ? atoi(argv[1]) : 11;
    struct device *dev = device_create("cpu", argc > 2 ? atoi(argv[2]) : 0, &err);

    if (!dev || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "bench/orientation: %s\n", dev ? "give 1 to 101 rounds" : err.text);
        return 1;
    }
    printf("%s\n%-24s %15s %15s %15s\n", device_describe(dev), "GFLOP/s, ratio", "forward", "input", "weight");
    for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++)
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i += OF_A_MODEL) {
            double total[2] = {0};

            for (size_t j = i; j < i + OF_A_MODEL; j++)
                one_layer(dev, &layers[j], (enum dtype)dtype, rounds, total);
            printf("%-24s %6.3f\n", "all", total[1] / total[0]);
        }
    if (device_status(dev, &err) < 0)
        fprintf(stderr, "bench/orientation: %s\n", err.text);
    device_destroy(dev);
    return err.code != 0;
}
