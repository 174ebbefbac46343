#include "srun-plugin/topo/muster_topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "srun-plugin/spank/rank_setup.h"
#include "srun-plugin/node/sysfs.h"

struct environment {
    struct environment_request request;
    struct node_view view; /* its node is borrowed */
    struct file_variables conf;
    struct rank_setup **ranks; /* [count] */
    size_t count;
    char **notes; /* about broken profiles */
    size_t note_count;
};

static bool look_up(const char *name, char *value, size_t size, void *arg)
{
    const struct environment_request *request = &((const struct environment *)arg)->request;
    const char *own = sysfs_is_live(request->root) ? getenv(name) : NULL;

    if (strcmp(name, "SLURM_CLUSTER_NAME") == 0)
        own = request->cluster;
    return own && snprintf(value, size, "%s", own) >= 0;
}

static bool has_file(const char *name, void *arg)
{
    const char *root = ((const struct environment *)arg)->request.root;

    return sysfs_has_file(root, name, sysfs_is_live(root) ? getenv("LD_LIBRARY_PATH") : NULL);
}

static void note_error(const struct error *err, void *arg)
{
    struct environment *environment = arg;

    text_add_line(&environment->notes, &environment->note_count, "%s", err->text);
}

static int read_conf(struct environment *environment, struct error *err)
{
    char *text;
    int status;

    if (sysfs_is_live(environment->request.root))
        return fabric_conf_read(&environment->conf, getenv("NCCL_CONF_FILE"), getenv("HOME"), err);
    if (!(text = sysfs_text(environment->request.root, "etc/nccl.conf")))
        return 0;
    status = fabric_conf_parse(&environment->conf, text, err);
    free(text);
    return status;
}

/* The value to show; four are not known before there is a job. */
static const char *shown_value(const struct env_variable *variable)
{
    static const char *const names[] = {"MASTER_ADDR", "MASTER_PORT", "MUSTER_JOB_ID", "MUSTER_PLUGIN_VERSION"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (variable->origin == ENV_FROM_MUSTER && strcmp(variable->name, names[i]) == 0)
            return "(of the job)";
    return variable->value;
}

/* As if the step had all CPUs that this process may run on, and no binding was requested. */
static struct rank_setup *set_up_rank(struct environment *environment, uint32_t index, struct error *err)
{
    static const struct handoff step = {.step_known = true};
    const struct environment_request *request = &environment->request;
    const struct cpus *allowed = &environment->view.node->allowed;
    uint32_t local_ranks = (uint32_t)environment->count;
    const struct rank_request ask = {
        .task = {.step = &step,
                 .nodes = request->nodes,
                 .ranks = request->nodes * local_ranks,
                 .rank = index,
                 .local_ranks = local_ranks,
                 .local_rank = index,
                 .node_cpus = cpus_count(allowed),
                 .master_address = "?"},
        .view = &environment->view,
        .affinity = {.own = *allowed, .all = *allowed},
        .affinity_known = true,
        .job_nodes = request->nodes,
        .conf = &environment->conf,
        .files = has_file,
        .files_arg = environment,
        .environment = look_up,
        .environment_arg = environment,
    };

    return rank_setup_create(&ask, err);
}

static int load_profiles(struct environment *environment, struct error *err)
{
    const struct environment_request *request = &environment->request;

    if (!(environment->view.fabric = fabric_create(err)))
        return -1;
    fabric_add_directory(environment->view.fabric, FABRIC_SHIPPED, request->profiles, NULL, note_error, environment);
    if (request->site)
        fabric_add_directory(environment->view.fabric, FABRIC_SITE, request->site, NULL, note_error, environment);
    return 0;
}

static void choose_interface(struct environment *environment)
{
    const char *interface = environment->request.interface;
    const struct node *node = environment->view.node;

    for (size_t i = 0; i < node->nic_count && !interface; i++)
        if (node->nics[i].default_route)
            interface = node->nics[i].netdev;
    snprintf(environment->view.route.interface, sizeof environment->view.route.interface, "%.*s", IF_NAMESIZE - 1,
             interface ? interface : "");
}

struct environment *environment_create(struct node *node, unsigned local_ranks,
                                       const struct environment_request *request, struct error *err)
{
    struct environment *environment = calloc(1, sizeof *environment);

    if (!environment || !(environment->ranks = calloc(local_ranks, sizeof *environment->ranks))) {
        error_set(err, CODE_IO, "no memory for an environment");
        goto fail;
    }
    environment->view.node = node;
    environment->count = local_ranks;
    environment->request = *request;
    if (read_conf(environment, err) < 0 || load_profiles(environment, err) < 0)
        goto fail;
    choose_interface(environment);
    for (uint32_t i = 0; i < local_ranks; i++)
        if (!(environment->ranks[i] = set_up_rank(environment, i, err)))
            goto fail;
    return environment;

fail:
    environment_destroy(environment);
    return NULL;
}

void environment_destroy(struct environment *environment)
{
    if (!environment)
        return;
    for (size_t i = 0; environment->ranks && i < environment->count; i++)
        rank_setup_destroy(environment->ranks[i]);
    text_free_lines(environment->notes, environment->note_count);
    file_variables_clear(&environment->conf);
    fabric_destroy(environment->view.fabric);
    free(environment->ranks);
    free(environment);
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

/* Without MUSTER_SET, the last: it is internal. */
static size_t variable_count(const struct rank_setup *rank)
{
    return rank->env.count - 1;
}

static const struct env_variable *find_variable(const struct rank_setup *rank, const char *name)
{
    for (size_t i = 0; i < variable_count(rank); i++)
        if (strcmp(rank->env.variables[i].name, name) == 0)
            return &rank->env.variables[i];
    return NULL;
}

/* The value of all ranks, or if they differ each rank's, "0 1 2 3"; the caller frees it. */
static char *join_values(const struct environment *environment, const struct env_variable *first)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    bool differ = false;

    if (!out)
        return NULL;
    for (size_t i = 0; i < environment->count; i++) {
        const struct env_variable *other = find_variable(environment->ranks[i], first->name);
        const char *value = other ? shown_value(other) : "-";

        differ = differ || strcmp(value, shown_value(first)) != 0;
        fprintf(out, "%s%s", i ? " " : "", value);
    }
    fclose(out);
    if (differ || !text)
        return text;
    free(text);
    return strdup(shown_value(first));
}

/* "ours.cfg:21" of "/etc/muster/fabric/ours.cfg:21". */
static const char *without_directory(const struct environment *environment, const char *text)
{
    const char *const directories[] = {environment->request.profiles, environment->request.site};

    for (size_t i = 0; i < 2; i++) {
        size_t length = directories[i] ? strlen(directories[i]) : 0;

        if (length && strncmp(text, directories[i], length) == 0 && text[length] == '/')
            return text + length + 1;
    }
    return text;
}

void environment_print(const struct environment *environment)
{
    const struct rank_setup *first = environment->ranks[0];
    const struct env_list *fabric = &first->env;

    printf("environment of %zu rank%s on each of %u node%s, %s%s\n", environment->count,
           environment->count == 1 ? "" : "s", environment->request.nodes, environment->request.nodes == 1 ? "" : "s",
           fabric->profile[0] ? "profile " : "no profile matches", fabric->profile);
    printf("%-28s  %-28s  %-20s  why\n", "variable", "value", "source");
    for (size_t i = 0; i < variable_count(first); i++) {
        const struct env_variable *shown = &first->env.variables[i];
        char *value = join_values(environment, shown);

        printf("%-28s  %-28s  %-20s  %s\n", shown->name, value ? value : shown_value(shown),
               without_directory(environment, shown->source), without_directory(environment, shown->why));
        free(value);
    }
    if (environment->note_count + fabric->note_count)
        putchar('\n');
    for (size_t i = 0; i < environment->note_count; i++)
        printf("note: %s\n", without_directory(environment, environment->notes[i]));
    for (size_t i = 0; i < fabric->note_count; i++)
        printf("note: %s\n", without_directory(environment, fabric->notes[i]));
}

static json_t *describe_rank(const struct rank_setup *rank)
{
    json_t *object = json_object();

    for (size_t i = 0; i < variable_count(rank); i++) {
        const struct env_variable *v = &rank->env.variables[i];

        json_object_set_new(object, v->name,
                            json_pack("{s:s, s:s, s:s, s:b}", "value", shown_value(v), "source", v->source, "why",
                                      v->why, "set", (int)env_is_to_be_set(v)));
    }
    return object;
}

json_t *environment_json(const struct environment *environment)
{
    const struct env_list *fabric = &environment->ranks[0]->env;
    json_t *ranks = json_array(), *notes = json_array();

    for (size_t i = 0; i < environment->note_count; i++)
        json_array_append_new(notes, json_string(environment->notes[i]));
    for (size_t i = 0; i < fabric->note_count; i++)
        json_array_append_new(notes, json_string(fabric->notes[i]));
    for (size_t i = 0; i < environment->count; i++)
        json_array_append_new(ranks, describe_rank(environment->ranks[i]));
    return json_pack("{s:s, s:o, s:o}", "profile", fabric->profile, "notes", notes, "ranks", ranks);
}
