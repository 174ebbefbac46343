/* plugin.c - helper of all contexts: lines to the user, and the epilog's timeout in Slurm's memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

#include "srun-plugin/spank/epilog.h"
#include "srun-plugin/spank/plugin.h"

/* On a node the line also goes to slurmd's log: control characters in a user's variable must not forge lines there. */
void plugin_print(const char *line)
{
    char *printable = strdup(line);

    if (!printable)
        return;
    error_tame(printable);
    slurm_spank_log("%s", printable);
    free(printable);
}

void plugin_warn(const struct error *err)
{
    char line[sizeof err->text + 64];

    snprintf(line, sizeof line, "muster: warning: %s", err->text);
    plugin_print(line);
}

void plugin_print_lines(char *text)
{
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        if (line[0])
            plugin_print(line);
    free(text);
}

/*
 * The slurm.conf that this process has in memory; a configless node has no such file. Slurm's headers declare only its
 * type. It is weak so that the plugin loads where libslurm does not export it.
 */
extern slurm_conf_t slurm_conf __attribute__((weak));

int plugin_timeout(void)
{
    int timeout = NO_VAL16; /* Slurm's value for none */

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
    if (&slurm_conf)
        timeout = slurm_conf.epilog_timeout;
#else
    if (&slurm_conf)
        timeout = slurm_conf.prolog_epilog_timeout;
#endif
    return timeout < NO_VAL16 ? timeout : EPILOG_NO_TIMEOUT;
}
