#include "srun-plugin/sysfs_live.h"

#include <arpa/inet.h>
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static unsigned prefix_of(const struct sockaddr *mask)
{
    const uint8_t *bytes;
    size_t size;
    unsigned bits = 0;

    if (mask->sa_family == AF_INET) {
        bytes = (const uint8_t *)&((const struct sockaddr_in *)mask)->sin_addr;
        size = sizeof(struct in_addr);
    } else {
        bytes = (const uint8_t *)&((const struct sockaddr_in6 *)mask)->sin6_addr;
        size = sizeof(struct in6_addr);
    }
    for (size_t i = 0; i < size; i++)
        bits += (unsigned)__builtin_popcount(bytes[i]);
    return bits;
}

static void print_address(FILE *out, const struct ifaddrs *item)
{
    char host[INET6_ADDRSTRLEN];
    const void *bytes;

    if (!item->ifa_addr || !item->ifa_netmask)
        return;
    if (item->ifa_addr->sa_family == AF_INET)
        bytes = &((const struct sockaddr_in *)item->ifa_addr)->sin_addr;
    else if (item->ifa_addr->sa_family == AF_INET6)
        bytes = &((const struct sockaddr_in6 *)item->ifa_addr)->sin6_addr;
    else
        return;
    if (inet_ntop(item->ifa_addr->sa_family, bytes, host, sizeof host))
        fprintf(out, "%s %s/%u\n", item->ifa_name, host, prefix_of(item->ifa_netmask));
}

char *sysfs_live_addresses(void)
{
    struct ifaddrs *all;
    char *text = NULL;
    size_t size;
    FILE *out;

    if (getifaddrs(&all) < 0)
        return NULL;
    if ((out = open_memstream(&text, &size))) {
        for (const struct ifaddrs *item = all; item; item = item->ifa_next)
            print_address(out, item);
        fclose(out);
    }
    freeifaddrs(all);
    return text;
}

char *sysfs_live_shm(void)
{
    struct statvfs fs;
    char *text;

    if (statvfs("/dev/shm", &fs) < 0 || asprintf(&text, "%llu %llu\n", (unsigned long long)fs.f_blocks * fs.f_frsize,
                                                 (unsigned long long)fs.f_bavail * fs.f_frsize) < 0)
        return NULL;
    return text;
}

/* access() and not open(): the device cgroup answers both alike, and to open a GPU may start it, which takes seconds.
 */
static void print_devices(FILE *out, const char *pattern)
{
    glob_t found;

    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            fprintf(out, "%s %s\n", found.gl_pathv[i], access(found.gl_pathv[i], R_OK | W_OK) == 0 ? "ok" : "denied");
    globfree(&found);
}

char *sysfs_live_devices(void)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    print_devices(out, "/dev/nvidia[0-9]*");
    print_devices(out, "/dev/dri/renderD*");
    fclose(out);
    return text;
}
