#include "config.h"

#include "ckpt/attempt.h"
#include "ckpt/form.h"
#include "ckpt/json_get.h"
#include "ckpt/stage.h"
#include "ckpt/stage_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int ckpt_stage_path(char *path, size_t size, const char *root, const char *job, struct error *err)
{
    char own[32];

    if (!job || !*job)
        job = getenv("SLURM_JOB_ID");
    if (!job || !*job) {
        snprintf(own, sizeof own, "pid%d", (int)getsid(0));
        job = own;
    }
    if (!layout_attempt_is_valid(job) || job[0] == '.')
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
    error_set(err, CODE_IO, "%s: is not a directory of ours with mode 0700: staged state would be others' to change",
              path);
    directory_close(stage);
    errno = EPERM;
    return -1;
}

#define TARGET_FORMAT  "muster-stage"
#define TARGET_VERSION 1
#define TARGET_MEMBERS "dir step attempt shards local keep keep_every started"
#define TARGET_HEAD    "format version muster "

static int target_write(const struct directory *generation, const struct target *target, struct error *err)
{
    json_t *json =
        json_pack("{s:s, s:i, s:s, s:s, s:I, s:s, s:i, s:i, s:i, s:I, s:f}", "format", TARGET_FORMAT, "version",
                  TARGET_VERSION, "muster", PACKAGE_VERSION, "dir", target->dir, "step", (json_int_t)target->step,
                  "attempt", target->attempt, "shards", target->shards, "local", target->local, "keep", target->keep,
                  "keep_every", (json_int_t)target->keep_every, "started", target->started);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    int result = -1;

    if (text)
        result = file_write(generation, STAGE_TARGET, text, strlen(text), err);
    else
        error_set(err, CODE_IO, "%s: checkpoint.dir must be UTF-8", generation->path);
    free(text);
    json_decref(json);
    return result;
}

/* The first release wrote none of TARGET_HEAD. */
static int target_check_form(json_t *json, struct error *err)
{
    if (!json_object_get(json, "format") && !json_object_get(json, "version") && !json_object_get(json, "muster"))
        return form_check_members(json, TARGET_MEMBERS, err);
    if (form_check(json, TARGET_FORMAT, TARGET_VERSION, err) < 0)
        return -1;
    return form_check_members(json, TARGET_HEAD TARGET_MEMBERS, err);
}

static int target_parse(struct target *target, json_t *json, struct error *err)
{
    uint64_t step, keep_every;

    if (target_check_form(json, err) < 0 || json_get_string(json, "dir", target->dir, sizeof target->dir, err) < 0 ||
        json_get_integer(json, "step", INT64_MAX, &step, err) < 0 ||
        json_get_string(json, "attempt", target->attempt, sizeof target->attempt, err) < 0 ||
        json_get_int(json, "shards", &target->shards, err) < 0 ||
        json_get_int(json, "local", &target->local, err) < 0 || json_get_int(json, "keep", &target->keep, err) < 0 ||
        json_get_integer(json, "keep_every", INT64_MAX, &keep_every, err) < 0 ||
        json_get_number(json, "started", &target->started, err) < 0)
        return -1;
    target->step = step;
    target->keep_every = keep_every;
    if (target->shards < 1 || target->shards > LAYOUT_MAX_SHARDS || target->local < 1 || target->dir[0] != '/' ||
        !layout_attempt_is_valid(target->attempt))
        return error_set(err, CODE_DATA, "not what a stage writes");
    return 0;
}

/* file_write asks for 0666. Who keeps others from reading keeps them from entering directories, too. */
static mode_t umask_of(const struct directory *generation)
{
    struct stat info;
    mode_t masked;

    if (fstatat(generation->fd, STAGE_TARGET, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return 077;
    masked = ~info.st_mode & 0066;
    return masked | ((masked & 0044) >> 2);
}

/* target.json is written whole or not at all: one that we cannot parse is of another release, so CODE_CONFIG. */
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
    target->umask = umask_of(generation);
    json_decref(json);
    free(text);
    return result;
}

int generation_make(struct directory *generation, const struct directory *stage, const struct target *target,
                    struct error *err)
{
    char name[LAYOUT_NAME_SIZE];

    layout_partial_name(name, target->step, target->attempt);
    if (mkdirat(stage->fd, name, 0700) < 0 && errno != EEXIST)
        return file_write_failed(stage, name, 0, err);
    if (directory_open(generation, stage, name, err) < 0)
        return -1;
    return stage_has(generation, STAGE_TARGET) ? 0 : target_write(generation, target, err);
}

static int oldest_first(const void *left, const void *right)
{
    const struct generation *a = left, *b = right;

    if (a->target.started != b->target.started)
        return a->target.started < b->target.started ? -1 : 1;
    return (a->target.step > b->target.step) - (a->target.step < b->target.step);
}

static void read_generation(struct generation *generation, const struct directory *stage, const struct attempt *attempt)
{
    struct directory directory;

    layout_partial_name(generation->name, attempt->step, attempt->attempt);
    if (directory_open(&directory, stage, generation->name, NULL) == 0) {
        if (stage_has(&directory, STAGE_TARGET) &&
            target_read(&generation->target, &directory, &generation->unknown) < 0) {
            if (!stage_has(&directory, STAGE_TARGET)) /* the drainer has just removed it */
                generation->unknown.code = CODE_OK;
            memset(&generation->target, 0, sizeof generation->target);
        }
        directory_close(&directory);
    }
    generation->target.step = attempt->step;
    snprintf(generation->target.attempt, sizeof generation->target.attempt, "%s", attempt->attempt);
}

struct listing {
    const struct directory *stage;
    struct generation *generations;
    size_t count;
};

/* A directory that no release up to this one makes in a stage. */
static int add_foreign(const char *name, void *arg)
{
    struct listing *listing = arg;
    struct generation *grown, *generation;
    char attempt[CKPT_ATTEMPT_SIZE];
    struct stat info;
    uint64_t step;

    if (name[0] == '.' || layout_parse_partial(name, &step, attempt) ||
        fstatat(listing->stage->fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(info.st_mode))
        return 0;
    grown = realloc(listing->generations, (listing->count + 1) * sizeof *grown);
    if (!grown)
        return 1;
    listing->generations = grown;
    generation = &grown[listing->count++];
    memset(generation, 0, sizeof *generation);
    snprintf(generation->name, sizeof generation->name, "%s", name);
    error_set(&generation->unknown, CODE_CONFIG,
              "%s/%s: is nothing that muster " PACKAGE_VERSION " stages (format %d): another release made it",
              listing->stage->path, name, TARGET_VERSION);
    return 0;
}

int generation_list(const struct directory *stage, struct generation **generations, size_t *count, struct error *err)
{
    struct listing listing = {.stage = stage};
    struct attempt *attempts;

    if (attempt_list(stage, &attempts, count, err) < 0)
        return -1;
    listing.generations = calloc(*count + 1, sizeof *listing.generations);
    for (size_t i = 0; i < *count && listing.generations; i++)
        read_generation(&listing.generations[listing.count++], stage, &attempts[i]);
    free(attempts);
    if (!listing.generations || directory_each(stage, add_foreign, &listing, NULL) > 0) {
        free(listing.generations);
        return error_errno(err, CODE_IO, "%s: a list of %zu generations", stage->path, *count);
    }
    if (listing.count)
        qsort(listing.generations, listing.count, sizeof *listing.generations, oldest_first);
    *generations = listing.generations;
    *count = listing.count;
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

struct look {
    const struct directory *directory;
    struct contents *contents;
};

static int look_at(const char *name, void *arg)
{
    const struct look *look = arg;
    struct stat info;
    int shard, shards;

    if (layout_parse_part(name, &shard, &shards))
        look->contents->staged++;
    else if (layout_parse_drained(name, &shard, &shards))
        look->contents->drained++;
    else if (layout_parse_shard(name, &shard, &shards) &&
             fstatat(look->directory->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
        look->contents->bytes += (uint64_t)info.st_size;
    return 0;
}

void generation_contents(const struct directory *generation, struct contents *contents)
{
    struct look look = {generation, contents};

    memset(contents, 0, sizeof *contents);
    directory_each(generation, look_at, &look, NULL);
}

bool stage_has(const struct directory *directory, const char *mark)
{
    return faccessat(directory->fd, mark, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
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
    char place[LAYOUT_NAME_SIZE + 64], unique[LAYOUT_NAME_SIZE + 32];

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

static double seconds(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

double stage_time(void)
{
    return seconds(CLOCK_REALTIME);
}

double stage_clock(void)
{
    return seconds(CLOCK_MONOTONIC);
}
