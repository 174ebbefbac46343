/* slurmstepd.c - context slurmstepd: a step on a node. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "common/text.h"
#include "srun-plugin/node/machine.h"
#include "srun-plugin/spank/as_user.h"
#include "srun-plugin/spank/plugin.h"
#include "srun-plugin/spank/report.h"
#include "srun-plugin/spank/trust.h"

#define ADDRESSES  8            /* of rank 0's node */
#define WAITING    256          /* requests to the launcher: each rank of a node may have one or two */
#define VALUE_MOST (128 * 1024) /* bytes: Linux starts no program with a longer variable */

/* ---- Slurm's items and variables --------------------------------------------------------------------------------- */

/* A value that does not fit is cut, and is set all the same. */
static bool env_of_task(const char *name, char *value, size_t size, void *arg)
{
    spank_err_t rc = spank_getenv((spank_t)arg, name, value, (int)size);

    return rc == ESPANK_SUCCESS || rc == ESPANK_NOSPACE;
}

/* The whole of a value, to be freed; NULL when it is not set, or longer than a program can be given. */
static char *env_of_task_whole(spank_t spank, const char *name)
{
    char *value = malloc(VALUE_MOST);

    if (value && spank_getenv(spank, name, value, VALUE_MOST) == ESPANK_SUCCESS)
        return value;
    free(value);
    return NULL;
}

/* Items that this Slurm does not have stay 0. */
static uint32_t get_item(spank_t spank, spank_item_t which)
{
    uint32_t value = 0;

    return spank_get_item(spank, which, &value) == ESPANK_SUCCESS ? value : 0;
}

/* SPANK gives only the step's number of nodes. For a heterogeneous job the result need only be larger than that. */
static unsigned job_nodes(spank_t spank)
{
    char text[32];
    unsigned nodes =
        env_of_task("SLURM_JOB_NUM_NODES", text, sizeof text, spank) ? (unsigned)strtoul(text, NULL, 10) : 0;

    if (nodes < get_item(spank, S_JOB_NNODES))
        nodes = get_item(spank, S_JOB_NNODES);
    return env_of_task("SLURM_HET_SIZE", text, sizeof text, spank) ? nodes + 1 : nodes;
}

/* Batch scripts, salloc's interactive steps and the external step have none. */
static bool has_ranks(spank_t spank)
{
    return get_item(spank, S_JOB_STEPID) < SLURM_MAX_NORMAL_STEP_ID;
}

/* ---- the launcher ------------------------------------------------------------------------------------------------ */

/* Slurm's variables in it show an administrator whose process it is. */
static char **make_environment(uint32_t job)
{
    static char path[] = "PATH=/usr/bin:/bin", id[64], conf[PATH_MAX], node[PATH_MAX];
    static char *environment[] = {path, id, conf, node, NULL};

    snprintf(id, sizeof id, "SLURM_JOB_ID=%" PRIu32, job);
    snprintf(conf, sizeof conf, "SLURM_CONF=%s", getenv("SLURM_CONF") ? getenv("SLURM_CONF") : "");
    snprintf(node, sizeof node, "SLURMD_NODENAME=%s", getenv("SLURMD_NODENAME") ? getenv("SLURMD_NODENAME") : "");
    return environment;
}

/* The kernel chooses the socket's name: nobody can have taken it before. -1 and errno. */
static int create_listener(char name[LAUNCHER_NAME_SIZE])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t head = offsetof(struct sockaddr_un, sun_path) + 1;
    socklen_t unnamed = sizeof(sa_family_t), size = sizeof address;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, unnamed) == 0 && listen(fd, WAITING) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &size) == 0 && size > head && size - head < LAUNCHER_NAME_SIZE) {
        memcpy(name, address.sun_path + 1, size - head);
        name[size - head] = '\0';
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* The launcher (common/process/launcher.h) is a child of a child, so that slurmstepd need not wait for it. */
static int start_launcher(const struct user_ids *user, uint32_t job, char *program, int listener)
{
    char serve[] = "--serve", *argv[] = {program, serve, NULL};
    char **environment = make_environment(job);
    int life[2];
    pid_t child;

    if (pipe2(life, O_CLOEXEC) < 0)
        return -1;
    child = fork();
    if (child == 0) {
        if (setsid() < 0 || fork() != 0)
            _exit(0);
        as_user_run(user, (const int[]){listener, life[0], -1}, argv, environment);
    }
    close(life[0]); /* this process keeps the other end until it ends */
    return child > 0 && waitpid(child, NULL, 0) == child ? 0 : -1;
}

/* launcher.h says why there is one. What slurmstepd forks before it makes the step's cgroup stays in the cgroup of the
 * job. Slurm does not end it: the programs that the launcher has started end by themselves (muster-ckptd(8)). */
void step_start_launcher(struct plugin *plugin, spank_t spank)
{
    const struct site *site = &plugin->site;
    char program[PATH_MAX];
    struct user_ids user = {0};
    gid_t *groups = NULL;
    struct error err;
    int listener;

    if (!has_ranks(spank) || spank_get_item(spank, S_JOB_UID, &user.uid) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_GID, &user.gid) != ESPANK_SUCCESS)
        return;
    if (spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &user.group_count) != ESPANK_SUCCESS)
        user.group_count = 0;
    user.groups = groups;
    snprintf(program, sizeof program, "%s", site->ckptd ? site->ckptd : CKPTD_PATH);
    if (!site->ckptd && trust_program(program, &err) < 0) {
        slurm_info("muster: no launcher: %s", err.text);
        return;
    }
    listener = create_listener(plugin->node.launcher);
    if (listener < 0 || start_launcher(&user, get_item(spank, S_JOB_ID), program, listener) < 0) {
        slurm_info("muster: no launcher: %s", strerror(errno));
        plugin->node.launcher[0] = '\0';
    }
    if (listener >= 0)
        close(listener);
}

/* ---- once a node ------------------------------------------------------------------------------------------------- */

/* What is wrong on one node is wrong on all. */
static void warn_once(const struct error *err, void *arg)
{
    const struct plugin *plugin = arg;

    if (plugin->node.first)
        plugin_warn(err);
}

static void read_handoff(struct plugin *plugin, spank_t spank)
{
    char *text = env_of_task_whole(spank, HANDOFF_NAME);
    struct error err;

    if (text && handoff_read(text, &plugin->handoff, &err) < 0)
        warn_once(&err, plugin);
    free(text);
}

/* If the handoff has no address of rank 0's node, the first node's name is the best that is known. */
static void fall_back_to_first_node(struct plugin *plugin, spank_t spank)
{
    struct handoff *handoff = &plugin->handoff;
    struct hostlist *list;
    char *nodes, components[32];

    if (handoff->master_address[0])
        return;
    /* In a heterogeneous step srun can send the handoff to one component only, and SLURM_STEP_NODELIST names the nodes
     * of all components. */
    if (env_of_task("SLURM_HET_SIZE", components, sizeof components, spank)) {
        if (plugin->node.first)
            plugin_print(
                "muster: warning: this component of a heterogeneous step has no MASTER_ADDR, and is not bound");
        return;
    }
    nodes = env_of_task_whole(spank, "SLURM_STEP_NODELIST"); /* of a large step, longer than any fixed size */
    list = nodes ? hostlist_create(nodes, NULL) : NULL;
    if (list && list->count > 0)
        snprintf(handoff->master_address, sizeof handoff->master_address, "%s", list->names[0]);
    hostlist_destroy(list);
    free(nodes);
}

/*
 * The interface and address for other nodes of the step. On other nodes: the route to rank 0's node. On rank 0's node:
 * the interface that has Slurm's address of the node; if Slurm has a name instead of an address, the route to the peer.
 */
static void find_route(struct plugin *plugin, bool has_rank0)
{
    const char *other = has_rank0 ? plugin->handoff.peer : plugin->handoff.master_address;
    struct route_address *route = &plugin->node.view.route;
    struct error err;

    if (!other[0] || (has_rank0 && route_is_own(plugin->handoff.master_address, route)))
        return;
    if (route_to(other, route, &err) < 0) {
        *route = (struct route_address){0};
        warn_once(&err, plugin);
    }
}

/* Sets view->master_address, on every node (route_master). */
static void find_master(struct plugin *plugin, bool has_rank0)
{
    char addresses[ADDRESSES][INET6_ADDRSTRLEN];
    struct node_view *view = &plugin->node.view;
    const char *master = plugin->handoff.master_address;
    struct error ignored;
    int count;

    if (master[0] && has_rank0 && view->route.address[0]) {
        count = route_resolve(master, addresses, ADDRESSES, &ignored);
        if (count > 0)
            master = route_master(master, addresses, (size_t)count, view->route.address);
    }
    snprintf(view->master_address, sizeof view->master_address, "%s", master);
}

/*
 * Into absent: the beginnings of the names of shipped profiles that cannot match here, NULL behind the last: the kinds
 * of RDMA port that the node does not have; "tcp" (NCCL's sockets) on a node without GPUs; "cpu" in a job of one node;
 * "single-node" in a job of several. A node with GPUs may have ranks that see none.
 */
static void list_absent(const struct node *node, unsigned nodes, const char *absent[NIC_KINDS + 4])
{
    size_t count = 0;

    for (enum nic_kind kind = 0; kind < NIC_ETHERNET; kind++) {
        bool found = false;

        for (size_t i = 0; node && i < node->nic_count; i++)
            found = found || (node->nics[i].kind == kind && node_nic_usable(&node->nics[i]));
        if (!found)
            absent[count++] = nic_kind_name(kind);
    }
    if (!node || node->gpu_count == 0)
        absent[count++] = "tcp";
    if (nodes == 1)
        absent[count++] = "cpu";
    if (nodes > 1)
        absent[count++] = "single-node";
    absent[count] = NULL;
}

static void add_profiles(struct plugin *plugin, unsigned nodes)
{
    struct fabric *fabric = plugin->node.view.fabric;
    const char *absent[NIC_KINDS + 4];
    char own[PATH_MAX];
    struct error err;

    list_absent(plugin->node.view.node, nodes, absent);
    if (plugin->site.profiles)
        fabric_add_directory(fabric, FABRIC_SHIPPED, plugin->site.profiles, NULL, warn_once, plugin);
    else if (trust_profiles(own, &err) < 0)
        warn_once(&err, plugin);
    else
        fabric_add_directory(fabric, FABRIC_SHIPPED, own, absent, warn_once, plugin);
    fabric_add_directory(fabric, FABRIC_SITE, plugin->site.fabric, NULL, warn_once, plugin);
}

/* `nodes`: of the job. Nothing fails: what could not be read is absent, and a line reports it. */
static void read_node(struct plugin *plugin, unsigned nodes)
{
    struct node_view *view = &plugin->node.view;
    bool describe = plugin->request.report;
    /* A site's profile may match any fact. */
    bool ethernet = describe || plugin->site.profiles || access(plugin->site.fabric, F_OK) == 0;
    struct error err;

    view->node = node_read_bare("/", NULL, ethernet, &err);
    if (!view->node)
        warn_once(&err, plugin);
    else if (describe)
        node_describe(view->node, "/");
    view->fabric = fabric_create(&err);
    if (view->fabric)
        add_profiles(plugin, nodes);
}

void step_node(struct plugin *plugin, spank_t spank)
{
    char kind[NAME_MAX];
    uint32_t node = get_item(spank, S_JOB_NODEID);
    bool has_rank0;

    if (!has_ranks(spank))
        return;
    plugin->node.first = node == 0;
    snprintf(kind, sizeof kind, SLURMD_STAGES, plugin->site.stage);
    plugin->node.stages = slurmd_cache_read(MACHINE_CACHE_DIR, kind);
    read_handoff(plugin, spank);
    fall_back_to_first_node(plugin, spank);
    read_node(plugin, job_nodes(spank));
    has_rank0 = node == plugin->handoff.rank0_node;
    find_route(plugin, has_rank0);
    find_master(plugin, has_rank0);
}

/* ---- each task --------------------------------------------------------------------------------------------------- */

static struct task describe_task(const struct plugin *plugin, spank_t spank)
{
    uint16_t node_cpus = 0;

    spank_get_item(spank, S_JOB_NCPUS, &node_cpus);
    return (struct task){
        .step = &plugin->handoff,
        .job_id = get_item(spank, S_JOB_ID),
        .step_id = get_item(spank, S_JOB_STEPID),
        .nodes = get_item(spank, S_JOB_NNODES),
        .node = get_item(spank, S_JOB_NODEID),
        .ranks = get_item(spank, S_JOB_TOTAL_TASK_COUNT),
        .rank = get_item(spank, S_TASK_GLOBAL_ID),
        .local_ranks = get_item(spank, S_JOB_LOCAL_TASK_COUNT),
        .local_rank = get_item(spank, S_TASK_ID),
        .cpus_per_task = get_item(spank, S_STEP_CPUS_PER_TASK),
        .node_cpus = node_cpus,
        .stages = plugin->node.stages,
        .prometheus = plugin->site.prometheus,
        .launcher = plugin->node.launcher[0] ? plugin->node.launcher : NULL,
        .master_address = plugin->node.view.master_address[0] ? plugin->node.view.master_address : NULL,
    };
}

static void read_nccl_conf(struct plugin *plugin, spank_t spank)
{
    char file[PATH_MAX], home[PATH_MAX];
    struct error err;

    if (fabric_conf_read(&plugin->node.conf, env_of_task("NCCL_CONF_FILE", file, sizeof file, spank) ? file : NULL,
                         env_of_task("HOME", home, sizeof home, spank) ? home : NULL, &err) < 0 &&
        get_item(spank, S_TASK_GLOBAL_ID) == 0)
        plugin_warn(&err);
}

static bool is_same_file(const char *file, const char *absolute)
{
    char real[PATH_MAX];

    return strcmp(file, absolute) == 0 || (realpath(file, real) && strcmp(real, absolute) == 0);
}

/*
 * The job file of the tasks; NULL for none. If the user has named another one by srun --export, srun has not read it:
 * then none of the variables of srun's job file is set.
 */
static char *task_job_file(struct plugin *plugin, spank_t spank)
{
    char *file = env_of_task_whole(spank, "MUSTER_JOB"), *checked = plugin->handoff.job_file;
    struct error err;

    if (!file)
        return checked[0] ? strdup(checked) : NULL;
    if (checked[0] && !is_same_file(file, checked)) {
        error_set(&err, CODE_CONFIG,
                  "the tasks have MUSTER_JOB=%.300s, but srun has read %.300s: none of its variables is set; give srun "
                  "--muster=%.300s",
                  file, checked, file);
        if (get_item(spank, S_TASK_GLOBAL_ID) == 0)
            plugin_warn(&err);
        handoff_clear(&plugin->handoff);
    }
    return file;
}

/* The map that srun has made, unless the user set one; without either, that of an outer step is removed. */
static void apply_map(const struct handoff *handoff, spank_t spank)
{
    char start[ENV_MAP_WORD], *map = env_of_task_whole(spank, RANK_MAP_NAME);
    struct env_reader environment;

    env_reader_open(&environment, env_of_task, spank);
    spank_unsetenv(spank, RANK_MAP_NAME);
    if (!env_of_user("MUSTER_RANK_MAP", start, sizeof start, &environment)) {
        spank_unsetenv(spank, "MUSTER_RANK_MAP");
        if (handoff->by_map && map && spank_setenv(spank, "MUSTER_RANK_MAP", map, 1) != ESPANK_SUCCESS)
            slurm_spank_log("muster: warning: Slurm did not set MUSTER_RANK_MAP");
    }
    free(map);
}

static void apply_setup(const struct rank_setup *setup, spank_t spank)
{
    if (setup->do_bind && affinity_set(&setup->own->cpus) < 0)
        slurm_spank_log("muster: warning: rank %" PRIu32 ": the kernel did not bind it: %m", setup->task.rank);
    for (size_t i = 0; i < setup->env.count; i++)
        if (env_is_to_be_set(&setup->env.variables[i]) &&
            spank_setenv(spank, setup->env.variables[i].name, setup->env.variables[i].value, 1) != ESPANK_SUCCESS)
            slurm_spank_log("muster: warning: rank %" PRIu32 ": Slurm did not set %s", setup->task.rank,
                            setup->env.variables[i].name);
}

/* The task, unlike slurmd, may be in a container. */
static void note_stage(const struct plugin *plugin, struct rank_setup *setup)
{
    const char *stages = plugin->node.stages;
    char root[JOB_PATH_SIZE];
    bool seen = job_stage_choose(JOB_STAGE_AUTO, stages, root);

    if (!setup->binding || !stages || (seen && strncmp(stages, root, strlen(root)) == 0))
        return;
    text_add_line(
        &setup->binding->notes, &setup->binding->note_count,
        seen ? "saves are staged in %s, which slurmd's epilog sees too (stage=%s)"
             : "saves are staged in %s, which slurmd's epilog does not see: a save that is there when the job is "
               "killed is lost; add a directory that both see to stage=%s in plugstack.conf",
        root, plugin->site.stage);
}

static void report_rank(const struct plugin *plugin, const struct rank_setup *setup, spank_t spank)
{
    char name[256], ranks[ENV_VALUE_SIZE], *text = NULL;
    bool json = plugin->request.json;
    size_t size;
    FILE *out;

    if (setup->task.rank == 0 && setup->isolation[0])
        plugin_print(setup->isolation);
    if (!plugin->request.report || !(out = open_memstream(&text, &size)))
        return;
    if (setup->task.local_rank == 0)
        report_node(env_of_task("SLURMD_NODENAME", name, sizeof name, spank) ? name : "this node",
                    env_of_task("SLURM_GTIDS", ranks, sizeof ranks, spank) ? ranks : NULL, plugin->node.view.node,
                    setup, json, out);
    if (setup->task.rank == 0)
        report_variables(setup, json, out);
    fclose(out);
    plugin_print_lines(text);
}

void step_task(struct plugin *plugin, spank_t spank)
{
    const struct node_view *view = &plugin->node.view;
    char library_path[ENV_VALUE_SIZE], *job_file;
    struct rank_setup *setup;
    struct rank_request request;
    struct error err;

    spank_unsetenv(spank, HANDOFF_NAME); /* step_node has read it; an srun inside this step writes its own */
    if (!has_ranks(spank))
        return;
    if (plugin->handoff.exit_code)
        _exit((int)plugin->handoff.exit_code);
    if (plugin->handoff.by_hostfile) {
        spank_unsetenv(spank, "SLURM_HOSTFILE");
        spank_unsetenv(spank, "SLURM_DISTRIBUTION");
    }
    apply_map(&plugin->handoff, spank);
    read_nccl_conf(plugin, spank); /* not in step_node: a file system that hangs must hold a task only */
    request = (struct rank_request){.task = describe_task(plugin, spank),
                                    .view = view,
                                    .job_nodes = job_nodes(spank),
                                    .conf = &plugin->node.conf,
                                    .files = fabric_find_file,
                                    .environment = env_of_task,
                                    .environment_arg = spank};
    request.task.job_file = job_file = task_job_file(plugin, spank);
    if (env_of_task("LD_LIBRARY_PATH", library_path, sizeof library_path, spank))
        request.files_arg = library_path;
    request.affinity_known = affinity_read(&request.affinity, view->node ? &view->node->cpus : NULL) == 0;
    if (view->node) {
        node_read_own(view->node, "/");
        if (request.affinity_known)
            view->node->allowed = request.affinity.all;
    }
    setup = rank_setup_create(&request, &err);
    if (setup) {
        apply_setup(setup, spank);
        note_stage(plugin, setup);
        report_rank(plugin, setup, spank);
    } else {
        slurm_spank_log("muster: warning: rank %" PRIu32 ": %s; muster set none of its variables", request.task.rank,
                        err.text);
    }
    rank_setup_destroy(setup);
    free(job_file);
}
