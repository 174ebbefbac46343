/* In the place of machine_hwloc.c where there is no hwloc: NICs and their links are all that is seen. */
#include "srun-plugin/machine.h"

#include <stddef.h>

char *machine_look(const char *xml, struct error *err)
{
    (void)xml;
    error_set(err, CODE_INTERNAL,
              "built without hwloc: nothing is known of cores, memory and GPUs; install libhwloc-dev and build anew");
    return NULL;
}

int machine_save(const char *xml, const char *path, struct error *err)
{
    (void)xml;
    return error_set(err, CODE_INTERNAL, "%s cannot be written: built without hwloc", path);
}
