#include "srun-plugin/spank/trust.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The directory of the plugin, without links, and the plugin's owner. */
static bool find_plugin(char path[PATH_MAX], uid_t *owner)
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

/* True if only root and `owner` can have written it, in any directory of an absolute path without links. */
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

/* Returns NULL if trusted and sets `real`, the path without links; else the reason. */
static const char *check_trust(const char *path, char real[PATH_MAX])
{
    char directory[PATH_MAX], prefix[PATH_MAX];
    uid_t owner = 0;
    bool found = find_plugin(directory, &owner);

    if (!realpath(path, real))
        return strerror(errno);
    if (is_safe(real, owner) || (found && realpath(PLUGIN_DIR, prefix) && strcmp(directory, prefix) == 0))
        return NULL;
    return "users other than root and the plugin's owner can write there";
}

int trust_program(const char *program, struct error *err)
{
    char real[PATH_MAX];
    const char *why = check_trust(program, real);

    if (!why)
        return 0;
    return error_set(err, CODE_INTERNAL, "%s is not started: %s; plugstack.conf can name another", program, why);
}

int trust_profiles(char path[PATH_MAX], struct error *err)
{
    static const char beside[] = "/fabric";
    const char *why;
    uid_t owner;

    if (find_plugin(path, &owner) && strlen(path) + sizeof beside < PATH_MAX &&
        faccessat(AT_FDCWD, strcat(path, beside), R_OK | X_OK, AT_EACCESS) == 0) /* slurmstepd is the user for now */
        return 0;
    if (!(why = check_trust(FABRIC_DIR, path)))
        return 0;
    return error_set(err, CODE_INTERNAL,
                     "no fabric profiles: %s: %s; copy them into a folder `fabric` beside the plugin, or name their "
                     "directory in plugstack.conf (profiles=)",
                     FABRIC_DIR, why);
}
