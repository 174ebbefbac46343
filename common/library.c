#include "common/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends "; reason" to `tried`. dlerror's text begins with the name where the file is missing. */
static void *open_file(const char *file, char *tried, size_t size)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    size_t length = strlen(tried);
    const char *why;

    if (handle)
        return handle;
    why = dlerror();
    snprintf(tried + length, size - length, "%s%.300s", length ? "; " : "", why ? why : file);
    return NULL;
}

static void *open_any(const struct library *library, const char **opened, struct error *err)
{
    const char *named = getenv(library->variable);
    char tried[700] = "";
    void *handle = NULL;

    if (named && *named) {
        *opened = named;
        handle = open_file(named, tried, sizeof tried);
    } else {
        for (size_t i = 0; i < 3 && library->sonames[i] && !handle; i++) {
            *opened = library->sonames[i];
            handle = open_file(*opened, tried, sizeof tried);
        }
    }
    if (!handle)
        error_set(err, CODE_CONFIG, "%s cannot be opened: %s; put its folder into LD_LIBRARY_PATH, or its file into %s",
                  library->name, tried, library->variable);
    return handle;
}

int library_load(const struct library *library, const char *const *names, size_t count, void *table, struct error *err)
{
    const char *opened = NULL;
    void *handle = open_any(library, &opened, err);

    if (!handle)
        return -1;
    for (size_t i = 0; i < count; i++) {
        void *function = dlsym(handle, names[i]);

        if (!function)
            return error_set(err, CODE_CONFIG, "%s: %s has no %s; version %s or newer is needed", library->name, opened,
                             names[i], library->version);
        memcpy((char *)table + i * sizeof function, &function, sizeof function);
    }
    return 0;
}
