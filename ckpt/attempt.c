#include "config.h"

#include "ckpt/attempt.h"
#include "ckpt/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct listing {
    struct attempt *attempts;
    size_t count, room;
};

static int list_one(const char *name, void *arg)
{
    struct listing *listing = arg;
    struct attempt attempt = {0};

    if (!layout_parse_partial(name, &attempt.step, attempt.attempt)) {
        attempt.abandoned = layout_parse_abandoned(name, &attempt.step, attempt.attempt);
        if (!attempt.abandoned)
            return 0;
    }
    if (listing->count == listing->room) {
        size_t room = listing->room ? 2 * listing->room : 16;
        struct attempt *grown = realloc(listing->attempts, room * sizeof *grown);

        if (!grown)
            return 1;
        listing->attempts = grown;
        listing->room = room;
    }
    listing->attempts[listing->count++] = attempt;
    return 0;
}

int attempt_list(const struct directory *parent, struct attempt **attempts, size_t *count, struct error *err)
{
    struct listing listing = {0};
    int result = directory_each(parent, list_one, &listing, err);

    if (result != 0) {
        free(listing.attempts);
        return result > 0 ? error_errno(err, CODE_IO, "%s: cannot list", parent->path) : -1;
    }
    *attempts = listing.attempts;
    *count = listing.count;
    return 0;
}

bool attempt_is_committed(const struct directory *parent, uint64_t step)
{
    char name[LAYOUT_NAME_SIZE], manifest[LAYOUT_NAME_SIZE + 32];

    layout_step_name(name, step);
    snprintf(manifest, sizeof manifest, "%s/" MANIFEST_NAME, name);
    return faccessat(parent->fd, manifest, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

struct newest {
    const struct directory *parent;
    uint64_t step;
    int found;
};

static int look_at_step(const char *name, void *arg)
{
    struct newest *newest = arg;
    uint64_t step;

    if (layout_parse_step(name, &step) && (!newest->found || step > newest->step) &&
        attempt_is_committed(newest->parent, step)) {
        newest->step = step;
        newest->found = 1;
    }
    return 0;
}

int attempt_newest_committed(const struct directory *parent, uint64_t *step, struct error *err)
{
    struct newest newest = {.parent = parent};

    if (directory_each(parent, look_at_step, &newest, err) < 0)
        return -1;
    *step = newest.step;
    return newest.found;
}

struct forms {
    const struct directory *directory;
    struct error *err;
};

static int check_form(const char *name, void *arg)
{
    struct forms *forms = arg;
    struct error why = {0};
    int shard = -1, shards = 0;
    size_t bytes;
    char *text;

    if (strcmp(name, MANIFEST_NAME) != 0 && !layout_parse_part(name, &shard, &shards) &&
        !layout_parse_drained(name, &shard, &shards))
        return 0;
    text = file_read(forms->directory, name, MANIFEST_MAX_BYTES, &bytes, NULL);
    if (text)
        manifest_destroy(manifest_decode(text, bytes, shard, shards, &why));
    free(text);
    if (why.code != CODE_CONFIG)
        return 0;
    error_prefix(&why, "%s/%s", forms->directory->path, name);
    if (forms->err)
        *forms->err = why;
    return 1;
}

int attempt_check_forms(const struct directory *directory, struct error *err)
{
    struct forms forms = {directory, err};

    return directory_each(directory, check_form, &forms, NULL) > 0 ? -1 : 0;
}

int attempt_check_forms_in(const struct directory *parent, const char *name, struct error *err)
{
    struct directory directory;
    int result;

    if (directory_open(&directory, parent, name, NULL) < 0)
        return 0;
    result = attempt_check_forms(&directory, err);
    directory_close(&directory);
    return result;
}

static int trash_attempt(const struct directory *parent, const struct attempt *attempt, struct error *err)
{
    char name[LAYOUT_NAME_SIZE];

    if (attempt->abandoned)
        layout_abandoned_name(name, attempt->step, attempt->attempt);
    else
        layout_partial_name(name, attempt->step, attempt->attempt);
    return attempt_check_forms_in(parent, name, NULL) < 0 ? 0 : file_trash(parent, name, err);
}

/* What another user has left may have to stay; that keeps nothing else from going. *err is of the first. */
static int trash_next(const struct directory *parent, const struct attempt *attempt, int failed, struct error *err)
{
    return trash_attempt(parent, attempt, failed ? NULL : err) < 0 ? -1 : failed;
}

int attempt_clear_others(const struct directory *parent, uint64_t step, const char *keep, struct error *err)
{
    struct attempt *attempts;
    size_t count;
    int result = 0;

    if (attempt_list(parent, &attempts, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (attempts[i].step == step && (!keep || strcmp(attempts[i].attempt, keep) != 0))
            result = trash_next(parent, &attempts[i], result, err);
    free(attempts);
    return result;
}

int attempt_clear_older(const struct directory *parent, uint64_t step, struct error *err)
{
    struct attempt *attempts;
    size_t count;
    int result = 0;

    if (attempt_list(parent, &attempts, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (attempts[i].step < step)
            result = trash_next(parent, &attempts[i], result, err);
    free(attempts);
    return result;
}

#define WHY     "why"
#define MAX_WHY ((size_t)4096)

static int remove_file(const char *name, void *arg)
{
    const struct directory *abandoned = arg;

    if (strcmp(name, WHY) != 0)
        unlinkat(abandoned->fd, name, 0);
    return 0;
}

/* Renamed, not made: a full disk may have no room for a new name. */
static int leave_sign(const struct directory *parent, const char *from, const char *to, struct error *err)
{
    if (renameat(parent->fd, from, parent->fd, to) == 0)
        return 0;
    if (errno == ENOTEMPTY || errno == EEXIST) /* it was given up before, and made once more by one who did not look */
        return file_trash(parent, from, err);
    if (errno != ENOENT)
        return error_errno(err, CODE_IO, "%s/%s: cannot rename to %s", parent->path, from, to);
    if (mkdirat(parent->fd, to, 0777) < 0 && errno != EEXIST)
        return file_write_failed(parent, to, 0, err);
    return 0;
}

int attempt_give_up(const struct directory *parent, uint64_t step, const char *attempt, const char *why,
                    struct error *err)
{
    char from[LAYOUT_NAME_SIZE], to[LAYOUT_NAME_SIZE];
    struct directory abandoned;

    if (attempt_is_committed(parent, step))
        return 0;
    layout_partial_name(from, step, attempt);
    layout_abandoned_name(to, step, attempt);
    if (attempt_check_forms_in(parent, from, err) < 0)
        return -1;
    if (leave_sign(parent, from, to, err) < 0)
        return -1;
    /* Durable before it is emptied: else a crash could bring back the old name with half the files. */
    if (directory_sync(parent, err) < 0 || directory_open(&abandoned, parent, to, err) < 0)
        return -1;
    /* The others want to know, and to remove much takes long; but a full disk has room for it only after that. */
    file_write(&abandoned, WHY, why, strnlen(why, MAX_WHY), NULL);
    directory_each(&abandoned, remove_file, &abandoned, NULL);
    if (faccessat(abandoned.fd, WHY, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        file_write(&abandoned, WHY, why, strnlen(why, MAX_WHY), NULL);
    directory_close(&abandoned);
    return 0;
}

bool attempt_is_given_up(const struct directory *parent, uint64_t step, const char *attempt, char *why, size_t size)
{
    char name[LAYOUT_NAME_SIZE], path[LAYOUT_NAME_SIZE + 8];
    struct directory abandoned;
    size_t bytes;
    char *text;

    layout_abandoned_name(name, step, attempt);
    snprintf(path, sizeof path, "%s/.", name);
    if (faccessat(parent->fd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    if (!why)
        return true;
    why[0] = '\0';
    if (directory_open(&abandoned, parent, name, NULL) == 0) {
        text = file_read(&abandoned, WHY, MAX_WHY, &bytes, NULL);
        if (text)
            snprintf(why, size, "%s", text);
        free(text);
        directory_close(&abandoned);
    }
    return true;
}
