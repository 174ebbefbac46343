#include "kernels/kernels.h"

#include <stdio.h>

/* Says which GPU there is, or ends with 77 and says why there is none. For tests/gpu.sh. */
int main(void)
{
    struct error err = {0};
    struct device *dev = device_create("cuda", 0, &err);

    if (!dev) {
        printf("%s\n", err.text);
        return err.code == CODE_CONFIG ? 77 : (int)err.code;
    }
    printf("%s\n", device_describe(dev));
    device_destroy(dev);
    return 0;
}
