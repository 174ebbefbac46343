#include "srun-plugin/sysfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "srun-plugin/sysfs_live.h"

#define TEXT_MAX (1 << 20)

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

static char *trim(char *text)
{
    char *end;

    while (isspace((unsigned char)*text))
        text++;
    for (end = text + strlen(text); end > text && isspace((unsigned char)end[-1]); end--)
        ;
    *end = '\0';
    return text;
}

/* The rest of the first line that begins with key, which may be "". */
static bool find(const char *path, const char *key, char *value, size_t size)
{
    char line[1024];
    bool found = false;
    FILE *file = fopen(path, "re");

    if (!file)
        return false;
    while (!found && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) {
            snprintf(value, size, "%s", trim(line + strlen(key)));
            found = true;
        }
    fclose(file);
    return found;
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

static char *whole(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t used;

    if (!file)
        return NULL;
    if ((text = malloc(TEXT_MAX + 1))) {
        used = fread(text, 1, TEXT_MAX, file);
        text[used] = '\0';
    }
    if (ferror(file)) { /* sysfs opens what it then refuses to tell: the speed of a port that is down */
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
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
