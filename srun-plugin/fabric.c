#include "srun-plugin/fabric.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "srun-plugin/fabric_profile.h"
#include "srun-plugin/fabric_skim.h"

#define FILE_SIZE_MAX ((size_t)1 << 18)

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
        fabric_profile_destroy(fabric->profiles[i]);
    free(fabric->profiles);
    free(fabric);
}

static int add(struct fabric *fabric, struct fabric_profile *profile, struct error *err)
{
    struct fabric_profile **larger;

    for (size_t i = 0; i < fabric->count; i++)
        if (fabric->profiles[i]->layer == profile->layer && strcmp(fabric->profiles[i]->name, profile->name) == 0)
            return error_set(err, CODE_CONFIG, "%.300s:1: the name \"%s\" is that of %.300s too; each its own",
                             profile->file, profile->name, fabric->profiles[i]->file);
    larger = realloc(fabric->profiles, (fabric->count + 1) * sizeof(struct fabric_profile *));
    if (!larger)
        return error_errno(err, CODE_IO, "no memory for %s", profile->file);
    fabric->profiles = larger;
    fabric->profiles[fabric->count++] = profile;
    return 0;
}

int fabric_add_text(struct fabric *fabric, enum fabric_layer layer, const char *text, const char *file,
                    struct error *err)
{
    struct fabric_profile *profile = fabric_profile_create(layer, text, file, err);

    if (!profile)
        return -1;
    if (add(fabric, profile, err) == 0)
        return 0;
    fabric_profile_destroy(profile);
    return -1;
}

/* ---- directories ------------------------------------------------------------------------------------------------- */

void fabric_expect(struct fabric *fabric, const struct fabric_expected *expected)
{
    fabric->expected = expected;
}

/* The text of a file, to be freed; NULL and *err. */
static char *read_text(const char *path, struct error *err)
{
    struct stat status = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool known = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
    size_t room = known && (size_t)status.st_size < FILE_SIZE_MAX ? (size_t)status.st_size + 1 : FILE_SIZE_MAX + 1;
    size_t size = 0;
    ssize_t got = 1;
    char *text = malloc(room + 1);

    if (fd < 0 || !text) {
        error_errno(err, fd < 0 ? CODE_CONFIG : CODE_IO, "%s", path);
        goto fail;
    }
    while (got > 0 && size < room && (got = read(fd, text + size, room - size)) > 0)
        size += (size_t)got;
    if (got < 0) {
        error_errno(err, CODE_CONFIG, "%s", path);
        goto fail;
    }
    text[size] = '\0';
    if (size > FILE_SIZE_MAX || strlen(text) != size) {
        error_set(err, CODE_CONFIG, "%s: %s; this is no profile", path,
                  size > FILE_SIZE_MAX ? "more than 262144 bytes" : "a zero byte");
        goto fail;
    }
    close(fd);
    return text;

fail:
    if (fd >= 0)
        close(fd);
    free(text);
    return NULL;
}

static int is_profile(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return entry->d_name[0] != '.' && length > 4 && strcmp(entry->d_name + length - 4, ".cfg") == 0;
}

/* 1 where it is passed over. */
static int add_file(struct fabric *fabric, enum fabric_layer layer, const char *directory, const char *name,
                    struct error *err)
{
    char path[4096];
    char *text;
    int status = -1;

    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, name) >= sizeof path)
        return error_set(err, CODE_CONFIG, "%.300s: the path is too long", name);
    text = read_text(path, err);
    if (text && layer == FABRIC_SHIPPED && fabric->expected && !fabric_may_match(text, fabric->expected))
        status = 1;
    else if (text)
        status = fabric_add_text(fabric, layer, text, path, err);
    free(text);
    return status;
}

int fabric_add_directory(struct fabric *fabric, enum fabric_layer layer, const char *path, fabric_complain *complain,
                         void *arg)
{
    struct dirent **entries = NULL;
    int found = scandir(path, &entries, is_profile, alphasort), added = 0;
    struct error err;

    if (found < 0 && errno != ENOENT) {
        error_errno(&err, CODE_CONFIG, "%s", path);
        complain(&err, arg);
    }
    for (int i = 0; i < found; i++) {
        int status = add_file(fabric, layer, path, entries[i]->d_name, &err);

        if (status < 0)
            complain(&err, arg);
        added += status == 0;
        free(entries[i]);
    }
    free(entries);
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
