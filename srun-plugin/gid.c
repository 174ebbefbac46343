#include "srun-plugin/gid.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define GIDS_MOST 256 /* no card has more */

/* The first line of a file of a port; false where it cannot be read, as of a GID that is not in use. */
static bool read_line(const char *root, const char *hca, const char *file, int index, char *line, int size)
{
    size_t device = strcspn(hca, ":");
    const char *port = hca[device] ? hca + device + 1 : "1";
    char path[512];
    FILE *stream;
    bool got;

    snprintf(path, sizeof path, "%s/sys/class/infiniband/%.*s/ports/%s/%s/%d", root, (int)device, hca, port, file,
             index);
    stream = fopen(path, "re");
    if (!stream)
        return false;
    got = fgets(line, size, stream) != NULL;
    fclose(stream);
    line[got ? strcspn(line, "\n") : 0] = '\0';
    return got;
}

int gid_index(const char *root, const char *hca)
{
    static const char mapped[] = "0000:0000:0000:0000:0000:ffff:"; /* an IPv4 address, as the kernel writes it */
    char type[32], gid[64];

    for (int index = 0; index < GIDS_MOST; index++)
        if (read_line(root, hca, "gid_attrs/types", index, type, sizeof type) && strcmp(type, "RoCE v2") == 0 &&
            read_line(root, hca, "gids", index, gid, sizeof gid) && strncmp(gid, mapped, sizeof mapped - 1) == 0)
            return index;
    return -1;
}
