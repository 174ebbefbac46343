#include "srun-plugin/fabric.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "srun-plugin/fabric_profile.h"

#define TEXT_USUAL 8192 /* longer than any that muster ships */
#define TEXT_MOST  (1 << 18)

struct fabric *fabric_create(struct error *err)
{
    struct fabric *fabric = calloc(1, sizeof *fabric);

    if (!fabric)
        error_errno(err, CODE_IO, "no memory for fabric profiles");
    return fabric;
}

void fabric_destroy(struct fabric *fabric)
{
    if (!fabric)
        return;
    for (size_t i = 0; i < fabric->count; i++)
        if (fabric->entries[i].is_read)
            fabric_forget(fabric->entries[i].profile);
    free(fabric->entries);
    free(fabric);
}

static int add(struct fabric *fabric, struct fabric_entry entry, struct error *err)
{
    struct fabric_entry *larger;

    for (size_t i = 0; i < fabric->count; i++) {
        const struct fabric_entry *other = &fabric->entries[i];

        if (other->layer == entry.layer && strcmp(other->profile->name, entry.profile->name) == 0)
            return error_set(err, CODE_CONFIG, "%.300s:1: the name \"%s\" is that of %.300s too; each its own",
                             entry.profile->file, entry.profile->name, other->profile->file);
    }
    larger = realloc(fabric->entries, (fabric->count + 1) * sizeof *larger);
    if (!larger)
        return error_errno(err, CODE_IO, "no memory for %s", entry.profile->file);
    fabric->entries = larger;
    fabric->entries[fabric->count++] = entry;
    return 0;
}

int fabric_add_shipped(struct fabric *fabric, struct error *err)
{
    for (const struct fabric_profile *const *profile = fabric_shipped; *profile; profile++)
        if (add(fabric, (struct fabric_entry){.layer = FABRIC_SHIPPED, .profile = *profile}, err) < 0)
            return -1;
    return 0;
}

int fabric_add_text(struct fabric *fabric, enum fabric_layer layer, const char *text, const char *file,
                    struct error *err)
{
    const struct fabric_profile *profile = fabric_read(text, file, err);

    if (!profile)
        return -1;
    if (add(fabric, (struct fabric_entry){.layer = layer, .is_read = true, .profile = profile}, err) == 0)
        return 0;
    fabric_forget(profile);
    return -1;
}

/* ---- directories ------------------------------------------------------------------------------------------------- */

struct reading {
    const char *path; /* of the directory */
    int fd;           /* its */
    char *text;       /* [room] for one file after the other */
    size_t room;
};

/* Room for a text four times as long, in which the old one stays; false at TEXT_MOST and without memory. */
static bool widen(struct reading *reading)
{
    size_t room = reading->room ? 4 * reading->room : TEXT_USUAL;
    char *larger = reading->room <= TEXT_MOST ? realloc(reading->text, room) : NULL;

    if (larger) {
        reading->text = larger;
        reading->room = room;
    }
    return larger;
}

/* Fewer bytes than were asked for are a file's rest: it is not read once more only to be told so. */
static ssize_t slurp(struct reading *reading, int fd)
{
    size_t used = 0;
    ssize_t got;

    do {
        got = read(fd, reading->text + used, reading->room - used);
        used += got > 0 ? (size_t)got : 0;
    } while (used == reading->room && widen(reading));
    return got < 0 ? -1 : (ssize_t)used;
}

/* A file into the text; `path` is its. -1 and *err. */
static int read_text(struct reading *reading, const char *name, const char *path, struct error *err)
{
    int fd = openat(reading->fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC), status = -1;
    ssize_t size = fd < 0 ? -1 : slurp(reading, fd);

    if (size < 0) {
        error_errno(err, CODE_CONFIG, "%s", path);
    } else if ((size_t)size == reading->room && reading->room <= TEXT_MOST) {
        error_set(err, CODE_IO, "no memory for %s", path);
    } else if (size > TEXT_MOST || (size_t)size == reading->room) {
        error_set(err, CODE_CONFIG, "%s: more than %d bytes; this is no profile", path, TEXT_MOST);
    } else {
        reading->text[size] = '\0';
        status = strlen(reading->text) == (size_t)size ? 0 : -1;
        if (status < 0)
            error_set(err, CODE_CONFIG, "%s: a zero byte; this is no profile", path);
    }
    if (fd >= 0)
        close(fd);
    return status;
}

static int is_profile(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return entry->d_name[0] != '.' && length > 4 && strcmp(entry->d_name + length - 4, ".cfg") == 0;
}

static int add_file(struct fabric *fabric, enum fabric_layer layer, struct reading *reading, const char *name,
                    struct error *err)
{
    char path[4096];

    if ((size_t)snprintf(path, sizeof path, "%s/%s", reading->path, name) >= sizeof path)
        return error_set(err, CODE_CONFIG, "%.300s: the path is too long", name);
    if (read_text(reading, name, path, err) < 0)
        return -1;
    return fabric_add_text(fabric, layer, reading->text, path, err);
}

static int add_files(struct fabric *fabric, enum fabric_layer layer, struct reading *reading, fabric_complain *complain,
                     void *arg)
{
    struct dirent **entries = NULL;
    int found = scandirat(reading->fd, ".", &entries, is_profile, alphasort), added = 0;
    struct error err;

    for (int i = 0; i < found; i++) {
        if (add_file(fabric, layer, reading, entries[i]->d_name, &err) == 0)
            added++;
        else
            complain(&err, arg);
        free(entries[i]);
    }
    free(entries);
    return added;
}

int fabric_add_directory(struct fabric *fabric, enum fabric_layer layer, const char *path, fabric_complain *complain,
                         void *arg)
{
    struct reading reading = {.path = path, .fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    struct error err;
    int added = 0;

    if (reading.fd >= 0 && widen(&reading)) {
        added = add_files(fabric, layer, &reading, complain, arg);
    } else if (reading.fd >= 0 || errno != ENOENT || layer == FABRIC_SHIPPED) {
        error_errno(&err, CODE_CONFIG, layer == FABRIC_SHIPPED ? "no fabric profiles in %s" : "%s", path);
        complain(&err, arg);
    }
    free(reading.text);
    if (reading.fd >= 0)
        close(reading.fd);
    return added;
}

/* ---- files of this machine --------------------------------------------------------------------------------------- */

static bool exists_in(const char *directory, size_t length, const char *name)
{
    char path[4096];

    return length > 0 && (size_t)snprintf(path, sizeof path, "%.*s/%s", (int)length, directory, name) < sizeof path &&
           access(path, F_OK) == 0;
}

bool fabric_find_file(const char *name, void *arg)
{
    static const char *const usual[] = {"/usr/local/lib", "/usr/local/lib64", "/usr/lib64", "/usr/lib", NULL};
    const char *path = arg;

    if (strchr(name, '/'))
        return access(name, F_OK) == 0;
    while (path && *path) {
        size_t length = strcspn(path, ":");

        if (exists_in(path, length, name))
            return true;
        path += length + (path[length] == ':');
    }
    for (const char *const *directory = usual; *directory; directory++)
        if (exists_in(*directory, strlen(*directory), name))
            return true;
    return false;
}
