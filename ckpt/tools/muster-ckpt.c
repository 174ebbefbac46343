/* muster-ckpt.c - the program muster-ckpt: its command line, and what its commands (tool_*.c) share. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/models/hf.h"
#include "ckpt/tools/tool.h"
#include "common/option.h"
#include "common/text.h"

/* ---- what the commands share ------------------------------------------------------------------------------------- */

int tool_list_steps(const char *path, uint64_t **steps, size_t *count, struct error *err)
{
    struct stat info;

    if (tool_is_removed(path))
        return error_errno(err, CODE_DATA, "%s", path);
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode))
        return error_set(err, CODE_DATA, "%s: not a directory, so no checkpoint and no directory of them", path);
    return ckpt_list(path, steps, count, err);
}

bool tool_is_removed(const char *path)
{
    return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && (errno == ENOENT || errno == ENOTDIR);
}

struct ckpt *tool_open(const char *path, struct error *err)
{
    char inside[4096];
    uint64_t *steps;
    size_t count;

    if (snprintf(inside, sizeof inside, "%s/manifest.json", path) < (int)sizeof inside &&
        faccessat(AT_FDCWD, inside, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return ckpt_open(path, err);
    if (tool_list_steps(path, &steps, &count, err) < 0)
        return NULL;
    if (count == 0) {
        error_set(err, CODE_DATA,
                  "%s: no checkpoint (no manifest.json in it) and no directory of checkpoints (no step-* in it)%s",
                  path, hf_is_model(path) ? "; muster-ckpt import makes a checkpoint of a Hugging Face folder" : "");
        free(steps);
        return NULL;
    }
    ckpt_step_path(inside, sizeof inside, path, steps[0]);
    free(steps);
    return ckpt_open(inside, err);
}

int tool_print_json(json_t *json, struct error *err)
{
    int result = json_dumpf(json, stdout, JSON_INDENT(2));

    json_decref(json);
    if (result < 0)
        return error_set(err, CODE_IO, "cannot print JSON: no memory, or nowhere to write");
    putchar('\n');
    return CODE_OK;
}

const char *tool_format_rate(char text[TOOL_RATE_SIZE], uint64_t bytes, double seconds)
{
    char whole[TEXT_BYTES_SIZE], rate[TEXT_BYTES_SIZE];

    snprintf(text, TOOL_RATE_SIZE, "%s in %.1f s (%s/s)", text_bytes(whole, bytes), seconds,
             text_bytes(rate, (uint64_t)((double)bytes / (seconds > 1e-3 ? seconds : 1e-3))));
    return text;
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

static const char help[] =
    "Usage: muster-ckpt COMMAND [OPTION]... PATH...\n"
    "Inspect and convert muster's checkpoints. PATH is a checkpoint (.../step-00000100) or a directory of them.\n"
    "\n"
    "  list DIR        one line a checkpoint, newest first\n"
    "  show PATH       the contents of a checkpoint; of a directory, the newest one's\n"
    "      --tensors   with the table of tensors\n"
    "      --job       its job file, and nothing else\n"
    "  verify PATH     read every byte and check it; of a directory, the newest\n"
    "      --all       every checkpoint of the directory\n"
    "      -j, --threads=N   twice as many as there are processors, 4 to 16\n"
    "  diff A B        compare all tensors bit by bit, whatever meshes wrote them\n"
    "  status [STAGE]...   saves that are staged on this node, and their drain\n"
    "      --all-users   root: of all users\n"
    "      --json      of these five: as JSON\n"
    "  reclaim [STAGE]...  remove saves from this node's memory that could not be drained for long\n"
    "      --older-than=AGE   90s, 30m, 24h, 7d; younger ones stay\n"
    "      --all-users   root: of all users\n"
    "\n"
    "  reshard SRC DIR   write SRC into the directory DIR in the shards of another mesh\n"
    "      --to=MESH   dp=4,tp=2,pp=1,zero=1,chunks=1; missing sizes are 1\n"
    "  export SRC DIR  write DIR as Hugging Face's transformers load it\n"
    "      --format=hf --dtype=fp32|bf16|fp16 --shard-size=5GB\n"
    "      --tokenizer=PATH   of the model; default: the folder tokenizer beside the checkpoint\n"
    "  import SRC DIR  make a checkpoint of step 0 in DIR of such a model in SRC, a directory or a file\n"
    "      --format=hf --to=MESH --heads=N (if there is no config.json) --tokenizer=PATH\n"
    "  recover DIR     commit complete saves that nobody was left to commit\n"
    "  prune DIR       remove all but the newest whole checkpoints\n"
    "      --keep=N    the number of checkpoints to keep\n"
    "      --keep-every=M   keep also the first at or after each multiple of M\n"
    "  rm STEP_DIR...  remove checkpoints, but not the last whole one of a directory\n"
    "      --force     the last one too\n"
    "\n"
    "  -q, --quiet     no progress bar\n"
    "      --help      this text\n"
    "      --version   the version\n"
    "\n"
    "Exits with 0 on success; diff with 1 when A and B differ; 64 for a wrong command line; 65 for a broken or "
    "missing\n"
    "checkpoint; 74 when reading or writing failed; 78 for a checkpoint of an unknown format. See muster-ckpt(1).\n";

static const struct command {
    const char *name;
    int paths, most_paths;
    tool_command *run;
} commands[] = {
    {"diff", 2, 2, tool_diff},       {"export", 2, 2, tool_export},       {"import", 2, 2, tool_import},
    {"list", 1, 1, tool_list},       {"prune", 1, 1, tool_prune},         {"reclaim", 0, 1 << 20, tool_reclaim},
    {"recover", 1, 1, tool_recover}, {"reshard", 2, 2, tool_reshard},     {"rm", 1, 1 << 20, tool_rm},
    {"show", 1, 1, tool_show},       {"status", 0, 1 << 20, tool_status}, {"verify", 1, 1, tool_verify},
};

/* "5GB" as Hugging Face has it, or "500MiB". */
static int take_shard_size(const char *text, void *bytes)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},         {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},    {"TB", 1e12},
                 {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    char *end;
    double value = strtod(text, &end);

    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (end != text && strcmp(end, units[i].name) == 0 && value * units[i].bytes >= 1 &&
            value * units[i].bytes < 0x1p60) {
            *(uint64_t *)bytes = (uint64_t)(value * units[i].bytes);
            return -1;
        }
    return option_fail("--shard-size must be like 5GB, not %s", text);
}

static int run_command(const char *name, char **paths, int count, const struct options *options)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const struct command *command = &commands[i];
        struct error err = {0};
        int code;

        if (strcmp(name, command->name) != 0)
            continue;
        if (count < command->paths || count > command->most_paths)
            return option_fail("%s: takes %s", name,
                               command->most_paths > 2 ? "at least one path"
                               : command->paths == 1   ? "one path"
                                                       : "two paths");
        code = command->run(paths, options, &err);
        return code < 0 ? error_report(&err) : code;
    }
    return option_fail("no such command: %s", name);
}

int main(int argc, char **argv)
{
    /* Reading waits for disks more than it computes: a few more threads than processors keep the disks busy. */
    long processors = sysconf(_SC_NPROCESSORS_ONLN), threads = processors < 2   ? 4
                                                               : processors > 8 ? 16
                                                                                : processors * 2;
    struct options options = {.threads = threads, .shard_size = 5000000000, .keep = -1};
    const struct option_row rows[] = {
        {"json", OPTION_FLAG, .to = &options.json},
        {"all", OPTION_FLAG, .to = &options.all},
        {"tensors", OPTION_FLAG, .to = &options.tensors},
        {"job", OPTION_FLAG, .to = &options.job},
        {"force", OPTION_FLAG, .to = &options.force},
        {"all-users", OPTION_FLAG, .to = &options.all_users},
        {"older-than", OPTION_TIME, .to = &options.older_than},
        {"to", OPTION_TEXT, .to = &options.to},
        {"format", OPTION_TEXT, .to = &options.format},
        {"dtype", OPTION_TEXT, .to = &options.dtype},
        {"tokenizer", OPTION_TEXT, .to = &options.tokenizer},
        {"shard-size", OPTION_TAKE, .to = &options.shard_size, .take = take_shard_size},
        {"heads", OPTION_WHOLE, .to = &options.heads, .least = 1, .most = 4096},
        {"keep", OPTION_WHOLE, .to = &options.keep, .least = 1, .most = 1000000},
        {"keep-every", OPTION_WHOLE, .to = &options.keep_every, .least = 1, .most = 1000000000},
        {"quiet", OPTION_FLAG, .to = &options.quiet, .letter = 'q'},
        {"threads", OPTION_WHOLE, .to = &options.threads, .least = 1, .most = 256, .letter = 'j'},
        {0},
    };
    int code = options_read(rows, argc, argv, help);

    if (code >= 0)
        return error_output(code);
    if (optind == argc)
        return option_fail("a command is needed, such as list, show, verify or diff");
    return error_output(run_command(argv[optind], argv + optind + 1, argc - optind - 1, &options));
}
