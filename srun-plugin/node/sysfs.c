#include "srun-plugin/node/sysfs.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/text.h"

#define TEXT_MAX  (1 << 20)
#define LINES_MAX (1 << 12) /* of a file that is searched for a line */

bool sysfs_is_live(const char *root)
{
    return strcmp(root, "/") == 0;
}

/* root/format... into path; false when it does not fit. */
static bool join_path(char *path, const char *root, const char *format, va_list arguments)
{
    size_t used = (size_t)snprintf(path, PATH_MAX, "%s/", sysfs_is_live(root) ? "" : root);
    int wrote;

    if (used >= PATH_MAX)
        return false;
    wrote = vsnprintf(path + used, PATH_MAX - used, format, arguments);
    return wrote >= 0 && (size_t)wrote < PATH_MAX - used;
}

/* A line without the blanks around it. */
static void copy_trimmed(char *value, size_t size, const char *line)
{
    size_t length = strcspn(line, "\n");

    for (; length > 0 && isspace((unsigned char)*line); length--)
        line++;
    while (length > 0 && isspace((unsigned char)line[length - 1]))
        length--;
    snprintf(value, size, "%.*s", (int)length, line);
}

/*
 * The beginning of a file, at most LINES_MAX bytes, with one read and without stdio, whose buffers cost more than the
 * read. -1 on failure: sysfs opens files that it then cannot read, such as the speed of a port that is down.
 */
static ssize_t read_lines(const char *path, char text[LINES_MAX + 1])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, LINES_MAX);

    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got;
}

/* The rest of the first line that begins with key, which may be "", into value; text stays whole. */
static bool find_line(const char *text, const struct sysfs_key *wanted)
{
    size_t length = strlen(wanted->key);

    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        if (strncmp(text, wanted->key, length) == 0) {
            copy_trimmed(wanted->value, wanted->size, text + length);
            return true;
        }
    return false;
}

/* The number of fields found; -1 if there is no file. */
static int read_fields(const char *root, const struct sysfs_key *keys, size_t count, const char *format,
                       va_list arguments)
{
    char path[PATH_MAX], text[LINES_MAX + 1];
    int found = 0;

    if (!join_path(path, root, format, arguments) || read_lines(path, text) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        found += find_line(text, &keys[i]);
    return found;
}

bool sysfs_line(const char *root, char *line, size_t size, const char *format, ...)
{
    va_list arguments;
    int found;

    va_start(arguments, format);
    found = read_fields(root, &(struct sysfs_key){"", line, size}, 1, format, arguments);
    va_end(arguments);
    return found > 0;
}

bool sysfs_field(const char *root, const char *key, char *value, size_t size, const char *format, ...)
{
    va_list arguments;
    int found;

    va_start(arguments, format);
    found = read_fields(root, &(struct sysfs_key){key, value, size}, 1, format, arguments);
    va_end(arguments);
    return found > 0;
}

bool sysfs_fields(const char *root, const struct sysfs_key *keys, size_t count, const char *format, ...)
{
    va_list arguments;
    int found;

    va_start(arguments, format);
    found = read_fields(root, keys, count, format, arguments);
    va_end(arguments);
    return found >= 0;
}

bool sysfs_exists(const char *root, const char *format, ...)
{
    char path[PATH_MAX];
    va_list arguments;
    bool fits;

    va_start(arguments, format);
    fits = join_path(path, root, format, arguments);
    va_end(arguments);
    return fits && access(path, F_OK) == 0;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

char **sysfs_list(const char *root, const char *format, ...)
{
    char path[PATH_MAX], **names = NULL;
    struct dirent **entries;
    va_list arguments;
    bool fits;
    int count;

    va_start(arguments, format);
    fits = join_path(path, root, format, arguments);
    va_end(arguments);
    if (!fits || (count = scandir(path, &entries, is_visible, versionsort)) < 0)
        return NULL;
    names = calloc((size_t)count + 1, sizeof *names);
    for (int i = 0; i < count; i++) {
        if (names && !(names[i] = strdup(entries[i]->d_name))) {
            sysfs_list_free(names);
            names = NULL;
        }
        free(entries[i]);
    }
    free(entries);
    return names;
}

void sysfs_list_free(char **names)
{
    for (char **name = names; name && *name; name++)
        free(*name);
    free(names);
}

/* ---- facts of this machine that no file has ---------------------------------------------------------------------- */

static struct in_addr ipv4_of(const struct sockaddr *address)
{
    return ((const struct sockaddr_in *)(const void *)address)->sin_addr;
}

static unsigned bits_of(const struct sockaddr *mask)
{
    return (unsigned)__builtin_popcount(ipv4_of(mask).s_addr);
}

/* All IPv4 addresses, in a buffer that grows until they fit; false if the kernel does not tell. */
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

bool sysfs_interface(int fd, struct in_addr address, char interface[IF_NAMESIZE])
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
    char name[IFNAMSIZ], host[INET6_ADDRSTRLEN], *text = text_read_file("/proc/net/if_inet6", TEXT_MAX, NULL, NULL),
                                                 *rest = text, *line;
    struct in6_addr address;
    unsigned prefix;

    while (rest && (line = strsep(&rest, "\n")))
        if (read_ipv6(line, &address) && sscanf(line + 32, "%*x %x %*x %*x %15s", &prefix, name) == 2 &&
            inet_ntop(AF_INET6, &address, host, sizeof host))
            fprintf(out, "%s %s/%u\n", name, host, prefix);
    free(text);
}

/* Not by getifaddrs, which first asks the kernel for all it knows of every link: 0.1 ms. */
static char *live_addresses(void)
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

static char *live_shm(void)
{
    struct statvfs fs;
    char *text;

    if (statvfs("/dev/shm", &fs) < 0 || asprintf(&text, "%llu %llu\n", (unsigned long long)fs.f_blocks * fs.f_frsize,
                                                 (unsigned long long)fs.f_bavail * fs.f_frsize) < 0)
        return NULL;
    return text;
}

/* access() and not open(): the device cgroup treats both alike, and to open a GPU may start it, which takes seconds. */
static void print_devices(FILE *out, const char *pattern)
{
    glob_t found;

    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            fprintf(out, "%s %s\n", found.gl_pathv[i], access(found.gl_pathv[i], R_OK | W_OK) == 0 ? "ok" : "denied");
    globfree(&found);
}

static char *live_devices(void)
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

char *sysfs_text(const char *root, const char *path)
{
    char full[PATH_MAX];

    if (sysfs_is_live(root) && strcmp(path, "addresses") == 0)
        return live_addresses();
    if (sysfs_is_live(root) && strcmp(path, "shm") == 0)
        return live_shm();
    if (sysfs_is_live(root) && strcmp(path, "devices") == 0)
        return live_devices();
    if (snprintf(full, sizeof full, "%s/%s", sysfs_is_live(root) ? "" : root, path) >= (int)sizeof full)
        return NULL;
    return text_read_file(full, TEXT_MAX, NULL, NULL);
}
