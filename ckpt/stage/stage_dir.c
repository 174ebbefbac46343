/* stage_dir.c - the directories of a stage, their marks and locks, and target.json. */
#include "config.h"

#include "ckpt/stage/stage_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/format/json_fields.h"
#include "ckpt/stage/stage.h"
#include "ckpt/write/attempt.h"

int ckpt_stage_path(char *path, size_t size, const char *root, const char *job, struct error *err)
{
    char own[32];

    if (!job || !*job)
        job = getenv("SLURM_JOB_ID");
    if (!job || !*job) {
        snprintf(own, sizeof own, "pid%d", (int)getsid(0));
        job = own;
    }
    if (!name_is_attempt(job) || job[0] == '.')
        return error_set(err, CODE_USAGE, "job \"%s\": must be 1 to %d letters, digits, '.', '_' and '-'", job,
                         CKPT_ATTEMPT_SIZE - 1);
    if (snprintf(path, size, "%s/muster-%u-%s", root && *root ? root : "/dev/shm", (unsigned)geteuid(), job) >=
        (int)size)
        return error_set(err, CODE_USAGE, "%.100s...: is too long for a staging directory", path);
    return 0;
}

int stage_directory_open(struct directory *stage, const char *path, bool make, struct error *err)
{
    struct stat info;

    stage->fd = -1;
    snprintf(stage->path, sizeof stage->path, "%s", path);
    if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_errno(err, CODE_IO, "%s: cannot make the staging directory", path);
    stage->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (stage->fd < 0) {
        int saved = errno;

        error_errno(err, CODE_IO, "%s", path);
        errno = saved;
        return -1;
    }
    if (fstat(stage->fd, &info) == 0 && info.st_uid == geteuid() && (info.st_mode & 07777) == 0700)
        return 0;
    error_set(err, CODE_IO, "%s: is not this user's directory with mode 0700: others could change the staged state",
              path);
    directory_close(stage);
    errno = EPERM;
    return -1;
}

#define TARGET_FORMAT  "muster-stage"
#define TARGET_VERSION 1
#define TARGET_HEAD    "format version muster"

static const struct json_field target_fields[] = {
    {"dir", FIELD_TEXT, JSON_PLACE(struct target, dir), false},
    {"step", FIELD_COUNT, JSON_PLACE(struct target, step), false},
    {"attempt", FIELD_TEXT, JSON_PLACE(struct target, attempt), false},
    {"shards", FIELD_INT, JSON_PLACE(struct target, shards), false},
    {"local", FIELD_INT, JSON_PLACE(struct target, local), false},
    {"keep", FIELD_INT, JSON_PLACE(struct target, keep), false},
    {"keep_every", FIELD_COUNT, JSON_PLACE(struct target, keep_every), false},
    {"started", FIELD_DOUBLE, JSON_PLACE(struct target, started), false},
    {0},
};

static int target_write(const struct directory *generation, const struct target *target, struct error *err)
{
    json_t *json =
        json_pack("{s:s, s:i, s:s}", "format", TARGET_FORMAT, "version", TARGET_VERSION, "muster", PACKAGE_VERSION);
    json_t *fields = json_write_fields(target_fields, target), *dir = json_string(target->dir);
    char *text = dir && json_object_update(json, fields) == 0 ? json_dumps(json, JSON_COMPACT) : NULL;
    int result = -1;

    if (text)
        result = file_write(generation, STAGE_TARGET, text, strlen(text), err);
    else
        error_set(err, CODE_IO, "%s: checkpoint.dir must be UTF-8", generation->path);
    free(text);
    json_decref(dir);
    json_decref(fields);
    json_decref(json);
    return result;
}

static int target_parse(struct target *target, json_t *json, struct error *err)
{
    bool first = !json_object_get(json, "format") && !json_object_get(json, "version") &&
                 !json_object_get(json, "muster"); /* the first release wrote no TARGET_HEAD */

    if ((!first && form_check(json, TARGET_FORMAT, TARGET_VERSION, err) < 0) ||
        form_check_members(json, first ? "" : TARGET_HEAD, target_fields, err) < 0 ||
        json_read_fields(json, target_fields, target, err) < 0)
        return -1;
    if (target->shards < 1 || target->shards > CKPT_MAX_SHARDS || target->local < 1 || target->dir[0] != '/' ||
        !name_is_attempt(target->attempt))
        return error_set(err, CODE_DATA, "not what a stage writes");
    return 0;
}

/* file_write asks for mode 0666. A umask that denies reading denies entering directories, too. */
static mode_t read_umask(const struct directory *generation)
{
    struct stat info;
    mode_t masked;

    if (fstatat(generation->fd, STAGE_TARGET, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return 077;
    masked = ~info.st_mode & 0066;
    return masked | ((masked & 0044) >> 2);
}

/* target.json is renamed into place: one that cannot be parsed is of another release, so CODE_CONFIG. */
static int target_read(struct target *target, const struct directory *generation, struct error *err)
{
    json_error_t where;
    json_t *json;
    size_t bytes;
    char *text;
    int result;

    text = file_read(generation, STAGE_TARGET, STAGE_MAX_TARGET, &bytes, err);
    if (!text)
        return -1;
    json = json_loadb(text, bytes, 0, &where);
    result = json ? target_parse(target, json, err) : error_set(err, CODE_DATA, "not JSON");
    if (result < 0) {
        err->code = CODE_CONFIG;
        form_explain(json, TARGET_VERSION, err);
        error_prefix(err, "%s/" STAGE_TARGET, generation->path);
    }
    target->umask = read_umask(generation);
    json_decref(json);
    free(text);
    return result;
}

int generation_make(struct directory *generation, const struct directory *stage, const struct target *target,
                    struct error *err)
{
    char name[FILE_NAME_SIZE];

    name_partial(name, target->step, target->attempt);
    if (mkdirat(stage->fd, name, 0700) < 0 && errno != EEXIST)
        return file_write_failed(stage, name, 0, err);
    if (directory_open(generation, stage, name, err) < 0)
        return -1;
    return file_exists(generation, STAGE_TARGET) ? 0 : target_write(generation, target, err);
}

/* Oldest first. */
static int compare_age(const void *left, const void *right)
{
    const struct generation *a = left, *b = right;

    if (a->target.started != b->target.started)
        return a->target.started < b->target.started ? -1 : 1;
    return (a->target.step > b->target.step) - (a->target.step < b->target.step);
}

static void read_generation(struct generation *generation, const struct directory *stage, const struct attempt *attempt)
{
    struct directory directory;

    memset(generation, 0, sizeof *generation);
    name_partial(generation->name, attempt->step, attempt->attempt);
    if (directory_open(&directory, stage, generation->name, NULL) == 0) {
        if (file_exists(&directory, STAGE_TARGET) &&
            target_read(&generation->target, &directory, &generation->unknown) < 0) {
            if (!file_exists(&directory, STAGE_TARGET)) /* the drainer has just removed it */
                generation->unknown.code = CODE_OK;
            memset(&generation->target, 0, sizeof generation->target);
        }
        directory_close(&directory);
    }
    generation->target.step = attempt->step;
    snprintf(generation->target.attempt, sizeof generation->target.attempt, "%s", attempt->attempt);
}

/* A directory that no release up to this one makes in a stage. */
static bool is_foreign(const struct directory *stage, const char *name)
{
    char attempt[CKPT_ATTEMPT_SIZE];
    struct stat info;
    uint64_t step;

    return name[0] != '.' && !name_parse_partial(name, &step, attempt) &&
           fstatat(stage->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

static void describe_foreign(struct generation *generation, const struct directory *stage, const char *name)
{
    memset(generation, 0, sizeof *generation);
    snprintf(generation->name, sizeof generation->name, "%s", name);
    error_set(&generation->unknown, CODE_CONFIG,
              "%s/%s: is nothing that muster " PACKAGE_VERSION " stages (format %d): another release made it",
              stage->path, name, TARGET_VERSION);
}

int generation_list(const struct directory *stage, struct generation **generations, size_t *count, struct error *err)
{
    struct generation *list = NULL;
    struct attempt *attempts;
    struct listing listing;
    const char *name;
    size_t nattempts, used = 0, room = 0;
    int result = 0;

    if (attempt_list(stage, &attempts, &nattempts, err) < 0)
        return -1;
    for (size_t i = 0; i < nattempts && result == 0; i++) {
        result = file_grow((void **)&list, used, &room, sizeof *list);
        if (result == 0)
            read_generation(&list[used++], stage, &attempts[i]);
    }
    free(attempts);
    listing_open(&listing, stage);
    while (result == 0 && (name = listing_next(&listing))) {
        if (!is_foreign(stage, name))
            continue;
        result = file_grow((void **)&list, used, &room, sizeof *list);
        if (result == 0)
            describe_foreign(&list[used++], stage, name);
    }
    listing_close(&listing, NULL);
    if (result < 0) {
        free(list);
        return error_set(err, CODE_IO, "%s: a list of %zu generations: no memory", stage->path, used + 1);
    }
    if (used)
        qsort(list, used, sizeof *list, compare_age);
    *generations = list;
    *count = used;
    return 0;
}

int generation_check_forms(const struct generation *generation, const struct directory *directory, struct error *err)
{
    if (generation->unknown.code != CODE_OK) {
        *err = generation->unknown;
        return -1;
    }
    if (attempt_check_forms(directory, err) < 0)
        return -1;
    return attempt_check_forms_in(directory, STAGE_PARTNER, err);
}

void generation_contents(const struct directory *generation, struct contents *contents)
{
    struct listing listing;
    const char *name;
    struct stat info;
    int shard, shards;

    memset(contents, 0, sizeof *contents);
    listing_open(&listing, generation);
    while ((name = listing_next(&listing))) {
        if (name_parse_part(name, &shard, &shards))
            contents->staged++;
        else if (name_parse_drained(name, &shard, &shards))
            contents->drained++;
        else if (name_parse_shard(name, &shard, &shards) &&
                 fstatat(generation->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
            contents->bytes += (uint64_t)info.st_size;
    }
    listing_close(&listing, NULL);
}

void generation_partner_contents(const struct directory *generation, struct contents *contents)
{
    struct directory partner;

    memset(contents, 0, sizeof *contents);
    if (directory_open(&partner, generation, STAGE_PARTNER, NULL) < 0)
        return;
    generation_contents(&partner, contents);
    directory_close(&partner);
}

int stage_mark(const struct directory *directory, const char *mark, struct error *err)
{
    int fd = openat(directory->fd, mark, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return file_write_failed(directory, mark, 0, err);
    close(fd);
    return 0;
}

int stage_recycle(const struct directory *stage, const struct directory *from, const char *name, struct error *err)
{
    char place[FILE_NAME_SIZE + 64], unique[FILE_NAME_SIZE + 32];

    if (mkdirat(stage->fd, STAGE_FREE, 0700) < 0 && errno != EEXIST)
        return error_errno(err, CODE_IO, "%s/" STAGE_FREE, stage->path);
    file_temporary_name(unique, sizeof unique, name);
    snprintf(place, sizeof place, STAGE_FREE "/%s", unique);
    if (renameat(from->fd, name, stage->fd, place) < 0 && errno != ENOENT)
        return error_errno(err, CODE_IO, "%s/%s: cannot move to " STAGE_FREE, from->path, name);
    return 0;
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
        return false;
    locked = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    return locked;
}
