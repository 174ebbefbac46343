#include "srun-plugin/order/slurmctld.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

/* Rank 0 is not always on the first node: a host file, or --distribution=arbitrary, can place it anywhere. */
static int copy_nodes(struct step_layout *layout, const slurm_step_layout_t *answer, struct error *err)
{
    layout->node_count = answer->node_cnt;
    layout->rank_count = answer->task_cnt;
    layout->list = strdup(answer->node_list);
    layout->hosts = hostlist_create(answer->node_list, err);
    layout->first = calloc(layout->node_count + 1, sizeof *layout->first);
    layout->ranks = calloc(layout->rank_count + 1, sizeof *layout->ranks);
    layout->node_of = calloc(layout->rank_count + 1, sizeof *layout->node_of);
    if (!layout->hosts)
        return -1;
    if (layout->hosts->count != (int)layout->node_count)
        return error_set(err, CODE_INTERNAL, "slurmctld's layout of %zu nodes names %d", layout->node_count,
                         layout->hosts->count);
    if (!layout->list || !layout->first || !layout->ranks || !layout->node_of)
        return error_errno(err, CODE_IO, "no memory for the layout of %zu nodes", layout->node_count);
    for (size_t i = 0; i < layout->node_count; i++) {
        int *ranks = &layout->ranks[layout->first[i]], count = answer->tasks[i];

        memcpy(ranks, answer->tids[i], (size_t)count * sizeof *ranks);
        layout->first[i + 1] = layout->first[i] + count;
        for (int r = 0; r < count; r++)
            if (ranks[r] < (int)layout->rank_count)
                layout->node_of[ranks[r]] = (int)i;
        if (count && ranks[0] == 0)
            layout->rank0_node = i;
    }
    return 0;
}

struct step_layout *step_layout_create(uint32_t job_id, uint32_t step_id, struct error *err)
{
    slurm_step_id_t id = {.job_id = job_id, .step_id = step_id, .step_het_comp = NO_VAL};
    struct step_layout *layout = calloc(1, sizeof *layout);
    slurm_step_layout_t *answer = layout ? slurm_job_step_layout_get(&id) : NULL;

    if (!answer || answer->node_cnt < 1) {
        error_set(err, CODE_INTERNAL, "slurmctld does not give the layout of step %u.%u: %s", (unsigned)job_id,
                  (unsigned)step_id, slurm_strerror(errno));
        goto fail;
    }
    layout->job_id = job_id;
    layout->step_id = step_id;
    if (copy_nodes(layout, answer, err) < 0)
        goto fail;
    snprintf(layout->master_address, sizeof layout->master_address, "%s", layout->hosts->names[layout->rank0_node]);
    slurm_job_step_layout_free(answer);
    return layout;
fail:
    if (answer)
        slurm_job_step_layout_free(answer);
    step_layout_destroy(layout);
    return NULL;
}

/*
 * The address in slurm.conf is the one that Slurm's own daemons use between nodes, so the ranks reach it too. A name
 * resolved here would not do: on many systems a host resolves its own name to 127.0.1.1.
 */
static int find_address(const char *node, char *address, size_t size, bool *cpus_are_cores, struct error *err)
{
    node_info_msg_t *answer = NULL;
    char name[HOSTNAME_SIZE];
    int failed, why;

    snprintf(name, sizeof name, "%s", node); /* Slurm takes no const */
    failed = slurm_load_node_single(&answer, name, SHOW_ALL);
    why = errno;
    if (!failed && answer->record_count > 0 && answer->node_array[0].node_addr)
        snprintf(address, size, "%s", answer->node_array[0].node_addr);
    else if (failed)
        error_set(err, CODE_INTERNAL, "slurmctld does not give the address of node %s: %s", name, slurm_strerror(why));
    else
        failed = error_set(err, CODE_INTERNAL, "slurmctld has no address of node %s", name);
    if (!failed && cpus_are_cores) {
        const node_info_t *info = &answer->node_array[0];

        *cpus_are_cores = info->threads > 1 && info->cpus == (uint32_t)info->sockets * info->cores;
    }
    slurm_free_node_info_msg(answer);
    return failed ? -1 : 0;
}

int step_layout_ask_rank0_node(struct step_layout *layout, struct error *err)
{
    return find_address(layout->hosts->names[layout->rank0_node], layout->master_address, sizeof layout->master_address,
                        &layout->cpus_are_cores, err);
}

static bool is_number(const char *address)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, address, bytes) == 1 || inet_pton(AF_INET6, address, bytes) == 1;
}

void step_layout_find_peer(const struct step_layout *layout, char *address, size_t size)
{
    struct error ignored;
    const char *peer;

    address[0] = '\0';
    if (layout->node_count < 2)
        return;
    peer = layout->hosts->names[layout->rank0_node == 0];
    if (strcmp(layout->master_address, layout->hosts->names[layout->rank0_node]) == 0 ||
        is_number(layout->master_address) || find_address(peer, address, size, NULL, &ignored) < 0)
        snprintf(address, size, "%s", peer);
}

void step_layout_destroy(struct step_layout *layout)
{
    if (!layout)
        return;
    hostlist_destroy(layout->hosts);
    free(layout->list);
    free(layout->first);
    free(layout->ranks);
    free(layout->node_of);
    free(layout);
}

/* ---- switches ---------------------------------------------------------------------------------------------------- */

/*
 * Slurm's structures changed with 23.11 and 25.05, and are opaque since. What it prints of them (`scontrol show
 * topology`) has stayed the same from 22.05 to 26.05, so that is what is read.
 */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)

/* NULL asks for the cluster's default topology. */
static int load_topology(topo_info_response_msg_t **answer, const char *partition)
{
    partition_info_msg_t *partitions = NULL;
    char *topology = NULL;
    int failed;

    if (partition && slurm_load_partitions(0, &partitions, SHOW_ALL) == SLURM_SUCCESS)
        for (uint32_t i = 0; i < partitions->record_count; i++)
            if (strcmp(partitions->partition_array[i].name, partition) == 0)
                topology = partitions->partition_array[i].topology_name;
    failed = slurm_load_topo(answer, topology);
    slurm_free_partition_info_msg(partitions);
    return failed;
}

#else

static int load_topology(topo_info_response_msg_t **answer, const char *partition)
{
    (void)partition; /* all have the same */
    return slurm_load_topo(answer);
}

#endif

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

char *switch_tree_slurm_text(const char *partition, struct error *err)
{
    topo_info_response_msg_t *answer = NULL;
    char *text = NULL;
    size_t size;
    FILE *out;

    if (load_topology(&answer, partition) != SLURM_SUCCESS) {
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
