#include "config.h"

#include <dlfcn.h>

#include "kernels/cuda/cudnn_graph.h"
#include "tests/cmocka_test.h"

/*
 * Without a GPU, a plan goes as far as to be compiled for one that is described to cuDNN; then it would be loaded, and
 * the driver is missing. In its place stands the stub that CUDA has for linkers: it refuses everything, and cuDNN says
 * that its call (cuLibraryLoadData) was refused. Where there is a driver, the plan is made.
 *
 * Before that, cuDNN has recognised the graph as attention: of one that it does not, it says that there is no plan.
 */
static const char h100[] = "{\"deviceName\": \"NVIDIA H100 80GB HBM3\", \"cudaDeviceId\": 0, \"deviceVer\": 900, "
                           "\"driverVer\": 13000, \"isTccDriver\": 0, \"l2CacheSize\": 52428800, \"maxCtasPerSM\": 32, "
                           "\"maxRegistersPerSM\": 65536, \"maxSharedMemoryPerBlock\": 49152, "
                           "\"maxSharedMemoryPerBlockOptin\": 232448, \"maxThreadsPerBlock\": 1024, "
                           "\"maxThreadsPerSM\": 2048, \"memClockRateKHz\": 2619000, \"multiProcessorCount\": 132, "
                           "\"pciDeviceId\": 0, \"regsPerBlock\": 65536, \"reservedSharedMemoryPerBlock\": 1024, "
                           "\"smClockRateKHz\": 1980000, \"supportCoopLaunch\": 1, \"totalGlobalMem\": 85017493504, "
                           "\"warpSize\": 32, \"maxBlockSize\": [1024, 1024, 64], "
                           "\"maxGridSize\": [2147483647, 65535, 65535]}";

static struct cudnn cudnn;

static int load(void **state)
{
    static const char *const stubs[] = {"libcuda.so.1", CUDA_ROOT "/lib64/stubs/libcuda.so",
                                        CUDA_ROOT "/lib/stubs/libcuda.so"};
    static const char *const libraries[] = {CUDA_ROOT "/lib64/libcudnn.so.9", CUDA_ROOT "/lib/libcudnn.so.9"};
    struct error err = {0};
    void *driver = NULL, *library = NULL;

    for (size_t i = 0; i < 3 && !driver; i++)
        driver = dlopen(stubs[i], RTLD_NOW | RTLD_GLOBAL);
    for (size_t i = 0; i < 2 && !library; i++)
        library = dlopen(libraries[i], RTLD_NOW | RTLD_GLOBAL);
    if (cudnn_load(&cudnn, &err) < 0 || !driver) {
        printf("# left out: %s\n", driver ? err.text : "no driver, and no stub of one");
        cudnn.cudnnGetVersion = NULL;
    }
    return 0;
}

enum pass { FORWARD, BACKWARD };

/* Whether cuDNN took the graph for attention and compiled a kernel of it. */
static bool recognised(enum pass pass, const struct attention_call *call)
{
    struct error err = {0};
    struct cudnn_graph *graph =
        pass == FORWARD ? attention_graph_forward(&cudnn, call) : attention_graph_backward(&cudnn, call);
    bool planned = cudnn_graph_plan(graph, h100, &err) == 0;
    bool refused = strstr(err.text, "cuLibraryLoadData") != NULL;

    if (!planned && !refused)
        printf("# head size %d: %s\n", call->head_size, err.text);
    assert_true(planned || err.code);
    assert_int_equal(cudnn_graph_destroy(graph, &err), 0);
    return planned || refused;
}

static struct attention_call call_of(int kv_heads, int head_size, bool causal, enum dtype dtype)
{
    return (struct attention_call){.batch = 2,
                                   .seq = 1024,
                                   .window = 1024,
                                   .heads = 12,
                                   .head_size = head_size,
                                   .hidden = 12 * head_size,
                                   .row = (12 + 2 * kv_heads) * head_size,
                                   .causal = causal,
                                   .dtype = (uint8_t)dtype};
}

static void test_recognised(void **state)
{
    if (!cudnn.cudnnGetVersion)
        skip();
    for (int size = 64; size <= 128; size += 64)
        for (int pass = FORWARD; pass <= BACKWARD; pass++)
            for (int kv_heads = 12; kv_heads >= 1; kv_heads /= 3) {
                struct attention_call call = call_of(kv_heads, size, size == 64, size == 64 ? DTYPE_BF16 : DTYPE_F16);

                assert_true(recognised((enum pass)pass, &call));
            }
}

/* Rows that are no multiple of 16 bytes: it says so, and nothing crashes. */
static void test_refused(void **state)
{
    struct attention_call call = call_of(12, 60, true, DTYPE_BF16);

    if (!cudnn.cudnnGetVersion)
        skip();
    assert_false(recognised(FORWARD, &call));
    assert_false(recognised(BACKWARD, &call));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recognised),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, load, NULL);
}
