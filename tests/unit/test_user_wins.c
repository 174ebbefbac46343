/*
 * Nothing that the user set is changed: rank_setup, the whole of what decides, on replayed machines, with random
 * environments, bindings, job files, nccl.conf and site profiles, and then once more for an srun inside of that step.
 */
#include <glob.h>
#include <limits.h>

#include "common/job.h"
#include "srun-plugin/spank/rank_setup.h"
#include "tests/cmocka_test.h"
#include "tests/unit/machines.h"

#define ROUNDS    1000
#define NAMES_MAX 128

static char names[NAMES_MAX][64];
static size_t name_count;
static struct node *nodes[64];
static size_t node_count;
static unsigned kept, set, replaced; /* so that the test cannot pass without having looked */

/* ---- an environment ---------------------------------------------------------------------------------------------- */

struct environment {
    char *values[NAMES_MAX]; /* of names[i]; NULL where it is not set */
};

static size_t index_of(const char *name)
{
    for (size_t i = 0; i < name_count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    assert_in_range(name_count, 0, NAMES_MAX - 1);
    snprintf(names[name_count], sizeof names[0], "%s", name);
    return name_count++;
}

static void put(struct environment *environment, const char *name, const char *value)
{
    size_t i = index_of(name);

    free(environment->values[i]);
    assert_non_null(environment->values[i] = strdup(value));
}

static const char *get(const struct environment *environment, const char *name)
{
    return environment->values[index_of(name)];
}

static void clear(struct environment *environment)
{
    for (size_t i = 0; i < NAMES_MAX; i++)
        free(environment->values[i]);
    *environment = (struct environment){0};
}

static void copy(struct environment *to, const struct environment *from)
{
    *to = (struct environment){0};
    for (size_t i = 0; i < NAMES_MAX; i++)
        if (from->values[i])
            assert_non_null(to->values[i] = strdup(from->values[i]));
}

/* An env_lookup. */
static bool look_up(const char *name, char *value, size_t size, void *arg)
{
    const char *found = get(arg, name);

    return found && snprintf(value, size, "%s", found) >= 0;
}

/* ---- what srun finds --------------------------------------------------------------------------------------------- */

static unsigned pick(unsigned below)
{
    return (unsigned)rand() % below;
}

struct scene {
    struct rank_request ask;
    struct node_view view;
    struct handoff step;
    struct file_variables conf;
};

static bool some_files(const char *name, void *arg)
{
    return (strlen(name) + *(const unsigned *)arg) % 3 == 0;
}

static int keep_variable(const char *name, const char *value, int line, void *arg, struct error *err)
{
    return file_variables_add(arg, name, value, line, err);
}

/* Neither a job file nor a profile may set the others. */
static bool is_for_files(const char *name)
{
    static const char *const others[] = {"RANK",    "WORLD_SIZE",      "LOCAL_", "NODE_",
                                         "MASTER_", "OMP_NUM_THREADS", "SLURM_", "MUSTER_"};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return false;
    return true;
}

/* A real job file through its parser. */
static void make_job(struct file_variables *variables)
{
    char text[4096] = "model = { preset = \"gpt-tiny\"; };\ndata = { train = \"c\"; };\nenvironment = {\n";
    bool used[NAMES_MAX] = {false};
    struct error err = {0};
    struct job job;

    for (unsigned i = pick(8); i > 0; i--) {
        size_t n = pick((unsigned)name_count), length = strlen(text);

        if (is_for_files(names[n]) && !used[n])
            snprintf(text + length, sizeof text - length, "%s = \"job %u\";\n", names[n], pick(9));
        used[n] = true;
    }
    strcat(text, "};\n");
    if (job_parse(&job, text, "gpt.cfg", NULL, 0, &err) < 0 ||
        job_each_variable(&job, keep_variable, variables, &err) < 0)
        fail_msg("%s", err.text);
    job_destroy(&job);
}

static void make_fabric(struct scene *scene)
{
    char text[512];
    const char *name;
    struct error err = {0};

    assert_non_null(scene->view.fabric = fabric_create(&err));
    machines_add_shipped(scene->view.fabric);
    name = names[pick((unsigned)name_count)];
    if (!is_for_files(name))
        return;
    snprintf(text, sizeof text,
             "name = \"site\"; match = { }; set = ( { name = \"%s\"; value = \"site\"; why = \"w\"; "
             "source = \"s\"; } );\n",
             name);
    if (fabric_add_text(scene->view.fabric, FABRIC_SITE, text, "site.cfg", &err) < 0)
        fail_msg("%s", err.text);
}

static struct cpus some_of(const struct cpus *all)
{
    struct cpus some = {0};

    for (int cpu = cpus_next(all, 0); cpu >= 0; cpu = cpus_next(all, (unsigned)cpu + 1))
        if (pick(3))
            cpus_add(&some, (unsigned)cpu);
    return some;
}

static struct task make_task(uint32_t step_nodes, uint32_t local)
{
    return (struct task){.job_id = pick(100000),
                         .step_id = pick(9),
                         .nodes = step_nodes,
                         .ranks = step_nodes * local,
                         .rank = pick(step_nodes * local),
                         .local_ranks = local,
                         .local_rank = pick(local),
                         .cpus_per_task = pick(4),
                         .node_cpus = pick(300),
                         .master_address = pick(4) ? "n1" : NULL,
                         .job_file = pick(2) ? "/home/me/gpt.cfg" : NULL};
}

static void make_scene(struct scene *scene)
{
    static unsigned salt;
    uint32_t step_nodes = 1 + pick(3);

    salt = pick(3);
    *scene = (struct scene){
        .view.node = nodes[pick((unsigned)node_count)],
        .step = {.user_binds = pick(2),
                 .step_known = pick(4),
                 .cpus_are_cores = pick(2),
                 .cpus_inherited = pick(2),
                 .by_map = pick(2)},
    };
    snprintf(scene->view.route.interface, sizeof scene->view.route.interface, "%s", pick(4) ? "eth0" : "");
    scene->ask = (struct rank_request){.task = make_task(step_nodes, 1 + pick(8)),
                                       .view = &scene->view,
                                       .affinity_known = pick(4),
                                       .job_nodes = step_nodes + pick(2),
                                       .conf = &scene->conf,
                                       .files = some_files,
                                       .files_arg = &salt,
                                       .environment = look_up};
    scene->ask.task.step = &scene->step;
    scene->ask.affinity.all = scene->view.node->allowed;
    scene->ask.affinity.own = some_of(&scene->ask.affinity.all);
    make_fabric(scene);
    if (scene->ask.task.job_file)
        make_job(&scene->step.variables);
    for (unsigned i = pick(4); i > 0; i--)
        file_variables_add(&scene->conf, names[pick((unsigned)name_count)], "conf", 0, NULL);
}

static void clear_scene(struct scene *scene)
{
    fabric_destroy(scene->view.fabric);
    file_variables_clear(&scene->step.variables);
    file_variables_clear(&scene->conf);
}

/* ---- the chain --------------------------------------------------------------------------------------------------- */

static void apply(struct scene *scene, struct environment *environment)
{
    struct rank_setup *setup;
    struct error err = {0};

    scene->ask.environment_arg = environment;
    if (!(setup = rank_setup_create(&scene->ask, &err)))
        fail_msg("%s", err.text);
    assert_non_null(setup->env.profile);
    for (size_t i = 0; i < setup->env.count; i++)
        if (env_is_to_be_set(&setup->env.variables[i])) {
            put(environment, setup->env.variables[i].name, setup->env.variables[i].value);
            set++;
        }
    rank_setup_destroy(setup);
}

/* MUSTER_JOB is srun's word to muster-train and MUSTER_SET our own record: nobody else's to set. */
static bool is_ours(const char *name)
{
    return strcmp(name, "MUSTER_JOB") == 0 || strcmp(name, "MUSTER_SET") == 0;
}

static void check(const struct environment *user, const struct environment *now, const struct scene *scene)
{
    for (size_t i = 0; i < name_count; i++) {
        if (!user->values[i] || is_ours(names[i]))
            continue;
        if (!now->values[i] || strcmp(now->values[i], user->values[i]) != 0)
            fail_msg("%s was '%.100s' and is '%.100s'", names[i], user->values[i],
                     now->values[i] ? now->values[i] : "unset");
        kept++;
    }
    /* and what the job file says wins over nccl.conf and profiles */
    for (size_t i = 0; i < scene->step.variables.count; i++)
        if (!get(user, scene->step.variables.items[i].name))
            assert_string_equal(get(now, scene->step.variables.items[i].name), scene->step.variables.items[i].value);
}

/* ---- random users ------------------------------------------------------------------------------------------------ */

/* `would` is what muster would set: a user may have said the very same. */
static void make_user(struct environment *user, const struct environment *would)
{
    static const char *const values[] = {"", "0", "1", "^docker,lo", "=eth9", "x=y %20", "AWS Libfabric", "\xff\n$(a)"};
    static char longest[2 * ENV_VALUE_SIZE];

    memset(longest, 'x', sizeof longest - 1);
    *user = (struct environment){0};
    for (size_t i = 0; i < name_count; i++) {
        unsigned how = pick(12);

        if (is_ours(names[i]) || how > 4)
            continue;
        if (how == 0)
            put(user, names[i], longest + pick(200));
        else if (how == 1 && would->values[i])
            put(user, names[i], would->values[i]);
        else
            put(user, names[i], values[pick(8)]);
    }
}

static void nothing_that_the_user_set_is_changed(void **state)
{
    for (unsigned seed = 1; seed <= ROUNDS; seed++) {
        struct environment user, now, would = {0};
        struct scene outer, inner;

        srand(seed);
        make_scene(&outer);
        make_scene(&inner);
        apply(&outer, &would);
        make_user(&user, &would);
        copy(&now, &user);
        apply(&outer, &now);
        check(&user, &now, &outer);
        apply(&inner, &now); /* srun --muster within the step */
        check(&user, &now, &inner);
        if (!get(&user, "RANK")) {
            assert_int_equal(atoi(get(&now, "RANK")), inner.ask.task.rank);
            replaced++;
        }
        clear_scene(&outer);
        clear_scene(&inner);
        clear(&user);
        clear(&now);
        clear(&would);
    }
    assert_in_range(kept, 20 * ROUNDS, UINT_MAX);
    assert_in_range(set, 20 * ROUNDS, UINT_MAX);
    assert_in_range(replaced, ROUNDS / 3, ROUNDS);
}

/* ---- all variables that there are -------------------------------------------------------------------------------- */

/* Every `name = "X";` of a profile's set list, which is indented twice. */
static void collect_profile(const char *path)
{
    char line[1024], name[64];
    FILE *in = fopen(path, "r");

    assert_non_null(in);
    while (fgets(line, sizeof line, in))
        if (sscanf(line, "        name = \"%63[A-Z0-9_]\"", name) == 1 && line[0] == ' ')
            index_of(name);
    fclose(in);
}

static void collect_names(void)
{
    struct env_list env = {0};
    struct env_reader reader;
    const struct handoff step = {.by_map = true};
    const struct task task = {.step = &step, .ranks = 1, .master_address = "n1", .job_file = "/j", .sees_nvidia = true};
    static const char *const slurms[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_CPUS_PER_TASK",
                                         "SLURM_GPU_BIND",       "SLURM_GPUS_ON_NODE",   "SLURM_GPUS_PER_TASK",
                                         "SLURM_CLUSTER_NAME",   "SLURM_RESTART_COUNT",  "MUSTER_RANK_MAP"};
    struct environment empty = {0};
    char pattern[PATH_MAX];
    size_t of_env;
    glob_t found;

    index_of("MUSTER_SET");
    for (size_t i = 0; i < sizeof slurms / sizeof *slurms; i++)
        index_of(slurms[i]);
    env_reader_open(&reader, look_up, &empty);
    assert_true(env_add_own(&task, &reader, &env));
    for (size_t i = 0; i < env.count; i++)
        index_of(env.variables[i].name);
    env_list_clear(&env);
    of_env = name_count;
    snprintf(pattern, sizeof pattern, "%s/etc/fabric/*.cfg", getenv("top_srcdir"));
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        collect_profile(found.gl_pathv[i]);
    globfree(&found);
    index_of("PYTHONPATH");
    index_of("HF_HOME");
    assert_in_range(of_env, 14, NAMES_MAX);
    assert_in_range(name_count, of_env + 24, NAMES_MAX);
}

static int set_up(void **state)
{
    collect_names();
    machines_make(state);
    for (char **name = machines_names(); *name && node_count < 64; name++)
        if ((nodes[node_count] = node_read(machines_snapshot(*name), NULL, NULL)))
            node_count++;
    return node_count >= 14 ? 0 : -1;
}

static int tear_down(void **state)
{
    while (node_count > 0)
        node_destroy(nodes[--node_count]);
    return machines_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_that_the_user_set_is_changed),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
