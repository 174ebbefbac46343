#include "trainer/choose_device.h"

#include <stdio.h>
#include <stdlib.h>

/* This process's number on its node, as its launcher gives it; 0 without one. */
static int local_number(void)
{
    static const char *const names[] = {"LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);

        if (value && value[0])
            return atoi(value) > 0 ? atoi(value) : 0;
    }
    return 0;
}

struct device *choose_device(enum device_choice choice, struct error *err)
{
    struct device *dev;
    char gpu[32];

    if (choice != DEVICE_CPU) {
        snprintf(gpu, sizeof gpu, "cuda:%d", local_number());
        dev = device_create(gpu, 0, err);
        if (dev || choice == DEVICE_CUDA || err->code != CODE_CONFIG)
            return dev;
    }
    return device_create("cpu", 0, err);
}
