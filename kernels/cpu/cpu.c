#include "kernels/cpu/cpu.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

/* Not omp_get_max_threads(): that would be what an earlier device in this process was given. */
static int default_threads(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    long threads = text ? strtol(text, NULL, 10) : 0;

    return threads > 0 && threads < 4096 ? (int)threads : omp_get_num_procs();
}

static int cpu_open(struct device *dev, int threads, struct error *err)
{
    struct cpu *cpu = calloc(1, sizeof *cpu);
    char library[64];

    dev->state = cpu;
    if (!cpu)
        return error_errno(err, CODE_IO, "cpu device");
    dev->threads = threads ? threads : default_threads();
    cpu->vector = vector_kernels_choose(err);
    if (!cpu->vector)
        return -1;
    cpu->library = product_library_open(dev, err);
    if (!cpu->library)
        return -1;
    dev->kernels = cpu->vector->op;
    dev->kernels.matmul = cpu_matmul;
    dev->kernels.copy = cpu_copy;
    dev->kernels.zero = cpu_zero;
    product_library_name(library, sizeof library);
    snprintf(dev->description, sizeof dev->description, "cpu, %s, %d thread%s, %s", cpu->vector->isa, dev->threads,
             dev->threads == 1 ? "" : "s", library);
    return 0;
}

static void cpu_close(struct device *dev)
{
    struct cpu *cpu = device_cpu(dev);

    if (!cpu)
        return;
    product_library_close(cpu->library);
    free(cpu->scratch);
    free(cpu);
}

/* Operations run where they are called, so the queue is always empty. */
static void cpu_wait(struct device *dev)
{
    (void)dev;
}

float *cpu_scratch(struct device *dev, size_t floats)
{
    struct cpu *cpu = device_cpu(dev);

    if (floats > cpu->scratch_floats) {
        size_t bytes = (floats * sizeof(float) + 63) / 64 * 64;

        free(cpu->scratch);
        cpu->scratch_floats = 0;
        cpu->scratch = aligned_alloc(64, bytes);
        if (!cpu->scratch) {
            device_fail(dev, CODE_IO, "cpu: no memory for %zu bytes of working space", bytes);
            return NULL;
        }
        cpu->scratch_floats = bytes / sizeof(float);
    }
    return cpu->scratch;
}

float *cpu_scratch_parts(struct device *dev, size_t parts, size_t floats, size_t *stride)
{
    *stride = (floats + 15) / 16 * 16;
    return cpu_scratch(dev, parts * *stride);
}

const struct backend backend_cpu = {
    .kind = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .wait = cpu_wait,
    .alloc = cpu_alloc,
    .free = cpu_free,
};
