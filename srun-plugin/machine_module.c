/* In the place of machine_hwloc.c in the plugin. */
#include <string.h>

#include "srun-plugin/machine.h"
#include "srun-plugin/module.h"

typedef char *look_function(const char *xml, struct error *err);

char *machine_look(const char *xml, struct error *err)
{
    void *symbol = module_symbol(MODULE_HWLOC, "machine_look", err);
    look_function *look;

    if (!symbol) {
        error_prefix(err, "nothing is known of cores, memory and GPUs");
        return NULL;
    }
    memcpy(&look, &symbol, sizeof look); /* C knows no other way from a data pointer to a function */
    return look(xml, err);
}
