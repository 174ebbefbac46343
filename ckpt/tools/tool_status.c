/* tool_status.c - "muster-ckpt status": staged saves on this node, and the progress of their drain. */

#include "config.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/format/json_fields.h"
#include "ckpt/stage/stage_status.h"
#include "ckpt/tools/tool.h"

#define ROOT      "/dev/shm"
#define BAR_WIDTH 30

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
        json_t *json = status_json(status);

        json_object_set_new(json, "stage", json_text(stage.path));
        json_object_set_new(json, "drained", json_boolean(drained));
        json_array_append_new(all, json);
        goto out;
    }
    if (drained)
        printf("%s: drained by process %d on %s\n", path, status->pid, status->host);
    else
        printf("%s: no drainer\n", path);
    for (size_t i = 0; i < status->count; i++)
        print_generation(&status->generations[i], isatty(STDOUT_FILENO));
out:
    directory_close(&stage);
    free(status);
    return code;
}

/* The stages of this user: directories of the right name and owner. */
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

int tool_status(char **paths, const struct options *options)
{
    json_t *all = options->json ? json_array() : NULL;
    int code = !*paths ? show_root(options, all) : CODE_OK;

    for (; *paths; paths++) {
        int one = show_stage(*paths, options, all);

        if (code == CODE_OK)
            code = one;
    }
    if (!all)
        return code;
    return tool_print_json(all) != CODE_OK ? CODE_IO : code;
}
