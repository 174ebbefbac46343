#include "srun-plugin/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* `why` is a list of reasons, one more after each failure. */
static void add_reason(char *why, size_t size, const char *path, const char *reason)
{
    size_t used = strlen(why);

    snprintf(why + used, size - used, "%s%.300s%s%.400s", used ? "; " : "", path, path[0] ? ": " : "", reason);
}

static void *load(const char *directory, const char *file, char *why, size_t size)
{
    char path[PATH_MAX];
    void *module = NULL;

    if (snprintf(path, sizeof path, "%s/%s", directory, file) < (int)sizeof path &&
        !(module = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
        add_reason(why, size, "", dlerror());
    return module;
}

/* Where the plugin lies, though it were found by a link, and whose it is. */
static bool find_own_directory(char path[PATH_MAX], uid_t *owner)
{
    static const char own = 0;
    struct stat status;
    Dl_info plugin;

    if (!dladdr(&own, &plugin) || !realpath(plugin.dli_fname, path) || stat(path, &status) < 0)
        return false;
    *owner = status.st_uid;
    dirname(path);
    return true;
}

/* Nobody but root and `owner` can have put there what is there, in any directory of an absolute path without links. */
static bool is_safe(const char *path, uid_t owner)
{
    char part[PATH_MAX];
    struct stat status;
    char *slash;

    for (snprintf(part, sizeof part, "%s", path);; *slash = '\0') {
        bool others;

        if (stat(part[0] ? part : "/", &status) < 0 || (status.st_uid != 0 && status.st_uid != owner))
            return false;
        others = (status.st_mode & S_IWOTH) || ((status.st_mode & S_IWGRP) && status.st_gid != 0);
        if (others && !(S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX)))
            return false;
        if (!(slash = strrchr(part, '/')))
            return true;
    }
}

/*
 * Where it was installed, for a plugin that was copied: that may be the directory of whoever built it, or one in /tmp
 * that is long gone, and root loads what lies there.
 */
static void *load_installed(const char *file, uid_t owner, char *why, size_t size)
{
    char path[PATH_MAX], real[PATH_MAX];
    void *module = NULL;

    /* What was looked at is what is opened: no link of the way may be another one by then. */
    if (snprintf(path, sizeof path, "%s/%s", MODULE_DIR, file) >= (int)sizeof path || !realpath(path, real))
        add_reason(why, size, path, strerror(errno));
    else if (!is_safe(real, owner))
        add_reason(why, size, path,
                   "others than root and the plugin's owner can write there: copy it beside the plugin");
    else if (!(module = dlopen(real, RTLD_NOW | RTLD_LOCAL)))
        add_reason(why, size, "", dlerror());
    return module;
}

void *module_symbol(const char *file, const char *name, struct error *err)
{
    char directory[PATH_MAX], why[900] = "";
    void *module = NULL, *symbol;
    uid_t owner = 0;

    if (find_own_directory(directory, &owner))
        module = load(directory, file, why, sizeof why);
    if (!module)
        module = load_installed(file, owner, why, sizeof why);
    symbol = module ? dlsym(module, name) : NULL;
    if (module && !symbol)
        error_set(err, CODE_INTERNAL, "%s is of another muster than the plugin: it has no %s", file, name);
    else if (!module)
        error_set(err, CODE_INTERNAL, "%s does not load from beside the plugin, nor from where it was installed: %s",
                  file, why);
    return symbol;
}

static bool is_copied(const char *directory)
{
    char prefix[PATH_MAX];

    return !realpath(MODULE_DIR, prefix) || strcmp(directory, prefix) != 0;
}

int module_trust(const char *program, struct error *err)
{
    char directory[PATH_MAX], real[PATH_MAX];
    const char *why = NULL;
    uid_t owner = 0;

    if (find_own_directory(directory, &owner) && !is_copied(directory))
        return 0;
    if (!realpath(program, real))
        why = strerror(errno);
    else if (!is_safe(real, owner))
        why = "others than root and the plugin's owner can write there";
    if (!why)
        return 0;
    return error_set(err, CODE_INTERNAL,
                     "%s is not started for a plugin that was copied: %s; plugstack.conf can name one", program, why);
}
