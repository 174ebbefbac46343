/* tool_reshard.c - "muster-ckpt reshard", and what --to says. */
#include "config.h"

#include "ckpt/rewrite.h"
#include "ckpt/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One "name=number" of `text`, and where the next begins; NULL if it is none. */
static const char *parse_size(const char *text, struct tool_mesh *to)
{
    const struct {
        const char *name;
        int *size;
        int least, most;
    } sizes[] = {{"dp=", &to->mesh.dp, 1, 99999},
                 {"tp=", &to->mesh.tp, 1, 99999},
                 {"pp=", &to->mesh.pp, 1, 99999},
                 {"zero=", &to->zero, 0, 3},
                 {"chunks=", &to->chunks, 1, 64}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t length = strlen(sizes[i].name);
        char *end;
        long value;

        if (strncmp(text, sizes[i].name, length) != 0)
            continue;
        value = strtol(text + length, &end, 10);
        if (end == text + length || (*end && *end != ',') || value < sizes[i].least || value > sizes[i].most)
            return NULL;
        *sizes[i].size = (int)value;
        return *end ? end + 1 : end;
    }
    return NULL;
}

int tool_parse_mesh(const char *text, struct tool_mesh *to, struct error *err)
{
    *to = (struct tool_mesh){.mesh = {1, 1, 1}, .zero = -1};
    for (const char *at = text; at && *at;) {
        at = parse_size(at, to);
        if (!at)
            return error_set(err, CODE_USAGE,
                             "--to %s: must be like dp=4,tp=2,pp=1,zero=1 (and chunks=1), sizes that "
                             "are not named being 1",
                             text);
    }
    return 0;
}

int tool_reshard(char **paths, int count, const struct options *options)
{
    struct tool_mesh to;
    struct bar bar = tool_bar(options);
    struct ckpt *source;
    struct error err;
    char rate[96], path[4096];
    double seconds;
    int result;

    (void)count;
    if (!options->to || !*options->to) {
        error_set(&err, CODE_USAGE, "reshard: into which mesh? Say --to dp=4,tp=2,pp=1");
        return error_report(&err);
    }
    if (tool_parse_mesh(options->to, &to, &err) < 0)
        return error_report(&err);
    source = tool_open(paths[0], &err);
    if (!source)
        return error_report(&err);
    result = ckpt_reshard(source, paths[1], &to.mesh, to.chunks, to.zero < 0 ? ckpt_state(source)->zero : to.zero,
                          tool_bar_draw, &bar, &err);
    seconds = tool_bar_end(&bar);
    if (result == 0) {
        ckpt_step_path(path, sizeof path, paths[1], ckpt_state(source)->step);
        tool_format_rate(rate, sizeof rate, ckpt_bytes(source), seconds);
        printf("%s: %d shards, %s\n", path, mesh_world(&to.mesh), rate);
    }
    ckpt_close(source);
    return result < 0 ? error_report(&err) : CODE_OK;
}
