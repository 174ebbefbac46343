#include "srun-plugin/spank/srun_line.h"

#include <stdlib.h>
#include <string.h>

#include "common/text.h"

#define COMMAND_LINE_MOST (8 << 20) /* bytes; Linux allows 6 MiB */

enum meaning { OTHER, MUSTER, JOB_FILE, NODES, TASKS, TASKS_PER_NODE, PLACES, BINDS, JOB, INTERACTIVE };

/* VALUE: in the same argument (--long=x, -sx) or else the next one. MAYBE: in the same argument or none. */
enum arity { FLAG, VALUE, MAYBE };

static const struct option {
    const char *name;
    char letter; /* 0 for none */
    enum arity arity;
    enum meaning meaning;
} options[] = {
    {"muster", 0, MAYBE, JOB_FILE},
    {"muster-report", 0, MAYBE, MUSTER},
    {"muster-preflight", 0, MAYBE, MUSTER},
    {"nodes", 'N', VALUE, NODES},
    {"ntasks", 'n', VALUE, TASKS},
    {"ntasks-per-node", 0, VALUE, TASKS_PER_NODE},

    {"distribution", 'm', VALUE, PLACES},
    {"nodelist", 'w', VALUE, PLACES},
    {"nodefile", 'F', VALUE, PLACES},
    {"exclude", 'x', VALUE, PLACES},
    {"relative", 'r', VALUE, PLACES},
    {"multi-prog", 0, FLAG, PLACES},
    {"ntasks-per-core", 0, VALUE, PLACES},
    {"ntasks-per-gpu", 0, VALUE, PLACES},
    {"ntasks-per-socket", 0, VALUE, PLACES},
    {"het-group", 0, VALUE, PLACES},
    {"jobid", 0, VALUE, JOB},
    {"constraint", 'C', VALUE, PLACES},
    {"interactive", 0, FLAG, INTERACTIVE},
    {"test-only", 0, FLAG, PLACES},
    {"no-allocate", 'Z', FLAG, PLACES},

    {"cpu-bind", 0, VALUE, BINDS},
    {"cpu_bind", 0, VALUE, BINDS},
    {"accel-bind", 0, VALUE, BINDS},
    {"hint", 0, VALUE, BINDS},
    {"threads-per-core", 0, VALUE, BINDS},
    {"cores-per-socket", 0, VALUE, BINDS},
    {"extra-node-info", 'B', VALUE, BINDS},

    {"chdir", 'D', VALUE, OTHER},
    {"comment", 0, VALUE, OTHER},
    {"cpu-freq", 0, VALUE, OTHER},
    {"cpus-per-gpu", 0, VALUE, OTHER},
    {"cpus-per-task", 'c', VALUE, OTHER},
    {"deadline", 0, VALUE, OTHER},
    {"disable-status", 'X', FLAG, OTHER},
    {"epilog", 0, VALUE, OTHER},
    {"error", 'e', VALUE, OTHER},
    {"exact", 0, FLAG, OTHER},
    {"exclusive", 0, MAYBE, OTHER},
    {"export", 0, VALUE, OTHER},
    {"gpu-bind", 0, VALUE, OTHER},
    {"gpu-freq", 0, VALUE, OTHER},
    {"gpus", 'G', VALUE, OTHER},
    {"gpus-per-node", 0, VALUE, OTHER},
    {"gpus-per-task", 0, VALUE, OTHER},
    {"gres", 0, VALUE, OTHER},
    {"gres-flags", 0, VALUE, OTHER},
    {"immediate", 'I', MAYBE, OTHER},
    {"input", 'i', VALUE, OTHER},
    {"job-name", 'J', VALUE, OTHER},
    {"kill-on-bad-exit", 'K', MAYBE, OTHER},
    {"label", 'l', FLAG, OTHER},
    {"mem", 0, VALUE, OTHER},
    {"mem-bind", 0, VALUE, OTHER},
    {"mem-per-cpu", 0, VALUE, OTHER},
    {"mem-per-gpu", 0, VALUE, OTHER},
    {"mpi", 0, VALUE, OTHER},
    {"msg-timeout", 0, VALUE, OTHER},
    {"network", 0, VALUE, OTHER},
    {"no-kill", 'k', MAYBE, OTHER},
    {"open-mode", 0, VALUE, OTHER},
    {"output", 'o', VALUE, OTHER},
    {"overcommit", 'O', FLAG, OTHER},
    {"overlap", 0, FLAG, OTHER},
    {"preserve-env", 'E', FLAG, OTHER},
    {"profile", 0, VALUE, OTHER},
    {"prolog", 0, VALUE, OTHER},
    {"propagate", 0, MAYBE, OTHER},
    {"pty", 0, MAYBE, OTHER},
    {"quiet", 'Q', FLAG, OTHER},
    {"qos", 'q', VALUE, OTHER},
    {"quit-on-interrupt", 0, FLAG, OTHER},
    {"signal", 0, VALUE, OTHER},
    {"slurmd-debug", 0, VALUE, OTHER},
    {"task-epilog", 0, VALUE, OTHER},
    {"task-prolog", 0, VALUE, OTHER},
    {"threads", 'T', VALUE, OTHER},
    {"time", 't', VALUE, OTHER},
    {"tres-bind", 0, VALUE, OTHER},
    {"tres-per-task", 0, VALUE, OTHER},
    {"unbuffered", 'u', FLAG, OTHER},
    {"verbose", 'v', FLAG, OTHER},
    {"wait", 'W', VALUE, OTHER},
};

static const struct option *find_long(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (strncmp(options[i].name, name, length) == 0 && options[i].name[length] == '\0')
            return &options[i];
    return NULL;
}

static const struct option *find_letter(char letter)
{
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].letter == letter)
            return &options[i];
    return NULL;
}

static void apply_option(struct srun_line *line, const struct option *option, const char *value)
{
    switch (option->meaning) {
    case JOB_FILE:
        line->muster = true;
        if (value && value[0])
            line->file = value;
        break;
    case MUSTER:
        line->muster = true;
        break;
    case NODES:
        line->nodes = value;
        break;
    case TASKS:
        line->tasks = value;
        break;
    case TASKS_PER_NODE:
        line->tasks_per_node = value;
        break;
    case PLACES:
        line->places = true;
        break;
    case BINDS:
        line->binds = true;
        break;
    case JOB:
        line->job = line->places = true;
        break;
    case INTERACTIVE:
        line->interactive = line->places = true;
        break;
    case OTHER:
        break;
    }
}

/* "-lN4": letters without a value, then perhaps one with. Returns the number of arguments read; 0 if not known. */
static size_t read_letters(char *const *argv, size_t left, struct srun_line *line)
{
    for (const char *at = argv[0] + 1; *at; at++) {
        const struct option *option = find_letter(*at);

        if (!option)
            return 0;
        if (option->arity == FLAG) {
            apply_option(line, option, NULL);
        } else if (at[1] || option->arity == MAYBE) {
            apply_option(line, option, at[1] ? at + 1 : NULL);
            return 1;
        } else if (left > 1) {
            apply_option(line, option, argv[1]);
            return 2;
        } else {
            return 0;
        }
    }
    return 1;
}

static size_t read_name(char *const *argv, size_t left, struct srun_line *line)
{
    const char *name = argv[0] + 2, *equals = strchr(name, '=');
    const struct option *option = find_long(name, equals ? (size_t)(equals - name) : strlen(name));

    /* Slurm accepts abbreviations too. Which option they mean depends on options that only Slurm knows. */
    if (!option || (equals && option->arity == FLAG) || (!equals && option->arity == VALUE && left < 2))
        return 0;
    apply_option(line, option, equals ? equals + 1 : option->arity == VALUE ? argv[1] : NULL);
    return !equals && option->arity == VALUE ? 2 : 1;
}

/* True for abbreviations, and perhaps for an argument of the program: believing in one option too many is harmless. */
static bool may_mean(const char *argument, enum meaning meaning)
{
    const bool name = argument[0] == '-' && argument[1] == '-' && argument[2];

    if (argument[0] != '-' || !argument[1])
        return false;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].meaning == meaning &&
            (name ? strncmp(options[i].name, argument + 2, strcspn(argument + 2, "=")) == 0
                  : options[i].letter == argument[1]))
            return true;
    return false;
}

/* After an unknown option. */
static void guess_argument(const char *argument, struct srun_line *line)
{
    line->muster |= strncmp(argument, "--muster", 8) == 0;
    line->places |= may_mean(argument, PLACES);
    line->binds |= may_mean(argument, BINDS);
    line->job |= may_mean(argument, JOB);
    line->interactive |= strcmp(argument, "--interactive") == 0; /* "--in" is --input */
}

void srun_line_read(char *const *argv, size_t count, struct srun_line *line)
{
    size_t at = 1, taken = 1;

    *line = (struct srun_line){.known = true};
    while (at < count && taken && argv[at][0] == '-' && argv[at][1] && strcmp(argv[at], "--") != 0) {
        taken = argv[at][1] == '-' ? read_name(&argv[at], count - at, line) : read_letters(&argv[at], count - at, line);
        at += taken;
    }
    line->known = taken > 0;
    if (at < count && strcmp(argv[at], "--") == 0)
        at++;
    line->program = at;
    /* "srun a : b": each component has its own nodes, and its own options after the colon. */
    for (size_t i = at; i < count; i++)
        line->places |= strcmp(argv[i], ":") == 0;
    for (; !taken && at < count; at++)
        guess_argument(argv[at], line);
}

int srun_line_own(struct srun_line *line, struct error *err)
{
    size_t length = 0, count = 0;
    char *text = text_read_file("/proc/self/cmdline", COMMAND_LINE_MOST, &length, err);
    char **argv = text ? calloc(length + 1, sizeof *argv) : NULL;

    *line = (struct srun_line){.muster = true, .places = true, .binds = true, .job = true, .interactive = true};
    if (text && !argv)
        error_errno(err, CODE_IO, "no memory for srun's command line");
    if (!argv) {
        free(text);
        return -1;
    }
    for (char *argument = text; argument < text + length; argument += strlen(argument) + 1)
        argv[count++] = argument;
    srun_line_read(argv, count, line);
    line->text = text;
    free(argv);
    return 0;
}
