#include "kernels/cpu/vector/vector.h"

struct adamw_range {
    float *param, *exp_avg, *exp_avg_sq;
    const float *grad;
};

/*
 * Prevents contraction to an FMA: x, a product, is rounded before it is added. With every operation rounded by itself
 * the step gives the same bits on every processor and on a GPU (kernels/cuda/gpu/optimizer.cu does the same): so an
 * offloaded step gives the same bits as one that is not offloaded.
 */
INLINE vec apart(vec x)
{
#if defined(__x86_64__)
    __asm__("" : "+v"(x));
#elif defined(__aarch64__)
    __asm__("" : "+w"(x));
#else
    __asm__("" : "+m"(x));
#endif
    return x;
}

/* Never inlined: the whole vectors and the odd elements at the end go through the very same instructions, so that an
 * element's result does not depend on where it lies. */
__attribute__((noinline)) static void adamw_vectors(const struct adamw *op, struct adamw_range r, size_t count)
{
    float inverse1 = 1.0f / op->bias1, inverse2 = 1.0f / op->bias2;

    for (size_t i = 0; i < count; i += LANES) {
        vec g = vec_load(r.grad + i) * op->grad_scale;
        vec m = apart(op->beta1 * vec_load(r.exp_avg + i)) + apart((1.0f - op->beta1) * g);
        vec v = apart(op->beta2 * vec_load(r.exp_avg_sq + i)) + apart((1.0f - op->beta2) * (g * g));
        vec p = vec_load(r.param + i);
        vec step = m * inverse1 / (vec_sqrt(v * inverse2) + op->eps);

        vec_store(r.exp_avg + i, m);
        vec_store(r.exp_avg_sq + i, v);
        vec_store(r.param + i, p - apart(op->lr * (step + apart(op->weight_decay * p))));
    }
}

/* Fewer elements than a vector has, through a copy. */
static void adamw_rest(const struct adamw *op, struct adamw_range r, size_t count)
{
    float param[LANES] = {0}, exp_avg[LANES] = {0}, exp_avg_sq[LANES] = {0}, grad[LANES] = {0};
    size_t bytes = count * sizeof(float);

    memcpy(param, r.param, bytes);
    memcpy(exp_avg, r.exp_avg, bytes);
    memcpy(exp_avg_sq, r.exp_avg_sq, bytes);
    memcpy(grad, r.grad, bytes);
    adamw_vectors(op, (struct adamw_range){param, exp_avg, exp_avg_sq, grad}, LANES);
    memcpy(r.param, param, bytes);
    memcpy(r.exp_avg, exp_avg, bytes);
    memcpy(r.exp_avg_sq, exp_avg_sq, bytes);
}

static struct adamw_range range_at(const struct adamw *op, size_t first)
{
    return (struct adamw_range){op->param + first, op->exp_avg + first, op->exp_avg_sq + first, op->grad + first};
}

INLINE void round_copy(enum dtype T, const struct adamw *op, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i += LANES) {
        size_t part = vec_count(i, count);

        typed_store_part(T, op->copy, first + i, vec_load_part(op->param + first + i, part), part);
    }
}

static void step_array(const struct device *dev, const struct adamw *op)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (size_t first = 0; first < op->count; first += CHUNK) {
        size_t count = op->count - first < CHUNK ? op->count - first : CHUNK;
        size_t whole = count / LANES * LANES;

        adamw_vectors(op, range_at(op, first), whole);
        if (whole < count)
            adamw_rest(op, range_at(op, first + whole), count - whole);
        if (op->copy)
            WITH_DTYPE(op->copy_dtype, T, round_copy(T, op, first, count)); /* from the nearest cache */
    }
}

void ISA(adamw)(struct device *dev, const struct adamw *arrays, int count)
{
    for (int i = 0; i < count && device_ready(dev, DTYPE_F32, "adamw"); i++)
        step_array(dev, &arrays[i]);
}

#define SUMS 8 /* partial sums in flight: element i goes to sum i % SUMS, on every instruction set */

typedef double sums __attribute__((vector_size(SUMS * 8)));
typedef float eight __attribute__((vector_size(SUMS * 4), aligned(4), may_alias));

static double block_sum(const float *x, size_t count)
{
    sums even = {0}, odd = {0};
    size_t i = 0;
    double sum = 0;

    for (; i + 2 * SUMS <= count; i += 2 * SUMS) {
        sums a = __builtin_convertvector(*(const eight *)(x + i), sums);
        sums b = __builtin_convertvector(*(const eight *)(x + i + SUMS), sums);

        even += a * a;
        odd += b * b;
    }
    even += odd;
    for (int lane = 0; lane < SUMS; lane++)
        sum += even[lane];
    for (; i < count; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* sum_of [SQUARES_BLOCKS] is scratch. */
static double array_sum(const struct device *dev, double *sum_of, const struct squares *array)
{
    size_t blocks = (array->count + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
    double total = 0;

    for (size_t first = 0; first < blocks; first += SQUARES_BLOCKS) {
        size_t here = blocks - first < SQUARES_BLOCKS ? blocks - first : SQUARES_BLOCKS;

#pragma omp parallel for num_threads(dev->threads) schedule(static)
        for (size_t i = 0; i < here; i++) {
            size_t begin = (first + i) * SQUARES_BLOCK, left = array->count - begin;

            sum_of[i] = block_sum(array->x + begin, left < SQUARES_BLOCK ? left : SQUARES_BLOCK);
        }
        for (size_t i = 0; i < here; i++)
            total += sum_of[i];
    }
    return total;
}

void ISA(sum_of_squares)(struct device *dev, double *result, const struct squares *arrays, int count)
{
    double *sum_of;

    *result = 0;
    if (!device_ready(dev, DTYPE_F32, "sum_of_squares"))
        return;
    sum_of = (double *)cpu_scratch(dev, SQUARES_BLOCKS * sizeof(double) / sizeof(float));
    for (int i = 0; sum_of && i < count; i++)
        *result += array_sum(dev, sum_of, &arrays[i]);
}
