#include "trainer/data/text_names.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add(struct text_names *names, const char *name, struct error *err)
{
    if (names->count == names->room) {
        int room = names->room < INT_MAX / 4 ? 2 * names->room + 64 : 0;
        char **grown = room ? realloc(names->names, (size_t)room * sizeof *grown) : NULL;

        if (!grown)
            return error_errno(err, CODE_IO, "no memory for the names of %d texts", names->count + 1);
        names->names = grown;
        names->room = room;
    }
    names->names[names->count] = strdup(name);
    if (!names->names[names->count])
        return error_errno(err, CODE_IO, "no memory for the names of %d texts", names->count + 1);
    names->count++;
    return 0;
}

int text_names_add(struct text_names *names, char *const *more, int count, struct error *err)
{
    for (int i = 0; i < count; i++)
        if (add(names, more[i], err) < 0)
            return -1;
    return 0;
}

int text_names_read(struct text_names *names, const char *list, struct error *err)
{
    FILE *file = strcmp(list, "-") == 0 ? stdin : fopen(list, "re");
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    int result = 0;

    if (!file)
        return error_errno(err, CODE_DATA, "cannot read %s", list);
    while (result == 0 && (length = getline(&line, &size, file)) > 0) {
        if (memchr(line, '\0', (size_t)length)) {
            result =
                error_set(err, CODE_DATA, "%s: a zero byte; names must be one a line (of find, without -print0)", list);
            break;
        }
        line[strcspn(line, "\n")] = '\0';
        if (*line)
            result = add(names, line, err);
    }
    if (result == 0 && ferror(file))
        result = error_errno(err, CODE_IO, "cannot read %s", list);
    free(line);
    if (file != stdin)
        fclose(file);
    return result;
}

void text_names_destroy(struct text_names *names)
{
    for (int i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    *names = (struct text_names){0};
}
