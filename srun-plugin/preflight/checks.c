#include "config.h"

#include "srun-plugin/preflight/checks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "srun-plugin/node/node.h"
#include "srun-plugin/node/sysfs.h"

void check_plugin(void)
{
    if (getenv("SLURM_MUSTER_STEP"))
        write_finding(
            "problem",
            "slurmd has not loaded spank_muster.so there: its ranks would have no RANK and no MASTER_ADDR; add it "
            "to the node's plugstack.conf");
}

/* ---- GPUs and links ---- */

/* The number of links between nodes, by kind. It is a fact, so that a missing port is noticed too. */
static void say_links(const struct node *node)
{
    for (int kind = NIC_INFINIBAND; kind < NIC_ETHERNET; kind++) {
        char name[64], *end;
        size_t up = 0;

        for (size_t i = 0; i < node->nic_count; i++)
            up += (int)node->nics[i].kind == kind && node->nics[i].up;
        snprintf(name, sizeof name, "%s-links-up", nic_kind_name((enum nic_kind)kind));
        for (end = name; *end; end++)
            if (*end == ' ')
                *end = '-';
        write_finding("version", "%s %zu", name, up);
    }
}

void check_machine(const char *root)
{
    const char *given = getenv("SLURM_GPUS_ON_NODE");
    struct error err = {0};
    struct node *node = node_read(root, NULL, &err);
    size_t usable;

    if (!node) {
        write_finding("problem", "the node's hardware cannot be read: %s", err.text);
        return;
    }
    usable = node_usable_gpus(node, NULL);
    write_finding("gpus", "%zu%s%s", usable, given ? " " : "", given ? given : "");
    if (node->has_hwloc && given && atoi(given) > (int)usable)
        write_finding("problem", "Slurm gave %d GPUs, but %zu are usable", atoi(given), usable);
    for (size_t i = 0; i < node->problem_count; i++)
        write_finding("oddity", "%s", node->problems[i]);
    if (node->title[0])
        write_finding("note", "machine %s", node->title);
    say_links(node);
    node_destroy(node);
}

/* ---- versions ---- */

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
    const char *files[3]; /* names that programs load; the first found counts */
} libraries[] = {
    {"glibc", {"libc.so.6"}},
    {"CUDA", {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}},
    {"NCCL", {"libnccl.so.2"}},
    {"libfabric", {"libfabric.so.1"}},
    {"MPI", {"libmpi.so.12", "libmpich.so.12", "libmpi.so.40"}},
};

/*
 * "libnccl.so.2" is a link to "libnccl.so.2.21.5": the name at the end of the links has the version. For a file without
 * links, as in a container, its size tells versions apart.
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
            write_finding("version", "%s %s", libraries[which].name, version);
            return;
        }
    write_finding("version", "%s none", libraries[which].name);
}

void check_versions(const char *root)
{
    const char *above = sysfs_is_live(root) ? "" : root;
    char line[96];

    write_finding("version", "muster %s", PACKAGE_VERSION);
    if (sysfs_line(root, line, sizeof line, "proc/sys/kernel/osrelease"))
        write_finding("version", "kernel %s", line);
    write_finding("version", "NVIDIA-driver %s",
                  sysfs_line(root, line, sizeof line, "sys/module/nvidia/version") ? line : "none");
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        say_library(above, i);
}

/* ---- directories ---- */

enum { SAMPLE = 64 * 1024 }; /* larger than the last free block of a quota or file system */

/* The nearest directory at or above `path` that exists; the trainer creates the others. */
static void find_nearest(const char *path, char *found, size_t size)
{
    char *slash;

    snprintf(found, size, "%s", path);
    while (access(found, F_OK) < 0 && errno == ENOENT) {
        slash = strrchr(found, '/');
        if (!slash) {
            snprintf(found, size, ".");
            return;
        }
        slash[slash == found] = '\0';
    }
}

/* 0, or -1 and errno. With fsync, since a full quota may show only then. */
static int write_sample(int fd)
{
    static char zeros[SAMPLE];
    ssize_t done = write(fd, zeros, sizeof zeros);

    if (done >= 0 && done < SAMPLE)
        errno = ENOSPC;
    return done == SAMPLE && fsync(fd) == 0 ? 0 : -1;
}

static int try_directory(const char *directory)
{
    char name[PATH_MAX];
    int fd, failed, why;

    if (snprintf(name, sizeof name, "%s/.muster-preflight.XXXXXX", directory) >= (int)sizeof name) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0)
        return -1;
    failed = write_sample(fd);
    why = errno;
    unlink(name);
    close(fd);
    errno = why;
    return failed;
}

void check_directory(const char *what, const char *path, uint64_t bytes)
{
    char directory[PATH_MAX];
    struct statvfs room;
    uint64_t available;

    if (!path || !path[0])
        return;
    find_nearest(path, directory, sizeof directory);
    if (try_directory(directory) < 0) {
        write_finding("problem", "%s cannot be written to %s: %s", what, directory, strerror(errno));
        return;
    }
    if (statvfs(directory, &room) < 0)
        return;
    available = (uint64_t)room.f_bavail * room.f_frsize;
    if (available < bytes)
        write_finding("problem", "%s: %s has %.1f GiB free, and %.1f GiB are needed", what, directory,
                      (double)available / (1 << 30), (double)bytes / (1 << 30));
}
