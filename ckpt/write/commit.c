/*
 * commit.c - a save in the checkpoint directory: ckpt_write_shard writes one rank's shard and part; ckpt_commit and
 * ckpt_recover decide by the files alone, without a leader.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/format/block_writer.h"
#include "ckpt/format/pieces.h"
#include "ckpt/write/attempt.h"

/* ---- one rank's shard and part ----------------------------------------------------------------------------------- */

#define STREAM_ELEMENTS ((uint64_t)8 << 20) /* 32 MiB */

/* One kind's entry, from save->sources. */
static int put_pieces(struct block_writer *writer, const struct ckpt_save *save, size_t kind, struct error *err)
{
    for (size_t p = 0; p < save->npieces; p++)
        if (save->pieces[p].count > 0 &&
            block_writer_put(writer, save->sources[p * save->nkinds + kind], save->pieces[p].count * 4, err) < 0)
            return -1;
    return 0;
}

/* The same from save->source, through a buffer large enough for many small pieces. */
static int put_stream(struct block_writer *writer, const struct ckpt_save *save, size_t kind, uint64_t elements,
                      struct error *err)
{
    uint64_t most = elements < STREAM_ELEMENTS ? elements : STREAM_ELEMENTS;
    float *buffer = malloc(most * sizeof *buffer + 1);
    int result = 0;

    if (!buffer)
        return error_errno(err, CODE_IO, "a buffer of %zu bytes", (size_t)most * sizeof *buffer);
    for (uint64_t first = 0; first < elements && result == 0; first += most) {
        uint64_t count = elements - first < most ? elements - first : most;

        result = save->source(save->source_arg, kind, first, count, buffer, err);
        if (result == 0)
            result = block_writer_put(writer, buffer, count * sizeof *buffer, err);
    }
    free(buffer);
    return result;
}

/* Each kind's entry: its pieces one after the other, and zeros up to the next entry. */
static int write_data(const struct directory *partial, const struct ckpt_save *save, struct manifest_shard *shard,
                      const void *header, struct error *err)
{
    const struct shard_layout *layout = &shard->layout;
    struct block_writer *writer;
    char name[FILE_NAME_SIZE];
    int result;

    name_shard(name, SHARD_DATA, save->shard, save->shards);
    writer = block_writer_create(partial, name, header, shard->data_offset, layout->data_bytes, err);
    result = writer ? 0 : -1;
    for (size_t k = 0; k < save->nkinds && result == 0; k++) {
        result = save->sources ? put_pieces(writer, save, k, err) : put_stream(writer, save, k, layout->elements, err);
        if (result == 0 && k + 1 < save->nkinds)
            result = block_writer_put(writer, NULL, layout->stride - layout->elements * 4, err);
    }
    if (result == 0 && block_writer_finish(writer, shard->block_crcs, err) != 0)
        result = -1;
    block_writer_destroy(writer);
    return result;
}

/* Writes both files and makes their names durable; the part comes last, since it means that the shard is complete. */
static int write_files(const struct directory *partial, const struct ckpt_save *save, struct manifest *part,
                       const void *header, struct error *err)
{
    char name[FILE_NAME_SIZE];

    name_shard(name, SHARD_PART, part->part, part->shards);
    if (file_exists(partial, name))
        return error_set(err, CODE_INTERNAL, "%s/%s: was written before; each try to save needs a new attempt's name",
                         partial->path, name);
    if (write_data(partial, save, part->shard, header, err) < 0 || directory_sync(partial, err) < 0)
        return -1;
    return manifest_write(part, partial, err);
}

int ckpt_write_shard(const struct ckpt_save *save, struct error *err)
{
    struct directory parent = {.fd = -1}, partial = {.fd = -1};
    char name[FILE_NAME_SIZE];
    void *header = NULL;
    struct manifest *part = manifest_create_part(save, &header, err);
    int result = -1;

    if (!part)
        return -1;
    if (directory_make_path(save->dir, err) < 0 || directory_open(&parent, NULL, save->dir, err) < 0)
        goto out;
    if (step_is_committed(&parent, save->state.step)) {
        result = ckpt_check_owner(save, err);
        goto out;
    }
    attempt_remove_stale(&parent, save->state.step, save->attempt);
    name_attempt(name, ATTEMPT_PARTIAL, save->state.step, save->attempt);
    if (mkdirat(parent.fd, name, 0777) < 0 && errno != EEXIST) {
        file_write_failed(&parent, name, 0, err);
        goto out;
    }
    if (directory_open_made(&partial, &parent, name, err) < 0)
        goto out;
    result = write_files(&partial, save, part, header, err);
    /* Another process may have committed the step meanwhile: then this shard is not needed. */
    if (result < 0 && step_is_committed(&parent, save->state.step))
        result = ckpt_check_owner(save, err);
out:
    directory_close(&partial);
    directory_close(&parent);
    free(header);
    manifest_destroy(part);
    return result;
}

/* ---- the commit -------------------------------------------------------------------------------------------------- */

/* has_*, rename_* and commit_* return 1: yes, or done; 0: not yet; -1: failed. */

/*
 * Whether all parts and shards exist. Nodes ask this often, and mostly the answer is no. On a network file
 * system, one listing that has too few names gives this answer more cheaply than a look-up of each file.
 */
static int has_all_files(const struct directory *partial, int *shards, struct error *err)
{
    char part[FILE_NAME_SIZE], shard[FILE_NAME_SIZE];
    struct listing listing = listing_open(partial);
    int index, of, parts = 0, files = 0;
    const char *name;
    bool found;

    *shards = 0;
    while ((name = listing_next(&listing)))
        if (name_parse_shard(name, SHARD_PART, &index, &of)) {
            *shards = of;
            parts++;
        } else if (name_parse_shard(name, SHARD_DATA, &index, &of)) {
            files++;
        }
    if (listing_close(&listing, err) < 0)
        return -1;
    found = parts > 0 && parts >= *shards && files >= *shards;
    for (int i = 0; found && i < *shards; i++) { /* a network file system may list a name twice */
        name_shard(part, SHARD_PART, i, *shards);
        name_shard(shard, SHARD_DATA, i, *shards);
        found = file_exists(partial, part) && file_exists(partial, shard);
        if (!found && errno != ENOENT)
            return error_errno(err, CODE_IO, "%s: shard %d of %d", partial->path, i, *shards);
    }
    return found;
}

static int check_length(const struct directory *partial, const struct manifest *manifest, int shard, struct error *err)
{
    int fd = manifest_open_shard(manifest, shard, partial, err);

    return fd < 0 ? -1 : close(fd);
}

/* A part that is checked, with a shard file of the right length beside it. */
static struct manifest *read_part(const struct directory *partial, int shard, int shards, struct error *err)
{
    char name[FILE_NAME_SIZE];
    struct manifest *part;

    name_shard(name, SHARD_PART, shard, shards);
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
    struct manifest *whole = read_part(partial, 0, shards, err), *part;
    struct manifest_shard *all = whole ? realloc(whole->shard, (unsigned)shards * sizeof *all) : NULL;
    int result = all ? 0 : -1;

    if (!all) {
        if (whole)
            error_errno(err, CODE_IO, "%s: manifest of %d shards", partial->path, shards);
        manifest_destroy(whole);
        return NULL;
    }
    memset(all + 1, 0, ((unsigned)shards - 1) * sizeof *all);
    whole->shard = all;
    for (int i = 1; i < shards && result == 0; i++) {
        part = read_part(partial, i, shards, err);
        if (!part || manifest_agree(whole, part, err) < 0) {
            result = part ? error_prefix(err, "%s: shard %d", partial->path, i) : -1;
        } else {
            all[i] = *part->shard;
            memset(part->shard, 0, sizeof *part->shard); /* its pointers are in all[i] now */
        }
        manifest_destroy(part);
    }
    whole->part = -1;
    if (result == 0)
        return whole;
    manifest_destroy(whole);
    return NULL;
}

/* The attempt as a whole checkpoint of this step: the pieces cover all tensors. */
static int check_whole(const struct manifest *whole, uint64_t step, const char *attempt, struct error *err)
{
    struct piece_index index;

    if (manifest_check_save(whole, step, attempt, err) < 0 || piece_index_create(&index, whole, err) < 0)
        return -1;
    piece_index_destroy(&index);
    return 0;
}

/*
 * Whether an attempt is complete by its manifest. Parts are removed only when the rename to step-N is synced
 * (commit_attempt, sweep_parts). If a power loss undoes that rename all the same, this finds the attempt by
 * its manifest alone. 1; 0 if there is no manifest.
 */
static int has_whole_manifest(const struct directory *partial, uint64_t step, const char *attempt, struct error *err)
{
    struct manifest *whole;
    int result;

    if (!file_exists(partial, MANIFEST_NAME))
        return 0;
    whole = manifest_read(partial, MANIFEST_NAME, -1, 0, err);
    if (!whole)
        return -1;
    result = check_whole(whole, step, attempt, err) < 0 ? error_prefix(err, "%s/" MANIFEST_NAME, partial->path) : 0;
    for (int i = 0; result == 0 && i < whole->shards; i++)
        result = check_length(partial, whole, i, err);
    manifest_destroy(whole);
    return result < 0 || directory_sync(partial, err) < 0 ? -1 : 1;
}

int attempt_is_complete(const struct directory *parent, uint64_t step, const char *attempt, struct error *err)
{
    char name[FILE_NAME_SIZE];
    struct directory partial;
    int shards, complete;

    name_attempt(name, ATTEMPT_PARTIAL, step, attempt);
    if (directory_open_made(&partial, parent, name, err) < 0)
        return errno == ENOENT ? 0 : -1;
    complete = has_all_files(&partial, &shards, err);
    if (complete == 0)
        complete = has_whole_manifest(&partial, step, attempt, err);
    directory_close(&partial);
    return complete;
}

/* Does not replace a good one: GlusterFS may lose a file to whose name two clients rename at the same time. */
static int write_manifest(const struct directory *partial, uint64_t step, const char *attempt, int shards,
                          struct error *err)
{
    struct manifest *whole;
    int result = -1;

    if (has_whole_manifest(partial, step, attempt, NULL) > 0)
        return 0;
    whole = gather_parts(partial, shards, err);
    if (whole && check_whole(whole, step, attempt, err) < 0)
        error_prefix(err, "%s", partial->path);
    else if (whole)
        result = manifest_write(whole, partial, err);
    manifest_destroy(whole);
    return result;
}

/* Removes the parts of a committed step, once its rename is durable, the link of attempt_take_commit, and temporary files
 * that killed drainers left. */
static void sweep_parts(const struct directory *parent, const struct directory *committed, bool synced)
{
    struct listing listing = listing_open(committed);
    const char *name;
    int shard, shards;

    while ((name = listing_next(&listing))) {
        if (!name_parse_shard(name, SHARD_PART, &shard, &shards) && !name_is_unfinished(name) &&
            strcmp(name, ATTEMPT_COMMIT) != 0)
            continue;
        if (!synced && (attempt_check_formats(committed, NULL) < 0 || directory_sync(parent, NULL) < 0))
            break;
        synced = true;
        unlinkat(committed->fd, name, 0);
    }
    listing_close(&listing, NULL);
}

/* Another process may have renamed it, or have committed another attempt at this step. */
static int rename_attempt(const struct directory *parent, uint64_t step, const char *attempt, struct error *err)
{
    char from[FILE_NAME_SIZE], to[FILE_NAME_SIZE];
    int failure;

    if (attempt_check_claim(parent, attempt, err) != 0)
        return -1;
    name_attempt(from, ATTEMPT_PARTIAL, step, attempt);
    name_step(to, step);
    if (renameat(parent->fd, from, parent->fd, to) == 0)
        return 1;
    failure = errno;
    if (step_is_committed(parent, step))
        return 1;
    errno = failure;
    if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR)
        return error_set(err, CODE_DATA, "%s/%s: is in the way, and is not a checkpoint (it has no " MANIFEST_NAME ")",
                         parent->path, to);
    return error_errno(err, CODE_IO, "%s/%s: cannot rename to %s", parent->path, from, to);
}

static int commit_attempt(const struct directory *parent, uint64_t step, const char *attempt, struct error *err)
{
    char name[FILE_NAME_SIZE];
    struct directory partial;
    int shards, result;

    name_attempt(name, ATTEMPT_PARTIAL, step, attempt);
    if (directory_open_made(&partial, parent, name, err) < 0)
        return errno == ENOENT ? 0 : -1;
    result = has_all_files(&partial, &shards, err);
    if (result > 0 && file_exists(&partial, MANIFEST_NAME) && attempt_check_formats(&partial, err) < 0)
        result = -1;
    else if (result > 0 && write_manifest(&partial, step, attempt, shards, err) < 0)
        result = -1;
    else if (result == 0)
        result = has_whole_manifest(&partial, step, attempt, err);
    if (result > 0)
        result = rename_attempt(parent, step, attempt, err);
    /* Before the parts are removed: otherwise a crash could keep their removal and lose the rename. */
    if (result > 0 && directory_sync(parent, err) < 0)
        result = -1;
    if (result > 0) { /* the parts are not needed any more and `latest` is for people: neither may fail a commit */
        sweep_parts(parent, &partial, true);
        name_step(name, step);
        strcat(name, "\n");
        file_write(parent, "latest", name, strlen(name), NULL);
    }
    directory_close(&partial);
    return result;
}

/* "Committed" is reported only when it is durable, even if the process that renamed died before the sync. */
static int commit_step(const struct directory *parent, uint64_t step, const char *attempt, struct error *err)
{
    int result = step_is_committed(parent, step) ? 1 : commit_attempt(parent, step, attempt, err);

    /* Another process may have committed meanwhile, and removed the parts that this one was reading. */
    if (result <= 0 && step_is_committed(parent, step))
        result = 1;
    else if (result == 0 && errno != ENOENT && errno != ENOTDIR) /* it cannot be looked up: that is not "missing" */
        return error_errno(err, CODE_IO, "%s: step %llu", parent->path, (unsigned long long)step);
    if (result > 0) {
        if (directory_sync(parent, err) < 0)
            return -1;
        attempt_clear(parent, step, false, NULL, NULL); /* leftovers: no reason to fail */
    }
    return result;
}

/* Checks the attempt's name (CODE_INTERNAL), too. errno is ENOENT if there is no such directory. */
static int open_parent(struct directory *parent, const char *dir, const char *attempt, struct error *err)
{
    if (name_is_attempt(attempt))
        return directory_open(parent, NULL, dir, err);
    errno = EINVAL;
    return error_set(err, CODE_INTERNAL, "attempt \"%s\": must be 1 to %d letters, digits, '.', '_' and '-'",
                     attempt ? attempt : "", CKPT_ATTEMPT_SIZE - 1);
}

int ckpt_commit(const char *dir, uint64_t step, const char *attempt, struct error *err)
{
    struct directory parent;
    int result;

    if (open_parent(&parent, dir, attempt, err) < 0)
        return errno == ENOENT ? 0 : -1;
    result = commit_step(&parent, step, attempt, err);
    directory_close(&parent);
    return result;
}

int ckpt_remove_attempt(const char *dir, uint64_t step, const char *attempt, struct error *err)
{
    char name[FILE_NAME_SIZE];
    struct directory parent;
    int result;

    if (open_parent(&parent, dir, attempt, err) < 0)
        return errno == ENOENT ? 0 : -1;
    name_attempt(name, ATTEMPT_PARTIAL, step, attempt);
    result = file_exists(&parent, name) ? file_trash(&parent, name, err) : 0;
    directory_close(&parent);
    return result;
}

/* Removes parts that a killed commit left. In another user's directory that may fail: no matter. */
static void sweep_steps(const struct directory *parent)
{
    struct directory committed;
    struct listing listing = listing_open(parent);
    const char *name;
    uint64_t step;

    while ((name = listing_next(&listing)))
        if (name_parse_step(name, &step) && step_is_committed(parent, step) &&
            directory_open_made(&committed, parent, name, NULL) == 0) {
            sweep_parts(parent, &committed, false);
            directory_close(&committed);
        }
    listing_close(&listing, NULL);
}

/* 1: it may be committed; 0: it was abandoned, its step is committed, or another run owns the directory; -1. */
static int may_recover(const struct directory *parent, const struct attempt *attempt, struct error *err)
{
    int lost;

    if (attempt->abandoned || step_is_committed(parent, attempt->step))
        return 0;
    lost = attempt_check_claim(parent, attempt->attempt, err);
    return lost > 0 ? 0 : lost < 0 ? -1 : 1;
}

int ckpt_list_complete(const char *dir, uint64_t **steps, size_t *count, struct error *err)
{
    struct directory parent;
    struct listing listing;
    struct attempt attempt;
    int result;

    *steps = NULL;
    *count = 0;
    if (directory_open(&parent, NULL, dir, err) < 0)
        return errno == ENOENT ? 0 : -1;
    listing = listing_open(&parent);
    while (attempt_next(&listing, &attempt))
        if (may_recover(&parent, &attempt, NULL) > 0 &&
            attempt_is_complete(&parent, attempt.step, attempt.attempt, NULL) > 0)
            listing_keep(&listing, (void **)steps, count, &attempt.step, sizeof attempt.step);
    result = listing_close(&listing, err);
    directory_close(&parent);
    return result;
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
    if (attempt_list(&parent, &attempts, &count, err) < 0 || (found = step_newest_committed(&parent, &newest, err)) < 0)
        done = -1;
    for (size_t i = 0; i < count && done >= 0; i++) {
        struct error why = {0};
        int result = may_recover(&parent, &attempts[i], &why);

        if (result > 0)
            result = commit_step(&parent, attempts[i].step, attempts[i].attempt, &why);
        done += result > 0;
        if (result < 0 && why.code != CODE_DATA && (!found || attempts[i].step > newest)) {
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
