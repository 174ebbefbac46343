/* tokenizer_files.c - which files a tokenizer has. */
#include "tokenizer/tokenizer_files.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* The pairs of byte-level BPE. Each may have a prefix, as in Megatron-LM's gpt2-vocab.json and gpt2-merges.txt. */
static const char *const pairs[2][2] = {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}};

static int set_path(char path[PATH_MAX], struct error *err, int length)
{
    return length < PATH_MAX ? 0 : error_set(err, CODE_DATA, "%.100s...: the path is too long", path);
}

/* True if the file is of a pair: names both. */
static bool find_pair(const char *path, struct tokenizer_files *files, struct error *err, int *result)
{
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            if (text_ends_with(path, pairs[i][k])) {
                int prefix = (int)(strlen(path) - strlen(pairs[i][k]));

                files->layout = LAYOUT_PAIR;
                for (int file = 0; file < 2 && *result == 0; file++)
                    *result = set_path(files->paths[file], err,
                                       snprintf(files->paths[file], PATH_MAX, "%.*s%s", prefix, path, pairs[i][file]));
                return true;
            }
    return false;
}

static int find_by_name(const char *path, struct tokenizer_files *files, struct error *err)
{
    static const struct {
        const char *end;
        enum layout layout;
    } ends[] = {{".json", LAYOUT_JSON}, {".model", LAYOUT_MODEL}, {".txt", LAYOUT_LINES}};
    int result = 0;

    *files = (struct tokenizer_files){0};
    if (find_pair(path, files, err, &result))
        return result;
    for (int i = 0; i < 3; i++)
        if (text_ends_with(path, ends[i].end)) {
            files->layout = ends[i].layout;
            return set_path(files->paths[0], err, snprintf(files->paths[0], PATH_MAX, "%s", path));
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
    char file[PATH_MAX], model[NAME_MAX + 1] = "";
    int models = find_models(path, model), found = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *name = *names[i] ? names[i] : model;

        if (!*name)
            continue;
        if (snprintf(file, sizeof file, "%s/%s", path, name) >= PATH_MAX)
            return error_set(err, CODE_DATA, "%.100s...: the path is too long", path);
        if (access(file, F_OK) < 0)
            continue;
        if (name == model && models > 1) {
            if (found == 0)
                return error_set(err, CODE_DATA, "%s: has %d files *.model: give one of them", path, models);
            continue;
        }
        if (find_by_name(file, files, err) < 0)
            return -1;
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
