#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "srun-plugin/fabric_profile.h"

/* ---- conditions -------------------------------------------------------------------------------------------------- */

const char *fabric_string(const config_setting_t *group, const char *key)
{
    const config_setting_t *member = config_setting_get_member(group, key);

    return member ? config_setting_get_string(member) : NULL;
}

static bool has_name(const config_setting_t *names, const char *name)
{
    for (int i = 0; name && i < config_setting_length(names); i++)
        if (strcasecmp(config_setting_get_string_elem(names, i), name) == 0)
            return true;
    return false;
}

static bool has_nic(const config_setting_t *kinds, const struct fabric_facts *facts)
{
    for (size_t i = 0; i < facts->nic_count; i++)
        if (facts->nics[i].live && has_name(kinds, facts->nics[i].kind))
            return true;
    return false;
}

static bool has_driver(const config_setting_t *drivers, const struct fabric_facts *facts)
{
    for (size_t i = 0; i < facts->nic_count; i++)
        if (facts->nics[i].live && has_name(drivers, facts->nics[i].driver))
            return true;
    return false;
}

static bool has_file(const config_setting_t *files, const struct fabric_facts *facts)
{
    for (int i = 0; facts->files && i < config_setting_length(files); i++)
        if (facts->files(config_setting_get_string_elem(files, i), facts->files_arg))
            return true;
    return false;
}

static bool part_holds(const config_setting_t *part, const struct fabric_facts *facts)
{
    const char *key = config_setting_name(part);

    if (strcmp(key, "nics") == 0)
        return has_nic(part, facts);
    if (strcmp(key, "no_nics") == 0)
        return !has_nic(part, facts);
    if (strcmp(key, "drivers") == 0)
        return has_driver(part, facts);
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
        return (long long)facts->nodes >= config_setting_get_int64(part);
    if (strcmp(key, "most_nodes") == 0)
        return (long long)facts->nodes <= config_setting_get_int64(part);
    return (long long)facts->job_nodes <= config_setting_get_int64(part); /* most_job_nodes */
}

bool fabric_holds(const config_setting_t *condition, const struct fabric_facts *facts)
{
    for (int i = 0; condition && i < config_setting_length(condition); i++)
        if (!part_holds(config_setting_get_elem(condition, (unsigned)i), facts))
            return false;
    return true;
}

/* ---- placeholders ------------------------------------------------------------------------------------------------ */

static bool is_given(const char *name)
{
    return name && name[0];
}

/* Whether a profile is about this port, regardless of its speed. A profile that names no kinds is about all RDMA. */
static bool concerns(const config_setting_t *match, const struct fabric_nic *nic)
{
    const config_setting_t *kinds = config_setting_get_member(match, "nics");

    return nic->live && (kinds ? has_name(kinds, nic->kind) : is_given(nic->hca));
}

/*
 * Much slower ports of the same kind are those of the management or storage network: with one of them among the rails,
 * all go at its pace. One of half the rate is a link of the fabric that trained badly (bind.h takes it, too).
 */
static bool chosen(const config_setting_t *match, const struct fabric_facts *facts, const struct fabric_nic *nic)
{
    double most = 0;

    for (size_t i = 0; i < facts->nic_count; i++)
        if (concerns(match, &facts->nics[i]) && facts->nics[i].gbps > most)
            most = facts->nics[i].gbps;
    return concerns(match, nic) && 2 * nic->gbps >= most;
}

static bool write_hca_list(FILE *out, const config_setting_t *match, const struct fabric_facts *facts)
{
    bool any = false;

    for (size_t i = 0; i < facts->nic_count; i++) {
        const struct fabric_nic *nic = &facts->nics[i];

        if (!is_given(nic->hca) || !chosen(match, facts, nic))
            continue;
        fprintf(out, "%s%s", any ? "," : "", nic->hca);
        any = true;
    }
    return any;
}

static bool write_nic_interfaces(FILE *out, const config_setting_t *match, const struct fabric_facts *facts)
{
    bool any = false;

    for (size_t i = 0; i < facts->nic_count; i++) {
        const struct fabric_nic *nic = &facts->nics[i];

        if (!is_given(nic->interface) || !chosen(match, facts, nic))
            continue;
        fprintf(out, "%s%s", any ? "," : "", nic->interface);
        any = true;
    }
    return any;
}

/* NCCL takes one index for all ports: not known, unless it is the same on all. */
static bool write_gid_index(FILE *out, const config_setting_t *match, const struct fabric_facts *facts)
{
    int index = -1;

    for (size_t i = 0; i < facts->nic_count; i++) {
        const struct fabric_nic *nic = &facts->nics[i];

        if (!is_given(nic->hca) || !chosen(match, facts, nic))
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

/* The index of the placeholder at "${name}"; -1 where there is none such. */
static int find(const char *at)
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
    int index = find(at);

    return index < 0 ? -1 : (int)strlen(placeholders[index].name);
}

/* The name of the first placeholder that is not known; NULL if all are. */
static const char *render(FILE *out, const char *value, const config_setting_t *match, const struct fabric_facts *facts)
{
    while (*value) {
        int index = value[0] == '$' && value[1] == '{' ? find(value) : -1;

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
    *missing = render(out, value, match, facts);
    if (fclose(out) == 0 && !*missing)
        return text;
    free(text);
    return NULL;
}
