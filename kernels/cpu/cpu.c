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

static void cpu_trim(struct device *dev)
{
    struct cpu *cpu = device_cpu(dev);
    struct growing *const memory[] = {&cpu->scratch, &cpu->scratchpad, &cpu->copy};

    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        device_free(dev, MEMORY_DEVICE, memory[i]->at);
        *memory[i] = (struct growing){0};
    }
}

static void cpu_close(struct device *dev)
{
    struct cpu *cpu = device_cpu(dev);

    if (!cpu)
        return;
    cpu_trim(dev);
    product_library_close(cpu->library);
    free(cpu);
}

/* Operations run where they are called, so the queue is always empty. */
static void cpu_wait(struct device *dev)
{
    (void)dev;
}

void *cpu_grow(struct device *dev, struct growing *memory, size_t bytes)
{
    struct error err = {0};

    if (bytes <= memory->bytes)
        return memory->at;
    bytes = (bytes + 63) / 64 * 64;
    device_free(dev, MEMORY_DEVICE, memory->at);
    memory->at = device_alloc(dev, MEMORY_DEVICE, bytes, &err);
    memory->bytes = memory->at ? bytes : 0;
    if (!memory->at)
        device_fail(dev, err.code, "cpu: working space: %s", err.text);
    return memory->at;
}

static size_t cpu_workspace(const struct device *dev)
{
    const struct cpu *cpu = dev->state;

    return cpu->scratch.bytes + cpu->scratchpad.bytes + cpu->copy.bytes;
}

static bool cpu_widens(const struct device *dev, enum dtype dtype)
{
    const struct cpu *cpu = dev->state;

    return !product_native(cpu->library, dtype);
}

float *cpu_scratch(struct device *dev, size_t floats)
{
    return cpu_grow(dev, &device_cpu(dev)->scratch, floats * sizeof(float));
}

float *cpu_scratch_parts(struct device *dev, size_t parts, size_t floats, size_t *stride)
{
    *stride = workspace_part_floats(floats);
    return cpu_scratch(dev, parts * *stride);
}

const struct backend backend_cpu = {
    .kind = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .wait = cpu_wait,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .workspace = cpu_workspace,
    .trim = cpu_trim,
    .widens = cpu_widens,
};
