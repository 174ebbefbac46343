/* What files have set: the job file's variables, and NCCL's own configuration. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/fabric.h"

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
    error_errno(err, CODE_IO, "no memory for %s", name);
    free(given.name);
    free(given.value);
    free(given.source);
    return -1;
}

void fabric_givens_clear(struct fabric_givens *givens)
{
    for (size_t i = 0; i < givens->count; i++) {
        free(givens->items[i].name);
        free(givens->items[i].value);
        free(givens->items[i].source);
    }
    free(givens->items);
    *givens = (struct fabric_givens){0};
}

/* Length of the variable's name at the beginning of a line; 0 where there is none that could be set. */
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
    FILE *file = fopen(path, "re");
    char text[65536];
    size_t size;

    if (!file)
        return 0;
    size = fread(text, 1, sizeof text - 1, file);
    text[size] = '\0';
    fclose(file);
    return fabric_conf_parse(givens, text, "nccl.conf", err);
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
