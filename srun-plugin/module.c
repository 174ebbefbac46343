#include "srun-plugin/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static void *load(const char *directory, int length, const char *file)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof path, "%.*s/%s", length, directory, file) >= (int)sizeof path)
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void *module_symbol(const char *file, const char *name, struct error *err)
{
    static const char own = 0;
    const char *slash;
    void *module = NULL, *symbol;
    Dl_info plugin;

    if (dladdr(&own, &plugin) && (slash = strrchr(plugin.dli_fname, '/')))
        module = load(plugin.dli_fname, (int)(slash - plugin.dli_fname), file);
    if (!module)
        module = load(MODULE_DIR, (int)strlen(MODULE_DIR), file);
    symbol = module ? dlsym(module, name) : NULL;
    if (!symbol)
        error_set(err, CODE_INTERNAL, "%s beside the plugin does not load, and %.300s", file, dlerror());
    return symbol;
}
