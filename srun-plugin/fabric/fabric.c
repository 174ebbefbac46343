#include "srun-plugin/fabric/fabric.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/text.h"
#include "srun-plugin/fabric/fabric_profile.h"

#define PROFILE_MOST (1 << 18) /* bytes */
#define CONF_MOST    (1 << 16) /* of nccl.conf */

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
        fabric_profile_destroy(fabric->entries[i].profile);
    free(fabric->entries);
    free(fabric);
}

static int add_profile(struct fabric *fabric, enum fabric_layer layer, struct fabric_profile *profile,
                       struct error *err)
{
    struct fabric_entry *larger;

    for (size_t i = 0; i < fabric->count; i++) {
        const struct fabric_entry *other = &fabric->entries[i];

        if (other->layer == layer && strcmp(other->profile->name, profile->name) == 0)
            return error_set(err, CODE_CONFIG, "%.300s:1: the name \"%s\" is already used by %.300s; choose another",
                             profile->file, profile->name, other->profile->file);
    }
    larger = realloc(fabric->entries, (fabric->count + 1) * sizeof *larger);
    if (!larger)
        return error_errno(err, CODE_IO, "no memory for %s", profile->file);
    fabric->entries = larger;
    fabric->entries[fabric->count++] = (struct fabric_entry){layer, profile};
    return 0;
}

int fabric_add_text(struct fabric *fabric, enum fabric_layer layer, const char *text, const char *file,
                    struct error *err)
{
    struct fabric_profile *profile = fabric_profile_read(text, file, err);

    if (profile && add_profile(fabric, layer, profile, err) == 0)
        return 0;
    fabric_profile_destroy(profile);
    return -1;
}

/* ---- directories ------------------------------------------------------------------------------------------------- */

static int is_profile(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return entry->d_name[0] != '.' && length > 4 && strcmp(entry->d_name + length - 4, ".cfg") == 0;
}

static bool is_for_absent(const char *name, const char *const *absent)
{
    for (; absent && *absent; absent++)
        if (strncmp(name, *absent, strlen(*absent)) == 0)
            return true;
    return false;
}

static int add_file(struct fabric *fabric, enum fabric_layer layer, const char *directory, const char *name,
                    struct error *err)
{
    char path[4096], *text;
    size_t bytes;
    int status;

    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, name) >= sizeof path)
        return error_set(err, CODE_CONFIG, "%.300s: the path is too long", name);
    if (!(text = text_read_file(path, PROFILE_MOST, &bytes, err)))
        return -1;
    if (strlen(text) != bytes)
        status = error_set(err, CODE_CONFIG, "%s: a zero byte; a profile is text", path);
    else
        status = fabric_add_text(fabric, layer, text, path, err);
    free(text);
    return status;
}

int fabric_add_directory(struct fabric *fabric, enum fabric_layer layer, const char *path, const char *const *absent,
                         fabric_complain *complain, void *arg)
{
    struct dirent **entries = NULL;
    int found = scandir(path, &entries, is_profile, alphasort), added = 0;
    struct error err;

    if (found < 0 && (errno != ENOENT || layer == FABRIC_SHIPPED)) {
        error_errno(&err, CODE_CONFIG, layer == FABRIC_SHIPPED ? "no fabric profiles in %s" : "%s", path);
        complain(&err, arg);
    }
    for (int i = 0; i < found; i++) {
        const char *name = entries[i]->d_name;

        if (!is_for_absent(name, absent) && add_file(fabric, layer, path, name, &err) == 0)
            added++;
        else if (!is_for_absent(name, absent))
            complain(&err, arg);
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

/* ---- variables set by files -------------------------------------------------------------------------------------- */

static void free_given(struct fabric_given *given)
{
    free(given->name);
    free(given->value);
    free(given->source);
}

int fabric_givens_add(struct fabric_givens *givens, const char *name, const char *value, const char *source,
                      struct error *err)
{
    struct fabric_given *items, given;

    for (size_t i = 0; i < givens->count; i++)
        if (strcmp(givens->items[i].name, name) == 0)
            return 0;
    items = realloc(givens->items, (givens->count + 1) * sizeof *items);
    if (!items)
        return error_errno(err, CODE_IO, "no memory for %s", name);
    givens->items = items;
    given = (struct fabric_given){strdup(name), strdup(value), strdup(source)};
    if (given.name && given.value && given.source) {
        items[givens->count++] = given;
        return 0;
    }
    free_given(&given);
    return error_set(err, CODE_IO, "no memory for %s", name);
}

void fabric_givens_clear(struct fabric_givens *givens)
{
    for (size_t i = 0; i < givens->count; i++)
        free_given(&givens->items[i]);
    free(givens->items);
    *givens = (struct fabric_givens){0};
}

/* Length of the variable's name at the beginning of a line; 0 if the line sets none. */
static size_t name_length(const char *line)
{
    size_t length = 0;

    while (isalnum((unsigned char)line[length]) || line[length] == '_')
        length++;
    return line[length] == '=' && !isdigit((unsigned char)line[0]) ? length : 0;
}

int fabric_conf_parse(struct fabric_givens *givens, const char *text, const char *source, struct error *err)
{
    int status = 0;

    while (*text && status == 0) {
        size_t length = strcspn(text, "\n"), name = name_length(text);

        if (name > 0 && name < length) {
            char *line = strndup(text, length);

            if (!line)
                return error_errno(err, CODE_IO, "no memory for %s", source);
            line[name] = '\0';
            status = fabric_givens_add(givens, line, line + name + 1, source, err);
            free(line);
        }
        text += length + (text[length] == '\n');
    }
    return status;
}

static int read_conf(struct fabric_givens *givens, const char *path, struct error *err)
{
    char *text = text_read_file(path, CONF_MOST, NULL, NULL);
    int status = text ? fabric_conf_parse(givens, text, "nccl.conf", err) : 0;

    free(text);
    return status;
}

int fabric_conf_read(struct fabric_givens *givens, const char *conf_file, const char *home, struct error *err)
{
    char path[4096];

    if (conf_file && conf_file[0])
        snprintf(path, sizeof path, "%s", conf_file);
    else
        snprintf(path, sizeof path, "%s/.nccl.conf", home ? home : "");
    if (((conf_file && conf_file[0]) || home) && read_conf(givens, path, err) < 0)
        return -1;
    return read_conf(givens, "/etc/nccl.conf", err);
}
