/* tokenizer_files.c - which files a tokenizer has. */
#include "tokenizer/tokenizer_files.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"

/* How files are named, the pairs of byte-level BPE first: such a file may have a prefix. */
static const struct {
    enum layout layout;
    const char *ends[2];
} kinds[] = {
    {LAYOUT_PAIR, {"vocab.json", "merges.txt"}},
    {LAYOUT_PAIR, {"encoder.json", "vocab.bpe"}},
    {LAYOUT_JSON, {".json"}},
    {LAYOUT_MODEL, {".model"}},
    {LAYOUT_LINES, {".txt"}},
};

/* Whether a *.model is tiktoken's: a line is a token in base64, a blank and its rank. */
static bool has_ranks(const char *path)
{
    FILE *file = fopen(path, "re");
    int length = 0; /* stays 0 if the line is another one */

    if (file && fscanf(file, "%*[A-Za-z0-9+/=]%*1[ ]%*[0-9]%*1[\r\n]%n", &length) != 0)
        length = 0;
    if (file)
        fclose(file);
    return length > 0;
}

static int find_by_name(const char *path, struct tokenizer_files *files, struct error *err)
{
    *files = (struct tokenizer_files){0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int k = 0; k < 2 && kinds[i].ends[k]; k++)
            if (text_ends_with(path, kinds[i].ends[k])) {
                int prefix = (int)(strlen(path) - strlen(kinds[i].ends[k]));

                files->layout = kinds[i].layout;
                for (int file = 0; file < 2 && kinds[i].ends[file]; file++)
                    snprintf(files->paths[file], TOKENIZER_PATH, "%.*s%s", prefix, path, kinds[i].ends[file]);
                if (files->layout == LAYOUT_MODEL && has_ranks(path))
                    files->layout = LAYOUT_RANKS;
                return 0;
            }
    return error_set(
        err, CODE_DATA,
        "%s: not a tokenizer's file: expected tokenizer.json, vocab.json, merges.txt, encoder.json, vocab.bpe, "
        "vocab.txt or *.model",
        path);
}

/* The names of a directory's *.model files: their number, and the first in `name`. */
static int find_models(const char *path, char name[NAME_MAX + 1])
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    int count = 0;

    while (dir && (entry = readdir(dir)))
        if (text_ends_with(entry->d_name, ".model") && count++ == 0)
            snprintf(name, NAME_MAX + 1, "%s", entry->d_name);
    if (dir)
        closedir(dir);
    return count;
}

static int find_in_directory(const char *path, int index, struct tokenizer_files *files, struct error *err)
{
    static const char *const names[] = {"tokenizer.json", "", "vocab.json", "encoder.json", "vocab.txt"};
    char file[TOKENIZER_PATH], model[NAME_MAX + 1] = "";
    int models = find_models(path, model), found = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *name = *names[i] ? names[i] : model;

        snprintf(file, sizeof file, "%s/%s", path, name);
        if (!*name || access(file, F_OK) < 0 || (name == model && models > 1 && found > 0))
            continue;
        if (name == model && models > 1)
            return error_set(err, CODE_DATA, "%s: has %d files *.model: give one of them", path, models);
        find_by_name(file, files, NULL);
        if (found > 0 && files->layout == LAYOUT_PAIR && access(files->paths[1], F_OK) < 0)
            continue;
        if (found++ == index)
            return 0;
    }
    return error_set(
        err, CODE_DATA,
        "%s: no tokenizer: expected tokenizer.json, *.model, vocab.json and merges.txt, encoder.json and vocab.bpe, "
        "or vocab.txt",
        path);
}

int tokenizer_find_files(const char *path, int index, struct tokenizer_files *files, struct error *err)
{
    struct stat info;

    *files = (struct tokenizer_files){.layout = LAYOUT_BYTES};
    if (strcmp(path, "bytes") == 0)
        return index == 0 ? 0 : -1;
    if (stat(path, &info) < 0)
        return error_errno(err, CODE_IO, "%s", path);
    if (S_ISDIR(info.st_mode))
        return find_in_directory(path, index, files, err);
    return index == 0 ? find_by_name(path, files, err) : -1;
}

int tokenizer_neighbour(const char *path, const char *name, char file[PATH_MAX])
{
    const char *slash = strrchr(path, '/');

    if (snprintf(file, PATH_MAX, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name) >= PATH_MAX)
        return -1;
    return access(file, F_OK);
}
