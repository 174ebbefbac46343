#include "srun-plugin/srun_line.h"

#include <string.h>

enum meaning { HARMLESS, MUSTER, FILE_OF_JOB, NODES, TASKS, TASKS_A_NODE, PLACES, BINDS };

/* VALUE: in the same word behind "=" (long) or at once (short), else the next word. MAYBE: in the same word or none. */
enum arity { FLAG, VALUE, MAYBE };

static const struct option {
    const char *name;
    char letter; /* 0 for none */
    enum arity arity;
    enum meaning meaning;
} options[] = {
    {"muster", 0, MAYBE, FILE_OF_JOB},
    {"muster-report", 0, MAYBE, MUSTER},
    {"muster-preflight", 0, MAYBE, MUSTER},
    {"nodes", 'N', VALUE, NODES},
    {"ntasks", 'n', VALUE, TASKS},
    {"ntasks-per-node", 0, VALUE, TASKS_A_NODE},

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
    {"jobid", 0, VALUE, PLACES},
    {"constraint", 'C', VALUE, PLACES},
    {"interactive", 0, FLAG, PLACES},
    {"test-only", 0, FLAG, PLACES},
    {"no-allocate", 'Z', FLAG, PLACES},

    {"cpu-bind", 0, VALUE, BINDS},
    {"cpu_bind", 0, VALUE, BINDS},
    {"accel-bind", 0, VALUE, BINDS},
    {"hint", 0, VALUE, BINDS},
    {"threads-per-core", 0, VALUE, BINDS},
    {"cores-per-socket", 0, VALUE, BINDS},
    {"extra-node-info", 'B', VALUE, BINDS},

    {"chdir", 'D', VALUE, HARMLESS},
    {"comment", 0, VALUE, HARMLESS},
    {"cpu-freq", 0, VALUE, HARMLESS},
    {"cpus-per-gpu", 0, VALUE, HARMLESS},
    {"cpus-per-task", 'c', VALUE, HARMLESS},
    {"deadline", 0, VALUE, HARMLESS},
    {"disable-status", 'X', FLAG, HARMLESS},
    {"epilog", 0, VALUE, HARMLESS},
    {"error", 'e', VALUE, HARMLESS},
    {"exact", 0, FLAG, HARMLESS},
    {"exclusive", 0, MAYBE, HARMLESS},
    {"export", 0, VALUE, HARMLESS},
    {"gpu-bind", 0, VALUE, HARMLESS},
    {"gpu-freq", 0, VALUE, HARMLESS},
    {"gpus", 'G', VALUE, HARMLESS},
    {"gpus-per-node", 0, VALUE, HARMLESS},
    {"gpus-per-task", 0, VALUE, HARMLESS},
    {"gres", 0, VALUE, HARMLESS},
    {"gres-flags", 0, VALUE, HARMLESS},
    {"immediate", 'I', MAYBE, HARMLESS},
    {"input", 'i', VALUE, HARMLESS},
    {"job-name", 'J', VALUE, HARMLESS},
    {"kill-on-bad-exit", 'K', MAYBE, HARMLESS},
    {"label", 'l', FLAG, HARMLESS},
    {"mem", 0, VALUE, HARMLESS},
    {"mem-bind", 0, VALUE, HARMLESS},
    {"mem-per-cpu", 0, VALUE, HARMLESS},
    {"mem-per-gpu", 0, VALUE, HARMLESS},
    {"mpi", 0, VALUE, HARMLESS},
    {"msg-timeout", 0, VALUE, HARMLESS},
    {"network", 0, VALUE, HARMLESS},
    {"no-kill", 'k', MAYBE, HARMLESS},
    {"open-mode", 0, VALUE, HARMLESS},
    {"output", 'o', VALUE, HARMLESS},
    {"overcommit", 'O', FLAG, HARMLESS},
    {"overlap", 0, FLAG, HARMLESS},
    {"preserve-env", 'E', FLAG, HARMLESS},
    {"profile", 0, VALUE, HARMLESS},
    {"prolog", 0, VALUE, HARMLESS},
    {"propagate", 0, MAYBE, HARMLESS},
    {"pty", 0, MAYBE, HARMLESS},
    {"quiet", 'Q', FLAG, HARMLESS},
    {"qos", 'q', VALUE, HARMLESS},
    {"quit-on-interrupt", 0, FLAG, HARMLESS},
    {"signal", 0, VALUE, HARMLESS},
    {"slurmd-debug", 0, VALUE, HARMLESS},
    {"task-epilog", 0, VALUE, HARMLESS},
    {"task-prolog", 0, VALUE, HARMLESS},
    {"threads", 'T', VALUE, HARMLESS},
    {"time", 't', VALUE, HARMLESS},
    {"tres-bind", 0, VALUE, HARMLESS},
    {"tres-per-task", 0, VALUE, HARMLESS},
    {"unbuffered", 'u', FLAG, HARMLESS},
    {"verbose", 'v', FLAG, HARMLESS},
    {"wait", 'W', VALUE, HARMLESS},
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

static void take(struct srun_line *line, const struct option *option, const char *value)
{
    switch (option->meaning) {
    case FILE_OF_JOB:
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
    case TASKS_A_NODE:
        line->tasks_a_node = value;
        break;
    case PLACES:
        line->places = true;
        break;
    case BINDS:
        line->binds = true;
        break;
    case HARMLESS:
        break;
    }
}

/* "-lN4": letters without a value, then perhaps one with. Returns how many words that took; 0 for an unknown letter. */
static size_t read_letters(char *const *words, size_t left, struct srun_line *line)
{
    for (const char *at = words[0] + 1; *at; at++) {
        const struct option *option = find_letter(*at);

        if (!option)
            return 0;
        if (option->arity == FLAG) {
            take(line, option, NULL);
        } else if (at[1] || option->arity == MAYBE) {
            take(line, option, at[1] ? at + 1 : NULL);
            return 1;
        } else if (left > 1) {
            take(line, option, words[1]);
            return 2;
        } else {
            return 0;
        }
    }
    return 1;
}

static size_t read_name(char *const *words, size_t left, struct srun_line *line)
{
    const char *name = words[0] + 2, *equals = strchr(name, '=');
    const struct option *option = find_long(name, equals ? (size_t)(equals - name) : strlen(name));

    /* Slurm takes abbreviations too; what they stand for depends on options that only it knows. */
    if (!option || (equals && option->arity == FLAG) || (!equals && option->arity == VALUE && left < 2))
        return 0;
    take(line, option, equals ? equals + 1 : option->arity == VALUE ? words[1] : NULL);
    return !equals && option->arity == VALUE ? 2 : 1;
}

/* Abbreviations count, and so may words of the program's: to take too much for the user's wish is harmless. */
static bool may_mean(const char *word, enum meaning meaning)
{
    const bool name = word[0] == '-' && word[1] == '-' && word[2];

    if (word[0] != '-' || !word[1])
        return false;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].meaning == meaning &&
            (name ? strncmp(options[i].name, word + 2, strcspn(word + 2, "=")) == 0 : options[i].letter == word[1]))
            return true;
    return false;
}

void srun_line_read(char *const *words, size_t count, struct srun_line *line)
{
    size_t at = 1, taken = 1;

    *line = (struct srun_line){.known = true};
    while (at < count && taken && words[at][0] == '-' && words[at][1] && strcmp(words[at], "--") != 0) {
        taken =
            words[at][1] == '-' ? read_name(&words[at], count - at, line) : read_letters(&words[at], count - at, line);
        at += taken;
    }
    line->known = taken > 0;
    if (at < count && strcmp(words[at], "--") == 0)
        at++;
    line->program = at;
    /* "srun a : b": its parts have nodes of their own, and options of their own behind the colon. */
    for (size_t i = at; i < count; i++)
        line->places |= strcmp(words[i], ":") == 0;
    /* From an option that is not known on, anything may follow: these must not be missed. */
    for (; !taken && at < count; at++) {
        line->muster |= strncmp(words[at], "--muster", 8) == 0;
        line->places |= may_mean(words[at], PLACES);
        line->binds |= may_mean(words[at], BINDS);
    }
}
