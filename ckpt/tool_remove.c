/* tool_remove.c - "muster-ckpt prune" and "muster-ckpt rm". */
#include "config.h"

#include "ckpt/layout.h"
#include "ckpt/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_listed(uint64_t step, const uint64_t *steps, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (steps[i] == step)
            return true;
    return false;
}

int tool_prune(char **paths, int count, const struct options *options)
{
    uint64_t *before = NULL, *after = NULL;
    size_t nbefore = 0, nafter = 0;
    struct error err;
    int code = CODE_OK;

    (void)count;
    if (options->keep < 1) {
        error_set(&err, CODE_USAGE, "prune: how many of the newest are to stay? Say --keep 2");
        return error_report(&err);
    }
    if (tool_check_directory(paths[0], &err) < 0 || ckpt_list(paths[0], &before, &nbefore, &err) < 0)
        return error_report(&err);
    if (ckpt_prune(paths[0], options->keep, (uint64_t)options->keep_every, &err) < 0)
        code = error_report(&err); /* others may have gone */
    if (ckpt_list(paths[0], &after, &nafter, &err) < 0)
        code = error_report(&err);
    else
        for (size_t i = 0; i < nbefore; i++)
            if (!is_listed(before[i], after, nafter))
                printf("%s: removed step %" PRIu64 "\n", paths[0], before[i]);
    free(before);
    free(after);
    return code;
}

static int remove_one(const char *path, bool force)
{
    char dir[4096];
    uint64_t step;
    struct error err;
    int result;

    if (ckpt_split_step_path(dir, sizeof dir, &step, path))
        result = ckpt_remove(dir, step, force, &err);
    else
        result = error_set(&err, CODE_USAGE, "%s: no checkpoint's name; must be like .../step-00000100", path);
    return result < 0 ? error_report(&err) : CODE_OK;
}

int tool_rm(char **paths, int count, const struct options *options)
{
    int code = CODE_OK;

    for (int i = 0; i < count; i++) {
        int one = remove_one(paths[i], options->force);

        code = code == CODE_OK ? one : code;
    }
    return code;
}
