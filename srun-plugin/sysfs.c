#include "srun-plugin/sysfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "srun-plugin/sysfs_live.h"

#define TEXT_MAX  (1 << 20)
#define LINES_MAX (1 << 12) /* in files of which a line is wanted */

bool sysfs_is_live(const char *root)
{
    return strcmp(root, "/") == 0;
}

/* root/format... into path; false when it does not fit. */
static bool join(char *path, const char *root, const char *format, va_list arguments)
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
 * At most size bytes of a file; of a short one all comes with the first read, and `once` asks for no other. Without
 * stdio, whose buffers and questions cost more than sysfs's answers. -1: none.
 */
static ssize_t slurp(const char *path, char *text, size_t size, bool once)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t got = fd < 0 ? -1 : 1;

    while (got > 0 && used < size && (got = read(fd, text + used, size - used)) > 0 && !once)
        used += (size_t)got;
    if (once && got > 0)
        used = (size_t)got;
    if (fd >= 0)
        close(fd);
    return got < 0 ? -1
                   : (ssize_t)used; /* sysfs opens what it then refuses to tell: the speed of a port that is down */
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

static bool find(const char *path, const char *key, char *value, size_t size)
{
    char text[LINES_MAX + 1];
    ssize_t used = slurp(path, text, LINES_MAX, true);

    if (used <= 0)
        return false;
    text[used] = '\0';
    return find_line(text, &(struct sysfs_key){key, value, size});
}

bool sysfs_line(const char *root, char *line, size_t size, const char *format, ...)
{
    char path[PATH_MAX];
    va_list arguments;
    bool fits;

    va_start(arguments, format);
    fits = join(path, root, format, arguments);
    va_end(arguments);
    return fits && find(path, "", line, size);
}

bool sysfs_field(const char *root, const char *key, char *value, size_t size, const char *format, ...)
{
    char path[PATH_MAX];
    va_list arguments;
    bool fits;

    va_start(arguments, format);
    fits = join(path, root, format, arguments);
    va_end(arguments);
    return fits && find(path, key, value, size);
}

bool sysfs_fields(const char *root, const struct sysfs_key *keys, size_t count, const char *format, ...)
{
    char path[PATH_MAX], text[LINES_MAX + 1];
    va_list arguments;
    ssize_t used;
    bool fits;

    va_start(arguments, format);
    fits = join(path, root, format, arguments);
    va_end(arguments);
    used = fits ? slurp(path, text, LINES_MAX, true) : -1;
    if (used < 0)
        return false;
    text[used] = '\0';
    for (size_t i = 0; i < count; i++)
        find_line(text, &keys[i]);
    return true;
}

bool sysfs_exists(const char *root, const char *format, ...)
{
    char path[PATH_MAX];
    va_list arguments;
    bool fits;

    va_start(arguments, format);
    fits = join(path, root, format, arguments);
    va_end(arguments);
    return fits && access(path, F_OK) == 0;
}

static int visible(const struct dirent *entry)
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
    fits = join(path, root, format, arguments);
    va_end(arguments);
    if (!fits || (count = scandir(path, &entries, visible, versionsort)) < 0)
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

/* Most are of a few lines: a second, longer look is for the others. */
static char *whole(const char *path)
{
    char *text = NULL, *larger;
    ssize_t used = -1;

    for (size_t size = LINES_MAX; size <= TEXT_MAX; size *= 16) {
        if (!(larger = realloc(text, size + 1)))
            break;
        text = larger;
        used = slurp(path, text, size, false);
        if (used < (ssize_t)size)
            break;
    }
    if (used >= 0) {
        text[used] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

char *sysfs_text(const char *root, const char *path)
{
    char full[PATH_MAX];

    if (sysfs_is_live(root) && strcmp(path, "addresses") == 0)
        return sysfs_live_addresses();
    if (sysfs_is_live(root) && strcmp(path, "shm") == 0)
        return sysfs_live_shm();
    if (sysfs_is_live(root) && strcmp(path, "devices") == 0)
        return sysfs_live_devices();
    if (snprintf(full, sizeof full, "%s/%s", sysfs_is_live(root) ? "" : root, path) >= (int)sizeof full)
        return NULL;
    return whole(full);
}
