#include "kernels/cuda/cuda.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "common/library.h"
#include "kernels/cuda/arena.h"

/*
 * Device memory is one range of addresses as large as the GPU's memory, of which an arena gives parts; physical memory
 * is put behind it from the front as the arena grows, and stays. So nothing has to be known beforehand, several
 * processes share a GPU, and memory that was freed is never too scattered to be asked for whole: the driver is
 * not asked again once the most that a run holds has been held.
 *
 * A tool that watches each allocation's ends (compute-sanitizer) sees nothing of an arena. For it,
 * MUSTER_CUDA_MEMORY=separate makes every piece an allocation of its own. With MUSTER_CUDA_MEMORY=pinned these are host
 * memory that the GPU reads over the bus: for tests, which look into what a device works on as if it were a CPU's.
 */

#define CHUNK ((size_t)64 << 20) /* by how much physical memory grows: mapping takes the driver's time */

/* The driver's functions for that; the run-time library has none. */
#define DRIVER_FUNCTIONS(f)                                                                                            \
    f(cuMemAddressReserve) f(cuMemAddressFree) f(cuMemCreate) f(cuMemRelease) f(cuMemMap) f(cuMemUnmap)                \
        f(cuMemSetAccess) f(cuMemGetAllocationGranularity)

struct driver {
    DRIVER_FUNCTIONS(LIBRARY_MEMBER)
};

struct piece {
    void *at;
    size_t bytes;
    struct piece *next;
};

struct cuda_memory {
    struct driver driver;
    struct CUstream_st *stream;
    CUmemAllocationProp kind;
    CUdeviceptr base;
    size_t reserved, mapped;
    struct arena *arena;

    struct piece *separate; /* with MUSTER_CUDA_MEMORY=separate, instead of all that */
    bool is_separate, is_pinned;
};

/* A host allocation begins with this, and the caller's bytes follow, 64-byte aligned. */
struct pinned_allocation {
    size_t bytes;
} __attribute__((aligned(64)));

static int driver_function(const char *name, void **function, struct error *err)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t status = cudaGetDriverEntryPointByVersion(name, function, 12000, cudaEnableDefault, &found);

    if (status == cudaSuccess && found == cudaDriverEntryPointSuccess)
        return 0;
    return error_set(err, CODE_CONFIG, "cuda: the driver has no %s (%s); it must be that of CUDA 12.0 or newer", name,
                     cudaGetErrorName(status));
}

static int driver_open(struct driver *driver, struct error *err)
{
#define LOAD(name)                                                                                                     \
    if (driver_function(#name, (void **)&driver->name, err) < 0)                                                       \
        return -1;
    DRIVER_FUNCTIONS(LOAD)
    return 0;
}

static int driver_ok(CUresult status, const char *doing, struct error *err)
{
    return status == CUDA_SUCCESS ? 0 : error_set(err, CODE_IO, "cuda: %s: error %d", doing, (int)status);
}

static int reserve_range(struct device *dev, struct cuda_memory *memory, struct error *err)
{
    size_t unused, total, grain;

    if (!CUDA_OK(dev, cudaMemGetInfo(&unused, &total)))
        return device_status(dev, err);
    memory->kind = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_cuda(dev)->ordinal},
    };
    if (driver_open(&memory->driver, err) < 0 ||
        driver_ok(
            memory->driver.cuMemGetAllocationGranularity(&grain, &memory->kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
            "cuMemGetAllocationGranularity", err) < 0)
        return -1;
    if (CHUNK % grain)
        return error_set(err, CODE_INTERNAL, "cuda: memory comes in pieces of %zu bytes, of which %zu is no multiple",
                         grain, CHUNK);
    memory->reserved = (total + CHUNK - 1) / CHUNK * CHUNK;
    if (driver_ok(memory->driver.cuMemAddressReserve(&memory->base, memory->reserved, 0, 0, 0), "cuMemAddressReserve",
                  err) < 0)
        return -1;
    memory->arena = arena_create(memory->reserved, err);
    return memory->arena ? 0 : -1;
}

struct cuda_memory *cuda_memory_open(struct device *dev, struct error *err)
{
    const char *choice = getenv("MUSTER_CUDA_MEMORY");
    struct cuda_memory *memory = error_calloc(1, sizeof *memory, err);

    if (!memory)
        return NULL;
    memory->stream = device_cuda(dev)->stream;
    memory->is_pinned = choice && strcmp(choice, "pinned") == 0;
    memory->is_separate = memory->is_pinned || (choice && strcmp(choice, "separate") == 0);
    if (choice && *choice && !memory->is_separate && strcmp(choice, "arena") != 0) {
        error_set(err, CODE_CONFIG, "MUSTER_CUDA_MEMORY=%s: there are \"arena\", \"separate\" and \"pinned\"", choice);
        goto fail;
    }
    if (!memory->is_separate && reserve_range(dev, memory, err) < 0)
        goto fail;
    return memory;

fail:
    cuda_memory_close(dev, memory);
    return NULL;
}

static size_t free_separate(struct device *dev, struct cuda_memory *memory, void *pointer)
{
    for (struct piece **at = &memory->separate; *at; at = &(*at)->next)
        if ((*at)->at == pointer) {
            struct piece *piece = *at;
            size_t bytes = piece->bytes;

            *at = piece->next;
            free(piece);
            if (memory->is_pinned)
                CUDA_OK(dev, cudaFreeHost(pointer));
            else
                CUDA_OK(dev, cudaFree(pointer));
            return bytes;
        }
    device_fail(dev, CODE_INTERNAL, "cuda: %p is freed, but was not allocated here", pointer);
    return 0;
}

void cuda_memory_close(struct device *dev, struct cuda_memory *memory)
{
    struct error err = {0};

    if (!memory)
        return;
    if ((memory->mapped &&
         driver_ok(memory->driver.cuMemUnmap(memory->base, memory->mapped), "cuMemUnmap", &err) < 0) ||
        (memory->base &&
         driver_ok(memory->driver.cuMemAddressFree(memory->base, memory->reserved), "cuMemAddressFree", &err) < 0))
        device_fail(dev, err.code, "%s", err.text);
    while (memory->separate)
        free_separate(dev, memory, memory->separate->at);
    arena_destroy(memory->arena);
    free(memory);
}

static int no_memory(size_t bytes, size_t held, const char *why, struct error *err)
{
    size_t unused = 0, total = 0;

    cuda_forget_error(); /* who asked may do with less */
    if (cudaMemGetInfo(&unused, &total) != cudaSuccess)
        unused = total = 0;
    return error_set(err, CODE_IO,
                     "%.1f MiB of device memory: this process holds %.1f MiB, and of the GPU's %.1f MiB %.1f MiB "
                     "are free (%s)",
                     (double)bytes / 0x1p20, (double)held / 0x1p20, (double)total / 0x1p20, (double)unused / 0x1p20,
                     why);
}

/* Puts memory behind addresses up to `end`. */
static int map_chunk(struct cuda_memory *memory, size_t end, struct error *err)
{
    const struct driver *driver = &memory->driver;
    CUmemAccessDesc access = {.location = memory->kind.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = memory->base + memory->mapped;
    size_t bytes;

    if (end <= memory->mapped)
        return 0;
    bytes = (end - memory->mapped + CHUNK - 1) / CHUNK * CHUNK;
    if (driver_ok(driver->cuMemCreate(&handle, bytes, &memory->kind, 0), "cuMemCreate", err) < 0)
        return -1;
    if (driver_ok(driver->cuMemMap(at, bytes, 0, handle, 0), "cuMemMap", err) < 0) {
        driver_ok(driver->cuMemRelease(handle), "cuMemRelease", NULL);
        return -1;
    }
    /* Mapped memory lives on until it is unmapped. */
    if (driver_ok(driver->cuMemRelease(handle), "cuMemRelease", err) < 0 ||
        driver_ok(driver->cuMemSetAccess(at, bytes, &access, 1), "cuMemSetAccess", err) < 0) {
        driver_ok(driver->cuMemUnmap(at, bytes), "cuMemUnmap", NULL);
        return -1;
    }
    memory->mapped += bytes;
    return 0;
}

static void *from_arena(struct cuda_memory *memory, size_t bytes, struct error *err)
{
    struct error why = {0};
    size_t offset, ignored;

    if (arena_alloc(memory->arena, bytes, &offset, &why) < 0) {
        no_memory(bytes, memory->mapped, why.text, err);
        return NULL;
    }
    if (map_chunk(memory, arena_extent(memory->arena), &why) < 0) {
        arena_free(memory->arena, offset, &ignored);
        no_memory(bytes, memory->mapped, why.text, err);
        return NULL;
    }
    return (void *)(uintptr_t)(memory->base + offset);
}

static void *allocate_separately(struct cuda_memory *memory, size_t bytes, struct error *err)
{
    struct piece *piece = error_calloc(1, sizeof *piece, err);
    void *at = NULL;
    cudaError_t status;

    if (!piece)
        return NULL;
    if (memory->is_pinned)
        status = cudaHostAlloc(&at, bytes ? bytes : 1, cudaHostAllocDefault);
    else
        status = cudaMalloc(&at, bytes ? bytes : 1);
    if (status != cudaSuccess) {
        no_memory(bytes, 0, cudaGetErrorString(status), err);
        free(piece);
        return NULL;
    }
    *piece = (struct piece){at, bytes, memory->separate};
    memory->separate = piece;
    return at;
}

/* As on a CPU the memory is zero, and that before any stream sees it; pieces are not taken inside a step. */
static void *device_memory(struct device *dev, size_t bytes, struct error *err)
{
    struct cuda_memory *memory = device_cuda(dev)->memory;
    void *at = memory->is_separate ? allocate_separately(memory, bytes, err) : from_arena(memory, bytes, err);

    if (at && bytes > 0 && CUDA_OK(dev, cudaMemsetAsync(at, 0, bytes, memory->stream)))
        CUDA_OK(dev, cudaStreamSynchronize(memory->stream));
    return at;
}

static void *host_memory(size_t bytes, struct error *err)
{
    struct pinned_allocation *header = NULL;
    cudaError_t status = cudaHostAlloc((void **)&header, sizeof *header + bytes, cudaHostAllocPortable);

    if (status != cudaSuccess) {
        cuda_forget_error();
        error_set(err, CODE_IO, "%.1f GiB of host memory, pinned: %s; ulimit -l and the job's memory limit both count",
                  (double)bytes / 0x1p30, cudaGetErrorString(status));
        return NULL;
    }
    header->bytes = bytes;
    return header + 1;
}

void *cuda_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err)
{
    return space == MEMORY_HOST ? host_memory(bytes, err) : device_memory(dev, bytes, err);
}

size_t cuda_free(struct device *dev, enum memory space, void *pointer)
{
    struct cuda_memory *memory = device_cuda(dev)->memory;
    size_t bytes = 0;

    if (space == MEMORY_HOST) {
        bytes = ((struct pinned_allocation *)pointer - 1)->bytes;
        CUDA_OK(dev, cudaFreeHost((struct pinned_allocation *)pointer - 1));
    } else if (memory->is_separate) {
        bytes = free_separate(dev, memory, pointer);
    } else if (!arena_free(memory->arena, (uintptr_t)pointer - (uintptr_t)memory->base, &bytes)) {
        device_fail(dev, CODE_INTERNAL, "cuda: %p is freed, but was not allocated here", pointer);
    }
    return bytes;
}

size_t cuda_unused(struct device *dev)
{
    size_t unused, total;

    if (device_cuda(dev)->memory->is_pinned || !CUDA_OK(dev, cudaMemGetInfo(&unused, &total)))
        return SIZE_MAX;
    return unused;
}
