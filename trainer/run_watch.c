/* run_watch.c - starts a run's flight recorder and watchdog, and logs stragglers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/watch/recorder.h"
#include "trainer/watch/straggler.h"
#include "trainer/run.h"

enum { DIRECTORY_SIZE = JOB_PATH_SIZE + 128, MOST_STRAGGLERS = 4 };

/* A possible hang, as named by rank 0 for all. */
struct incident {
    char directory[DIRECTORY_SIZE];
    char title[160];
};

static const char *env_value(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value && value[0] ? value : otherwise;
}

/* Slurm's name for the node, which users know. */
static void own_host(char host[static HANG_HOST_SIZE])
{
    char name[256] = "";

    gethostname(name, sizeof name - 1);
    snprintf(host, HANG_HOST_SIZE, "%s", env_value("SLURMD_NODENAME", name[0] ? name : "?"));
    host[strcspn(host, ".")] = '\0';
}

/* A directory that all ranks can write to: checkpoint.dir, else that of the metrics, else the working directory. */
static void shared_directory(char *dir, size_t size, const struct job *job)
{
    char *slash;

    snprintf(dir, size, "%s", job->checkpoint.dir[0] ? job->checkpoint.dir : job->report.metrics);
    if (!job->checkpoint.dir[0]) {
        slash = strrchr(dir, '/');
        snprintf(slash ? slash : dir, slash ? 1 : size, "%s", slash ? "" : ".");
    }
}

static void name_incident(struct incident *incident, const struct job *job)
{
    char base[JOB_PATH_SIZE], name[96];
    const char *id = env_value("SLURM_JOB_ID", NULL), *step = env_value("SLURM_STEP_ID", "0");
    const char *restart = env_value("SLURM_RESTART_COUNT", "0");

    shared_directory(base, sizeof base, job);
    if (id) {
        snprintf(name, sizeof name, "hang-%.30s.%.20s.%.20s", id, step, restart);
        snprintf(incident->title, sizeof incident->title, "job %.30s, step %.20s, restart %.20s", id, step, restart);
    } else {
        snprintf(name, sizeof name, "hang-%d", (int)getpid());
        snprintf(incident->title, sizeof incident->title, "process %d of rank 0, without Slurm", (int)getpid());
    }
    /* It must not exist yet: its existence is the alarm. */
    snprintf(incident->directory, sizeof incident->directory, "%s/%s", base, name);
    for (int k = 2; k < 1000 && access(incident->directory, F_OK) == 0; k++)
        snprintf(incident->directory, sizeof incident->directory, "%s/%s-%d", base, name, k);
}

/* Collects the hosts of all ranks. */
static int exchange_hosts(struct run *run, const struct record_file *record, struct error *err)
{
    int rank = comm_rank(run->world), world = comm_size(run->world), result = 0;
    char host[HANG_HOST_SIZE];

    run->hosts = calloc((size_t)world, sizeof *run->hosts);
    run->slow = calloc((size_t)world, sizeof *run->slow);
    if (!run->hosts || !run->slow)
        result = error_set(err, CODE_IO, "out of memory for the hosts of %d ranks", world);
    if (comm_agree(run->world, result, err) < 0)
        return -1;
    own_host(host);
    run->hosts[rank] = neighbour_self(host, record);
    _Static_assert(sizeof *run->hosts % sizeof(float) == 0, "it is exchanged as floats");
    return comm_all_gather(run->world, DTYPE_F32, run->hosts, sizeof *run->hosts / sizeof(float), err);
}

static int start_watchdog(struct run *run, struct record_file *record, struct error *err)
{
    struct watchdog_config config = {
        .rank = comm_rank(run->world),
        .world = comm_size(run->world),
        .hang_seconds = run->job->report.hang_seconds,
        .record = record,
        .verdict = comm_interrupt,
    };
    struct incident incident = {0};
    int result;

    if (config.rank == 0)
        name_incident(&incident, run->job);
    if (comm_broadcast(run->world, &incident, sizeof incident, 0, err) < 0)
        return -1;
    config.directory = incident.directory;
    config.title = incident.title;
    config.neighbours = neighbours_create(run->hosts, config.world, config.rank, record, err);
    result = comm_agree(run->world, config.neighbours ? 0 : -1, err);
    record_unlink(record); /* all neighbours have mapped it */
    if (result < 0) {
        neighbours_destroy(config.neighbours);
        run_log(run, "training goes on without a watchdog: %s", err->text);
        return 0;
    }
    run->watchdog = watchdog_start(&config, err);
    if (run->watchdog)
        comm_explain_with(watchdog_explain, run->watchdog);
    return comm_agree(run->world, run->watchdog ? 0 : -1, err);
}

int run_watch_start(struct run *run, struct error *err)
{
    struct record_file *record = recorder_start(comm_size(run->world), err);

    if (comm_agree(run->world, record ? 0 : -1, err) < 0 || exchange_hosts(run, record, err) < 0)
        return -1;
    if (comm_size(run->world) == 1 || run->job->report.hang_seconds == 0) {
        record_unlink(record);
        return 0;
    }
    return start_watchdog(run, record, err);
}

/* Logs ranks that were found in this check and the one before; a single time is noise. */
static void log_stragglers(const struct run *run, const struct straggler *found, int n)
{
    char text[256];

    for (int i = 0; i < n && i < MOST_STRAGGLERS; i++) {
        if (!run->slow[found[i].rank])
            continue;
        straggler_text(text, sizeof text, &found[i], run->hosts[found[i].rank].host);
        run_log(run, "%s", text);
    }
    for (int rank = 0; rank < comm_size(run->world); rank++)
        run->slow[rank] = false;
    for (int i = 0; i < n; i++)
        run->slow[found[i].rank] = true;
}

/* On the leader, which has every rank's seconds and stage. */
static void find_stragglers(const struct run *run, const float *gathered)
{
    int world = comm_size(run->world), n = 0;
    struct straggler *found = calloc((size_t)world, sizeof *found);
    double *own = calloc((size_t)world, sizeof *own);
    int *stages = calloc((size_t)world, sizeof *stages);

    for (int rank = 0; rank < world && own && stages; rank++) {
        own[rank] = gathered[2 * rank];
        stages[rank] = (int)gathered[2 * rank + 1];
    }
    if (found && own && stages)
        n = stragglers_find(found, own, stages, world, run->job->report.straggler_factor);
    log_stragglers(run, found, n);
    free(found);
    free(own);
    free(stages);
}

int run_stragglers(struct run *run, double own_seconds, int stage, struct error *err)
{
    int rank = comm_rank(run->world), world = comm_size(run->world);
    float *gathered;
    int result;

    if (world == 1 || run->job->report.straggler_factor == 0)
        return 0;
    gathered = calloc((size_t)world, 2 * sizeof *gathered);
    result = gathered ? 0 : error_set(err, CODE_IO, "out of memory for the step times of %d ranks", world);
    if (gathered) {
        gathered[2 * rank] = (float)own_seconds;
        gathered[2 * rank + 1] = (float)stage;
        comm_purpose(run->world, "step times", NULL);
        result = comm_all_gather(run->world, DTYPE_F32, gathered, 2, err);
    }
    if (result < 0)
        return -1; /* not freed: a transfer may still write to it */
    if (run->leader)
        find_stragglers(run, gathered);
    free(gathered);
    return 0;
}

void run_watch_ending(struct run *run)
{
    recorder_ending();
    watchdog_leave_together(run->watchdog);
}

void run_watch_stop(struct run *run)
{
    comm_explain_with(NULL, NULL);
    if (watchdog_stop(run->watchdog))
        recorder_stop();
    run->watchdog = NULL;
    free(run->hosts);
    free(run->slow);
    run->hosts = NULL;
    run->slow = NULL;
}
