#include "trainer/choose_device.h"

#include <stdlib.h>

struct device *choose_device(enum device_choice choice, struct error *err)
{
    const char *test = getenv("MUSTER_TEST_DEVICE");
    struct device *dev;

    if (test && test[0])
        return device_create(test, 0, err);
    if (choice != DEVICE_CPU) {
        dev = device_create("cuda", 0, err);
        if (dev || choice == DEVICE_CUDA || err->code != CODE_CONFIG)
            return dev;
    }
    return device_create("cpu", 0, err);
}

int choose_is_host(enum device_choice choice, bool *is_host, struct error *err)
{
    struct device *dev = choose_device(choice, err);

    if (!dev)
        return -1;
    *is_host = device_is_host(dev);
    device_destroy(dev);
    return 0;
}
