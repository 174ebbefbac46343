/* tool_status.c - "muster-ckpt status": what is staged on this node, and how far its drain is. */
#include "config.h"

#include "ckpt/json_text.h"
#include "ckpt/stage_status.h"
#include "ckpt/tool.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOT      "/dev/shm"
#define BAR_WIDTH 30

static json_t *generation_json(const struct status_generation *g)
{
    return json_pack("{s:I, s:s, s:o, s:s, s:I, s:I, s:f, s:f, s:f, s:o}", "step", (json_int_t)g->step, "attempt",
                     g->attempt, "dir", json_text(g->dir), "state", status_state_name(g->state), "bytes_done",
                     (json_int_t)g->bytes_done, "bytes_total", (json_int_t)g->bytes_total, "rate", g->rate, "started",
                     g->started, "ended", g->ended, "reason", json_text(g->reason));
}

static json_t *stage_json(const struct directory *stage, const struct status *status, bool drained)
{
    json_t *generations = json_array();

    for (size_t i = 0; i < status->count; i++)
        json_array_append_new(generations, generation_json(&status->generations[i]));
    return json_pack("{s:o, s:b, s:i, s:s, s:f, s:o}", "stage", json_text(stage->path), "drained", drained, "pid",
                     status->pid, "host", status->host, "updated", status->updated, "generations", generations);
}

static void print_bar(const struct status_generation *g)
{
    static const char full[] = "##############################";
    double part = g->bytes_total ? (double)g->bytes_done / (double)g->bytes_total : 0;

    part = part > 1 ? 1 : part;
    printf("  [%-*.*s] %3.0f%%", BAR_WIDTH, (int)(part * BAR_WIDTH), full, 100 * part);
}

static void print_generation(const struct status_generation *g, bool bar)
{
    char done[32], total[32], rate[32];

    tool_format_bytes(done, sizeof done, g->bytes_done);
    tool_format_bytes(total, sizeof total, g->bytes_total);
    tool_format_bytes(rate, sizeof rate, (uint64_t)g->rate);
    printf("  step %-8" PRIu64 " %-10s", g->step, status_state_name(g->state));
    if (bar && g->state == STATUS_DRAINING)
        print_bar(g);
    if (g->state == STATUS_DRAINING)
        printf("  %s of %s, %s/s", done, total, rate);
    else
        printf("  %s", total);
    if (status_has_ended(g->state))
        printf(" in %.1f s", g->ended - g->started);
    if (g->reason[0])
        printf(": %s", g->reason);
    printf(g->dir[0] ? "  -> %s\n" : "\n", g->dir);
}

static int show_stage(const char *path, const struct options *options, json_t *all)
{
    struct status *status = calloc(1, sizeof *status);
    struct directory stage = {.fd = -1};
    struct error err;
    bool drained;
    int code = CODE_OK;

    if (!status) {
        error_errno(&err, CODE_IO, "%s", path);
        return error_report(&err);
    }
    if (stage_directory_open(&stage, path, false, &err) < 0 || status_gather(status, &stage, &err) < 0) {
        code = error_report(&err);
        goto out;
    }
    drained = stage_is_locked(&stage, STAGE_LOCK);
    if (options->json) {
        json_array_append_new(all, stage_json(&stage, status, drained));
        goto out;
    }
    if (drained)
        printf("%s: drained by process %d on %s\n", path, status->pid, status->host);
    else
        printf("%s: nobody drains it\n", path);
    for (size_t i = 0; i < status->count; i++)
        print_generation(&status->generations[i], isatty(STDOUT_FILENO));
out:
    directory_close(&stage);
    free(status);
    return code;
}

/* The stages of this user. Those that are no directories of ours are not ours to look at. */
static int show_root(const struct options *options, json_t *all)
{
    char prefix[32], path[512];
    DIR *root = opendir(ROOT);
    struct dirent *entry;
    int code = CODE_OK, found = 0;

    snprintf(prefix, sizeof prefix, "muster-%u-", (unsigned)geteuid());
    while (root && (entry = readdir(root))) {
        struct directory stage;

        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        snprintf(path, sizeof path, ROOT "/%s", entry->d_name);
        if (stage_directory_open(&stage, path, false, NULL) < 0)
            continue;
        directory_close(&stage);
        found++;
        if (code == CODE_OK)
            code = show_stage(path, options, all);
    }
    if (root)
        closedir(root);
    if (!found && !options->json)
        puts("nothing is staged on this node (no " ROOT "/muster-*)");
    return code;
}

int tool_status(char **paths, int count, const struct options *options)
{
    json_t *all = options->json ? json_array() : NULL;
    int code = count == 0 ? show_root(options, all) : CODE_OK;

    for (int i = 0; i < count; i++) {
        int one = show_stage(paths[i], options, all);

        if (code == CODE_OK)
            code = one;
    }
    if (!all)
        return code;
    return tool_print_json(all) != CODE_OK ? CODE_IO : code;
}
