#include "srun-plugin/sysfs_live.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <glob.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "srun-plugin/sysfs.h"

static struct in_addr ipv4_of(const struct sockaddr *address)
{
    return ((const struct sockaddr_in *)(const void *)address)->sin_addr;
}

static unsigned bits_of(const struct sockaddr *mask)
{
    return (unsigned)__builtin_popcount(ipv4_of(mask).s_addr);
}

/* All of IPv4, in room that grows until some is left; false where the kernel does not say. */
static bool list_ipv4(int fd, struct ifconf *list)
{
    for (int room = 32; room <= 32768; room *= 4) {
        int size = room * (int)sizeof(struct ifreq);
        void *larger = realloc(list->ifc_buf, (size_t)size);

        if (!larger)
            return false;
        list->ifc_buf = larger;
        list->ifc_len = size;
        if (ioctl(fd, SIOCGIFCONF, list) < 0)
            return false;
        if (list->ifc_len < size)
            return true;
    }
    return false;
}

bool sysfs_live_interface(int fd, struct in_addr address, char interface[IF_NAMESIZE])
{
    struct ifconf list = {.ifc_buf = NULL};
    bool found = false;

    if (list_ipv4(fd, &list))
        for (size_t i = 0; !found && i < (size_t)list.ifc_len / sizeof *list.ifc_req; i++)
            if (ipv4_of(&list.ifc_req[i].ifr_addr).s_addr == address.s_addr) {
                memcpy(interface, list.ifc_req[i].ifr_name, IF_NAMESIZE);
                found = true;
            }
    free(list.ifc_buf);
    return found;
}

static void print_ipv4(FILE *out)
{
    struct ifconf list = {.ifc_buf = NULL};
    char host[INET_ADDRSTRLEN];
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && list_ipv4(fd, &list))
        for (size_t i = 0; i < (size_t)list.ifc_len / sizeof *list.ifc_req; i++) {
            struct ifreq *item = &list.ifc_req[i];
            struct in_addr address = ipv4_of(&item->ifr_addr);

            inet_ntop(AF_INET, &address, host, sizeof host);
            if (ioctl(fd, SIOCGIFNETMASK, item) == 0)
                fprintf(out, "%.*s %s/%u\n", IFNAMSIZ, item->ifr_name, host, bits_of(&item->ifr_netmask));
        }
    if (fd >= 0)
        close(fd);
    free(list.ifc_buf);
}

/* 32 digits without colons. */
static bool read_ipv6(const char *digits, struct in6_addr *address)
{
    for (size_t i = 0; i < sizeof *address; i++) {
        const char pair[] = {digits[2 * i], digits[2 * i] ? digits[2 * i + 1] : '\0', '\0'};

        if (!isxdigit((unsigned char)pair[0]) || !isxdigit((unsigned char)pair[1]))
            return false;
        address->s6_addr[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    return true;
}

/* "fe8000...01 02 40 20 80     eth0": address, index, prefix, scope, flags, name. */
static void print_ipv6(FILE *out)
{
    char name[IFNAMSIZ], host[INET6_ADDRSTRLEN], *text = sysfs_text("/", "proc/net/if_inet6"), *rest = text, *line;
    struct in6_addr address;
    unsigned prefix;

    while (rest && (line = strsep(&rest, "\n")))
        if (read_ipv6(line, &address) && sscanf(line + 32, "%*x %x %*x %*x %15s", &prefix, name) == 2 &&
            inet_ntop(AF_INET6, &address, host, sizeof host))
            fprintf(out, "%s %s/%u\n", name, host, prefix);
    free(text);
}

/* Not by getifaddrs, which has the kernel tell all it knows of every link first: 0.1 ms. */
char *sysfs_live_addresses(void)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    print_ipv4(out);
    print_ipv6(out);
    fclose(out);
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
