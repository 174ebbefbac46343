/* Evaluates the conditions of profiles, and replaces their placeholders. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "srun-plugin/fabric/fabric_profile.h"

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
        if (facts->nics[i].live && has_name(names, drivers ? facts->nics[i].driver : facts->nics[i].kind))
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

    if (strcmp(key, "nics") == 0)
        return has_nic(part, facts, false);
    if (strcmp(key, "no_nics") == 0)
        return !has_nic(part, facts, false);
    if (strcmp(key, "drivers") == 0)
        return has_nic(part, facts, true);
    if (strcmp(key, "files") == 0)
        return has_file(part, facts);
    if (strcmp(key, "no_files") == 0)
        return !has_file(part, facts);
    if (strcmp(key, "gpus") == 0)
        return config_setting_get_bool(part) == (facts->gpus > 0);
    if (strcmp(key, "vendors") == 0)
        return has_name(part, facts->vendor);
    if (strcmp(key, "clusters") == 0)
        return has_name(part, facts->cluster);
    if (strcmp(key, "least_nodes") == 0)
        return facts->nodes >= config_setting_get_int64(part);
    if (strcmp(key, "most_nodes") == 0)
        return facts->nodes <= config_setting_get_int64(part);
    return facts->job_nodes <= config_setting_get_int64(part); /* most_job_nodes */
}

bool fabric_holds(const config_setting_t *condition, const struct fabric_facts *facts)
{
    for (unsigned i = 0; i < fabric_length(condition); i++)
        if (!part_holds(config_setting_get_elem(condition, i), facts))
            return false;
    return true;
}

/* ---- placeholders ------------------------------------------------------------------------------------------------ */

static bool is_given(const char *name)
{
    return name && name[0];
}

/* True if a profile selects this port, whatever its rate. A profile that names no kinds selects all RDMA ports. */
static bool is_selected(const config_setting_t *match, const struct fabric_nic *nic)
{
    const config_setting_t *kinds = config_setting_get_member(match, "nics");

    return nic->live && (kinds ? has_name(kinds, nic->kind) : is_given(nic->hca));
}

/*
 * Ports of the same kind that are much slower belong to the management or storage network: with one of them among the
 * rails, all run at its rate. A port of half the rate is a link of the fabric that trained badly (bind.h uses it, too).
 */
static bool is_fast(const config_setting_t *match, const struct fabric_facts *facts, const struct fabric_nic *nic)
{
    double most = 0;

    for (size_t i = 0; i < facts->nic_count; i++)
        if (is_selected(match, &facts->nics[i]) && facts->nics[i].gbps > most)
            most = facts->nics[i].gbps;
    return is_selected(match, nic) && 2 * nic->gbps >= most;
}

/* Writes a list of the HCAs, or of the interfaces, of the selected ports. */
static bool write_ports(FILE *out, const config_setting_t *match, const struct fabric_facts *facts, bool hcas)
{
    bool any = false;

    for (size_t i = 0; i < facts->nic_count; i++) {
        const char *name = hcas ? facts->nics[i].hca : facts->nics[i].interface;

        if (!is_given(name) || !is_fast(match, facts, &facts->nics[i]))
            continue;
        fprintf(out, "%s%s", any ? "," : "", name);
        any = true;
    }
    return any;
}

static bool write_hca_list(FILE *out, const config_setting_t *match, const struct fabric_facts *facts)
{
    return write_ports(out, match, facts, true);
}

static bool write_nic_interfaces(FILE *out, const config_setting_t *match, const struct fabric_facts *facts)
{
    return write_ports(out, match, facts, false);
}

/* NCCL takes one index for all ports: unknown unless all ports have the same. */
static bool write_gid_index(FILE *out, const config_setting_t *match, const struct fabric_facts *facts)
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

static bool write_socket_ifname(FILE *out, const config_setting_t *match, const struct fabric_facts *facts)
{
    (void)match;
    return is_given(facts->interface) && fputs(facts->interface, out) >= 0;
}

static bool write_local_rank(FILE *out, const config_setting_t *match, const struct fabric_facts *facts)
{
    (void)match;
    return fprintf(out, "%u", facts->local_rank) > 0;
}

static bool write_cores(FILE *out, const config_setting_t *match, const struct fabric_facts *facts)
{
    (void)match;
    return facts->cores > 0 && fprintf(out, "%u", facts->cores) > 0;
}

static const struct {
    const char *name;
    bool (*write)(FILE *out, const config_setting_t *match, const struct fabric_facts *facts);
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
static const char *render_text(FILE *out, const char *value, const config_setting_t *match,
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
