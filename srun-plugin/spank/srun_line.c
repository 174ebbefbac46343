#include "srun-plugin/spank/srun_line.h"

#include <stdlib.h>
#include <string.h>

#include "common/text.h"

#define COMMAND_LINE_MOST (8 << 20) /* bytes; Linux allows 6 MiB */

/* Bits; each sets a flag of struct srun_line. */
enum meaning { OTHER, MUSTER = 1, PLACES = 2, BINDS = 4, JOBID = 8, INTERACTIVE = 16, SHARES = 32 };

/* VALUE: in the same argument (--long=x, -sx) or else the next one. MAYBE: in the same argument or none. */
enum arity { FLAG, VALUE, MAYBE };

static const struct option {
    const char *name;
    char letter; /* 0 for none */
    enum arity arity;
    unsigned meaning;
    size_t kept; /* the member of struct srun_line that is its value; 0 for none */
} options[] = {
    {"muster", 0, MAYBE, MUSTER, offsetof(struct srun_line, file)},
    {"muster-report", 0, MAYBE, MUSTER, 0},
    {"muster-preflight", 0, MAYBE, MUSTER, 0},
    {"cpus-per-task", 'c', VALUE, SHARES, 0},
    {"tres-per-task", 0, VALUE, SHARES, 0},
    {"nodes", 'N', VALUE, OTHER, offsetof(struct srun_line, nodes)},
    {"ntasks", 'n', VALUE, OTHER, offsetof(struct srun_line, tasks)},
    {"ntasks-per-node", 0, VALUE, OTHER, offsetof(struct srun_line, tasks_per_node)},

    {"distribution", 'm', VALUE, PLACES, 0},
    {"nodelist", 'w', VALUE, PLACES, 0},
    {"nodefile", 'F', VALUE, PLACES, 0},
    {"exclude", 'x', VALUE, PLACES, 0},
    {"relative", 'r', VALUE, PLACES, 0},
    {"multi-prog", 0, FLAG, PLACES, 0},
    {"ntasks-per-core", 0, VALUE, PLACES, 0},
    {"ntasks-per-gpu", 0, VALUE, PLACES, 0},
    {"ntasks-per-socket", 0, VALUE, PLACES, 0},
    {"het-group", 0, VALUE, PLACES, 0},
    {"jobid", 0, VALUE, JOBID | PLACES, 0},
    {"constraint", 'C', VALUE, PLACES, 0},
    {"interactive", 0, FLAG, INTERACTIVE | PLACES, 0},
    {"test-only", 0, FLAG, PLACES, 0},
    {"no-allocate", 'Z', FLAG, PLACES, 0},

    {"cpu-bind", 0, VALUE, BINDS, 0},
    {"cpu_bind", 0, VALUE, BINDS, 0},
    {"accel-bind", 0, VALUE, BINDS, 0},
    {"hint", 0, VALUE, BINDS, 0},
    {"threads-per-core", 0, VALUE, BINDS, 0},
    {"cores-per-socket", 0, VALUE, BINDS, 0},
    {"extra-node-info", 'B', VALUE, BINDS, 0},
};

/* The others: their letter, if they have one, is behind a comma. */
static const char *const plain_options[3][48] = {
    [FLAG] = {"disable-status,X", "exact", "label,l", "overcommit,O", "overlap", "preserve-env,E", "quiet,Q",
              "quit-on-interrupt", "unbuffered,u", "verbose,v"},
    [VALUE] = {"chdir,D",       "comment",     "cpu-freq",    "cpus-per-gpu", "deadline",    "epilog",
               "error,e",       "export",      "gpu-bind",    "gpu-freq",     "gpus,G",      "gpus-per-node",
               "gpus-per-task", "gres",        "gres-flags",  "input,i",      "job-name,J",  "mem",
               "mem-bind",      "mem-per-cpu", "mem-per-gpu", "mpi",          "msg-timeout", "network",
               "open-mode",     "output,o",    "profile",     "prolog",       "qos,q",       "signal",
               "slurmd-debug",  "task-epilog", "task-prolog", "threads,T",    "time,t",      "tres-bind",
               "wait,W"},
    [MAYBE] = {"exclusive", "immediate,I", "kill-on-bad-exit,K", "no-kill,k", "propagate", "pty"},
};

/* By its letter, or with 0 by its name; NULL if it is unknown. */
static const struct option *find_option(char letter, const char *name, size_t length)
{
    static const struct option plain[] = {
        [FLAG] = {.arity = FLAG}, [VALUE] = {.arity = VALUE}, [MAYBE] = {.arity = MAYBE}};

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (letter ? options[i].letter == letter
                   : strncmp(options[i].name, name, length) == 0 && !options[i].name[length])
            return &options[i];
    for (size_t arity = 0; arity < sizeof plain / sizeof plain[0]; arity++)
        for (const char *const *entry = plain_options[arity]; *entry; entry++) {
            size_t own = strcspn(*entry, ",");

            if (letter ? (*entry)[own] && (*entry)[own + 1] == letter
                       : own == length && strncmp(*entry, name, own) == 0)
                return &plain[arity];
        }
    return NULL;
}

static void apply_option(struct srun_line *line, const struct option *option, const char *value)
{
    line->muster |= option->meaning & MUSTER;
    line->places |= option->meaning & PLACES;
    line->binds |= option->meaning & BINDS;
    line->has_jobid |= option->meaning & JOBID;
    line->interactive |= option->meaning & INTERACTIVE;
    line->shares |= option->meaning & SHARES;
    if (option->kept && value && value[0])
        memcpy((char *)line + option->kept, &value, sizeof value);
}

/* "-lN4": letters without a value, then perhaps one with. Returns the number of arguments read; 0 if not known. */
static size_t read_letters(char *const *argv, size_t left, struct srun_line *line)
{
    for (const char *at = argv[0] + 1; *at; at++) {
        const struct option *option = find_option(*at, "", 0);

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
    const struct option *option = find_option(0, name, equals ? (size_t)(equals - name) : strlen(name));

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
        if ((options[i].meaning & meaning) &&
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
    line->has_jobid |= may_mean(argument, JOBID);
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

    *line = (struct srun_line){.muster = true, .places = true, .binds = true, .has_jobid = true, .interactive = true};
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
