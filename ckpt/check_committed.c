/* check_committed.c - whether a step that is committed is ours: two jobs may have been given one directory. */
#include "config.h"

#include "ckpt/attempt.h"
#include "ckpt/manifest.h"

#include <stdlib.h>
#include <string.h>

#define OVERRIDE_LINE "#! --set "

/* The next line that is no override, and where the one after it begins; NULL at the end. */
static const char *next_line(const char **text, size_t *length)
{
    while (**text) {
        const char *line = *text;

        *length = strcspn(line, "\n");
        *text = line + *length + (line[*length] == '\n');
        if (strncmp(line, OVERRIDE_LINE, strlen(OVERRIDE_LINE)) != 0)
            return line;
    }
    return NULL;
}

/* A manifest has '?' for what is not ASCII in a text that is not UTF-8. */
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

/* Not the topology, nor the loss scale: a run may go on with others. */
static bool same_progress(const struct ckpt_state *a, const struct ckpt_state *b)
{
    return a->step == b->step && a->consumed_samples == b->consumed_samples && a->seed == b->seed &&
           a->skipped_steps == b->skipped_steps;
}

static struct manifest *read_manifest(const struct directory *committed, struct error *err)
{
    struct manifest *manifest;
    size_t bytes;
    char *text = file_read(committed, MANIFEST_NAME, MANIFEST_MAX_BYTES, &bytes, err);

    if (!text)
        return NULL;
    manifest = manifest_decode(text, bytes, -1, 0, err);
    free(text);
    if (!manifest)
        error_prefix(err, "%s/" MANIFEST_NAME, committed->path);
    return manifest;
}

int attempt_check_committed(const struct directory *parent, const struct ckpt_save *save, struct error *err)
{
    char name[LAYOUT_NAME_SIZE];
    struct directory committed;
    struct manifest *manifest;
    int result = 0;

    layout_step_name(name, save->state.step);
    if (directory_open(&committed, parent, name, err) < 0)
        return -1;
    manifest = read_manifest(&committed, err);
    if (!manifest) {
        result = -1;
        if (err && err->code == CODE_DATA) /* what lies there is damaged; that says nothing about the save */
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

int ckpt_check_committed(const struct ckpt_save *save, struct error *err)
{
    struct directory parent;
    int result;

    if (directory_open(&parent, NULL, save->dir, err) < 0)
        return -1;
    result = attempt_check_committed(&parent, save, err);
    directory_close(&parent);
    return result;
}
