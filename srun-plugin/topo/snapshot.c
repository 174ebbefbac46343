#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "srun-plugin/node/machine.h"
#include "srun-plugin/node/node.h"
#include "srun-plugin/node/sysfs.h"
#include "srun-plugin/topo/muster_topo.h"

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
    char from[PATH_MAX], to[PATH_MAX], list[1024];
    struct node *node;
    int rc = -1;

    if (make_empty(dir, err) < 0)
        return -1;
    sysfs_copy_to(dir);
    /* node_read asks the kernel for the CPUs that it may use on this machine, and this file of a saved one. */
    sysfs_field(root, "Cpus_allowed_list:", list, sizeof list, "proc/self/status");
    node = node_read(root, NULL, err);
    if (sysfs_copy_to(NULL) < 0 && node) {
        error_errno(err, CODE_IO, "%s", dir);
    } else if (node) {
        snprintf(from, sizeof from, "%s/machine.xml", root);
        snprintf(to, sizeof to, "%s/machine.xml", dir);
        rc = node->core_count ? machine_save(sysfs_is_live(root) ? NULL : from, to, err) : 0;
    }
    node_destroy(node);
    return rc;
}
