#include "ckpt/write/attempt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool attempt_next(struct listing *listing, struct attempt *attempt)
{
    const char *name;

    while ((name = listing_next(listing))) {
        attempt->abandoned = name_parse_attempt(name, ATTEMPT_ABANDONED, &attempt->step, attempt->attempt);
        snprintf(attempt->name, sizeof attempt->name, "%s", name);
        if (attempt->abandoned || name_parse_attempt(name, ATTEMPT_PARTIAL, &attempt->step, attempt->attempt))
            return true;
    }
    return false;
}

int attempt_list(const struct directory *parent, struct attempt **attempts, size_t *count, struct error *err)
{
    struct listing listing = listing_open(parent);
    struct attempt attempt;

    *attempts = NULL;
    *count = 0;
    while (attempt_next(&listing, &attempt))
        listing_keep(&listing, (void **)attempts, count, &attempt, sizeof attempt);
    return listing_close(&listing, err);
}

bool step_is_committed(const struct directory *parent, uint64_t step)
{
    char name[FILE_NAME_SIZE], manifest[FILE_NAME_SIZE + 32];

    name_step(name, step);
    snprintf(manifest, sizeof manifest, "%s/" MANIFEST_NAME, name);
    return file_exists(parent, manifest);
}

int step_newest_committed(const struct directory *parent, uint64_t *newest, struct error *err)
{
    struct listing listing = listing_open(parent);
    const char *name;
    uint64_t step;
    int found = 0;

    *newest = 0;
    while ((name = listing_next(&listing)))
        if (name_parse_step(name, &step) && (!found || step > *newest) && step_is_committed(parent, step)) {
            *newest = step;
            found = 1;
        }
    return listing_close(&listing, err) < 0 ? -1 : found;
}

#define LINK_NAME_SIZE (FILE_NAME_SIZE + 16)

static void name_commit_link(char link[LINK_NAME_SIZE], uint64_t step, const char *attempt)
{
    name_attempt(link, ATTEMPT_PARTIAL, step, attempt);
    strcat(link, "/" ATTEMPT_COMMIT);
}

void attempt_leave_commit(const struct directory *parent, uint64_t step, const char *attempt)
{
    char link[LINK_NAME_SIZE];

    name_commit_link(link, step, attempt);
    unlinkat(parent->fd, link, 0);
}

int attempt_take_commit(const struct directory *parent, uint64_t step, const char *attempt, const char *who,
                        struct error *err)
{
    char link[LINK_NAME_SIZE], text[FILE_NAME_SIZE];
    ssize_t length;

    name_commit_link(link, step, attempt);
    if (symlinkat(who, parent->fd, link) == 0 || errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS)
        return 1;
    if (errno == ENOENT) /* renamed, which is how a commit ends */
        return 0;
    if (errno != EEXIST)
        return file_write_failed(parent, link, 0, err);
    length = readlinkat(parent->fd, link, text, sizeof text);
    return length == (ssize_t)strlen(who) && memcmp(text, who, (size_t)length) == 0;
}

int attempt_check_formats(const struct directory *directory, struct error *err)
{
    struct listing listing = listing_open(directory);
    const char *name;
    struct error why = {0};

    while (why.code != CODE_CONFIG && (name = listing_next(&listing))) {
        int shard = -1, shards = 0;

        if (strcmp(name, MANIFEST_NAME) == 0 || name_parse_shard(name, SHARD_PART, &shard, &shards) ||
            name_parse_shard(name, SHARD_DRAINED, &shard, &shards))
            manifest_destroy(manifest_read(directory, name, shard, shards, &why));
    }
    listing_close(&listing, NULL);
    if (why.code != CODE_CONFIG)
        return 0;
    if (err)
        *err = why;
    return -1;
}

int attempt_check_formats_in(const struct directory *parent, const char *name, struct error *err)
{
    struct directory directory;
    int result;

    if (directory_open(&directory, parent, name, NULL) < 0)
        return 0;
    result = attempt_check_formats(&directory, err);
    directory_close(&directory);
    return result;
}

int attempt_trash(const struct directory *parent, const char *name, struct error *err)
{
    return attempt_check_formats_in(parent, name, NULL) < 0 ? 0 : file_trash(parent, name, err);
}

int attempt_clear(const struct directory *parent, uint64_t step, bool older, const char *except, struct error *err)
{
    struct attempt *attempts;
    size_t count;
    int result = 0;

    if (attempt_list(parent, &attempts, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        const struct attempt *a = &attempts[i];

        if (older ? a->step >= step : a->step != step || (except && strcmp(a->attempt, except) == 0))
            continue;
        if (attempt_trash(parent, a->name, result ? NULL : err) < 0) /* another user's attempts may have to stay */
            result = -1;
    }
    free(attempts);
    return result;
}

void attempt_remove_stale(const struct directory *parent, uint64_t step, const char *attempt)
{
    char trash[FILE_TRASH_SIZE];
    uint64_t newest;

    file_make_trash(parent, trash, NULL);
    if (step_newest_committed(parent, &newest, NULL) > 0)
        attempt_clear(parent, newest < step ? newest : step, true, NULL, NULL);
    if (attempt)
        attempt_clear(parent, step, false, attempt, NULL);
}

/* ---- abandoning -------------------------------------------------------------------------------------------------- */

#define WHY     "why"
#define MAX_WHY ((size_t)4096)

/* Removes all files but the reason. */
static void remove_files(const struct directory *abandoned)
{
    struct listing listing = listing_open(abandoned);
    const char *name;

    while ((name = listing_next(&listing)))
        if (strcmp(name, WHY) != 0)
            unlinkat(abandoned->fd, name, 0);
    listing_close(&listing, NULL);
}

/* Renamed, not made: a full disk may have no room for a new name. */
static int leave_marker(const struct directory *parent, const char *from, const char *to, struct error *err)
{
    if (renameat(parent->fd, from, parent->fd, to) == 0)
        return 0;
    if (errno == ENOTEMPTY || errno == EEXIST) /* abandoned before, and made again by a process that did not check */
        return file_trash(parent, from, err);
    if (errno != ENOENT)
        return error_errno(err, CODE_IO, "%s/%s: cannot rename to %s", parent->path, from, to);
    if (mkdirat(parent->fd, to, 0777) < 0 && errno != EEXIST)
        return file_write_failed(parent, to, 0, err);
    return 0;
}

int attempt_abandon(const struct directory *parent, uint64_t step, const char *attempt, const char *why,
                    struct error *err)
{
    char from[FILE_NAME_SIZE], to[FILE_NAME_SIZE];
    struct directory abandoned;

    if (step_is_committed(parent, step))
        return 0;
    name_attempt(from, ATTEMPT_PARTIAL, step, attempt);
    name_attempt(to, ATTEMPT_ABANDONED, step, attempt);
    if (attempt_check_formats_in(parent, from, err) < 0 || leave_marker(parent, from, to, err) < 0)
        return -1;
    /* Durable before it is emptied: else a crash could bring back the old name with half the files. */
    if (directory_sync(parent, err) < 0 || directory_open_made(&abandoned, parent, to, err) < 0)
        return -1;
    /* Written first, since removing many files takes long; and again, since a full disk has room only after that. */
    file_write(&abandoned, WHY, why, strnlen(why, MAX_WHY), NULL);
    remove_files(&abandoned);
    if (!file_exists(&abandoned, WHY))
        file_write(&abandoned, WHY, why, strnlen(why, MAX_WHY), NULL);
    directory_close(&abandoned);
    return 0;
}

bool attempt_is_abandoned(const struct directory *parent, uint64_t step, const char *attempt, char *why, size_t size)
{
    char name[FILE_NAME_SIZE], path[FILE_NAME_SIZE + 8];
    struct directory abandoned;
    size_t bytes;
    char *text;

    name_attempt(name, ATTEMPT_ABANDONED, step, attempt);
    snprintf(path, sizeof path, "%s/.", name);
    if (!file_exists(parent, path))
        return false;
    if (!why)
        return true;
    why[0] = '\0';
    if (directory_open_made(&abandoned, parent, name, NULL) == 0) {
        text = file_read(&abandoned, WHY, MAX_WHY, &bytes, NULL);
        if (text)
            snprintf(why, size, "%s", text);
        free(text);
        directory_close(&abandoned);
    }
    return true;
}

/* ---- whose step is it: two jobs may have been given one directory ------------------------------------------------ */

#define ADDED_LINE "#! " /* by muster: options --set, and the data sets */

/* The next line of the job file itself; *text moves to the line after it. NULL at the end. */
static const char *next_line(const char **text, size_t *length)
{
    while (**text) {
        const char *line = *text;

        *length = strcspn(line, "\n");
        *text = line + *length + (line[*length] == '\n');
        if (strncmp(line, ADDED_LINE, strlen(ADDED_LINE)) != 0)
            return line;
    }
    return NULL;
}

/* In a text that is not UTF-8 a manifest has '?' for each byte that is not ASCII. */
static bool same_line(const char *kept, const char *ours, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (kept[i] != ours[i] && (kept[i] != '?' || (unsigned char)ours[i] < 0x80))
            return false;
    return true;
}

static bool same_job(const char *kept, const char *ours)
{
    size_t kept_length = 0, our_length = 0;
    const char *kept_line, *our_line;

    do {
        kept_line = next_line(&kept, &kept_length);
        our_line = next_line(&ours, &our_length);
        if (!kept_line || !our_line)
            return !kept_line && !our_line;
    } while (kept_length == our_length && same_line(kept_line, our_line, our_length));
    return false;
}

/* Not the mesh, nor the loss scale: a run may continue with others. */
static bool same_progress(const struct ckpt_progress *a, const struct ckpt_progress *b)
{
    return a->step == b->step && a->consumed_samples == b->consumed_samples && a->seed == b->seed &&
           a->skipped_steps == b->skipped_steps;
}

int ckpt_check_owner(const struct ckpt_save *save, struct error *err)
{
    struct directory committed;
    struct manifest *manifest;
    char path[4096];
    int result = 0;

    ckpt_step_path(path, sizeof path, save->dir, save->state.step);
    if (directory_open(&committed, NULL, path, err) < 0)
        return -1;
    manifest = manifest_read(&committed, MANIFEST_NAME, -1, 0, err);
    if (!manifest) {
        result = -1;
        if (err && err->code == CODE_DATA) /* a damaged checkpoint is no fault of the save */
            err->code = CODE_IO;
    } else if (strcmp(manifest->attempt, save->attempt) != 0 &&
               (!same_progress(&manifest->state, &save->state) ||
                !same_job(manifest->job_text, save->job_text ? save->job_text : "")))
        result = error_set(err, CODE_DATA, "%s is of attempt %s, another run's: do two jobs share this directory?",
                           committed.path, manifest->attempt);
    manifest_destroy(manifest);
    directory_close(&committed);
    return result;
}
