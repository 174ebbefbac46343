#include "srun-plugin/place/step_layout.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

/* Slurm 23.11 turned hostlist_t from a pointer into what it points to. */
typedef __typeof__(slurm_hostlist_create("")) host_list;

int step_layout_first_name(const char *list, char *name, size_t size)
{
    host_list hosts = slurm_hostlist_create(list);
    char *first = hosts ? slurm_hostlist_shift(hosts) : NULL;

    if (first)
        snprintf(name, size, "%s", first);
    free(first);
    if (hosts)
        slurm_hostlist_destroy(hosts);
    return first ? 0 : -1;
}

static int copy_nodes(struct step_layout *layout, const slurm_step_layout_t *answer, struct error *err)
{
    host_list hosts = slurm_hostlist_create(answer->node_list);
    int rc = -1;

    layout->ranks = answer->task_cnt;
    layout->list = strdup(answer->node_list);
    layout->nodes = calloc(answer->node_cnt, sizeof *layout->nodes);
    if (!hosts || !layout->list || !layout->nodes)
        goto out_of_memory;
    for (uint32_t i = 0; i < answer->node_cnt; i++) {
        struct step_node *node = &layout->nodes[layout->count++];
        char *name = slurm_hostlist_shift(hosts);

        snprintf(node->name, sizeof node->name, "%s", name ? name : "?");
        free(name);
        node->count = answer->tasks[i];
        node->ranks = calloc(node->count ? node->count : 1, sizeof *node->ranks);
        if (!node->ranks)
            goto out_of_memory;
        memcpy(node->ranks, answer->tids[i], node->count * sizeof *node->ranks);
    }
    rc = 0;
out_of_memory:
    if (rc < 0)
        error_set(err, CODE_IO, "no memory for the layout of %u nodes", (unsigned)answer->node_cnt);
    if (hosts)
        slurm_hostlist_destroy(hosts);
    return rc;
}

/* Rank 0 need not be on the first node: a host file, or --distribution=arbitrary, may put it anywhere. */
const struct step_node *step_layout_node_of_rank_0(const struct step_layout *layout)
{
    for (size_t i = 0; i < layout->count; i++)
        if (layout->nodes[i].count && layout->nodes[i].ranks[0] == 0)
            return &layout->nodes[i];
    return &layout->nodes[0];
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
    snprintf(layout->head, sizeof layout->head, "%s", step_layout_node_of_rank_0(layout)->name);
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
    char name[STEP_NODE_NAME_SIZE];
    int failed, why;

    snprintf(name, sizeof name, "%s", node);
    failed = slurm_load_node_single(&answer, name, SHOW_ALL);
    why = errno;
    if (!failed && answer->record_count > 0 && answer->node_array[0].node_addr)
        snprintf(address, size, "%s", answer->node_array[0].node_addr);
    else if (failed)
        error_set(err, CODE_INTERNAL, "slurmctld does not give the address of node %s: %s", name, slurm_strerror(why));
    else
        failed = error_set(err, CODE_INTERNAL, "slurmctld has no address of node %s", name);
    if (!failed && answer->record_count > 0 && cpus_are_cores) {
        const node_info_t *info = &answer->node_array[0];

        *cpus_are_cores = info->threads > 1 && info->cpus == (uint32_t)info->sockets * info->cores;
    }
    slurm_free_node_info_msg(answer);
    return failed ? -1 : 0;
}

int step_layout_find_head(struct step_layout *layout, struct error *err)
{
    return find_address(step_layout_node_of_rank_0(layout)->name, layout->head, sizeof layout->head,
                        &layout->cpus_are_cores, err);
}

static bool is_number(const char *address)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, address, bytes) == 1 || inet_pton(AF_INET6, address, bytes) == 1;
}

void step_layout_find_peer(const struct step_layout *layout, char *address, size_t size)
{
    const struct step_node *head = step_layout_node_of_rank_0(layout), *peer = &layout->nodes[0];
    struct error ignored;

    address[0] = '\0';
    if (layout->count < 2)
        return;
    if (peer == head)
        peer++;
    if (strcmp(layout->head, head->name) == 0 || is_number(layout->head) ||
        find_address(peer->name, address, size, NULL, &ignored) < 0)
        snprintf(address, size, "%s", peer->name);
}

void step_layout_destroy(struct step_layout *layout)
{
    if (!layout)
        return;
    for (size_t i = 0; i < layout->count; i++)
        free(layout->nodes[i].ranks);
    free(layout->nodes);
    free(layout->list);
    free(layout);
}
