/*
 * sysfs.h - small files of sysfs and procfs beneath a root: "/" for this machine, the directory of a snapshot, or NULL
 * for a machine of which there are no files.
 *
 * Paths are printf formats, without a leading slash: sysfs_line(root, state, sizeof state,
 * "sys/class/net/%s/operstate", name). A file that is absent or cannot be read is a fact that is not known: false or an
 * empty list, never an error.
 *
 * Three facts are in no file of a live system. A snapshot has a file for each; for root "/" system calls give them:
 *
 *     addresses  "ib0 10.1.2.3/16": a line for each address of each interface
 *     shm        "540000000000 539000000000": bytes of /dev/shm, and bytes that are free (statvfs)
 *     devices    "/dev/nvidia0 ok" or "/dev/nvidia0 denied": may this process open it (access)
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_SYSFS_H
#define MUSTER_SRUN_PLUGIN_NODE_SYSFS_H

#include <stdbool.h>
#include <stddef.h>

/* The rest of the line that begins with `key`, without blanks around it: "DRIVER=", "MemTotal:", "Model:". */
bool sysfs_field(const char *root, const char *key, char *value, size_t size, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The first line of a file, without blanks around it. */
#define sysfs_line(root, line, size, ...) sysfs_field(root, "", line, size, __VA_ARGS__)

/*
 * The names of directories and links in a directory, in version order (mlx5_2 before mlx5_10), ended by NULL; free it
 * with sysfs_list_free. NULL if there is no directory, or no memory.
 */
char **sysfs_list(const char *root, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sysfs_list_free(char **names);

bool sysfs_exists(const char *root, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text of one file of at most 1 MiB, or of "addresses", "shm" or "devices"; the caller frees it. NULL if absent. */
char *sysfs_text(const char *root, const char *path);

/*
 * From now on, also write all that is read below the directory `dir`, so that it can be read again there: the lines
 * that were found, whole texts, and directories that were listed or exist. NULL ends this. -1 with errno if a write has
 * failed since the call before.
 */
int sysfs_copy_to(const char *dir);

/*
 * True if the machine has a file. A name without a slash is that of a library: in `own` (LD_LIBRARY_PATH, or NULL), then
 * in the usual directories. Does not read the linker's cache.
 */
bool sysfs_has_file(const char *root, const char *name, const char *own);

/* True if root is this machine, "/". */
bool sysfs_is_live(const char *root);

#endif
