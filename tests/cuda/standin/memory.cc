/* memory.cc - the GPU's memory, page-locked memory, and copies. */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <mutex>
#include <vector>

#include "tests/cuda/standin/standin.h"

#define GRAIN ((size_t)2 << 20) /* of physical memory */

struct range {
    size_t bytes;
    enum standin_space space;
};

static auto &mutex = *new std::mutex;
static auto &ranges = *new std::map<uintptr_t, range>; /* what can be used, by its first byte */
static auto &reserved = *new std::map<uintptr_t, size_t>;
static size_t in_use;

static const size_t total_bytes = standin_number("MUSTER_STANDIN_MIB", 4096) << 20;

/* ---- what only the GPU may touch --------------------------------------------------------------------------------- */

static const bool hides = standin_number("MUSTER_STANDIN_HIDE", 0) != 0;
static bool working; /* the GPU: what it does may touch all of its memory, and for as long so may the host */

/* The mutex is held. */
static void protect(uintptr_t at, const range &which)
{
    if (hides && which.space == STANDIN_DEVICE)
        mprotect(reinterpret_cast<void *>(at), which.bytes, working ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void standin_working(bool now)
{
    if (!hides)
        return;
    std::unique_lock<std::mutex> lock(mutex);

    working = now;
    for (const auto &known : ranges)
        protect(known.first, known.second);
}

/* ---- where it is ------------------------------------------------------------------------------------------------- */

static bool find(uintptr_t at, uintptr_t *first, range *found)
{
    std::unique_lock<std::mutex> lock(mutex);
    auto next = ranges.upper_bound(at);

    if (next == ranges.begin())
        return false;
    *first = (--next)->first;
    *found = next->second;
    return at < *first + found->bytes;
}

enum standin_space standin_space_of(const void *at, size_t bytes, const char *what)
{
    uintptr_t address = reinterpret_cast<uintptr_t>(at), first, end = address + bytes;
    range found;

    if (!find(address, &first, &found))
        return STANDIN_PAGEABLE;
    for (enum standin_space space = found.space; first + found.bytes < end;)
        if (!find(first + found.bytes, &first, &found) || found.space != space) { /* mapped side by side */
            standin_fail(cudaErrorIllegalAddress, "%s: %zu bytes at %p go beyond the allocation", what, bytes, at);
            break;
        }
    return found.space;
}

bool standin_reachable(const void *at, size_t bytes, const char *what)
{
    if (standin_space_of(at, bytes, what) != STANDIN_PAGEABLE)
        return standin_error() == cudaSuccess;
    standin_fail(cudaErrorIllegalAddress, "%s: %zu bytes at %p are no memory that the GPU reaches", what, bytes, at);
    return false;
}

static void *take(size_t bytes, int protection)
{
    void *at = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        return NULL;
    madvise(at, bytes, MADV_HUGEPAGE); /* protect() is then much faster */
    return at;
}

/* New memory holds what was there before: here, what shows at once in a result. */
static cudaError_t allocate(void **at, size_t bytes, enum standin_space space)
{
    size_t whole = (bytes + 4095) / 4096 * 4096;
    std::unique_lock<std::mutex> lock(mutex);

    if (space == STANDIN_DEVICE && in_use + whole > total_bytes)
        return cudaErrorMemoryAllocation;
    *at = bytes ? take(whole, PROT_READ | PROT_WRITE) : NULL;
    if (!*at)
        return bytes ? cudaErrorMemoryAllocation : cudaErrorInvalidValue;
    memset(*at, 0xff, whole);
    ranges[reinterpret_cast<uintptr_t>(*at)] = {whole, space};
    protect(reinterpret_cast<uintptr_t>(*at), {whole, space});
    in_use += space == STANDIN_DEVICE ? whole : 0;
    return cudaSuccess;
}

static cudaError_t give_back(void *at, enum standin_space space, const char *what)
{
    std::unique_lock<std::mutex> lock(mutex);
    auto found = ranges.find(reinterpret_cast<uintptr_t>(at));

    if (!at)
        return cudaSuccess;
    if (found == ranges.end() || found->second.space != space) {
        standin_fail(cudaErrorInvalidValue, "%s of %p, which is no such allocation", what, at);
        return cudaErrorInvalidValue;
    }
    in_use -= space == STANDIN_DEVICE ? found->second.bytes : 0;
    munmap(at, found->second.bytes);
    ranges.erase(found);
    return static_cast<cudaError_t>(standin_error());
}

extern "C" {

cudaError_t cudaMalloc(void **at, size_t bytes)
{
    return KEPT(allocate(at, bytes, STANDIN_DEVICE));
}

/* Either waits for the whole GPU. */
cudaError_t cudaFree(void *at)
{
    standin_wait_for_all();
    return KEPT(give_back(at, STANDIN_DEVICE, "cudaFree"));
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags)
{
    if (flags & ~(unsigned)cudaHostAllocPortable)
        return KEPT(cudaErrorInvalidValue);
    return KEPT(allocate(at, bytes, STANDIN_PINNED));
}

cudaError_t cudaFreeHost(void *at)
{
    standin_wait_for_all();
    return KEPT(give_back(at, STANDIN_PINNED, "cudaFreeHost"));
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    std::unique_lock<std::mutex> lock(mutex);

    *total = total_bytes;
    *unused = total_bytes - in_use;
    return cudaSuccess;
}

/* ---- the driver's virtual memory --------------------------------------------------------------------------------- */

static CUresult get_granularity(size_t *grain, const CUmemAllocationProp *kind, CUmemAllocationGranularity_flags which)
{
    (void)which;
    if (kind->type != CU_MEM_ALLOCATION_TYPE_PINNED || kind->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    *grain = GRAIN;
    return CUDA_SUCCESS;
}

static CUresult address_reserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                unsigned long long flags)
{
    if (bytes == 0 || bytes % GRAIN || alignment || wanted || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *at = reinterpret_cast<uintptr_t>(take(bytes, PROT_NONE));
    std::unique_lock<std::mutex> lock(mutex);
    reserved[*at] = bytes;
    return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult address_free(CUdeviceptr at, size_t bytes)
{
    std::unique_lock<std::mutex> lock(mutex);
    auto found = reserved.find(at), after = reserved.end();

    if (found == after || found->second != bytes)
        return CUDA_ERROR_INVALID_VALUE;
    for (const auto &mapped : ranges)
        if (mapped.first >= at && mapped.first < at + bytes)
            return CUDA_ERROR_INVALID_VALUE; /* it must be unmapped first */
    munmap(reinterpret_cast<void *>(at), bytes);
    reserved.erase(found);
    return CUDA_SUCCESS;
}

/* A handle is the number of bytes: one is mapped once here. */
static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *kind,
                       unsigned long long flags)
{
    std::unique_lock<std::mutex> lock(mutex);

    (void)kind;
    if (bytes == 0 || bytes % GRAIN || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (in_use + bytes > total_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    in_use += bytes;
    *handle = bytes;
    return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    (void)handle; /* the memory lives on while it is mapped */
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
    std::unique_lock<std::mutex> lock(mutex);
    auto area = reserved.upper_bound(at);

    if (area == reserved.begin() || offset || flags || handle != bytes)
        return CUDA_ERROR_INVALID_VALUE;
    --area;
    if (at + bytes > area->first + area->second)
        return CUDA_ERROR_INVALID_VALUE;
    ranges[at] = {bytes, STANDIN_DEVICE};
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t bytes)
{
    standin_wait_for_all();
    std::unique_lock<std::mutex> lock(mutex);
    size_t seen = 0;

    while (seen < bytes) {
        auto found = ranges.find(at + seen);

        if (found == ranges.end() || seen + found->second.bytes > bytes)
            return CUDA_ERROR_INVALID_VALUE;
        seen += found->second.bytes;
        in_use -= found->second.bytes;
        ranges.erase(found);
    }
    mprotect(reinterpret_cast<void *>(at), bytes, PROT_NONE);
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    void *first = reinterpret_cast<void *>(at);

    if (count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
        standin_space_of(first, bytes, "cuMemSetAccess") != STANDIN_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    std::unique_lock<std::mutex> lock(mutex);
    if (mprotect(first, bytes, PROT_READ | PROT_WRITE) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    memset(first, 0xff, bytes);
    protect(at, {bytes, STANDIN_DEVICE});
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *found)
{
    static const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"cuMemGetAllocationGranularity", reinterpret_cast<void *>(get_granularity)},
        {"cuMemAddressReserve", reinterpret_cast<void *>(address_reserve)},
        {"cuMemAddressFree", reinterpret_cast<void *>(address_free)},
        {"cuMemCreate", reinterpret_cast<void *>(create)},
        {"cuMemRelease", reinterpret_cast<void *>(release)},
        {"cuMemMap", reinterpret_cast<void *>(map)},
        {"cuMemUnmap", reinterpret_cast<void *>(unmap)},
        {"cuMemSetAccess", reinterpret_cast<void *>(set_access)},
    };

    (void)version;
    (void)flags;
    *function = NULL;
    for (const auto &candidate : functions)
        if (strcmp(candidate.name, name) == 0)
            *function = candidate.function;
    *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return KEPT(*function ? cudaSuccess : cudaErrorInvalidValue);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/*
 * What no GPU reaches, CUDA copies by way of memory of its own: out of it before the call returns, and into it before
 * the call returns too, which waits for the stream.
 */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    enum standin_space source = standin_space_of(from, bytes, "cudaMemcpyAsync from");
    enum standin_space target = standin_space_of(to, bytes, "cudaMemcpyAsync to");

    if (standin_error() != cudaSuccess)
        return static_cast<cudaError_t>(standin_error());
    if ((kind == cudaMemcpyDeviceToHost && (source != STANDIN_DEVICE || target == STANDIN_DEVICE)) ||
        (kind == cudaMemcpyHostToDevice && (source == STANDIN_DEVICE || target != STANDIN_DEVICE)) ||
        (kind == cudaMemcpyDeviceToDevice && (source != STANDIN_DEVICE || target != STANDIN_DEVICE)))
        return KEPT(cudaErrorInvalidMemcpyDirection);
    if (source == STANDIN_PAGEABLE) {
        const char *begin = static_cast<const char *>(from);
        std::vector<char> held(begin, begin + bytes);

        standin_enqueue(stream, [=] { return memcpy(to, held.data(), bytes) == to; });
    } else {
        standin_enqueue(stream, [=] {
            if (source != STANDIN_DEVICE || standin_reachable(from, bytes, "a copy from")) /* it may be gone by now */
                memcpy(to, from, bytes);
            return true;
        });
    }
    return target == STANDIN_PAGEABLE ? cudaStreamSynchronize(stream) : cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (width > to_pitch || width > from_pitch)
        return KEPT(cudaErrorInvalidPitchValue);
    for (size_t row = 0; row < height; row++) {
        cudaError_t status = cudaMemcpyAsync(static_cast<char *>(to) + row * to_pitch,
                                             static_cast<const char *>(from) + row * from_pitch, width, kind, stream);

        if (status != cudaSuccess)
            return status;
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    if (!standin_reachable(at, bytes, "cudaMemsetAsync"))
        return static_cast<cudaError_t>(standin_error());
    standin_enqueue(stream, [=] {
        if (standin_reachable(at, bytes, "a memset"))
            memset(at, value, bytes);
        return true;
    });
    return cudaSuccess;
}
}
