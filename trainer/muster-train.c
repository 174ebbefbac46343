/* muster-train.c - the program: options, job file, launch; the run itself is train.c. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/job.h"
#include "common/option.h"
#include "common/text.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/launch.h"
#include "plan/rank_config.h"
#include "trainer/choose.h"
#include "trainer/train.h"

static const char usage[] =
    "usage: muster-train JOB.cfg [--set path=value]...\n"
    "       muster-train --check JOB.cfg [--set path=value]...\n"
    "       muster-train --evaluate [--batches N] [--checkpoint PATH] JOB.cfg [--set path=value]...\n"
    "       muster-train --plan RANKS JOB.cfg [--set path=value]... [--json]\n"
    "       muster-train --keys | --mpi | --version | --help\n"
    "\n"
    "Trains the model that the job file describes; see muster.cfg(5). Under Slurm:\n"
    "srun --mpi=$(muster-train --mpi) muster-train JOB.cfg\n"
    "  --set path=value  override one key of the job file, e.g. --set batch.steps=100\n"
    "  --check           only check the job file, and the data, checkpoints and paths that this node sees\n"
    "  --evaluate        print the loss of data.valid for the newest checkpoint\n"
    "  --batches N       of --evaluate: only the first N global batches\n"
    "  --checkpoint PATH of --evaluate: this checkpoint or Hugging Face folder\n"
    "  --plan RANKS      only show the mesh and the memory that so many ranks would have\n"
    "  --keys            list every key with its type and default\n"
    "  --mpi             print the type for srun --mpi that suits the MPI library\n"
    "TERM, INT, HUP, USR1 and USR2 end the current step, save a checkpoint and exit 75.\n";

struct train_options {
    bool check, evaluate, json, keys, mpi;
    long plan;              /* ranks; 0: train */
    long batches;           /* of --evaluate; 0: all */
    const char *checkpoint; /* the same; NULL: the job file's */
    const char *job_path;
    char **set;
    int nset;
};

static void print_key(const char *path, const char *type, const char *default_text, const char *help, void *arg)
{
    (void)arg;
    printf("%-28s %-8s %-12s %s\n", path, type, default_text, help);
}

static int add_set(const char *text, void *to)
{
    struct train_options *o = to;

    o->set[o->nset++] = (char *)text;
    return -1;
}

/* Returns -1 to go on, otherwise the exit code. */
static int parse_options(struct train_options *o, int argc, char **argv)
{
    const struct option_row rows[] = {
        {"set", OPTION_TAKE, .to = o, .take = add_set},
        {"check", OPTION_FLAG, .to = &o->check},
        {"evaluate", OPTION_FLAG, .to = &o->evaluate},
        {"json", OPTION_FLAG, .to = &o->json},
        {"batches", OPTION_WHOLE, .to = &o->batches, .least = 1, .most = 1000000000},
        {"checkpoint", OPTION_TEXT, .to = &o->checkpoint},
        {"keys", OPTION_FLAG, .to = &o->keys},
        {"mpi", OPTION_FLAG, .to = &o->mpi},
        {"plan", OPTION_WHOLE, .to = &o->plan, .least = 1, .most = 1000000},
        {0},
    };
    int code = options_read(rows, argc, argv, usage);

    if (code >= 0)
        return code;
    if (o->keys)
        job_each_key(print_key, NULL);
    if (o->mpi)
        puts(comm_launch_type());
    if (o->keys || o->mpi)
        return CODE_OK;
    if (o->batches && !o->evaluate)
        return option_fail("--batches is for --evaluate; batch.steps limits a training");
    if (o->checkpoint && !o->evaluate)
        return option_fail("--checkpoint is for --evaluate; a training starts from checkpoint.init");
    if (optind >= argc)
        return option_fail("no job file was given");
    if (optind + 1 < argc)
        return option_fail("more than one job file was given: %s", argv[optind + 1]);
    if (o->json && !o->plan)
        return option_fail("--json is for --plan");
    o->job_path = argv[optind];
    return -1;
}

/* No rank could connect, and all have the same error: rank 0 reports it. The others wait a second before they end,
 * since a launcher kills all ranks when one ends with an error. */
static int fail_to_connect(const struct error *err)
{
    if (launch_rank() == 0)
        return error_report(err);
    sleep(1);
    return (int)err->code;
}

/* Before the ranks connect, since the MPI library may abort. */
static void warn_of_launch(void)
{
    struct launch launch = launch_read();
    const char *name = launch_forgotten(&launch), *why = launch_avoid_shm(&launch);

    if (why && launch_rank() == 0)
        fprintf(stderr,
                "muster-train: warning: /dev/shm %s for MPI's shared memory: this run sets UCX_TLS=^posix, so that UCX "
                "does without\n",
                why);

    if (name)
        fprintf(stderr,
                "muster-train: warning: %s=%s, but this process is the only rank: to start several, use srun "
                "--mpi=%s, or the MPI library's mpiexec\n",
                name, getenv(name), comm_launch_type());
}

/* --checkpoint PATH replaces what the job file names. */
static int name_checkpoint(struct job *job, const char *path, struct error *err)
{
    if (strlen(path) >= sizeof job->checkpoint.init)
        return error_set(err, CODE_USAGE, "--checkpoint: the path is longer than %zu bytes",
                         sizeof job->checkpoint.init - 1);
    job->checkpoint.dir[0] = job->checkpoint.load[0] = '\0';
    strcpy(job->checkpoint.init, path);
    return 0;
}

/* The ranks connect first. So a rank that cannot read the job file can tell the others (comm_agree); otherwise they
 * would wait for it to connect. */
static int run_training(const struct train_options *options)
{
    struct error err = {0};
    struct job job = {0};
    struct comm *world;
    int result;

    warn_of_launch();
    world = comm_world_create(&err);
    if (!world)
        return fail_to_connect(&err);
    if (launch_rank() != 0)
        text_notice = NULL;
    result = comm_agree(world, job_load(&job, options->job_path, options->set, options->nset, &err), &err);
    if (result == 0)
        result = choose_mesh(&job, options->job_path, world, &err);
    if (result == 0) /* the last change of the job: its text keeps the patterns */
        result = comm_agree(world, job_expand_paths(&job, &err), &err);
    if (result == 0 && options->checkpoint)
        result = comm_agree(world, name_checkpoint(&job, options->checkpoint, &err), &err);
    if (result == 0)
        result = options->evaluate ? evaluate(&job, world, options->batches, &err) : train(&job, world, &err);
    else
        train_fail(world, &err);
    job_destroy(&job);
    comm_destroy(world);
    return result < 0 ? (int)err.code : result;
}

/* --plan for GPUs also works on a machine without one. */
static int plan_traits(const struct job *job, struct device_traits *traits, struct error *err)
{
    struct device *dev;
    int result;

    *traits =
        (struct device_traits){.threads = 1, .gpu = true, .logits_rows = LOGITS_ROWS_GPU, .attention = job->attention};
    if (job->device == DEVICE_CUDA)
        return 0;
    dev = choose_device(job->device, err);
    result = dev ? device_choose_attention(dev, job->attention, err) : -1;
    if (result == 0)
        *traits = device_traits(dev, job->precision.compute);
    device_destroy(dev);
    return result;
}

/* Prints the mesh and the memory of a run without starting it. */
static int print_plan(const struct job *job, int ranks, bool json, struct error *err)
{
    struct mesh mesh;
    struct device_traits device;
    char *text = NULL;

    if (plan_traits(job, &device, err) == 0 && mesh_fit(&mesh, ranks, job->parallel.tp, job->parallel.pp, err) == 0)
        text = rank_config_table(job, &mesh, &device, json, err);
    if (!text)
        return -1;
    printf(json ? "{\"ranks\":%d,\"dp\":%d,\"tp\":%d,\"pp\":%d,\"zero\":%d,\"bytes\":%s}\n"
                : "%d ranks: dp %d x tp %d x pp %d, ZeRO-%d\n%s\n",
           ranks, mesh.dp, mesh.tp, mesh.pp, job->parallel.zero, text);
    free(text);
    return 0;
}

/* arg: the job file's name. */
static int warn_of_preload(const char *name, const char *value, int line, void *arg, struct error *err)
{
    (void)err;
    if (strcmp(name, "LD_PRELOAD") == 0 || strcmp(name, "LD_AUDIT") == 0)
        fprintf(stderr, "muster-train: warning: %s:%d: %s makes every rank load %s; it must be on every node\n",
                (const char *)arg, line, name, value);
    return 0;
}

/* --check and --plan */
static int inspect_job(const struct train_options *options)
{
    struct error err = {0};
    struct job job;
    int result;

    if (job_load(&job, options->job_path, options->set, options->nset, &err) < 0)
        return error_report(&err);
    if (!options->check)
        result = choose_mesh_of(&job, options->job_path, (int)options->plan, &err) < 0
                     ? -1
                     : print_plan(&job, (int)options->plan, options->json, &err);
    else if ((result = job_each_variable(&job, warn_of_preload, (void *)options->job_path, &err)) == 0 &&
             (result = check_job_files(&job, &err)) == 0)
        printf("%s is a valid job file\n", options->job_path);
    job_destroy(&job);
    return result < 0 ? error_report(&err) : CODE_OK;
}

int main(int argc, char **argv)
{
    struct train_options options = {.set = calloc((size_t)argc, sizeof *options.set)};
    int code;

    if (!options.set)
        return CODE_INTERNAL;
    setlocale(LC_CTYPE, ""); /* for the progress line; LC_NUMERIC stays "C": numbers have a decimal point */
    code = parse_options(&options, argc, argv);
    if (code < 0 && (options.check || options.plan)) {
        code = inspect_job(&options);
    } else if (code < 0) {
        if (!options.evaluate)     /* it has nothing to save */
            train_block_signals(); /* first, so that an early signal is neither lost nor fatal */
        code = run_training(&options);
        free(options.set);
        return code; /* a log that could not be written does not make the training a failure */
    }
    free(options.set);
    return error_output(code);
}
