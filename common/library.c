#include "common/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

int library_load(const struct library *library, const char *const *names, size_t count, void *table, struct error *err)
{
    const char *named = getenv(library->variable), *file = named && *named ? named : library->soname;
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    const char *why = handle ? NULL : dlerror(); /* begins with the name where the file is missing */

    if (!handle)
        return error_set(err, CODE_CONFIG,
                         "%s cannot be opened: %.300s; put its folder into LD_LIBRARY_PATH, or its file into %s",
                         library->name, why ? why : file, library->variable);
    for (size_t i = 0; i < count; i++) {
        void *function = dlsym(handle, names[i]);

        if (!function)
            return error_set(err, CODE_CONFIG, "%s: %s has no %s; version %s or newer is needed", library->name, file,
                             names[i], library->version);
        memcpy((char *)table + i * sizeof function, &function, sizeof function);
    }
    return 0;
}
