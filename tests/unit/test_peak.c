/* Devices by the names that drivers give them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "common/peak.h"

static void peaks_of_data_sheets(void **state)
{
    static const struct {
        const char *name;
        double fp32, bf16, fp16; /* TFLOP/s */
    } rows[] = {
        {"NVIDIA H100 80GB HBM3", 67, 989, 989},
        {"NVIDIA H100 PCIe", 51, 756, 756},
        {"NVIDIA H100 NVL", 60, 835, 835},
        {"NVIDIA H200", 67, 989, 989},
        {"NVIDIA GH200 480GB", 67, 989, 989},
        {"NVIDIA A100-SXM4-80GB", 19.5, 312, 312},
        {"NVIDIA A100 80GB PCIe", 19.5, 312, 312},
        {"A100-PCIE-40GB", 19.5, 312, 312},
        {"Tesla V100-SXM2-16GB", 15.7, 0, 125},
        {"Tesla V100-PCIE-32GB", 14, 0, 112},
        {"Tesla V100S-PCIE-32GB", 16.4, 0, 130},
        {"NVIDIA L40S", 91.6, 362, 362},
        {"NVIDIA L4", 30.3, 121, 121},
        {"NVIDIA A10", 31.2, 125, 125},
        {"Tesla T4", 8.1, 0, 65},
        {"AMD Instinct MI250X", 23.95, 191.5, 191.5},
        {"amd instinct mi300x oam", 163.4, 1307.4, 1307.4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const double expected[] = {rows[i].fp32, rows[i].bf16, rows[i].fp16};

        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
            if (fabs(device_peak_flops(rows[i].name, (enum dtype)dtype) - expected[dtype] * 1e12) > 1)
                fail_msg("%s: %g in type %d", rows[i].name, device_peak_flops(rows[i].name, (enum dtype)dtype), dtype);
    }
}

/* A wrong peak is worse than none: names that contain another's, parts of devices, and what is not in the table. */
static void unknown_devices_have_none(void **state)
{
    static const char *const names[] = {
        "",      "NVIDIA A10G",           "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA XH100",
        "H1000", "NVIDIA GeForce GT 710", "AMD EPYC 9654 96-Core Processor",   "---"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (device_peak_flops(names[i], DTYPE_F32) != 0)
            fail_msg("\"%s\" has a peak", names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_of_data_sheets),
        cmocka_unit_test(unknown_devices_have_none),
    };

    return cmocka_run_group_tests_name("peak", tests, NULL, NULL);
}
