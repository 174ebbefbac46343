/*
 * epilog_timeout.c - slurmd kills an epilog that runs past the timeout in slurm.conf, and drains the node: the epilog has
 * to end before.
 *
 * The timeout comes from the file. slurmstepd, in which the epilog runs, has in memory only the settings that slurmd
 * sends it; the timeout is not among them in Slurm 24.05 to 26.05. slurm_load_ctl_conf would ask slurmctld, from all
 * nodes of a job at the same moment.
 */
#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/spank/epilog.h"

enum {
    SLURM_SECONDS = 3,   /* of the timeout, for slurmstepd to start and end, and for other plugins */
    INCLUDES_MOST = 4,   /* one in the other */
    SLURM_NONE = 0xfffe, /* NO_VAL16, by which `scontrol show config` shows that there is no timeout */
};

static const char blanks[] = " \t\r\n";

struct timeouts {
    int epilog, both; /* EpilogTimeout, PrologEpilogTimeout */
};

/* "KEY=N" anywhere in a line, in any case, with blanks and quotes as Slurm allows them. */
static void read_line(const char *line, struct timeouts *timeouts)
{
    static const char key[] = "EpilogTimeout", prefix[] = "Prolog";
    const size_t prefix_length = sizeof prefix - 1;

    for (const char *at = line; (at = strcasestr(at, key)); at += sizeof key - 1) {
        bool prefixed =
            (size_t)(at - line) >= prefix_length && strncasecmp(at - prefix_length, prefix, prefix_length) == 0;
        const char *start = prefixed ? at - prefix_length : at, *value = at + sizeof key - 1;
        char *end;
        long seconds;

        value += strspn(value, blanks);
        if ((start > line && !isspace((unsigned char)start[-1])) || *value != '=')
            continue;
        value += 1 + strspn(value + 1, " \t\"");
        seconds = strtol(value, &end, 10);
        if (end > value && seconds >= 0 && seconds < SLURM_NONE)
            *(prefixed ? &timeouts->both : &timeouts->epilog) = (int)seconds;
    }
}

/* Where the file of a line "Include FILE" is: a relative path is relative to the file that includes it. */
static bool find_include(const char *line, const char *includer, char path[PATH_MAX])
{
    const char *name = line + strspn(line, blanks), *slash = strrchr(includer, '/');
    int length;

    if (strncasecmp(name, "include", 7) != 0 || !isspace((unsigned char)name[7]))
        return false;
    name += 7 + strspn(name + 7, blanks);
    length = (int)strcspn(name, blanks);
    if (name[0] == '/' || !slash)
        return snprintf(path, PATH_MAX, "%.*s", length, name) < PATH_MAX;
    return snprintf(path, PATH_MAX, "%.*s/%.*s", (int)(slash - includer), includer, length, name) < PATH_MAX;
}

static void read_file(const char *path, int depth, struct timeouts *timeouts)
{
    FILE *file = fopen(path, "re");
    char *line = NULL, include[PATH_MAX];
    size_t size = 0;

    while (file && getline(&line, &size, file) > 0) {
        line[strcspn(line, "#")] = '\0';
        if (!find_include(line, path, include))
            read_line(line, timeouts);
        else if (depth < INCLUDES_MOST)
            read_file(include, depth + 1, timeouts);
    }
    free(line);
    if (file)
        fclose(file);
}

int epilog_timeout_read(const char *slurm_conf)
{
    struct timeouts timeouts = {EPILOG_NO_TIMEOUT, EPILOG_NO_TIMEOUT};

    if (slurm_conf)
        read_file(slurm_conf, 0, &timeouts);
    return timeouts.epilog != EPILOG_NO_TIMEOUT ? timeouts.epilog : timeouts.both;
}

int epilog_timeout_fit(int seconds, int timeout, void (*warn)(const char *line))
{
    int granted = timeout < SLURM_SECONDS ? 0 : timeout - SLURM_SECONDS;
    char line[512];

    if (timeout == EPILOG_NO_TIMEOUT || seconds <= granted)
        return seconds;
    snprintf(line, sizeof line,
             "muster: warning: slurm.conf's PrologEpilogTimeout (EpilogTimeout) of %d s is too short for "
             "epilog_seconds=%d in plugstack.conf: the epilog drains checkpoints for %d s only; make the timeout %d s "
             "or longer",
             timeout, seconds, granted, seconds + SLURM_SECONDS);
    if (warn)
        warn(line);
    return granted;
}
