/* Evaluates the conditions of profiles, and replaces their placeholders. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "srun-plugin/fabric/fabric_profile.h"

/* ---- conditions -------------------------------------------------------------------------------------------------- */

static bool has_name(const char *const *names, const char *name)
{
    for (; name && *names; names++)
        if (strcasecmp(*names, name) == 0)
            return true;
    return false;
}

static bool has_nic(const char *const *kinds, const struct fabric_facts *facts)
{
    for (size_t i = 0; i < facts->nic_count; i++)
        if (facts->nics[i].live && has_name(kinds, facts->nics[i].kind))
            return true;
    return false;
}

static bool has_driver(const char *const *drivers, const struct fabric_facts *facts)
{
    for (size_t i = 0; i < facts->nic_count; i++)
        if (facts->nics[i].live && has_name(drivers, facts->nics[i].driver))
            return true;
    return false;
}

static bool has_file(const char *const *files, const struct fabric_facts *facts)
{
    for (; facts->files && *files; files++)
        if (facts->files(*files, facts->files_arg))
            return true;
    return false;
}

static bool part_holds(const struct fabric_part *part, const struct fabric_facts *facts)
{
    switch (part->topic) {
    case FABRIC_NICS:
        return has_nic(part->names, facts);
    case FABRIC_NO_NICS:
        return !has_nic(part->names, facts);
    case FABRIC_DRIVERS:
        return has_driver(part->names, facts);
    case FABRIC_FILES:
        return has_file(part->names, facts);
    case FABRIC_NO_FILES:
        return !has_file(part->names, facts);
    case FABRIC_GPUS:
        return part->number == (facts->gpus > 0);
    case FABRIC_VENDORS:
        return has_name(part->names, facts->vendor);
    case FABRIC_CLUSTERS:
        return has_name(part->names, facts->cluster);
    case FABRIC_LEAST_NODES:
        return facts->nodes >= (unsigned long)part->number;
    case FABRIC_MOST_NODES:
        return facts->nodes <= (unsigned long)part->number;
    case FABRIC_MOST_JOB_NODES:
        return facts->job_nodes <= (unsigned long)part->number;
    default:
        return false;
    }
}

bool fabric_holds(const struct fabric_condition *condition, const struct fabric_facts *facts)
{
    for (size_t i = 0; i < condition->count; i++)
        if (!part_holds(&condition->parts[i], facts))
            return false;
    return true;
}

/* ---- placeholders ------------------------------------------------------------------------------------------------ */

static bool is_given(const char *name)
{
    return name && name[0];
}

/* True if a profile selects this port, whatever its rate. A profile that names no kinds selects all RDMA ports. */
static bool is_selected(const struct fabric_condition *match, const struct fabric_nic *nic)
{
    for (size_t i = 0; i < match->count; i++)
        if (match->parts[i].topic == FABRIC_NICS)
            return nic->live && has_name(match->parts[i].names, nic->kind);
    return nic->live && is_given(nic->hca);
}

/*
 * Ports of the same kind that are much slower belong to the management or storage network: with one of them among the
 * rails, all run at its rate. A port of half the rate is a link of the fabric that trained badly (bind.h uses it, too).
 */
static bool is_fast(const struct fabric_condition *match, const struct fabric_facts *facts,
                    const struct fabric_nic *nic)
{
    double most = 0;

    for (size_t i = 0; i < facts->nic_count; i++)
        if (is_selected(match, &facts->nics[i]) && facts->nics[i].gbps > most)
            most = facts->nics[i].gbps;
    return is_selected(match, nic) && 2 * nic->gbps >= most;
}

static bool write_hca_list(FILE *out, const struct fabric_condition *match, const struct fabric_facts *facts)
{
    bool any = false;

    for (size_t i = 0; i < facts->nic_count; i++) {
        const struct fabric_nic *nic = &facts->nics[i];

        if (!is_given(nic->hca) || !is_fast(match, facts, nic))
            continue;
        fprintf(out, "%s%s", any ? "," : "", nic->hca);
        any = true;
    }
    return any;
}

static bool write_nic_interfaces(FILE *out, const struct fabric_condition *match, const struct fabric_facts *facts)
{
    bool any = false;

    for (size_t i = 0; i < facts->nic_count; i++) {
        const struct fabric_nic *nic = &facts->nics[i];

        if (!is_given(nic->interface) || !is_fast(match, facts, nic))
            continue;
        fprintf(out, "%s%s", any ? "," : "", nic->interface);
        any = true;
    }
    return any;
}

/* NCCL takes one index for all ports: unknown unless all ports have the same. */
static bool write_gid_index(FILE *out, const struct fabric_condition *match, const struct fabric_facts *facts)
{
    int index = -1;

    for (size_t i = 0; i < facts->nic_count; i++) {
        const struct fabric_nic *nic = &facts->nics[i];

        if (!is_given(nic->hca) || !is_fast(match, facts, nic))
            continue;
        if (nic->gid_index < 0 || (index >= 0 && nic->gid_index != index))
            return false;
        index = nic->gid_index;
    }
    fprintf(out, "%d", index);
    return index >= 0;
}

static bool write_socket_ifname(FILE *out, const struct fabric_condition *match, const struct fabric_facts *facts)
{
    (void)match;
    return is_given(facts->interface) && fputs(facts->interface, out) >= 0;
}

static bool write_local_rank(FILE *out, const struct fabric_condition *match, const struct fabric_facts *facts)
{
    (void)match;
    return fprintf(out, "%u", facts->local_rank) > 0;
}

static bool write_cores(FILE *out, const struct fabric_condition *match, const struct fabric_facts *facts)
{
    (void)match;
    return facts->cores > 0 && fprintf(out, "%u", facts->cores) > 0;
}

static const struct {
    const char *name;
    bool (*write)(FILE *out, const struct fabric_condition *match, const struct fabric_facts *facts);
} placeholders[] = {
    {"socket_ifname", write_socket_ifname}, {"nic_interfaces", write_nic_interfaces}, {"hca_list", write_hca_list},
    {"gid_index", write_gid_index},         {"local_rank", write_local_rank},         {"cores", write_cores},
};

#define PLACEHOLDERS (sizeof placeholders / sizeof placeholders[0])

const char *fabric_placeholders(void)
{
    return "${socket_ifname}, ${nic_interfaces}, ${hca_list}, ${gid_index}, ${local_rank}, ${cores}";
}

/* The index of the placeholder at "${name}"; -1 if there is no such placeholder. */
static int find_placeholder(const char *at)
{
    for (size_t i = 0; i < PLACEHOLDERS; i++) {
        size_t length = strlen(placeholders[i].name);

        if (strncmp(at + 2, placeholders[i].name, length) == 0 && at[2 + length] == '}')
            return (int)i;
    }
    return -1;
}

int fabric_placeholder(const char *at)
{
    int index = find_placeholder(at);

    return index < 0 ? -1 : (int)strlen(placeholders[index].name);
}

/* Returns the name of the first placeholder whose value is not known; NULL if all are. */
static const char *render_text(FILE *out, const char *value, const struct fabric_condition *match,
                               const struct fabric_facts *facts)
{
    while (*value) {
        int index = value[0] == '$' && value[1] == '{' ? find_placeholder(value) : -1;

        if (index < 0) {
            fputc(*value++, out);
            continue;
        }
        if (!placeholders[index].write(out, match, facts))
            return placeholders[index].name;
        value += strlen(placeholders[index].name) + 3;
    }
    return NULL;
}

char *fabric_render(const char *value, const struct fabric_condition *match, const struct fabric_facts *facts,
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
