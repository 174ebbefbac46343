/* The facts of a node; evaluates the conditions of profiles, and replaces their placeholders. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "srun-plugin/fabric/fabric_profile.h"
#include "srun-plugin/node/bind.h"

/* ---- facts ------------------------------------------------------------------------------------------------------- */

int fabric_facts_fill(struct fabric_facts *facts, const struct node *node, unsigned local_ranks, const size_t *gpus,
                      size_t gpu_count, struct error *err)
{
    /* At least as many ranks as GPUs: then each GPU has its NICs, whatever process uses it. */
    unsigned ranks = local_ranks > 0 && local_ranks < gpu_count ? (unsigned)gpu_count : local_ranks;
    const struct bind_request all = {.local_ranks = ranks, .gpus = gpus, .gpu_count = gpu_count};
    struct binding *binding = binding_create(node, &all, err);
    const struct gpu_vendor *vendor = gpu_count ? gpu_vendor_find(node->gpus[gpus[0]].vendor) : NULL;
    enum nic_kind fabric = node_fabric(node);

    if (!binding)
        return -1;
    facts->gpus = (unsigned)gpu_count;
    facts->vendor = vendor ? vendor->name : NULL;
    facts->nics = node->nics;
    facts->nic_count = node->nic_count;
    facts->live = calloc(node->nic_count + 1, sizeof *facts->live);
    for (size_t i = 0; facts->live && i < node->nic_count; i++) {
        bool of_fabric = node->nics[i].kind == fabric && fabric != NIC_ETHERNET;

        facts->live[i] = node_nic_usable(&node->nics[i]) && (!of_fabric || binding_uses(binding, i));
    }
    binding_destroy(binding);
    return facts->live ? 0 : error_set(err, CODE_IO, "no memory for the facts of a node");
}

const char *fabric_interface(const struct node_nic *nic)
{
    return nic->bond[0] ? nic->bond : nic->netdev;
}

static bool is_live(const struct fabric_facts *facts, size_t nic)
{
    return facts->live ? facts->live[nic] : facts->nics[nic].up;
}

/* ---- conditions -------------------------------------------------------------------------------------------------- */

static bool has_name(const config_setting_t *names, const char *name)
{
    for (unsigned i = 0; name && i < fabric_length(names); i++)
        if (strcasecmp(config_setting_get_string_elem(names, (int)i), name) == 0)
            return true;
    return false;
}

/* True if a live port is of one of these kinds, or has one of these drivers. */
static bool has_nic(const config_setting_t *names, const struct fabric_facts *facts, bool drivers)
{
    for (size_t i = 0; i < facts->nic_count; i++)
        if (is_live(facts, i) && has_name(names, drivers ? facts->nics[i].driver : nic_kind_name(facts->nics[i].kind)))
            return true;
    return false;
}

static bool has_file(const config_setting_t *files, const struct fabric_facts *facts)
{
    for (unsigned i = 0; facts->files && i < fabric_length(files); i++)
        if (facts->files(config_setting_get_string_elem(files, (int)i), facts->files_arg))
            return true;
    return false;
}

static bool part_holds(const config_setting_t *part, const struct fabric_facts *facts)
{
    const char *key = config_setting_name(part);

    if (strncmp(key, "no_", 3) == 0)
        return strcmp(key, "no_nics") == 0 ? !has_nic(part, facts, false) : !has_file(part, facts);
    if (strcmp(key, "nics") == 0 || strcmp(key, "drivers") == 0)
        return has_nic(part, facts, key[0] == 'd');
    if (strcmp(key, "files") == 0)
        return has_file(part, facts);
    if (strcmp(key, "gpus") == 0)
        return config_setting_get_bool(part) == (facts->gpus > 0);
    if (strcmp(key, "vendors") == 0)
        return has_name(part, facts->vendor);
    if (strcmp(key, "clusters") == 0)
        return has_name(part, facts->cluster);
    if (strcmp(key, "least_nodes") == 0)
        return facts->nodes >= config_setting_get_int64(part);
    return (strcmp(key, "most_nodes") == 0 ? facts->nodes : facts->job_nodes) <= config_setting_get_int64(part);
}

bool fabric_holds(const config_setting_t *condition, const struct fabric_facts *facts)
{
    for (unsigned i = 0; i < fabric_length(condition); i++)
        if (!part_holds(config_setting_get_elem(condition, i), facts))
            return false;
    return true;
}

/* ---- placeholders ------------------------------------------------------------------------------------------------ */

/* True if a profile selects this port, whatever its rate. A profile that names no kinds selects all RDMA ports. */
static bool is_selected(const config_setting_t *match, const struct fabric_facts *facts, size_t nic)
{
    const config_setting_t *kinds = config_setting_get_member(match, "nics");
    const struct node_nic *port = &facts->nics[nic];

    return is_live(facts, nic) && (kinds ? has_name(kinds, nic_kind_name(port->kind)) : port->hca[0]);
}

/*
 * Ports of the same kind that are much slower belong to the management or storage network: with one of them among the
 * rails, all run at its rate. A port of half the rate is a link of the fabric that trained badly (bind.h uses it, too).
 */
static bool is_fast(const config_setting_t *match, const struct fabric_facts *facts, size_t nic)
{
    unsigned most = 0;

    for (size_t i = 0; i < facts->nic_count; i++)
        if (is_selected(match, facts, i) && facts->nics[i].rate > most)
            most = facts->nics[i].rate;
    return is_selected(match, facts, nic) && 2 * facts->nics[nic].rate >= most;
}

/* A list of the HCAs, or of the interfaces, of the selected ports. */
static bool write_ports(FILE *out, const config_setting_t *match, const struct fabric_facts *facts, bool hcas)
{
    const char *comma = "";

    for (size_t i = 0; i < facts->nic_count; i++) {
        const char *name = hcas ? facts->nics[i].hca : fabric_interface(&facts->nics[i]);

        if (!name[0] || !is_fast(match, facts, i))
            continue;
        fprintf(out, "%s%s", comma, name);
        comma = ",";
    }
    return comma[0];
}

/* NCCL takes one index for all ports: unknown unless all ports have the same. */
static bool write_gid_index(FILE *out, const config_setting_t *match, const struct fabric_facts *facts)
{
    int index = -1;

    for (size_t i = 0; i < facts->nic_count; i++) {
        int own = facts->nics[i].gid_index;

        if (!facts->nics[i].hca[0] || !is_fast(match, facts, i))
            continue;
        if (own < 0 || (index >= 0 && own != index))
            return false;
        index = own;
    }
    fprintf(out, "%d", index);
    return index >= 0;
}

enum placeholder { SOCKET_IFNAME, NIC_INTERFACES, HCA_LIST, GID_INDEX, LOCAL_RANK, CORES, PLACEHOLDERS };

static const char *const placeholders[PLACEHOLDERS] = {
    [SOCKET_IFNAME] = "socket_ifname", [NIC_INTERFACES] = "nic_interfaces", [HCA_LIST] = "hca_list",
    [GID_INDEX] = "gid_index",         [LOCAL_RANK] = "local_rank",         [CORES] = "cores",
};

/* False if the value is not known. */
static bool write_placeholder(FILE *out, enum placeholder placeholder, const config_setting_t *match,
                              const struct fabric_facts *facts)
{
    switch (placeholder) {
    case SOCKET_IFNAME:
        return facts->interface && facts->interface[0] && fputs(facts->interface, out) >= 0;
    case NIC_INTERFACES:
    case HCA_LIST:
        return write_ports(out, match, facts, placeholder == HCA_LIST);
    case GID_INDEX:
        return write_gid_index(out, match, facts);
    case LOCAL_RANK:
        return fprintf(out, "%u", facts->local_rank) > 0;
    case CORES:
        return facts->cores > 0 && fprintf(out, "%u", facts->cores) > 0;
    case PLACEHOLDERS:
        break;
    }
    return false;
}

const char *fabric_placeholders(void)
{
    return "${socket_ifname}, ${nic_interfaces}, ${hca_list}, ${gid_index}, ${local_rank}, ${cores}";
}

/* PLACEHOLDERS if none begins at `at`. */
static enum placeholder find_placeholder(const char *at)
{
    for (unsigned i = 0; i < PLACEHOLDERS && strncmp(at, "${", 2) == 0; i++) {
        size_t length = strlen(placeholders[i]);

        if (strncmp(at + 2, placeholders[i], length) == 0 && at[2 + length] == '}')
            return i;
    }
    return PLACEHOLDERS;
}

bool fabric_is_placeholder(const char *at)
{
    return find_placeholder(at) != PLACEHOLDERS;
}

/* Returns the name of the first placeholder whose value is not known; NULL if all are. */
static const char *render_text(FILE *out, const char *value, const config_setting_t *match,
                               const struct fabric_facts *facts)
{
    while (*value) {
        enum placeholder found = find_placeholder(value);

        if (found == PLACEHOLDERS)
            fputc(*value++, out);
        else if (write_placeholder(out, found, match, facts))
            value += strlen(placeholders[found]) + strlen("${}");
        else
            return placeholders[found];
    }
    return NULL;
}

char *fabric_render(const char *value, const config_setting_t *match, const struct fabric_facts *facts,
                    const char **missing)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    *missing = NULL;
    if (!out)
        return NULL;
    *missing = render_text(out, value, match, facts);
    if (fclose(out) == 0 && !*missing)
        return text;
    free(text);
    return NULL;
}
