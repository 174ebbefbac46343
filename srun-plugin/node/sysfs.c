#include "srun-plugin/node/sysfs.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/text.h"

#define TEXT_MAX  (1 << 20)
#define LINES_MAX (1 << 12) /* of a file that is searched for a line */

bool sysfs_is_live(const char *root)
{
    return root && strcmp(root, "/") == 0;
}

/* root/format... into path; false when it does not fit, or root is NULL. */
static bool join_path(char *path, const char *root, const char *format, va_list arguments)
{
    size_t used = root ? (size_t)snprintf(path, PATH_MAX, "%s/", sysfs_is_live(root) ? "" : root) : PATH_MAX;
    int wrote;

    if (used >= PATH_MAX)
        return false;
    wrote = vsnprintf(path + used, PATH_MAX - used, format, arguments);
    return wrote >= 0 && (size_t)wrote < PATH_MAX - used;
}

/* ---- a copy of what is read -------------------------------------------------------------------------------------- */

static struct {
    const char *dir; /* NULL: no copy is made */
    int error;       /* errno of the first failure; 0 for none */
} copy;

int sysfs_copy_to(const char *dir)
{
    int error = copy.error;

    copy.dir = dir;
    copy.error = 0;
    errno = error;
    return error ? -1 : 0;
}

/* The path below the directory of the copy, where it makes the directories above it. */
static bool make_parents(char full[PATH_MAX], const char *path)
{
    if (snprintf(full, PATH_MAX, "%s/%s", copy.dir, path) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (char *slash = full + strlen(copy.dir) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(full, 0777) < 0 && errno != EEXIST)
            return false;
        *slash = '/';
    }
    return true;
}

/* Appends a line or a text to a file, unless the file has it already. A path that ends in "/" is a directory. */
static void copy_text(const char *path, const char *text, size_t length)
{
    char full[PATH_MAX], *old;
    FILE *file;

    if (!copy.dir || copy.error)
        return;
    if (!make_parents(full, path)) {
        copy.error = errno;
        return;
    }
    if (full[strlen(full) - 1] == '/')
        return;
    old = text_read_file(full, TEXT_MAX, NULL, NULL);
    if (!old || !memmem(old, strlen(old), text, length)) {
        file = fopen(full, "ae");
        if (!file || fprintf(file, "%.*s%s", (int)length, text, length && text[length - 1] != '\n' ? "\n" : "") < 0)
            copy.error = errno;
        if (file && fclose(file) != 0)
            copy.error = errno;
    }
    free(old);
}

/* `path` below root, as join_path makes it. */
static const char *without_root(const char *path, const char *root)
{
    return path + (sysfs_is_live(root) ? 1 : strlen(root) + 1);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

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

bool sysfs_field(const char *root, const char *key, char *value, size_t size, const char *format, ...)
{
    char path[PATH_MAX], text[LINES_MAX + 1];
    size_t length = strlen(key);
    va_list arguments;
    bool fits;

    va_start(arguments, format);
    fits = join_path(path, root, format, arguments);
    va_end(arguments);
    if (!fits || read_lines(path, text) < 0)
        return false;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, key, length) == 0) {
            copy_trimmed(value, size, line + length);
            copy_text(without_root(path, root), line, strcspn(line, "\n"));
            return true;
        }
    return false;
}

bool sysfs_exists(const char *root, const char *format, ...)
{
    char path[PATH_MAX];
    struct stat found;
    va_list arguments;
    bool fits;

    va_start(arguments, format);
    fits = join_path(path, root, format, arguments);
    va_end(arguments);
    if (!fits || stat(path, &found) < 0)
        return false;
    if (S_ISDIR(found.st_mode) && strlen(path) + 1 < sizeof path)
        strcat(path, "/");
    copy_text(without_root(path, root), "", 0);
    return true;
}

/* Not sys/class/net/bonding_masters, a file among the interfaces. */
static int is_listed(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && entry->d_type != DT_REG;
}

char **sysfs_list(const char *root, const char *format, ...)
{
    char path[PATH_MAX], item[PATH_MAX], **names = NULL;
    struct dirent **entries;
    va_list arguments;
    bool fits;
    int count;

    va_start(arguments, format);
    fits = join_path(path, root, format, arguments);
    va_end(arguments);
    if (!fits || (count = scandir(path, &entries, is_listed, versionsort)) < 0)
        return NULL;
    names = calloc((size_t)count + 1, sizeof *names);
    for (int i = 0; i < count; i++) {
        if (names && !(names[i] = strdup(entries[i]->d_name))) {
            sysfs_list_free(names);
            names = NULL;
        }
        if (names && snprintf(item, sizeof item, "%s/%s/", path, names[i]) < (int)sizeof item)
            copy_text(without_root(item, root), "", 0);
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

static void print_address(FILE *out, const struct ifaddrs *item)
{
    int family = item->ifa_addr && item->ifa_netmask ? item->ifa_addr->sa_family : AF_UNSPEC;
    bool is_v4 = family == AF_INET;
    size_t at = is_v4 ? offsetof(struct sockaddr_in, sin_addr) : offsetof(struct sockaddr_in6, sin6_addr);
    size_t size = is_v4 ? sizeof(struct in_addr) : sizeof(struct in6_addr);
    char host[INET6_ADDRSTRLEN];
    unsigned prefix = 0;

    if (!is_v4 && family != AF_INET6)
        return;
    for (size_t i = 0; i < size; i++)
        prefix += (unsigned)__builtin_popcount(((const unsigned char *)item->ifa_netmask)[at + i]);
    inet_ntop(family, (const char *)item->ifa_addr + at, host, sizeof host);
    fprintf(out, "%s %s/%u\n", item->ifa_name, host, prefix);
}

static void print_addresses(FILE *out)
{
    struct ifaddrs *list = NULL;

    if (getifaddrs(&list) == 0)
        for (const struct ifaddrs *item = list; item; item = item->ifa_next)
            print_address(out, item);
    freeifaddrs(list);
}

static void print_shm(FILE *out)
{
    struct statvfs fs;

    if (statvfs("/dev/shm", &fs) == 0)
        fprintf(out, "%llu %llu\n", (unsigned long long)fs.f_blocks * fs.f_frsize,
                (unsigned long long)fs.f_bavail * fs.f_frsize);
}

/* access() and not open(): the device cgroup treats both alike, and to open a GPU may start it, which takes seconds. */
static void print_devices(FILE *out)
{
    glob_t found;

    if (glob("/dev/{nvidia[0-9]*,dri/renderD*}", GLOB_BRACE, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            fprintf(out, "%s %s\n", found.gl_pathv[i], access(found.gl_pathv[i], R_OK | W_OK) == 0 ? "ok" : "denied");
    globfree(&found);
}

static char *print_text(void (*print)(FILE *out))
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out) {
        print(out);
        fclose(out);
    }
    return text;
}

char *sysfs_text(const char *root, const char *path)
{
    char full[PATH_MAX], *text = NULL;

    if (sysfs_is_live(root) && strcmp(path, "addresses") == 0)
        text = print_text(print_addresses);
    else if (sysfs_is_live(root) && strcmp(path, "shm") == 0)
        text = print_text(print_shm);
    else if (sysfs_is_live(root) && strcmp(path, "devices") == 0)
        text = print_text(print_devices);
    else if (root && snprintf(full, sizeof full, "%s/%s", sysfs_is_live(root) ? "" : root, path) < (int)sizeof full)
        text = text_read_file(full, TEXT_MAX, NULL, NULL);
    if (text)
        copy_text(path, text, strlen(text));
    return text;
}

/* Where libraries are after LD_LIBRARY_PATH, with those of Debian. */
static const char usual_directories[] =
    "/usr/local/cuda/lib64:/usr/local/lib:/usr/local/lib64:/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:"
    "/usr/lib64:/usr/lib:/lib64";

bool sysfs_has_file(const char *root, const char *name, const char *own)
{
    char path[PATH_MAX], *directories;
    bool found = false;

    if (strchr(name, '/'))
        return sysfs_exists(root, "%s", name + strspn(name, "/"));
    if (!root || asprintf(&directories, "%s:%s", own ? own : "", usual_directories) < 0)
        return false;
    for (char *rest = directories, *directory; !found && (directory = strsep(&rest, ":"));)
        found = directory[0] &&
                snprintf(path, PATH_MAX, "%s%s/%s", sysfs_is_live(root) ? "" : root, directory, name) < PATH_MAX &&
                access(path, F_OK) == 0;
    free(directories);
    return found;
}
