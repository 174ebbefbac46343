#include "config.h"

#include "srun-plugin/preflight/checks.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "srun-plugin/preflight/say.h"
#include "srun-plugin/node/sysfs.h"

static const char *const usual[] = {
    "/usr/local/cuda/lib64",
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
};

static const struct {
    const char *name;
    const char *files[3]; /* what a program loads; the first that is found counts */
} libraries[] = {
    {"glibc", {"libc.so.6"}},
    {"CUDA", {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}},
    {"NCCL", {"libnccl.so.2"}},
    {"libfabric", {"libfabric.so.1"}},
    {"MPI", {"libmpi.so.12", "libmpich.so.12", "libmpi.so.40"}},
};

/*
 * "libnccl.so.2" is a link to "libnccl.so.2.21.5": the name that the chain of links ends in tells the version. A file
 * that is none of a link, as in a container's layers, has its own name, and its size beside it.
 */
static bool try_file(const char *path, char *version, size_t size)
{
    char real[PATH_MAX];
    struct stat status;

    if (!realpath(path, real) || stat(real, &status) < 0)
        return false;
    snprintf(version, size, "%s (%lld bytes)", strrchr(real, '/') + 1, (long long)status.st_size);
    return true;
}

static bool find_in(const char *root, const char *directory, size_t length, const char *file, char *version,
                    size_t size)
{
    char path[PATH_MAX];

    return length && snprintf(path, sizeof path, "%s%.*s/%s", root, (int)length, directory, file) < (int)sizeof path &&
           try_file(path, version, size);
}

static bool find_file(const char *root, const char *file, char *version, size_t size)
{
    const char *directories = getenv("LD_LIBRARY_PATH");

    while (directories && *directories) {
        size_t length = strcspn(directories, ":");

        if (find_in(root, directories, length, file, version, size))
            return true;
        directories += length + (directories[length] == ':');
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (find_in(root, usual[i], strlen(usual[i]), file, version, size))
            return true;
    return false;
}

static void say_library(const char *root, size_t which)
{
    char version[96];

    for (size_t k = 0; k < 3 && libraries[which].files[k]; k++)
        if (find_file(root, libraries[which].files[k], version, sizeof version)) {
            say("version", "%s %s", libraries[which].name, version);
            return;
        }
    say("version", "%s none", libraries[which].name);
}

void check_versions(const char *root)
{
    const char *above = sysfs_is_live(root) ? "" : root;
    char line[96];

    say("version", "muster %s", PACKAGE_VERSION);
    if (sysfs_line(root, line, sizeof line, "proc/sys/kernel/osrelease"))
        say("version", "kernel %s", line);
    say("version", "NVIDIA-driver %s",
        sysfs_line(root, line, sizeof line, "sys/module/nvidia/version") ? line : "none");
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        say_library(above, i);
}
