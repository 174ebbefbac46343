#include "srun-plugin/spank/srun_line.h"

#include <stdlib.h>
#include <string.h>

#include "common/text.h"

#define COMMAND_LINE_MOST (8 << 20) /* bytes; Linux allows 6 MiB */

/* Bits; each sets a flag of struct srun_line. */
enum meaning { OTHER, MUSTER = 1, PLACES = 2, BINDS = 4, JOBID = 8, INTERACTIVE = 16, SHARES = 32 };

/* VALUE: in the same argument (--long=x, -sx) or else the next one. MAYBE: in the same argument or none. */
enum arity { FLAG, VALUE, MAYBE };

static const struct option_group {
    enum arity arity;
    unsigned meaning;
    size_t kept;       /* the member of struct srun_line that is the value; 0 for none */
    const char *names; /* with blanks between; a letter that means the same is behind a comma */
} groups[] = {
    {MAYBE, MUSTER, offsetof(struct srun_line, file), "muster"},
    {MAYBE, MUSTER, 0, "muster-report muster-preflight"},
    {VALUE, OTHER, offsetof(struct srun_line, nodes), "nodes,N"},
    {VALUE, OTHER, offsetof(struct srun_line, tasks), "ntasks,n"},
    {VALUE, OTHER, offsetof(struct srun_line, tasks_per_node), "ntasks-per-node"},
    {VALUE, SHARES, 0, "cpus-per-task,c tres-per-task"},
    {VALUE, PLACES, 0,
     "distribution,m nodelist,w nodefile,F relative,r ntasks-per-core ntasks-per-gpu ntasks-per-socket het-group "
     "constraint,C"},
    {FLAG, PLACES, 0, "multi-prog test-only no-allocate,Z"},
    {VALUE, JOBID | PLACES, 0, "jobid"},
    {FLAG, INTERACTIVE | PLACES, 0, "interactive"},
    {VALUE, BINDS, 0, "cpu-bind cpu_bind accel-bind hint threads-per-core cores-per-socket extra-node-info,B"},
    {FLAG, OTHER, 0,
     "disable-status,X exact label,l overcommit,O overlap preserve-env,E quiet,Q quit-on-interrupt unbuffered,u "
     "verbose,v"},
    {VALUE, OTHER, 0,
     "chdir,D comment cpu-freq cpus-per-gpu deadline epilog error,e exclude,x export gpu-bind gpu-freq gpus,G "
     "gpus-per-node gpus-per-task gres gres-flags input,i job-name,J mem mem-bind mem-per-cpu mem-per-gpu mpi "
     "msg-timeout network open-mode output,o profile prolog qos,q signal slurmd-debug task-epilog task-prolog "
     "threads,T "
     "time,t tres-bind wait,W"},
    {MAYBE, OTHER, 0, "exclusive immediate,I kill-on-bad-exit,K no-kill,k propagate pty"},
};

#define GROUPS (sizeof groups / sizeof groups[0])

/* Moves *at to the next name, of *length bytes, and *letter to its letter, 0 for none. False at the end. */
static bool next_name(const char **at, size_t *length, char *letter)
{
    *at += strspn(*at, " ");
    *length = strcspn(*at, ", ");
    *letter = (*at)[*length] == ',' ? (*at)[*length + 1] : '\0';
    return **at;
}

/* By its letter, or with 0 by its name; NULL if it is unknown. */
static const struct option_group *find_option(char letter, const char *name, size_t length)
{
    size_t own;
    char own_letter;

    for (size_t i = 0; i < GROUPS; i++)
        for (const char *at = groups[i].names; next_name(&at, &own, &own_letter); at += strcspn(at, " "))
            if (letter ? own_letter == letter : own == length && strncmp(at, name, length) == 0)
                return &groups[i];
    return NULL;
}

static void apply_option(struct srun_line *line, const struct option_group *option, const char *value)
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
        const struct option_group *option = find_option(*at, "", 0);

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
    const struct option_group *option = find_option(0, name, equals ? (size_t)(equals - name) : strlen(name));

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
    size_t own;
    char letter;

    if (argument[0] != '-' || !argument[1])
        return false;
    for (size_t i = 0; i < GROUPS; i++)
        for (const char *at = groups[i].names; next_name(&at, &own, &letter); at += strcspn(at, " "))
            if ((groups[i].meaning & meaning) &&
                (name ? strncmp(at, argument + 2, strcspn(argument + 2, "=")) == 0 : letter == argument[1]))
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
