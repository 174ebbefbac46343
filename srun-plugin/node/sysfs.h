/*
 * sysfs.h - small files of sysfs and procfs beneath a root: "/" for this machine, or the directory of a snapshot.
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

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

/* The first line of a file, without newline and trailing blanks. */
bool sysfs_line(const char *root, char *line, size_t size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The rest of the line that begins with `key`, without blanks around it: "DRIVER=", "MemTotal:", "Model:". */
bool sysfs_field(const char *root, const char *key, char *value, size_t size, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Several fields of one file. A field that is absent stays as it is. False if there is no file. */
struct sysfs_key {
    const char *key;
    char *value;
    size_t size;
};

bool sysfs_fields(const char *root, const struct sysfs_key *keys, size_t count, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/*
 * The names in a directory, in version order (mlx5_2 before mlx5_10), ended by NULL; free it with sysfs_list_free. NULL
 * if there is no directory, or no memory.
 */
char **sysfs_list(const char *root, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sysfs_list_free(char **names);

bool sysfs_exists(const char *root, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text of one file of at most 1 MiB, or of "addresses", "shm" or "devices"; the caller frees it. NULL if absent. */
char *sysfs_text(const char *root, const char *path);

/* Finds the interface of this machine that has an IPv4 address. `fd` is any socket. */
bool sysfs_interface(int fd, struct in_addr address, char interface[IF_NAMESIZE]);

/* True if root is this machine, "/". */
bool sysfs_is_live(const char *root);

#endif
