/* commit.c - ckpt_commit and ckpt_recover: decided by the files alone, without a leader. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/format/pieces.h"
#include "ckpt/write/attempt.h"

/* Functions here return 1 for done, 0 for not yet and -1 for failed. */

/* Whether all parts and shards exist, which is quick to check and mostly answered by "no". */
static int has_all_files(const struct directory *partial, int *shards, struct error *err)
{
    char part[FILE_NAME_SIZE], shard[FILE_NAME_SIZE];
    struct listing listing;
    const char *name;
    bool found = false;
    int index;

    listing_open(&listing, partial);
    while (!found && (name = listing_next(&listing)))
        found = name_parse_part(name, &index, shards);
    if (listing_close(&listing, err) < 0)
        return -1;
    for (int i = 0; found && i < *shards; i++) {
        name_part(part, i, *shards);
        name_shard(shard, i, *shards);
        found = file_exists(partial, part) && file_exists(partial, shard);
    }
    return found;
}

static int check_length(const struct directory *partial, const struct manifest *manifest, int shard, struct error *err)
{
    int fd = manifest_open_shard(manifest, shard, partial, false, err);

    return fd < 0 ? -1 : close(fd);
}

/* A part that is checked, with a shard file of the right length beside it. */
static struct manifest *read_part(const struct directory *partial, int shard, int shards, struct error *err)
{
    char name[FILE_NAME_SIZE];
    struct manifest *part;

    name_part(name, shard, shards);
    part = manifest_read(partial, name, shard, shards, err);
    if (part && check_length(partial, part, shard, err) < 0) {
        manifest_destroy(part);
        return NULL;
    }
    return part;
}

/*
 * One manifest from all parts. It depends on nothing but the parts: when two processes commit at once and the slower
 * one still writes its manifest into the directory that the faster one has just renamed, it writes the same bytes.
 */
static struct manifest *gather_parts(const struct directory *partial, int shards, struct error *err)
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
        memset(part->shard, 0, sizeof *part->shard); /* its pointers are in all[i] now */
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

/* The attempt as a whole checkpoint of this step: the pieces cover all tensors. */
static int check_whole(const struct manifest *whole, uint64_t step, const char *attempt, struct error *err)
{
    struct cover cover;

    if (manifest_check_save(whole, step, attempt, err) < 0 || cover_create(&cover, whole, err) < 0)
        return -1;
    cover_destroy(&cover);
    return 0;
}

static int write_manifest(const struct directory *partial, uint64_t step, const char *attempt, int shards,
                          struct error *err)
{
    struct manifest *whole = gather_parts(partial, shards, err);
    int result = -1;

    if (whole && check_whole(whole, step, attempt, err) < 0)
        error_prefix(err, "%s", partial->path);
    else if (whole)
        result = manifest_write(whole, partial, err);
    manifest_destroy(whole);
    return result;
}

/*
 * After a power loss the parts may be missing although the rename that came before their removal was lost. The manifest
 * then shows that the attempt is complete: 1 if it does, 0 if there is none.
 */
static int has_whole_manifest(const struct directory *partial, uint64_t step, const char *attempt, struct error *err)
{
    struct manifest *whole;
    int result = -1;

    if (!file_exists(partial, MANIFEST_NAME))
        return 0;
    whole = manifest_read(partial, MANIFEST_NAME, -1, 0, err);
    if (!whole)
        return -1;
    if (check_whole(whole, step, attempt, err) < 0) {
        error_prefix(err, "%s/" MANIFEST_NAME, partial->path);
        goto out;
    }
    for (int i = 0; i < whole->shards; i++)
        if (check_length(partial, whole, i, err) < 0)
            goto out;
    result = directory_sync(partial, err) < 0 ? -1 : 1;
out:
    manifest_destroy(whole);
    return result;
}

/* Removes the parts of a committed step, once its rename is durable, and temporary files that killed drainers left. */
static void sweep_parts(const struct directory *parent, const struct directory *committed, bool synced)
{
    struct listing listing;
    const char *name;
    int shard, shards;

    listing_open(&listing, committed);
    while ((name = listing_next(&listing))) {
        if (!name_parse_part(name, &shard, &shards) && !name_is_unfinished(name))
            continue;
        if (!synced && (attempt_check_forms(committed, NULL) < 0 || directory_sync(parent, NULL) < 0))
            break;
        synced = true;
        unlinkat(committed->fd, name, 0);
    }
    listing_close(&listing, NULL);
}

/* The parts are not needed any more and `latest` is for people: neither may fail a commit. */
static void tidy_step(const struct directory *parent, const struct directory *committed, uint64_t step)
{
    char name[FILE_NAME_SIZE];

    sweep_parts(parent, committed, true);
    name_step(name, step);
    strcat(name, "\n");
    file_write(parent, "latest", name, strlen(name), NULL);
}

/* Another process may have renamed it, or have committed another attempt at this step. */
static int rename_attempt(const struct directory *parent, uint64_t step, const char *attempt, struct error *err)
{
    char from[FILE_NAME_SIZE], to[FILE_NAME_SIZE];
    int failure;

    name_partial(from, step, attempt);
    name_step(to, step);
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
    char name[FILE_NAME_SIZE];
    struct directory partial;
    int shards, result;

    name_partial(name, step, attempt);
    if (directory_open(&partial, parent, name, err) < 0)
        return errno == ENOENT ? 0 : -1;
    result = has_all_files(&partial, &shards, err);
    if (result > 0 && file_exists(&partial, MANIFEST_NAME) && attempt_check_forms(&partial, err) < 0)
        result = -1;
    else if (result > 0 && write_manifest(&partial, step, attempt, shards, err) < 0)
        result = -1;
    else if (result == 0)
        result = has_whole_manifest(&partial, step, attempt, err);
    if (result > 0)
        result = rename_attempt(parent, step, attempt, err);
    if (result > 0 &&
        directory_sync(parent, err) < 0) /* before the parts are removed: a crash may keep only their removal */
        result = -1;
    if (result > 0)
        tidy_step(parent, &partial, step);
    directory_close(&partial);
    return result;
}

/* "Committed" is reported only when it is durable, even if the process that renamed died before the sync. */
static int commit_step(const struct directory *parent, uint64_t step, const char *attempt, struct error *err)
{
    int result = attempt_is_committed(parent, step) ? 1 : commit_attempt(parent, step, attempt, err);

    /* Another process may have committed meanwhile, and removed the parts that this one was reading. */
    if (result <= 0 && attempt_is_committed(parent, step))
        result = 1;
    if (result > 0) {
        if (directory_sync(parent, err) < 0)
            return -1;
        attempt_clear_others(parent, step, NULL, NULL); /* leftovers: no reason to fail */
    }
    return result;
}

int ckpt_commit(const char *dir, uint64_t step, const char *attempt, struct error *err)
{
    struct directory parent;
    int result;

    if (!name_is_attempt(attempt))
        return error_set(err, CODE_INTERNAL,
                         "ckpt_commit: attempt \"%s\": must be 1 to %d letters, digits, '.', '_' and '-'",
                         attempt ? attempt : "", CKPT_ATTEMPT_SIZE - 1);
    if (directory_open(&parent, NULL, dir, err) < 0)
        return errno == ENOENT ? 0 : -1;
    result = commit_step(&parent, step, attempt, err);
    directory_close(&parent);
    return result;
}

/* Removes parts that a killed commit left. In another user's directory that may fail: no matter. */
static void sweep_steps(const struct directory *parent)
{
    struct directory committed;
    struct listing listing;
    const char *name;
    uint64_t step;

    listing_open(&listing, parent);
    while ((name = listing_next(&listing)))
        if (name_parse_step(name, &step) && attempt_is_committed(parent, step) &&
            directory_open(&committed, parent, name, NULL) == 0) {
            sweep_parts(parent, &committed, false);
            directory_close(&committed);
        }
    listing_close(&listing, NULL);
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
                         : commit_step(&parent, attempts[i].step, attempts[i].attempt, &why);

        done += result > 0;
        if (result < 0 && why.code == CODE_CONFIG && (!found || attempts[i].step > newest)) {
            failed = -1;
            if (err)
                *err = why;
        }
    }
    if (done >= 0)
        sweep_steps(&parent);
    free(attempts);
    directory_close(&parent);
    return failed ? -1 : done;
}
