/* tool_stage.c - the commands about saves in a node's memory: status and reclaim. */
#include <dirent.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/drain/drain.h"
#include "ckpt/stage/stage_dir.h"
#include "ckpt/tools/tool.h"
#include "common/clock.h"
#include "common/text.h"

#define DEFAULT_ROOT "/dev/shm"

#define SILENT_SECONDS 5

/* ---- each stage, as its owner ------------------------------------------------------------------------------------ */

/* What a command does with one stage. Returns an exit code, or -1 with *err. */
typedef int stage_visit(const char *path, const struct options *options, json_t *all, struct error *err);

/*
 * Root opens no directory of a user's with its own rights: while a stage is visited, the effective user is its owner.
 * The real one stays root, so that no process of the user can trace this one.
 */
static int visit_stage(const char *path, stage_visit *visit, const struct options *options, json_t *all)
{
    bool root = geteuid() == 0;
    struct stat info;
    struct error err;
    int code;

    if (lstat(path, &info) < 0)
        code = error_errno(&err, CODE_IO, "%s", path);
    else if (root && (setgroups(0, NULL) < 0 || setegid(info.st_gid) < 0 || seteuid(info.st_uid) < 0))
        code = error_errno(&err, CODE_IO, "%s: cannot become user %u", path, (unsigned)info.st_uid);
    else
        code = visit(path, options, all, &err);
    if (root && (seteuid(0) < 0 || setegid(0) < 0))
        code = error_errno(&err, CODE_INTERNAL, "cannot become root again");
    return code < 0 ? error_report(&err) : code;
}

/* "muster-UID-...", a directory of that user; of this one unless root asks for all. */
static bool is_stage(const char *path, const char *name, bool all_users)
{
    char prefix[32];
    struct stat info;

    if (lstat(path, &info) < 0 || !S_ISDIR(info.st_mode) || (info.st_mode & 07777) != 0700 ||
        (info.st_uid != geteuid() && !(all_users && geteuid() == 0)))
        return false;
    snprintf(prefix, sizeof prefix, "muster-%u-", (unsigned)info.st_uid);
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static int visit_root(const char *path, stage_visit *visit, const struct options *options, json_t *all)
{
    DIR *root = opendir(path);
    struct dirent *entry;
    struct error err;
    char stage[PATH_MAX];
    int code = CODE_OK, found = 0;

    if (!root) {
        error_errno(&err, CODE_IO, "%s", path);
        return error_report(&err);
    }
    while ((entry = readdir(root))) {
        int one;

        if (snprintf(stage, sizeof stage, "%s/%s", path, entry->d_name) >= (int)sizeof stage ||
            !is_stage(stage, entry->d_name, options->all_users))
            continue;
        found++;
        one = visit_stage(stage, visit, options, all);
        code = code == CODE_OK ? one : code;
    }
    closedir(root);
    if (!found && !options->json) {
        snprintf(stage, sizeof stage, "%s", path);
        error_tame(stage);
        printf("nothing is staged on this node in %s (no muster-*)\n", stage);
    }
    return code;
}

static int visit_stages(char **paths, stage_visit *visit, const struct options *options, json_t *all)
{
    int code = !*paths ? visit_root(DEFAULT_ROOT, visit, options, all) : CODE_OK;
    struct stat info;

    for (; *paths; paths++) {
        /* A stage is its owner's alone; what others may enter is a directory of stages, as /dev/shm. */
        bool root = lstat(*paths, &info) == 0 && S_ISDIR(info.st_mode) && (info.st_mode & 0777) != 0700;
        int one = (root ? visit_root : visit_stage)(*paths, visit, options, all);

        code = code == CODE_OK ? one : code;
    }
    return code;
}

/* ---- status ------------------------------------------------------------------------------------------------------ */

static void print_save(const struct ckpt_save_status *g)
{
    char done[TEXT_BYTES_SIZE], total[TEXT_BYTES_SIZE], rate[TEXT_BYTES_SIZE];

    text_bytes(total, g->bytes_total);
    printf("  step %-8" PRIu64 " %-10s", g->step, status_state_name(g->state));
    if (g->state == CKPT_DRAINING)
        printf("  %s of %s, %s/s", text_bytes(done, g->bytes_done), total, text_bytes(rate, (uint64_t)g->rate));
    else
        printf("  %s", total);
    if (g->state >= CKPT_COMMITTED)
        printf(" in %.1f s", g->ended - g->started);
    if (g->reason[0])
        printf(": %s", g->reason);
    printf(g->dir[0] ? "  -> %s\n" : "\n", g->dir);
}

static int show_stage(const char *path, const struct options *options, json_t *all, struct error *err)
{
    struct status *status = error_calloc(1, sizeof *status, err);
    struct directory stage;
    double silent;
    bool drained;
    int code = CODE_OK;

    if (!status || stage_directory_open(&stage, path, err) < 0) {
        free(status);
        return -1;
    }
    drained = stage_is_locked(&stage, STAGE_LOCK);
    silent = clock_realtime() - stage_signed_at(&stage);
    if (stage_check_format(&stage, err) < 0 || status_gather(status, &stage, err) < 0) {
        code = -1;
    } else if (options->json) {
        json_t *json = status_json(status);

        json_object_set_new(json, "stage", json_text(stage.path));
        json_object_set_new(json, "drained", json_boolean(drained));
        json_array_append_new(all, json);
    } else {
        error_tame(stage.path); /* another user may have made the name */
        if (!drained)
            printf("%s: no drainer\n", stage.path);
        else if (silent < SILENT_SECONDS)
            printf("%s: process %d on %s drains it\n", stage.path, status->pid, status->host);
        else
            printf("%s: process %d on %s drains it, without progress for %.0f s\n", stage.path, status->pid,
                   status->host, silent);
        for (size_t i = 0; i < status->count; i++)
            print_save(&status->saves[i]);
    }
    directory_close(&stage);
    free(status);
    return code;
}

int tool_status(char **paths, const struct options *options, struct error *err)
{
    json_t *all = options->json ? json_array() : NULL;
    int code = visit_stages(paths, show_stage, options, all);

    return all && tool_print_json(all, err) < 0 ? -1 : code;
}

/* ---- reclaim ----------------------------------------------------------------------------------------------------- */

static void print_line(const char *line, bool failure, void *arg)
{
    (void)failure;
    (void)arg;
    puts(line);
}

static int reclaim_stage(const char *path, const struct options *options, json_t *all, struct error *err)
{
    (void)all;
    return ckpt_reclaim(path, options->older_than, print_line, NULL, err) < 0 ? -1 : CODE_OK;
}

int tool_reclaim(char **paths, const struct options *options, struct error *err)
{
    if (options->older_than <= 0)
        return error_set(err, CODE_USAGE, "reclaim: missing --older-than AGE, such as 24h: younger saves stay");
    return visit_stages(paths, reclaim_stage, options, NULL);
}
