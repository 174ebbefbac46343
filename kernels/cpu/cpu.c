#include "kernels/cpu/cpu.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

#define HUGE_PAGE      ((size_t)2 << 20)
#define PARALLEL_BYTES ((size_t)1 << 16) /* below this, waking the other threads costs more than they save */

/* Part `index` of `bytes`, cut at cache lines. Returns its size. */
static size_t part_of(size_t bytes, int parts, int index, size_t *first)
{
    size_t lines = (bytes + 63) / 64;
    size_t end = lines * (size_t)(index + 1) / (size_t)parts * 64;

    *first = lines * (size_t)index / (size_t)parts * 64;
    return (end < bytes ? end : bytes) - *first;
}

/* Copies x, or writes zeros if it is NULL. */
static void fill_memory(struct device *dev, void *y, const void *x, size_t bytes)
{
    int parts = bytes < PARALLEL_BYTES ? 1 : dev->threads;

    if (dev->failed || bytes == 0) /* of nothing, the address may be NULL */
        return;
#pragma omp parallel for num_threads(parts) schedule(static)
    for (int i = 0; i < parts; i++) {
        size_t first, size = part_of(bytes, parts, i, &first);

        if (x)
            memcpy((char *)y + first, (const char *)x + first, size);
        else
            memset((char *)y + first, 0, size);
    }
}

static void cpu_copy(struct device *dev, void *y, const void *x, size_t bytes)
{
    fill_memory(dev, y, x, bytes);
}

static void cpu_zero(struct device *dev, void *y, size_t bytes)
{
    fill_memory(dev, y, NULL, bytes);
}

/* Lies in the 64 bytes before what the caller gets, and keeps the alignment. */
struct host_allocation {
    size_t bytes;
} __attribute__((aligned(64)));

/* Linux allocates more than it has, and kills the process that uses it. So compare with the memory of the machine. */
static int check_size(enum memory space, size_t bytes, struct error *err)
{
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

    if ((double)bytes <= machine)
        return 0;
    return error_set(err, CODE_IO, "%.1f GiB of %s memory wanted, but this machine has %.1f GiB",
                     (double)bytes / 0x1p30, space == MEMORY_HOST ? "host" : "device", machine / 0x1p30);
}

static void *cpu_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err)
{
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : sizeof(struct host_allocation);
    size_t total = sizeof(struct host_allocation) + bytes;
    struct host_allocation *header;

    if (check_size(space, bytes, err) < 0)
        return NULL;
    header = aligned_alloc(align, (total + align - 1) / align * align);
    if (!header) {
        error_errno(err, CODE_IO, "%.1f MiB of %s memory", (double)bytes / 0x1p20,
                    space == MEMORY_HOST ? "host" : "device");
        return NULL;
    }
    if (align == HUGE_PAGE)
        madvise(header, total, MADV_HUGEPAGE); /* advice: its failure costs only speed */
    header->bytes = bytes;
    cpu_zero(dev, header + 1, bytes); /* the threads that will work on the pages touch them first */
    return header + 1;
}

static size_t cpu_free(struct device *dev, enum memory space, void *pointer)
{
    struct host_allocation *header = (struct host_allocation *)pointer - 1;
    size_t bytes = header->bytes;

    (void)dev;
    (void)space;
    free(header);
    return bytes;
}

/* ---- instruction sets -------------------------------------------------------------------------------------------- */

/* From the least to the best; the compiler's names for what -march=x86-64-v3 and -v4 may use. */
static const struct vector_kernels *const tables[] = {
    &vector_kernels_baseline,
#ifdef HAVE_ISA_X86
    &vector_kernels_avx2,
    &vector_kernels_avx512,
#endif
};

static int best_table(void)
{
#ifdef HAVE_ISA_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4"))
        return 2;
    if (__builtin_cpu_supports("x86-64-v3"))
        return 1;
#endif
    return 0;
}

/* The best table that this processor runs, or the lesser one that the environment's MUSTER_ISA names. */
static const struct vector_kernels *choose_table(struct error *err)
{
    const char *wanted = getenv("MUSTER_ISA");
    int best = best_table();

    if (!wanted || !*wanted)
        return tables[best];
    for (int i = 0; i <= best; i++)
        if (strcmp(tables[i]->isa, wanted) == 0)
            return tables[i];
    error_set(err, CODE_CONFIG, "environment MUSTER_ISA=%s: this processor and this build have %s%s%s", wanted,
              tables[0]->isa, best >= 1 ? ", avx2" : "", best >= 2 ? ", avx512" : "");
    return NULL;
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

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
    cpu->vector = choose_table(err);
    if (!cpu->vector || matmul_library_open(dev, err) < 0)
        return -1;
    dev->kernels = cpu->vector->op;
    dev->kernels.matmul = cpu_matmul;
    dev->kernels.copy = cpu_copy;
    dev->kernels.zero = cpu_zero;
    matmul_library_name(library, sizeof library);
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
        dev->workspace -= memory[i]->bytes;
        *memory[i] = (struct growing){0};
    }
}

static void cpu_close(struct device *dev)
{
    struct cpu *cpu = device_cpu(dev);

    if (!cpu)
        return;
    cpu_trim(dev);
    matmul_library_close(cpu->library);
    free(cpu);
}

void *cpu_grow(struct device *dev, struct growing *memory, size_t bytes)
{
    struct error err = {0};

    if (bytes <= memory->bytes)
        return memory->at;
    bytes = (bytes + 63) / 64 * 64;
    device_free(dev, MEMORY_DEVICE, memory->at);
    dev->workspace -= memory->bytes;
    memory->at = device_alloc(dev, MEMORY_DEVICE, bytes, &err);
    memory->bytes = memory->at ? bytes : 0;
    dev->workspace += memory->bytes;
    if (!memory->at)
        device_fail(dev, err.code, "cpu: workspace: %s", err.text);
    return memory->at;
}

static bool cpu_widens(const struct device *dev, enum dtype dtype)
{
    const struct cpu *cpu = dev->state;

    return !matmul_native(cpu->library, dtype);
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
    .alloc = cpu_alloc,
    .free = cpu_free,
    .trim = cpu_trim,
    .widens = cpu_widens,
};
