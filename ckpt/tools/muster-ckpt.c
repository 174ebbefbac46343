/* muster-ckpt.c - the program muster-ckpt: its command line. The commands are in tool_*.c. */
#include "config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/tools/tool.h"
#include "common/text.h"

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
    "  diff A B        compare all tensors bit by bit, whatever topologies wrote them\n"
    "  status [STAGE]...   saves that are staged on this node, and their drain\n"
    "      --json      of these five: as JSON\n"
    "\n"
    "  reshard SRC DIR   write SRC into the directory DIR in the shards of another mesh\n"
    "      --to=MESH   dp=4,tp=2,pp=1,zero=1,chunks=1; missing sizes are 1\n"
    "  export SRC DIR  write DIR as Hugging Face's GPT2LMHeadModel.from_pretrained reads it\n"
    "      --format=hf --dtype=fp32|bf16|fp16 --shard-size=5GB --heads=N (if the checkpoint has no job file)\n"
    "  import SRC DIR  make a checkpoint of step 0 in DIR of Hugging Face's GPT-2 in SRC, a directory or a file\n"
    "      --format=hf --to=MESH --heads=N (if there is no config.json)\n"
    "  prune DIR       remove all but the newest whole checkpoints\n"
    "      --keep=N    the number of checkpoints to keep\n"
    "      --keep-every=M   keep also steps that are multiples of M\n"
    "  rm STEP_DIR...  remove checkpoints, but not the last whole one of a directory\n"
    "      --force     the last one too\n"
    "\n"
    "  -q, --quiet     no progress bar\n"
    "      --help      this text\n"
    "      --version   the version\n"
    "\n"
    "Exits with 0 on success; diff with 1 when A and B differ; 65 for a broken or missing checkpoint,\n"
    "64 for a wrong command line, 74 when reading or writing failed. See muster-ckpt(1).\n";

static const struct command {
    const char *name;
    int paths, most_paths;
    int (*run)(char **paths, const struct options *options);
} commands[] = {
    {"diff", 2, 2, tool_diff},     {"export", 2, 2, tool_export}, {"import", 2, 2, tool_import},
    {"list", 1, 1, tool_list},     {"prune", 1, 1, tool_prune},   {"reshard", 2, 2, tool_reshard},
    {"rm", 1, 1 << 20, tool_rm},   {"show", 1, 1, tool_show},     {"status", 0, 1 << 20, tool_status},
    {"verify", 1, 1, tool_verify},
};

static int report_usage(const char *wrong, const char *what)
{
    struct error err;

    error_set(&err, CODE_USAGE, "%s%s (see muster-ckpt --help)", wrong, what);
    return error_report(&err);
}

/* Reading waits for disks more than it computes: a few more threads than processors keep the disks busy. */
static int default_threads(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    return processors < 2 ? 4 : processors > 8 ? 16 : (int)processors * 2;
}

/* "5GB" as Hugging Face has it, or "500MiB"; -1 if it is neither. */
static int parse_bytes(const char *text, uint64_t *bytes)
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
            *bytes = (uint64_t)(value * units[i].bytes);
            return 0;
        }
    return -1;
}

static int run_command(const char *name, char **paths, int count, const struct options *options)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const struct command *command = &commands[i];

        if (strcmp(name, command->name) != 0)
            continue;
        if (count < command->paths || count > command->most_paths)
            return report_usage(name, command->most_paths > 2 ? ": takes at least one path"
                                      : command->paths == 1   ? ": takes one path"
                                                              : ": takes two paths");
        return command->run(paths, options);
    }
    return report_usage("no such command: ", name);
}

enum {
    OPT_JSON = 256,
    OPT_ALL,
    OPT_TENSORS,
    OPT_JOB,
    OPT_FORCE,
    OPT_TO,
    OPT_FORMAT,
    OPT_DTYPE,
    OPT_SHARD_SIZE,
    OPT_HEADS,
    OPT_KEEP,
    OPT_KEEP_EVERY,
    OPT_HELP,
    OPT_VERSION
};

/* An option with a number. Returns 0, or the exit code. */
static int set_number(struct options *options, int option, const char *text)
{
    const struct {
        int option, most, *number;
        const char *wrong;
    } numbers[] = {{'j', 256, &options->threads, "--threads must be 1 to 256, not "},
                   {OPT_HEADS, 4096, &options->heads, "--heads must be 1 to 4096, not "},
                   {OPT_KEEP, 1000000, &options->keep, "--keep must be at least 1, not "},
                   {OPT_KEEP_EVERY, 1000000000, &options->keep_every, "--keep-every must be at least 1, not "}};
    long value;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (option != numbers[i].option)
            continue;
        if (!text_to_long(text, 1, numbers[i].most, &value))
            return report_usage(numbers[i].wrong, text);
        *numbers[i].number = (int)value;
        return 0;
    }
    return parse_bytes(text, &options->shard_size) < 0 ? report_usage("--shard-size must be like 5GB, not ", text) : 0;
}

/* -1: go on; otherwise the exit code. */
static int parse_options(struct options *options, int argc, char **argv)
{
    static const struct option table[] = {
        {"json", no_argument, NULL, OPT_JSON},
        {"all", no_argument, NULL, OPT_ALL},
        {"tensors", no_argument, NULL, OPT_TENSORS},
        {"job", no_argument, NULL, OPT_JOB},
        {"force", no_argument, NULL, OPT_FORCE},
        {"to", required_argument, NULL, OPT_TO},
        {"format", required_argument, NULL, OPT_FORMAT},
        {"dtype", required_argument, NULL, OPT_DTYPE},
        {"shard-size", required_argument, NULL, OPT_SHARD_SIZE},
        {"heads", required_argument, NULL, OPT_HEADS},
        {"keep", required_argument, NULL, OPT_KEEP},
        {"keep-every", required_argument, NULL, OPT_KEEP_EVERY},
        {"quiet", no_argument, NULL, 'q'},
        {"threads", required_argument, NULL, 'j'},
        {"help", no_argument, NULL, OPT_HELP},
        {"version", no_argument, NULL, OPT_VERSION},
        {NULL, 0, NULL, 0},
    };
    bool *const flags[] = {&options->json, &options->all, &options->tensors, &options->job, &options->force};
    const char **const texts[] = {&options->to, &options->format, &options->dtype};
    int option, code;

    while ((option = getopt_long(argc, argv, "qj:", table, NULL)) != -1) {
        if (option >= OPT_JSON && option <= OPT_FORCE) {
            *flags[option - OPT_JSON] = true;
        } else if (option >= OPT_TO && option <= OPT_DTYPE) {
            *texts[option - OPT_TO] = optarg;
        } else if (option == 'q') {
            options->quiet = true;
        } else if (option == OPT_HELP) {
            fputs(help, stdout);
            return 0;
        } else if (option == OPT_VERSION) {
            puts("muster-ckpt " PACKAGE_VERSION);
            return 0;
        } else if (option == '?') {
            return CODE_USAGE; /* getopt has printed the error */
        } else if ((code = set_number(options, option, optarg)) != 0) {
            return code;
        }
    }
    return -1;
}

int main(int argc, char **argv)
{
    struct options options = {.threads = default_threads(), .shard_size = 5000000000, .keep = -1};
    int code = parse_options(&options, argc, argv);

    if (code >= 0)
        return error_output(code);
    if (optind == argc)
        return report_usage("a command is needed, such as list, show, verify or diff", "");
    return error_output(run_command(argv[optind], argv + optind + 1, argc - optind - 1, &options));
}
