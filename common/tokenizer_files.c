/* tokenizer_files.c - which files a tokenizer has, and a copy of them. */
#include "config.h"

#include "common/tokenizer_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
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

static int find_in_directory(const char *path, struct tokenizer_files *files, struct error *err)
{
    static const char *const names[] = {"tokenizer.json", "", "vocab.json", "encoder.json", "vocab.txt"};
    char file[PATH_MAX], model[NAME_MAX + 1] = "";
    int models = find_models(path, model);

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *name = *names[i] ? names[i] : model;

        if (!*name)
            continue;
        if (snprintf(file, sizeof file, "%s/%s", path, name) >= PATH_MAX)
            return error_set(err, CODE_DATA, "%.100s...: the path is too long", path);
        if (name == model && models > 1)
            return error_set(err, CODE_DATA, "%s: has %d files *.model: give one of them", path, models);
        if (access(file, F_OK) == 0)
            return find_by_name(file, files, err);
    }
    return error_set(
        err, CODE_DATA,
        "%s: no tokenizer: expected tokenizer.json, *.model, vocab.json and merges.txt, encoder.json and vocab.bpe, "
        "or vocab.txt",
        path);
}

int tokenizer_find_files(const char *path, struct tokenizer_files *files, struct error *err)
{
    struct stat info;

    *files = (struct tokenizer_files){.layout = LAYOUT_BYTES};
    if (strcmp(path, "bytes") == 0)
        return 0;
    if (stat(path, &info) < 0)
        return error_errno(err, CODE_IO, "%s", path);
    return S_ISDIR(info.st_mode) ? find_in_directory(path, files, err) : find_by_name(path, files, err);
}

int tokenizer_neighbour(const char *path, const char *name, char file[PATH_MAX])
{
    const char *slash = strrchr(path, '/');

    if (snprintf(file, PATH_MAX, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name) >= PATH_MAX)
        return -1;
    return access(file, F_OK);
}

/* ---- copying ----------------------------------------------------------------------------------------------------- */

/* The names in a copy: each has some of them. */
static const char *const saved_names[] = {"tokenizer.json", "tokenizer.model", "vocab.json",    "merges.txt",
                                          "vocab.txt",      TOKENIZER_MAP,     TOKENIZER_CONFIG};
#define SAVED_NAMES ((int)(sizeof saved_names / sizeof saved_names[0]))

/* The index of the first file of a layout. */
static const int first_name[] = {
    [LAYOUT_JSON] = 0,
    [LAYOUT_MODEL] = 1,
    [LAYOUT_PAIR] = 2,
    [LAYOUT_LINES] = 4,
};

/* What a copy has under each name: NULL for no file. */
struct saved_files {
    char *bytes[SAVED_NAMES];
    size_t sizes[SAVED_NAMES];
};

static void free_saved(struct saved_files *saved)
{
    for (int i = 0; i < SAVED_NAMES; i++)
        free(saved->bytes[i]);
}

static int read_saved(struct saved_files *saved, int name, const char *path, struct error *err)
{
    saved->bytes[name] = text_read_file(path, TOKENIZER_FILE_MOST, &saved->sizes[name], err);
    return saved->bytes[name] ? 0 : -1;
}

static int read_sources(struct saved_files *saved, const struct tokenizer_files *files, struct error *err)
{
    char neighbour[PATH_MAX];

    if (files->layout == LAYOUT_BYTES)
        return 0;
    for (int i = 0; i < 2; i++)
        if (*files->paths[i] && read_saved(saved, first_name[files->layout] + i, files->paths[i], err) < 0)
            return -1;
    for (int i = SAVED_NAMES - 2; i < SAVED_NAMES; i++)
        if (tokenizer_neighbour(files->paths[0], saved_names[i], neighbour) == 0 &&
            read_saved(saved, i, neighbour, err) < 0)
            return -1;
    return 0;
}

/* Whether the folder has these files and no other of a tokenizer. */
static bool has_saved(const struct saved_files *saved, const char *dir)
{
    bool same = true;

    for (int i = 0; i < SAVED_NAMES && same; i++) {
        char path[PATH_MAX], *bytes;
        size_t size = 0;

        if (snprintf(path, sizeof path, "%s/%s", dir, saved_names[i]) >= PATH_MAX)
            return false;
        bytes = text_read_file(path, TOKENIZER_FILE_MOST, &size, NULL);
        same = !bytes == !saved->bytes[i] &&
               (!bytes || (size == saved->sizes[i] && memcmp(bytes, saved->bytes[i], size) == 0));
        free(bytes);
    }
    return same;
}

/* Refuses a folder with files that are not of a copy: replacing it would lose them. */
static int refuse_others(const char *dir, struct error *err)
{
    DIR *stream = opendir(dir);
    const struct dirent *entry;
    int result = 0;

    if (!stream)
        return errno == ENOENT ? 0 : error_errno(err, CODE_IO, "cannot read %s", dir);
    while (result == 0 && (entry = readdir(stream))) {
        bool known = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;

        for (int i = 0; i < SAVED_NAMES; i++)
            known = known || strcmp(entry->d_name, saved_names[i]) == 0;
        if (!known)
            result = error_set(err, CODE_USAGE,
                               "%s has %s, which is not a file of a saved tokenizer: move it, or choose another name",
                               dir, entry->d_name);
    }
    closedir(stream);
    return result;
}

/* Removes a copy. There may be none. */
static int remove_saved(const char *dir, struct error *err)
{
    char path[PATH_MAX];

    for (int i = 0; i < SAVED_NAMES; i++)
        if (snprintf(path, sizeof path, "%s/%s", dir, saved_names[i]) < PATH_MAX)
            unlink(path);
    return rmdir(dir) == 0 || errno == ENOENT ? 0 : error_errno(err, CODE_IO, "cannot remove %s", dir);
}

static int write_synced(const char *path, const char *bytes, size_t size, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), saved;
    bool good = fd >= 0 && io_write_all(fd, bytes, size) == 0 && fsync(fd) == 0;

    saved = errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    return good ? 0 : error_errno(err, CODE_IO, "cannot write %s", path);
}

static int write_files(const struct saved_files *saved, const char *dir, struct error *err)
{
    char path[PATH_MAX];

    for (int i = 0; i < SAVED_NAMES; i++) {
        if (set_path(path, err, snprintf(path, sizeof path, "%s/%s", dir, saved_names[i])) < 0 ||
            (saved->bytes[i] && write_synced(path, saved->bytes[i], saved->sizes[i], err) < 0))
            return -1;
    }
    return 0;
}

static int write_saved(const struct saved_files *saved, const char *dir, struct error *err)
{
    char path[PATH_MAX];

    if (remove_saved(dir, err) < 0)
        return -1;
    if (mkdir(dir, 0777) < 0)
        return error_errno(err, CODE_IO, "cannot create %s", dir);
    if (write_files(saved, dir, err) < 0 || set_path(path, err, snprintf(path, sizeof path, "%s/.", dir)) < 0)
        return -1;
    return io_sync_parent(path) == 0 ? 0 : error_errno(err, CODE_IO, "cannot sync %s", dir);
}

static int replace_folder(const char *temporary, const char *dir, struct error *err)
{
    if (rename(temporary, dir) == 0)
        return 0;
    if ((errno == ENOTEMPTY || errno == EEXIST) && renameat2(AT_FDCWD, temporary, AT_FDCWD, dir, RENAME_EXCHANGE) == 0)
        return remove_saved(temporary, err);
    if (errno == EINVAL || errno == ENOSYS) { /* a file system without exchange */
        if (remove_saved(dir, err) < 0)
            return -1;
        if (rename(temporary, dir) == 0)
            return 0;
    }
    return error_errno(err, CODE_IO, "cannot rename %s to %s", temporary, dir);
}

int tokenizer_save(const char *path, const char *dir, struct error *err)
{
    char name[PATH_MAX], temporary[PATH_MAX];
    struct tokenizer_files files;
    struct saved_files saved = {0};
    int length = (int)strlen(dir), result = -1;

    for (; length > 1 && dir[length - 1] == '/'; length--)
        ;
    if (snprintf(name, sizeof name, "%.*s", length, dir) >= PATH_MAX ||
        snprintf(temporary, sizeof temporary, "%.*s.tmp", length, dir) >= PATH_MAX)
        return error_set(err, CODE_USAGE, "%.100s...: the path is too long", dir);
    if (tokenizer_find_files(path, &files, err) < 0)
        return -1;
    if (files.layout == LAYOUT_BYTES)
        return refuse_others(name, err) < 0 ? -1 : remove_saved(name, err);
    if (read_sources(&saved, &files, err) < 0)
        goto done;
    if (has_saved(&saved, name)) {
        result = 0;
        goto done;
    }
    if (refuse_others(name, err) < 0 || refuse_others(temporary, err) < 0)
        goto done;
    if (write_saved(&saved, temporary, err) < 0 || replace_folder(temporary, name, err) < 0) {
        remove_saved(temporary, NULL);
        goto done;
    }
    result = io_sync_parent(name) == 0 ? 0 : error_errno(err, CODE_IO, "cannot sync the directory of %s", name);
done:
    free_saved(&saved);
    return result;
}

int tokenizer_is_saved(const char *path, const char *dir, bool *same, struct error *err)
{
    struct tokenizer_files files;
    struct saved_files saved = {0};
    int result = -1;

    if (tokenizer_find_files(path, &files, err) == 0 && read_sources(&saved, &files, err) == 0) {
        *same = has_saved(&saved, dir);
        result = 0;
    }
    free_saved(&saved);
    return result;
}

int tokenizer_copy(const char *path, const char *dir, struct error *err)
{
    struct tokenizer_files files;
    struct saved_files saved = {0};
    int result = -1;

    if (tokenizer_find_files(path, &files, err) == 0 && read_sources(&saved, &files, err) == 0)
        result = write_files(&saved, dir, err);
    free_saved(&saved);
    return result;
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

const char *const tokenizer_special_keys[SPECIAL_TOKENS] = {"eos_token",  "bos_token", "pad_token", "unk_token",
                                                            "mask_token", "cls_token", "sep_token"};

const char *const tokenizer_special_names[SPECIAL_TOKENS] = {
    "<|endoftext|> <|end_of_text|> </s> [SEP]",
    "<|begin_of_text|> <s> [CLS]",
    "<pad> [PAD]",
    "<unk> [UNK]",
    "<mask> [MASK]",
    "[CLS] <s>",
    "[SEP] </s>",
};
