/* In the place of machine_hwloc.c in the plugin: hwloc is loaded where it is needed, and nowhere else. */
#include "srun-plugin/machine.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef char *look_function(const char *xml, struct error *err);

/* muster_hwloc.so lies where the plugin lies, installed or not; where a site has copied the plugin, where it was
 * installed. */
static void *load(void)
{
    static const char own = 0;
    char path[PATH_MAX];
    const char *slash;
    void *module = NULL;
    Dl_info plugin;

    if (dladdr(&own, &plugin) && (slash = strrchr(plugin.dli_fname, '/')) &&
        snprintf(path, sizeof path, "%.*s/muster_hwloc.so", (int)(slash - plugin.dli_fname), plugin.dli_fname) <
            (int)sizeof path)
        module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return module ? module : dlopen(MODULE_PATH, RTLD_NOW | RTLD_LOCAL);
}

/* It stays loaded: libraries that hwloc draws in may not bear to be unloaded. */
char *machine_look(const char *xml, struct error *err)
{
    void *module = load(), *symbol = module ? dlsym(module, "machine_look") : NULL;
    look_function *look;

    if (!symbol) {
        error_set(
            err, CODE_INTERNAL,
            "nothing is known of cores, memory and GPUs: muster_hwloc.so beside the plugin does not load, and %.300s",
            dlerror());
        return NULL;
    }
    memcpy(&look, &symbol, sizeof look); /* C knows no other way from a data pointer to a function */
    return look(xml, err);
}
