#include "srun-plugin/fabric/fabric.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "srun-plugin/fabric/fabric_profile.h"
#include "srun-plugin/node/sysfs.h"

#define PROFILE_MOST (1 << 18) /* bytes */
#define CONF_MOST    (1 << 16) /* of nccl.conf */

struct fabric *fabric_create(struct error *err)
{
    return error_calloc(1, sizeof(struct fabric), err);
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

int fabric_add_text(struct fabric *fabric, enum fabric_layer layer, const char *text, const char *file,
                    struct error *err)
{
    struct fabric_profile *profile = fabric_profile_read(layer, text, file, err);

    for (size_t i = 0; profile && i < fabric->count; i++) {
        const struct fabric_profile *other = fabric->profiles[i];

        if (other->layer == layer && strcmp(other->name, profile->name) == 0) {
            error_set(err, CODE_CONFIG, "%.300s:1: the name \"%s\" is already used by %.300s; choose another", file,
                      profile->name, other->file);
            goto fail;
        }
    }
    if (profile && error_reserve(&fabric->profiles, &fabric->room, fabric->count, 1, sizeof profile, err) == 0) {
        fabric->profiles[fabric->count++] = profile;
        return 0;
    }
fail:
    fabric_profile_destroy(profile);
    return -1;
}

/* ---- directories ------------------------------------------------------------------------------------------------- */

static int is_profile(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && text_ends_with(entry->d_name, ".cfg");
}

static int add_file(struct fabric *fabric, enum fabric_layer layer, const char *directory, const char *name,
                    struct error *err)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    int status;

    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, name) >= sizeof path)
        return error_set(err, CODE_CONFIG, "%.300s: the path is too long", name);
    if (!(text = text_load(path, PROFILE_MOST, &bytes, err)))
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

        if (!text_begins_with(name, absent) && add_file(fabric, layer, path, name, &err) == 0)
            added++;
        else if (!text_begins_with(name, absent))
            complain(&err, arg);
        free(entries[i]);
    }
    free(entries);
    return added;
}

bool fabric_find_file(const char *name, void *arg)
{
    return sysfs_has_file("/", name, arg);
}

/* ---- variables set by files -------------------------------------------------------------------------------------- */

int file_variables_add(struct file_variables *variables, const char *name, const char *value, int line,
                       struct error *err)
{
    struct file_variable *items, given;

    if (variables->count == FILE_VARIABLES_MOST)
        return error_set(err, CODE_CONFIG, "more than %d variables; remove some", FILE_VARIABLES_MOST);
    if (!(items = realloc(variables->items, (variables->count + 1) * sizeof *items)))
        return error_errno(err, CODE_IO, "no memory for %s", name);
    variables->items = items;
    given = (struct file_variable){strdup(name), strdup(value), line};
    if (given.name && given.value) {
        items[variables->count++] = given;
        return 0;
    }
    free(given.name);
    free(given.value);
    return error_set(err, CODE_IO, "no memory for %s", name);
}

void file_variables_clear(struct file_variables *variables)
{
    for (size_t i = 0; i < variables->count; i++) {
        free(variables->items[i].name);
        free(variables->items[i].value);
    }
    free(variables->items);
    *variables = (struct file_variables){0};
}

int fabric_conf_parse(struct file_variables *variables, const char *text, struct error *err)
{
    char *copy = strdup(text), *line;
    int status = copy ? 0 : error_errno(err, CODE_IO, "no memory for nccl.conf");

    for (char *rest = copy; status == 0 && (line = strsep(&rest, "\n"));) {
        size_t name = text_name_length(line);

        if (name > 0 && line[name] == '=') {
            line[name] = '\0';
            status = file_variables_add(variables, line, line + name + 1, 0, err);
        }
    }
    free(copy);
    return status;
}

static int read_conf(struct file_variables *variables, const char *path, struct error *err)
{
    char *text = text_read_file(path, CONF_MOST, NULL, NULL);
    int status = text ? fabric_conf_parse(variables, text, err) : 0;

    free(text);
    return status;
}

int fabric_conf_read(struct file_variables *variables, const char *conf_file, const char *home, struct error *err)
{
    char in_home[PATH_MAX];
    const char *path = conf_file && conf_file[0] ? conf_file : home ? in_home : NULL;

    snprintf(in_home, sizeof in_home, "%s/.nccl.conf", home ? home : "");
    if (path && read_conf(variables, path, err) < 0)
        return -1;
    return read_conf(variables, "/etc/nccl.conf", err);
}
