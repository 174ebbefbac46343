/* commit.c - ckpt_commit and ckpt_recover: decided by what lies on the filesystem, with no leader. */
#include "config.h"

#include "ckpt/attempt.h"
#include "ckpt/cover.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Functions here return 1 for done, 0 for not yet and -1 for failed. */

static int find_part(const char *name, void *arg)
{
    int shard;

    return layout_parse_part(name, &shard, arg) ? 1 : 0;
}

static bool exists(const struct directory *directory, const char *name)
{
    return faccessat(directory->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether the parts and shards are all there, which is cheap to ask and mostly answered by "no". */
static int all_there(const struct directory *partial, int *shards, struct error *err)
{
    char part[LAYOUT_NAME_SIZE], shard[LAYOUT_NAME_SIZE];
    int found = directory_each(partial, find_part, shards, err);

    if (found <= 0)
        return found;
    for (int i = 0; i < *shards; i++) {
        layout_part_name(part, i, *shards);
        layout_shard_name(shard, i, *shards);
        if (!exists(partial, part) || !exists(partial, shard))
            return 0;
    }
    return 1;
}

static int check_length(const struct directory *partial, const struct manifest_shard *described, int shard, int shards,
                        struct error *err)
{
    char name[LAYOUT_NAME_SIZE];
    uint64_t bytes;
    int fd;

    layout_shard_name(name, shard, shards);
    fd = file_open(partial, name, false, &bytes, err);
    if (fd < 0)
        return -1;
    close(fd);
    if (bytes != manifest_shard_bytes(described))
        return error_set(err, CODE_DATA, "%s/%s: %" PRIu64 " bytes, its part says %" PRIu64, partial->path, name, bytes,
                         manifest_shard_bytes(described));
    return 0;
}

/* A part that is checked, with a shard file of the right length beside it. */
static struct manifest *read_part(const struct directory *partial, int shard, int shards, struct error *err)
{
    char name[LAYOUT_NAME_SIZE];
    struct manifest *part;
    size_t length;
    char *text;

    layout_part_name(name, shard, shards);
    text = file_read(partial, name, MANIFEST_MAX_BYTES, &length, err);
    if (!text)
        return NULL;
    part = manifest_decode(text, length, shard, shards, err);
    free(text);
    if (!part) {
        error_prefix(err, "%s/%s", partial->path, name);
        return NULL;
    }
    if (check_length(partial, part->shard, shard, shards, err) < 0) {
        manifest_destroy(part);
        return NULL;
    }
    return part;
}

/*
 * Put the parts together. The result depends on nothing but the parts: when two processes commit at once and the slower
 * one still writes its manifest into the directory that the faster one has just renamed, it writes the same bytes.
 */
static struct manifest *gather(const struct directory *partial, int shards, struct error *err)
{
    struct manifest *whole = NULL, *part;
    struct manifest_shard *all = calloc((unsigned)shards, sizeof *all);

    if (!all) {
        error_errno(err, CODE_IO, "%s: manifest of %d shards", partial->path, shards);
        return NULL;
    }
    for (int i = 0; i < shards; i++) {
        part = read_part(partial, i, shards, err);
        if (part && whole && manifest_agree(whole, part, err) < 0) {
            error_prefix(err, "%s: shard %d", partial->path, i);
            manifest_destroy(part);
            part = NULL;
        }
        if (!part)
            goto fail;
        all[i] = *part->shard;
        memset(part->shard, 0, sizeof *part->shard); /* what it pointed to is in all[i] now */
        if (whole)
            manifest_destroy(part);
        else
            whole = part;
    }
    free(whole->shard);
    whole->shard = all;
    whole->part = -1;
    return whole;
fail:
    for (int i = 0; i < shards; i++) {
        free(all[i].block_crcs);
        free(all[i].pieces);
    }
    free(all);
    manifest_destroy(whole);
    return NULL;
}

/* That the attempt is a whole checkpoint of this step; then write its manifest. */
static int write_manifest(const struct directory *partial, uint64_t step, const char *attempt, int shards,
                          struct error *err)
{
    struct manifest *whole = gather(partial, shards, err);
    struct cover cover = {0};
    char *text = NULL;
    size_t bytes;
    int result = -1;

    if (!whole)
        return -1;
    if (whole->state.step != step || strcmp(whole->attempt, attempt) != 0) {
        error_set(err, CODE_DATA, "%s: its parts are of step %" PRIu64 ", attempt \"%s\"", partial->path,
                  whole->state.step, whole->attempt);
        goto out;
    }
    if (cover_create(&cover, whole, err) < 0) {
        error_prefix(err, "%s", partial->path);
        goto out;
    }
    text = manifest_encode(whole, &bytes, err);
    if (text && file_write(partial, MANIFEST_NAME, text, bytes, err) == 0 && directory_sync(partial, err) == 0)
        result = 0;
out:
    free(text);
    cover_destroy(&cover);
    manifest_destroy(whole);
    return result;
}

/*
 * After a loss of power the parts may be gone although the rename that came before was lost: then the manifest is what
 * says that the attempt is whole. 1 if it does, 0 if there is none.
 */
static int manifest_is_whole(const struct directory *partial, uint64_t step, const char *attempt, struct error *err)
{
    struct manifest *whole = NULL;
    struct cover cover = {0};
    char *text = NULL;
    size_t bytes;
    int result = -1;

    if (!exists(partial, MANIFEST_NAME))
        return 0;
    text = file_read(partial, MANIFEST_NAME, MANIFEST_MAX_BYTES, &bytes, err);
    if (!text)
        return -1;
    whole = manifest_decode(text, bytes, -1, 0, err);
    if (!whole || cover_create(&cover, whole, err) < 0) {
        error_prefix(err, "%s/" MANIFEST_NAME, partial->path);
        goto out;
    }
    if (whole->state.step != step || strcmp(whole->attempt, attempt) != 0) {
        error_set(err, CODE_DATA, "%s/" MANIFEST_NAME ": is of step %" PRIu64 ", attempt \"%s\"", partial->path,
                  whole->state.step, whole->attempt);
        goto out;
    }
    for (int i = 0; i < whole->shards; i++)
        if (check_length(partial, &whole->shard[i], i, whole->shards, err) < 0)
            goto out;
    result = directory_sync(partial, err) < 0 ? -1 : 1;
out:
    cover_destroy(&cover);
    manifest_destroy(whole);
    free(text);
    return result;
}

struct sweep {
    const struct directory *parent, *committed;
    bool synced; /* the rename is durable, so the parts may go */
};

static int sweep_part(const char *name, void *arg)
{
    struct sweep *sweep = arg;
    int shard, shards;

    /* A drainer that was killed leaves a temporary file of a shard, which may be large. */
    if (!layout_parse_part(name, &shard, &shards) && !layout_is_unfinished(name))
        return 0;
    if (!sweep->synced && (attempt_check_forms(sweep->committed, NULL) < 0 || directory_sync(sweep->parent, NULL) < 0))
        return 1;
    sweep->synced = true;
    unlinkat(sweep->committed->fd, name, 0);
    return 0;
}

/* The parts have done their duty, `latest` is for people: neither may fail a commit. */
static void tidy(const struct directory *parent, const struct directory *committed, uint64_t step)
{
    struct sweep sweep = {parent, committed, true};
    char name[LAYOUT_NAME_SIZE];

    directory_each(committed, sweep_part, &sweep, NULL);
    layout_step_name(name, step);
    strcat(name, "\n");
    file_write(parent, "latest", name, strlen(name), NULL);
}

/* Rename the finished attempt. Someone else may have done it, or have committed another attempt at this step. */
static int publish(const struct directory *parent, uint64_t step, const char *attempt, struct error *err)
{
    char from[LAYOUT_NAME_SIZE], to[LAYOUT_NAME_SIZE];
    int failure;

    layout_partial_name(from, step, attempt);
    layout_step_name(to, step);
    if (renameat(parent->fd, from, parent->fd, to) == 0)
        return 1;
    failure = errno;
    if (attempt_is_committed(parent, step))
        return 1;
    errno = failure;
    if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR)
        return error_set(err, CODE_DATA, "%s/%s: is in the way, and no checkpoint (it has no " MANIFEST_NAME ")",
                         parent->path, to);
    return error_errno(err, CODE_IO, "%s/%s: cannot rename to %s", parent->path, from, to);
}

static int commit_attempt(const struct directory *parent, uint64_t step, const char *attempt, struct error *err)
{
    char name[LAYOUT_NAME_SIZE];
    struct directory partial;
    int shards, result;

    layout_partial_name(name, step, attempt);
    if (directory_open(&partial, parent, name, err) < 0)
        return errno == ENOENT ? 0 : -1;
    result = all_there(&partial, &shards, err);
    if (result > 0 && exists(&partial, MANIFEST_NAME) && attempt_check_forms(&partial, err) < 0)
        result = -1;
    else if (result > 0 && write_manifest(&partial, step, attempt, shards, err) < 0)
        result = -1;
    else if (result == 0)
        result = manifest_is_whole(&partial, step, attempt, err);
    if (result > 0)
        result = publish(parent, step, attempt, err);
    if (result > 0 && directory_sync(parent, err) < 0) /* before the parts go: else only their removal may survive */
        result = -1;
    if (result > 0)
        tidy(parent, &partial, step);
    directory_close(&partial);
    return result;
}

/* Whoever says "committed" must know it to be durable, even if the one who renamed died before the sync. */
static int commit(const struct directory *parent, uint64_t step, const char *attempt, struct error *err)
{
    int result = attempt_is_committed(parent, step) ? 1 : commit_attempt(parent, step, attempt, err);

    /* Another may have committed meanwhile, and taken away the files that we were looking at. */
    if (result <= 0 && attempt_is_committed(parent, step))
        result = 1;
    if (result > 0) {
        if (directory_sync(parent, err) < 0)
            return -1;
        attempt_clear_others(parent, step, NULL, NULL); /* what is left over, if anything: not worth failing for */
    }
    return result;
}

int ckpt_commit(const char *dir, uint64_t step, const char *attempt, struct error *err)
{
    struct directory parent;
    int result;

    if (!layout_attempt_is_valid(attempt))
        return error_set(err, CODE_INTERNAL,
                         "ckpt_commit: attempt \"%s\": must be 1 to %d letters, digits, '.', '_' and '-'",
                         attempt ? attempt : "", CKPT_ATTEMPT_SIZE - 1);
    if (directory_open(&parent, NULL, dir, err) < 0)
        return errno == ENOENT ? 0 : -1;
    result = commit(&parent, step, attempt, err);
    directory_close(&parent);
    return result;
}

/* Parts that whoever committed could not remove any more. Somebody else's directory may not let us: no matter. */
static int sweep_step(const char *name, void *arg)
{
    const struct directory *parent = arg;
    struct directory committed;
    struct sweep sweep = {parent, &committed, false};
    uint64_t step;

    if (!layout_parse_step(name, &step) || !attempt_is_committed(parent, step) ||
        directory_open(&committed, parent, name, NULL) < 0)
        return 0;
    directory_each(&committed, sweep_part, &sweep, NULL);
    directory_close(&committed);
    return 0;
}

int ckpt_recover(const char *dir, struct error *err)
{
    struct directory parent;
    struct attempt *attempts = NULL;
    size_t count = 0;
    uint64_t newest;
    int done = 0, found = 0, failed = 0;

    if (directory_open(&parent, NULL, dir, err) < 0)
        return errno == ENOENT ? 0 : -1;
    if (attempt_list(&parent, &attempts, &count, err) < 0 ||
        (found = attempt_newest_committed(&parent, &newest, err)) < 0)
        done = -1;
    for (size_t i = 0; i < count && done >= 0; i++) {
        struct error why = {0};
        int result = attempts[i].abandoned || attempt_is_committed(&parent, attempts[i].step)
                         ? 0
                         : commit(&parent, attempts[i].step, attempts[i].attempt, &why);

        done += result > 0;
        if (result < 0 && why.code == CODE_CONFIG && (!found || attempts[i].step > newest)) {
            failed = -1;
            if (err)
                *err = why;
        }
    }
    if (done >= 0)
        directory_each(&parent, sweep_step, &parent, NULL);
    free(attempts);
    directory_close(&parent);
    return failed ? -1 : done;
}
