#include "srun-plugin/module.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `why` is a list of reasons, one more after each failure. */
static void *load(const char *directory, const char *file, char *why, size_t size)
{
    char path[PATH_MAX];
    void *module = NULL;
    size_t used = strlen(why);

    if (snprintf(path, sizeof path, "%s/%s", directory, file) < (int)sizeof path &&
        !(module = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
        snprintf(why + used, size - used, "%s%s", used ? "; " : "", dlerror());
    return module;
}

/* Where the plugin lies, though it were found by a link. */
static bool find_own_directory(char path[PATH_MAX])
{
    static const char own = 0;
    Dl_info plugin;

    if (!dladdr(&own, &plugin) || !realpath(plugin.dli_fname, path))
        return false;
    dirname(path);
    return true;
}

void *module_symbol(const char *file, const char *name, struct error *err)
{
    char directory[PATH_MAX], why[900] = "";
    void *module = NULL, *symbol;

    if (find_own_directory(directory))
        module = load(directory, file, why, sizeof why);
    if (!module)
        module = load(MODULE_DIR, file, why, sizeof why);
    symbol = module ? dlsym(module, name) : NULL;
    if (module && !symbol)
        error_set(err, CODE_INTERNAL, "%s is of another muster than the plugin: it has no %s", file, name);
    else if (!module)
        error_set(err, CODE_INTERNAL, "%s does not load from beside the plugin, nor from where it was installed: %s",
                  file, why);
    return symbol;
}
