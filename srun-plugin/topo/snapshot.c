#include "srun-plugin/topo/snapshot.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "srun-plugin/node/machine.h"
#include "srun-plugin/node/node.h"
#include "srun-plugin/node/sysfs.h"

struct pattern {
    const char *path;
    const char *lines[4]; /* only lines that begin with one of these; none: all */
    const char *empty;    /* a text that begins with this is not saved; NULL: every text is */
};

/* A port has up to 256 GIDs, most of them not in use. */
#define NO_GID "0000:0000:0000:0000:0000:0000:0000:0000"

/* The files that node_read reads, besides the PCI devices of GPUs and NICs. */
static const struct pattern patterns[] = {
    {"proc/driver/nvidia/gpus/*/information", {"Model:", "Device Minor:"}, NULL},
    {"proc/meminfo", {"MemTotal:", "MemAvailable:"}, NULL},
    {"proc/net/route", {NULL}, NULL},
    {"proc/self/status", {"Cpus_allowed_list:"}, NULL},
    {"sys/class/cxi/*/device/uevent", {"DRIVER=", "PCI_"}, NULL},
    {"sys/class/dmi/id/product_name", {NULL}, NULL},
    {"sys/class/dmi/id/sys_vendor", {NULL}, NULL},
    {"sys/class/infiniband/*/device/uevent", {"DRIVER=", "PCI_"}, NULL},
    {"sys/class/infiniband/*/ports/*/gid_attrs/types/*", {NULL}, NULL},
    {"sys/class/infiniband/*/ports/*/gids/*", {NULL}, NO_GID},
    {"sys/class/infiniband/*/ports/*/link_layer", {NULL}, NULL},
    {"sys/class/infiniband/*/ports/*/phys_state", {NULL}, NULL},
    {"sys/class/infiniband/*/ports/*/rate", {NULL}, NULL},
    {"sys/class/infiniband/*/ports/*/state", {NULL}, NULL},
    {"sys/class/net/*/bonding/slaves", {NULL}, NULL},
    {"sys/class/net/*/dev_port", {NULL}, NULL},
    {"sys/class/net/*/device/uevent", {"DRIVER=", "PCI_"}, NULL},
    {"sys/class/net/*/operstate", {NULL}, NULL},
    {"sys/class/net/*/speed", {NULL}, NULL},
    {"sys/class/net/*/type", {NULL}, NULL},
    {"sys/class/net/*/uevent", {"DEVTYPE="}, NULL},
    {"sys/firmware/devicetree/base/model", {NULL}, NULL},
};

/* The directories above dir/path. */
static int make_parents(const char *dir, const char *path, struct error *err)
{
    char full[PATH_MAX];

    if (snprintf(full, sizeof full, "%s/%s", dir, path) >= (int)sizeof full)
        return error_set(err, CODE_IO, "%s/%s: too long a path", dir, path);
    for (char *slash = full + strlen(dir) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(full, 0777) < 0 && errno != EEXIST)
            return error_errno(err, CODE_IO, "%s", full);
        *slash = '/';
    }
    return 0;
}

static int write_text(const char *dir, const char *path, const char *text, struct error *err)
{
    char full[PATH_MAX];
    FILE *file;
    int failed;

    if (make_parents(dir, path, err) < 0)
        return -1;
    snprintf(full, sizeof full, "%s/%s", dir, path);
    if (!(file = fopen(full, "wxe")))
        return error_errno(err, CODE_IO, "%s", full);
    failed = fputs(text, file) == EOF;
    if (fclose(file) != 0 || failed)
        return error_errno(err, CODE_IO, "%s", full);
    return 0;
}

static bool keeps_line(const struct pattern *pattern, const char *line)
{
    if (!pattern->lines[0])
        return true;
    for (size_t i = 0; i < 4 && pattern->lines[i]; i++)
        if (strncmp(line, pattern->lines[i], strlen(pattern->lines[i])) == 0)
            return true;
    return false;
}

/* Shortens text to the lines of the pattern. */
static void keep_lines(const struct pattern *pattern, char *text)
{
    char *to = text;

    for (char *line = text, *next; *line; line = next) {
        size_t length = strcspn(line, "\n");

        length += line[length] == '\n';
        next = line + length;
        if (keeps_line(pattern, line)) {
            memmove(to, line, length);
            to += length;
        }
    }
    *to = '\0';
}

/* A file that cannot be read now (speed of a port without link) is one that node_read cannot read either. */
static int save_file(const char *root, const char *dir, const char *path, const struct pattern *pattern,
                     struct error *err)
{
    char *text = sysfs_text(root, path);
    int status = 0;

    if (text && !(pattern->empty && strncmp(text, pattern->empty, strlen(pattern->empty)) == 0)) {
        keep_lines(pattern, text);
        status = write_text(dir, path, text, err);
    }
    free(text);
    return status;
}

static int save_pattern(const char *root, const char *dir, const struct pattern *pattern, struct error *err)
{
    const char *base = sysfs_is_live(root) ? "" : root;
    char full[PATH_MAX];
    glob_t found;
    int status = 0;

    if (snprintf(full, sizeof full, "%s/%s", base, pattern->path) >= (int)sizeof full)
        return error_set(err, CODE_IO, "%s/%s: too long a path", base, pattern->path);
    if (glob(full, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && status == 0; i++)
            status = save_file(root, dir, found.gl_pathv[i] + strlen(base) + 1, pattern, err);
    globfree(&found);
    return status;
}

static int save_pci(const char *root, const char *dir, const char *address, struct error *err)
{
    static const struct pattern uevent = {"", {"DRIVER=", "PCI_"}, NULL}, all = {"", {NULL}, NULL};
    char path[128], **drm;
    int status = 0;

    snprintf(path, sizeof path, "sys/bus/pci/devices/%s/uevent", address);
    if (!address[0] || sysfs_exists(dir, "%s", path)) /* two ports of one device */
        return 0;
    if (save_file(root, dir, path, &uevent, err) < 0)
        return -1;
    drm = sysfs_list(root, "sys/bus/pci/devices/%s/drm", address);
    for (char **name = drm; name && *name && status == 0; name++) {
        snprintf(path, sizeof path, "sys/bus/pci/devices/%s/drm/%.40s/dev", address, *name);
        status = save_file(root, dir, path, &all, err);
    }
    sysfs_list_free(drm);
    return status;
}

static int save_devices(const struct node *node, const char *root, const char *dir, struct error *err)
{
    int status = 0;

    for (size_t i = 0; i < node->gpu_count && status == 0; i++)
        status = save_pci(root, dir, node->gpus[i].address, err);
    for (size_t i = 0; i < node->nic_count && status == 0; i++)
        status = save_pci(root, dir, node->nics[i].pci, err);
    return status;
}

static int save_texts(const char *root, const char *dir, struct error *err)
{
    static const char *const names[] = {"addresses", "devices", "shm"};
    static const struct pattern all = {"", {NULL}, NULL};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (save_file(root, dir, names[i], &all, err) < 0)
            return -1;
    return 0;
}

static int make_empty(const char *dir, struct error *err)
{
    char **names;
    bool empty;

    if (mkdir(dir, 0777) == 0)
        return 0;
    if (errno != EEXIST)
        return error_errno(err, CODE_IO, "%s", dir);
    names = sysfs_list(dir, ".");
    empty = names && !names[0];
    sysfs_list_free(names);
    return empty ? 0 : error_set(err, CODE_USAGE, "%s: not empty; a snapshot needs a new or empty directory", dir);
}

int snapshot_save(const char *root, const char *dir, struct error *err)
{
    struct node *node = node_read(root, NULL, err);
    char from[PATH_MAX], to[PATH_MAX];
    int status = -1;

    if (!node || make_empty(dir, err) < 0)
        goto done;
    snprintf(from, sizeof from, "%s/machine.xml", root);
    snprintf(to, sizeof to, "%s/machine.xml", dir);
    if (node->has_hwloc && machine_save(sysfs_is_live(root) ? NULL : from, to, err) < 0)
        goto done;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (save_pattern(root, dir, &patterns[i], err) < 0)
            goto done;
    if (save_devices(node, root, dir, err) < 0 || save_texts(root, dir, err) < 0)
        goto done;
    status = 0;
done:
    node_destroy(node);
    return status;
}
