/* stage_dir.c - the directories of a stage, their marks and locks, target.json and status.json. */
#include "config.h"

#include "ckpt/stage/stage_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/write/attempt.h"

int ckpt_stage_path(char *path, size_t size, const char *root, const char *job, const char *run, struct error *err)
{
    if (!name_is_attempt(job) || job[0] == '.')
        return error_set(err, CODE_USAGE, "job \"%.100s\": must be 1 to %d letters, digits, '.', '_' and '-'", job,
                         CKPT_ATTEMPT_SIZE - 1);
    if (snprintf(path, size, "%s/muster-%u-%s-%s", root, (unsigned)geteuid(), job, run) >= (int)size)
        return error_set(err, CODE_USAGE, "%.100s...: is too long for a staging directory", path);
    return 0;
}

int stage_directory_open(struct directory *stage, const char *path, struct error *err)
{
    bool opened = directory_open_made(stage, NULL, path, err) == 0;
    struct stat info = {.st_uid = geteuid()};
    int saved = opened ? EPERM : errno;

    if ((opened ? fstat(stage->fd, &info) : lstat(path, &info)) == 0 && opened && info.st_uid == geteuid() &&
        (info.st_mode & 07777) == 0700)
        return 0;
    if (opened || info.st_uid != geteuid()) /* in a public root, another user who guesses the name can make it */
        error_set(err, CODE_IO,
                  "%s: belongs to user %u; it must be this user's directory with mode 0700: others could change the "
                  "staged state",
                  path, (unsigned)info.st_uid);
    directory_close(stage);
    errno = saved;
    return -1;
}

bool stage_is_removed(const struct directory *stage)
{
    struct stat info;

    return fstat(stage->fd, &info) == 0 && info.st_nlink == 0;
}

int stage_directory_check(const struct directory *stage, struct error *err)
{
    char real[PATH_MAX], name[32];

    snprintf(name, sizeof name, "/muster-%u-", (unsigned)geteuid());
    if (file_exists(stage, STAGE_USERS) || stage_is_removed(stage) ||
        (realpath(stage->path, real) && strncmp(strrchr(real, '/'), name, strlen(name)) == 0))
        return 0;
    return error_set(err, CODE_USAGE, "%s: is not a staging directory: its name does not begin with muster-%u-",
                     stage->path, (unsigned)geteuid());
}

/* As the text of a symbolic link: it names the release too. */
#define FORMAT 3

int stage_mark_format(const struct directory *stage, struct error *err)
{
    char text[64];

    snprintf(text, sizeof text, "%d " PACKAGE_VERSION, FORMAT);
    if (symlinkat(text, stage->fd, STAGE_FORMAT) == 0 || errno == EEXIST) /* another rank's */
        return 0;
    return file_write_failed(stage, STAGE_FORMAT, 0, err);
}

bool stage_has_saves(const struct directory *stage)
{
    struct listing saves = listing_open(stage);
    struct attempt save;
    bool found = attempt_next(&saves, &save);

    return listing_close(&saves, NULL) < 0 || found;
}

int stage_check_format(const struct directory *stage, struct error *err)
{
    char text[64], release[33] = "of another release";
    int format = 0;

    if (stage_read_mark(stage, STAGE_FORMAT, text, sizeof text))
        sscanf(text, "%d %32s", &format, release);
    else if (!stage_has_saves(stage)) /* who was making the stage, or removing it, has died */
        return 0;
    if (format == FORMAT)
        return 0;
    return error_set(err, CODE_CONFIG,
                     "%s: stage format %d is unknown (made by muster %s; this is muster " PACKAGE_VERSION
                     ", which knows format %d)",
                     stage->path, format, release, FORMAT);
}

#define MAX_TARGET ((size_t)64 << 10)

static const struct json_field target_fields[] = {
    {"dir", FIELD_TEXT, JSON_PLACE(struct staged_save, dir), false},
    {"step", FIELD_COUNT, JSON_PLACE(struct staged_save, step), false},
    {"attempt", FIELD_TEXT, JSON_PLACE(struct staged_save, attempt), false},
    {"shards", FIELD_INT, JSON_PLACE(struct staged_save, shards), false},
    {"local", FIELD_INT, JSON_PLACE(struct staged_save, local), false},
    {"keep", FIELD_INT, JSON_PLACE(struct staged_save, keep), false},
    {"keep_every", FIELD_COUNT, JSON_PLACE(struct staged_save, keep_every), false},
    {"started", FIELD_DOUBLE, JSON_PLACE(struct staged_save, started), false},
    {0},
};

static int target_write(const struct directory *staged, const struct staged_save *save, struct error *err)
{
    json_t *json = json_write_fields(target_fields, save);

    if (json)
        return json_write_file(staged, STAGE_TARGET, json, JSON_COMPACT, err);
    return error_set(err, CODE_IO, "%s: checkpoint.dir must be UTF-8", staged->path);
}

static int target_parse(struct staged_save *save, json_t *json, struct error *err)
{
    if (json_read_fields(json, target_fields, save, err) < 0)
        return -1;
    if (save->shards < 1 || save->shards > CKPT_MAX_SHARDS || save->local < 1 || save->dir[0] != '/' ||
        save->started <= 0 || !name_is_attempt(save->attempt))
        return error_set(err, CODE_DATA, "values that no stage has");
    return 0;
}

/* file_write asks for mode 0666. A umask that denies reading denies entering directories, too. */
static mode_t read_umask(const struct directory *staged)
{
    struct stat info;
    mode_t masked;

    if (fstatat(staged->fd, STAGE_TARGET, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return 077;
    masked = ~info.st_mode & 0066;
    return masked | ((masked & 0044) >> 2);
}

static void target_read(struct staged_save *save, const struct directory *staged, struct error *err)
{
    json_t *json = json_read_file(staged, STAGE_TARGET, MAX_TARGET, err);

    if (json && target_parse(save, json, err) < 0)
        error_prefix(err, "%s/" STAGE_TARGET, staged->path);
    save->umask = read_umask(staged);
    json_decref(json);
}

int staged_make(struct directory *staged, const struct directory *stage, const struct staged_save *save,
                struct error *err)
{
    char name[FILE_NAME_SIZE], unique[FILE_NAME_SIZE + 64];
    struct directory made;
    int result;

    name_attempt(name, ATTEMPT_PARTIAL, save->step, save->attempt);
    if (directory_open(staged, stage, name, NULL) == 0)
        return 0;
    file_temporary_name(unique, sizeof unique, STAGE_SLOTS "/save");
    if (mkdirat(stage->fd, unique, 0700) < 0)
        return file_write_failed(stage, name, 0, err);
    result = directory_open(&made, stage, unique, err);
    if (result == 0) {
        result = target_write(&made, save, err);
        if (result == 0 && renameat(stage->fd, unique, stage->fd, name) < 0) { /* or another rank has made it */
            unlinkat(made.fd, STAGE_TARGET, 0);
            unlinkat(stage->fd, unique, AT_REMOVEDIR);
        }
        directory_close(&made);
    }
    return result < 0 ? -1 : directory_open(staged, stage, name, err);
}

/* Oldest first. */
static int compare_age(const void *left, const void *right)
{
    const struct staged *a = left, *b = right;

    if (a->save.started != b->save.started)
        return a->save.started < b->save.started ? -1 : 1;
    return (a->save.step > b->save.step) - (a->save.step < b->save.step);
}

static struct staged read_staged(const struct directory *stage, const struct attempt *attempt)
{
    struct staged staged = {0};
    struct directory directory;

    memcpy(staged.name, attempt->name, sizeof staged.name);
    if (directory_open(&directory, stage, attempt->name, &staged.unread) == 0) {
        target_read(&staged.save, &directory, &staged.unread);
        directory_close(&directory);
    }
    staged.save.step = attempt->step;
    memcpy(staged.save.attempt, attempt->attempt, sizeof staged.save.attempt);
    return staged;
}

int staged_list(const struct directory *stage, struct staged **saves, size_t *count, struct error *err)
{
    struct listing listing = listing_open(stage);
    struct attempt attempt;
    struct staged staged;

    *saves = NULL;
    *count = 0;
    while (*count < STAGED_MOST && attempt_next(&listing, &attempt)) {
        staged = read_staged(stage, &attempt);
        listing_keep(&listing, (void **)saves, count, &staged, sizeof staged);
    }
    if (*count)
        qsort(*saves, *count, sizeof staged, compare_age);
    return listing_close(&listing, err) < 0 ? -1 : *count == STAGED_MOST;
}

int staged_contents(const struct directory *staged, const char *within, struct contents *contents, struct error *err)
{
    struct directory directory;
    struct listing listing;
    const char *name;
    struct stat info;
    int shard, shards, result;

    memset(contents, 0, sizeof *contents);
    if (directory_open(&directory, staged, within, err) < 0)
        return errno == ENOENT ? 0 : -1;
    listing = listing_open(&directory);
    while ((name = listing_next(&listing))) {
        if (name_parse_shard(name, SHARD_PART, &shard, &shards))
            contents->staged++;
        else if (name_parse_shard(name, SHARD_DRAINED, &shard, &shards))
            contents->drained++;
        else if (name_parse_shard(name, SHARD_DATA, &shard, &shards) &&
                 fstatat(directory.fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
            contents->bytes += (uint64_t)info.st_size;
    }
    result = listing_close(&listing, err);
    directory_close(&directory);
    return result;
}

int stage_mark(const struct directory *directory, const char *mark, const char *text, struct error *err)
{
    char unique[FILE_NAME_SIZE];

    if (symlinkat(text, directory->fd, mark) == 0)
        return 0;
    file_temporary_name(unique, sizeof unique, mark);
    if (errno == EEXIST && symlinkat(text, directory->fd, unique) == 0 &&
        renameat(directory->fd, unique, directory->fd, mark) == 0)
        return 0;
    file_write_failed(directory, mark, 0, err);
    unlinkat(directory->fd, unique, 0);
    return -1;
}

bool stage_read_mark(const struct directory *directory, const char *mark, char *text, size_t size)
{
    ssize_t length = readlinkat(directory->fd, mark, text, size - 1);

    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

int stage_lock(const struct directory *stage, const char *name, bool shared)
{
    struct flock lock = {.l_type = shared ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(stage->fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) < 0) {
        int saved = errno == EACCES ? EAGAIN : errno;

        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

bool stage_is_locked(const struct directory *stage, const char *name)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(stage->fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    bool locked;

    if (fd < 0)
        return errno != ENOENT;
    locked = fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
    close(fd);
    return locked;
}

double stage_signed_at(const struct directory *stage)
{
    struct stat info;

    if (fstatat(stage->fd, STAGE_LOCK, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    return (double)info.st_mtim.tv_sec + (double)info.st_mtim.tv_nsec * 1e-9;
}

/* ---- status.json ------------------------------------------------------------------------------------------------- */

#define MAX_STATUS ((size_t)1 << 20)

static const char *const states[] = {"staging", "staged",    "draining",   "hanging",
                                     "drained", "committed", "superseded", "failed"};

const char *status_state_name(enum ckpt_save_state state)
{
    return states[state];
}

enum ckpt_save_state status_of(const struct contents *contents, int local)
{
    if (contents->staged + contents->drained < local)
        return CKPT_STAGING;
    return contents->staged > 0 ? CKPT_STAGED : CKPT_DRAINED;
}

static const struct json_field save_fields[] = {
    {"step", FIELD_COUNT, JSON_PLACE(struct ckpt_save_status, step), false},
    {"attempt", FIELD_TEXT, JSON_PLACE(struct ckpt_save_status, attempt), false},
    {"dir", FIELD_TEXT, JSON_PLACE(struct ckpt_save_status, dir), false},
    {"bytes_done", FIELD_COUNT, JSON_PLACE(struct ckpt_save_status, bytes_done), false},
    {"bytes_total", FIELD_COUNT, JSON_PLACE(struct ckpt_save_status, bytes_total), false},
    {"rate", FIELD_DOUBLE, JSON_PLACE(struct ckpt_save_status, rate), false},
    {"started", FIELD_DOUBLE, JSON_PLACE(struct ckpt_save_status, started), false},
    {"ended", FIELD_DOUBLE, JSON_PLACE(struct ckpt_save_status, ended), false},
    {"serial", FIELD_COUNT, JSON_PLACE(struct ckpt_save_status, serial), false},
    {"reason", FIELD_TEXT, JSON_PLACE(struct ckpt_save_status, reason), false},
    {"newest", FIELD_COUNT, JSON_PLACE(struct ckpt_save_status, newest), true},
    {0},
};

static const struct json_field status_fields[] = {
    {"pid", FIELD_INT, JSON_PLACE(struct status, pid), false},
    {"host", FIELD_TEXT, JSON_PLACE(struct status, host), false},
    {"updated", FIELD_DOUBLE, JSON_PLACE(struct status, updated), false},
    {0},
};

json_t *status_json(const struct status *status)
{
    json_t *array = json_array(), *json = json_write_fields(status_fields, status);

    for (size_t i = 0; i < status->count; i++) {
        json_t *staged = json_write_fields(save_fields, &status->saves[i]);

        json_object_set_new(staged, "state", json_string(states[status->saves[i].state]));
        json_array_append_new(array, staged);
    }
    json_object_set_new(json, "generations", array);
    return json;
}

int status_write(const struct status *status, const struct directory *stage, struct error *err)
{
    return json_write_file(stage, STATUS_NAME, status_json(status), JSON_INDENT(1), err);
}

static int decode_save(struct ckpt_save_status *g, json_t *json, struct error *err)
{
    char state[16];

    if (json_read_fields(json, save_fields, g, err) < 0 || json_get_string(json, "state", state, sizeof state, err) < 0)
        return -1;
    error_tame(g->dir); /* for people only: target.json has it for drainers */
    error_tame(g->reason);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(state, states[i]) == 0) {
            g->state = (enum ckpt_save_state)i;
            return 0;
        }
    return error_set(err, CODE_DATA, "\"state\" is \"%s\"", state);
}

static int decode_status(struct status *status, json_t *json, struct error *err)
{
    json_t *array;

    if (json_read_fields(json, status_fields, status, err) < 0 || json_get_array(json, "generations", &array, err) < 0)
        return -1;
    error_tame(status->host);
    for (size_t i = 0; i < json_array_size(array) && status->count < STATUS_MOST; i++)
        if (decode_save(&status->saves[status->count++], json_array_get(array, i), err) < 0)
            return -1;
    return 0;
}

int status_read(struct status *status, const struct directory *stage, struct error *err)
{
    json_t *json;
    int result;

    memset(status, 0, sizeof *status);
    if (!file_exists(stage, STATUS_NAME))
        return 0;
    json = json_read_file(stage, STATUS_NAME, MAX_STATUS, err);
    result = json ? decode_status(status, json, err) : -1;
    if (json && result < 0) {
        memset(status, 0, sizeof *status);
        error_prefix(err, "%s/" STATUS_NAME, stage->path);
    }
    json_decref(json);
    return result;
}

static bool has_save(const struct status *status, const struct staged_save *save)
{
    for (size_t i = 0; i < status->count; i++)
        if (status->saves[i].step == save->step && strcmp(status->saves[i].attempt, save->attempt) == 0)
            return true;
    return false;
}

void status_begin(struct ckpt_save_status *status, const struct staged_save *save)
{
    *status = (struct ckpt_save_status){.step = save->step, .started = save->started};
    memcpy(status->attempt, save->attempt, sizeof status->attempt);
    memcpy(status->dir, save->dir, sizeof status->dir);
}

/* A save that the drainer has not seen yet. */
static void add_staged(struct status *status, const struct directory *stage, const struct staged *staged)
{
    struct ckpt_save_status *to = &status->saves[status->count];
    struct contents contents;
    struct directory directory;

    if (directory_open(&directory, stage, staged->name, NULL) < 0)
        return;
    staged_contents(&directory, ".", &contents, NULL);
    directory_close(&directory);
    status_begin(to, &staged->save);
    error_tame(to->dir);
    to->state = status_of(&contents, staged->save.local);
    to->bytes_total = contents.bytes;
    status->count++;
}

int status_gather(struct status *status, const struct directory *stage, struct error *err)
{
    struct staged *saves;
    size_t count;

    if (status_read(status, stage, err) < 0 || staged_list(stage, &saves, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count && status->count < STATUS_MOST; i++)
        if (!has_save(status, &saves[i].save))
            add_staged(status, stage, &saves[i]);
    free(saves);
    return 0;
}
