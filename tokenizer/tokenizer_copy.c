/* tokenizer_copy.c - a copy of a tokenizer's files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tokenizer/tokenizer_files.h"
#include "common/io.h"
#include "common/text.h"

/* The names in a copy, as fnmatch has them. The first ones are what ids are read from. */
#define VOCABULARIES 5
static const char *const patterns[] = {
    "tokenizer.json",
    "*.model",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    TOKENIZER_MAP,
    TOKENIZER_CONFIG,
    "added_tokens.json",
    "normalizer.json",
    "tokenization_*.py",
    "chat_template.jinja",
    "chat_template.json",
    "chat_templates/*.jinja",
    "additional_chat_templates/*.jinja",
    "generation_config.json", /* of the model: all ids that end a text */
};
static const char *const folders[] = {"", "chat_templates/", "additional_chat_templates/"};

/* Whether a name is that of a tokenizer's file; `first` VOCABULARIES: and not one that ids are read from. */
static bool is_tokenizers(const char *name, size_t first)
{
    for (size_t i = first; i < sizeof patterns / sizeof *patterns; i++)
        if (fnmatch(patterns[i], name, FNM_PATHNAME) == 0)
            return true;
    return false;
}

/* The names of all files in `dir`, to be freed also after a failure. There may be none. */
static int list_files(const char *dir, char ***names, size_t *count, struct error *err)
{
    bool good = true;

    *names = NULL;
    *count = 0;
    for (int i = 0; i < 3 && good; i++) {
        char path[TOKENIZER_PATH];
        const struct dirent *entry;
        DIR *stream;

        snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
        stream = opendir(path);
        if (!stream && errno != ENOENT)
            return error_errno(err, CODE_IO, "cannot read %s", path);
        while (good && stream && (entry = readdir(stream)))
            good = text_add_line(names, count, "%s%s", folders[i], entry->d_name);
        if (stream)
            closedir(stream);
    }
    return good ? 0 : error_errno(err, CODE_IO, "cannot list %s", dir);
}

#define SAVED_MOST 64

/* What a copy has. */
struct saved_files {
    struct saved_file {
        char name[NAME_MAX + 32];
        char *bytes;
        size_t size;
    } files[SAVED_MOST];
    int count;
};

static struct saved_file *find_saved(struct saved_files *saved, const char *name)
{
    for (int i = 0; i < saved->count; i++)
        if (strcmp(saved->files[i].name, name) == 0)
            return &saved->files[i];
    return NULL;
}

/* Reads the file at `path`, which a copy has under `name`. Of two, the first counts. */
static int read_saved(struct saved_files *saved, const char *name, const char *path, struct error *err)
{
    struct saved_file *file = &saved->files[saved->count];

    if (find_saved(saved, name))
        return 0;
    if (saved->count == SAVED_MOST)
        return error_set(err, CODE_DATA, "%s: more than %d files belong to the tokenizer", path, SAVED_MOST);
    snprintf(file->name, sizeof file->name, "%s", name);
    file->bytes = text_read_file(path, TOKENIZER_FILE_MOST, &file->size, err);
    saved->count += file->bytes != NULL;
    return file->bytes ? 0 : -1;
}

/* Hugging Face's name of a vocabulary. A class of transformers expects its SentencePiece model under its own name. */
static const char *name_vocabulary(const struct tokenizer_files *files, int number)
{
    static const char *const names[][2] = {[LAYOUT_JSON] = {"tokenizer.json"},
                                           [LAYOUT_RANKS] = {"tokenizer.model"},
                                           [LAYOUT_PAIR] = {"vocab.json", "merges.txt"},
                                           [LAYOUT_LINES] = {"vocab.txt"}};
    static const char *const models[] = {"spiece.model", "sentencepiece.bpe.model", "sentencepiece.model", "spm.model"};
    const char *slash = strrchr(files->paths[0], '/'), *name = slash ? slash + 1 : files->paths[0];

    if (files->layout != LAYOUT_MODEL)
        return names[files->layout][number];
    for (int i = 0; i < 4; i++)
        if (strcmp(name, models[i]) == 0)
            return models[i];
    return "tokenizer.model";
}

/* The files that belong to a tokenizer whose vocabulary is at `path`. */
static int read_others(struct saved_files *saved, const char *path, struct error *err)
{
    char dir[TOKENIZER_PATH], file[PATH_MAX], **names;
    size_t count;
    int result;

    snprintf(dir, sizeof dir, "%.*s.", strrchr(path, '/') ? (int)(strrchr(path, '/') + 1 - path) : 0, path);
    result = list_files(dir, &names, &count, err);
    for (size_t i = 0; i < count && result == 0; i++)
        if (is_tokenizers(names[i], VOCABULARIES) && tokenizer_neighbour(path, names[i], file) == 0)
            result = read_saved(saved, names[i], file, err);
    text_free_lines(names, count);
    return result;
}

static int read_sources(struct saved_files *saved, const char *path, struct error *err)
{
    struct tokenizer_files files;

    saved->count = 0;
    if (tokenizer_find_files(path, 0, &files, err) < 0)
        return -1;
    if (files.layout != LAYOUT_BYTES && read_others(saved, files.paths[0], err) < 0)
        return -1;
    for (int i = 0; tokenizer_find_files(path, i, &files, NULL) == 0; i++)
        for (int k = 0; k < 2 && *files.paths[k]; k++)
            if (read_saved(saved, name_vocabulary(&files, k), files.paths[k], err) < 0)
                return -1;
    return 0;
}

/* Whether the folder has these files and no other of a tokenizer. "bytes" has no folder. */
static bool has_saved(struct saved_files *saved, const char *dir)
{
    char path[TOKENIZER_PATH], **names;
    size_t count;
    bool same = list_files(dir, &names, &count, NULL) == 0 && (saved->count > 0 || access(dir, F_OK) < 0);
    int found = 0;

    for (size_t i = 0; i < count && same; i++) {
        const struct saved_file *file = find_saved(saved, names[i]);
        size_t size = 0;
        char *bytes;

        if (!is_tokenizers(names[i], 0))
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        bytes = file ? text_read_file(path, TOKENIZER_FILE_MOST, &size, NULL) : NULL;
        same = bytes && size == file->size && memcmp(bytes, file->bytes, size) == 0;
        found += same;
        free(bytes);
    }
    text_free_lines(names, count);
    return same && found == saved->count;
}

int tokenizer_remove(const char *dir, struct error *err)
{
    char path[TOKENIZER_PATH], **names;
    size_t count;
    int result = list_files(dir, &names, &count, err);

    for (size_t i = 0; i < count && result == 0; i++)
        if (is_tokenizers(names[i], 0)) {
            snprintf(path, sizeof path, "%s/%s", dir, names[i]);
            unlink(path);
        }
    text_free_lines(names, count);
    for (int i = 2; i >= 0 && result == 0; i--) {
        snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
        if (rmdir(path) < 0 && errno != ENOENT)
            result = error_errno(err, CODE_IO, "cannot remove %s", path);
    }
    return result;
}

static int write_synced(const char *path, const char *bytes, size_t size, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), result = 0;

    if (fd < 0 || io_write_all(fd, bytes, size) < 0 || fsync(fd) < 0)
        result = error_errno(err, CODE_IO, "cannot write %s", path);
    if (fd >= 0)
        close(fd);
    return result;
}

/* A file in a folder of templates makes the folder. */
static int write_files(struct saved_files *saved, const char *dir, struct error *err)
{
    char path[TOKENIZER_PATH];

    for (int i = 0; i < saved->count; i++) {
        const struct saved_file *file = &saved->files[i];
        size_t folder = strchr(file->name, '/') ? strcspn(file->name, "/") : 0;

        snprintf(path, sizeof path, "%s/%.*s", dir, (int)folder, file->name);
        if (folder > 0 && mkdir(path, 0777) < 0 && errno != EEXIST)
            return error_errno(err, CODE_IO, "cannot create %s", path);
        snprintf(path, sizeof path, "%s/%s", dir, file->name);
        if (write_synced(path, file->bytes, file->size, err) < 0)
            return -1;
        if (folder > 0 && io_sync_parent(path) < 0)
            return error_errno(err, CODE_IO, "cannot sync the directory of %s", path);
    }
    return 0;
}

/* Makes the folder `name` of one beside it, which no one uses while it is incomplete. */
static int make_folder(struct saved_files *saved, const char *name, struct error *err)
{
    char temporary[TOKENIZER_PATH], inside[TOKENIZER_PATH];

    snprintf(temporary, sizeof temporary, "%s.tmp", name);
    snprintf(inside, sizeof inside, "%s.tmp/.", name);
    if (tokenizer_remove(temporary, err) < 0)
        return -1;
    if (mkdir(temporary, 0777) < 0)
        return error_errno(err, CODE_IO, "cannot create %s", temporary);
    if (write_files(saved, temporary, err) == 0) {
        if (io_sync_parent(inside) == 0 && rename(temporary, name) == 0 && io_sync_parent(name) == 0)
            return 0;
        if (errno == ENOTEMPTY || errno == EEXIST)
            error_set(err, CODE_USAGE, "%s is another tokenizer: move it, or choose another name", name);
        else
            error_errno(err, CODE_IO, "cannot make %s", name);
    }
    tokenizer_remove(temporary, NULL);
    return -1;
}

static int save_files(struct saved_files *saved, const char *dir, struct error *err)
{
    char name[TOKENIZER_PATH - 8]; /* room for .tmp */
    size_t length = strlen(dir);

    while (length > 1 && dir[length - 1] == '/')
        length--;
    snprintf(name, sizeof name, "%.*s", (int)length, dir);
    return has_saved(saved, name) ? 0 : make_folder(saved, name, err);
}

/* Calls `use` with the files of a tokenizer. */
static int use_sources(const char *path, const char *dir,
                       int (*use)(struct saved_files *saved, const char *dir, struct error *err), struct error *err)
{
    struct saved_files saved;
    int result = read_sources(&saved, path, err);

    if (result == 0)
        result = use(&saved, dir, err);
    for (int i = 0; i < saved.count; i++)
        free(saved.files[i].bytes);
    return result;
}

int tokenizer_save(const char *path, const char *dir, struct error *err)
{
    return use_sources(path, dir, save_files, err);
}

int tokenizer_save_model(char *model, size_t bytes, const char *dir, struct error *err)
{
    struct saved_files saved = {{{"tokenizer.model", model, bytes}}, 1};

    return save_files(&saved, dir, err);
}

int tokenizer_copy(const char *path, const char *dir, struct error *err)
{
    return use_sources(path, dir, write_files, err);
}
