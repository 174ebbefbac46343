/*
 * Slurm's structures changed with 23.11 and 25.05, and are opaque since. What it prints of them (`scontrol show
 * topology`) has stayed the same from 22.05 to 26.05, so that is what is read.
 */
#include "srun-plugin/place/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

static int load_topology(topo_info_response_msg_t **answer)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
    return slurm_load_topo(answer, NULL);
#else
    return slurm_load_topo(answer);
#endif
}

static void print_topology(FILE *out, topo_info_response_msg_t *answer)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
    slurm_print_topo_info_msg(out, answer, NULL, NULL, 1);
#elif SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
    slurm_print_topo_info_msg(out, answer, NULL, 1);
#else
    if (answer->record_count) /* else Slurm complains to the user that there is no topology */
        slurm_print_topo_info_msg(out, answer, 1);
#endif
}

char *cluster_slurm_text(struct error *err)
{
    topo_info_response_msg_t *answer = NULL;
    char *text = NULL;
    size_t size;
    FILE *out;

    if (load_topology(&answer) != SLURM_SUCCESS) {
        error_set(err, CODE_INTERNAL, "slurmctld does not give the switches: %s", slurm_strerror(errno));
        return NULL;
    }
    out = open_memstream(&text, &size);
    if (out && answer)
        print_topology(out, answer);
    if (!out || fclose(out) != 0) {
        error_errno(err, CODE_IO, "no memory for Slurm's switches");
        free(text);
        text = NULL;
    }
    if (answer)
        slurm_free_topo_info_msg(answer);
    return text;
}
