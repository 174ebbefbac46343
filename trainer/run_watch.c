/* run_watch.c - starts and stops the flight recorder and the watchdog of a run, and logs stragglers. */
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/io.h"
#include "common/text.h"
#include "trainer/run.h"
#include "trainer/watch/recorder.h"
#include "trainer/watch/straggler.h"

/* ---- the watchdog ---- */

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

/* In a directory that all ranks can write to: checkpoint.dir, else that of the metrics, else the working directory. */
static void name_output(struct hang_output *output, const struct job *job)
{
    char metrics[JOB_PATH_SIZE], name[96];
    const char *base = job->checkpoint.dir[0] ? job->checkpoint.dir : dirname(strcpy(metrics, job->report.metrics));
    const char *id = env_value("SLURM_JOB_ID", NULL), *step = env_value("SLURM_STEP_ID", "0");
    const char *restart = env_value("SLURM_RESTART_COUNT", "0");

    if (id) {
        snprintf(name, sizeof name, "hang-%.30s.%.20s.%.20s", id, step, restart);
        snprintf(output->title, sizeof output->title, "job %.30s, step %.20s, restart %.20s", id, step, restart);
    } else {
        snprintf(name, sizeof name, "hang-%d", (int)getpid());
        snprintf(output->title, sizeof output->title, "process %d of rank 0, without Slurm", (int)getpid());
    }
    snprintf(output->directory, sizeof output->directory, "%s/%s", base, name);
    for (int k = 2; k < 1000 && access(output->directory, F_OK) == 0; k++)
        snprintf(output->directory, sizeof output->directory, "%s/%s-%d", base, name, k);
}

/* For the metrics, whose text is UTF-8. */
static void name_report(struct run *run, const char *directory)
{
    if (io_absolute(run->hang, sizeof run->hang, directory, NULL) < 0 ||
        text_utf8_end(run->hang, strlen(run->hang)) < strlen(run->hang))
        run->hang[0] = '\0';
}

/* Without links, a rank that is killed is noticed by the ranks of its node alone. */
static struct links *connect_links(const struct run *run, struct links *links, struct error *err)
{
    int parent = links_parent(comm_rank(run->world));
    int result = links_connect(links, &run->locations[parent].link, err);

    if (comm_agree(run->world, result, err) == 0 && comm_agree(run->world, links_accept(links, err), err) == 0)
        return links;
    links_destroy(links);
    run_log(run, "warning: a rank that is killed may be noticed only after report.hang_seconds: %s", err->text);
    return NULL;
}

static int start_watchdog(struct run *run, struct record_file *record, struct links *links, struct error *err)
{
    struct watchdog_config config = {
        .rank = comm_rank(run->world),
        .world = comm_size(run->world),
        .hang_seconds = run->job->report.hang_seconds,
        .record_file = record,
        .links = connect_links(run, links, err),
        .on_cause = comm_interrupt,
    };
    int result;

    if (config.rank == 0)
        name_output(&config.output, run->job);
    if (comm_broadcast(run->world, &config.output, sizeof config.output, 0, err) < 0)
        return -1;
    config.local_ranks = local_ranks_create(run->locations, config.world, config.rank, record, err);
    result = comm_agree(run->world, config.local_ranks ? 0 : -1, err);
    if (result < 0) {
        local_ranks_destroy(config.local_ranks);
        links_destroy(config.links);
        run_log(run, "training goes on without a watchdog: %s", err->text);
        return 0;
    }
    run->watchdog = watchdog_start(&config, err);
    if (config.rank == 0)
        name_report(run, config.output.directory);
    comm_await_cause(run->watchdog ? WATCHDOG_SECONDS : 0);
    return comm_agree(run->world, run->watchdog ? 0 : -1, err);
}

int run_watch_start(struct run *run, struct error *err)
{
    int fd, result = 0;
    struct record_file *record = recorder_start(&fd, err);
    bool watched = comm_size(run->world) > 1 && run->job->report.hang_seconds > 0;
    struct links *links = NULL;
    struct rank_location self = {.process = process_self()};

    if (comm_agree(run->world, record ? 0 : -1, err) < 0)
        return -1;
    own_host(self.host);
    self.record = fd;
    if (watched)
        links = links_create(comm_size(run->world), comm_rank(run->world), &self.link, err);
    _Static_assert(sizeof self % sizeof(float) == 0, "it is exchanged as floats");
    run->locations = run_gather(run, &self, sizeof self / sizeof(float), "hosts", err);
    run->slow = run->locations ? error_calloc((size_t)comm_size(run->world), sizeof *run->slow, err) : NULL;
    run->computed = run->slow ? error_calloc((size_t)comm_size(run->world), sizeof *run->computed, err) : NULL;
    if (!run->computed ||
        nodes_find(&run->nodes, run->locations->host, sizeof *run->locations, comm_size(run->world), err) < 0)
        return -1;
    if (watched)
        result = start_watchdog(run, record, links, err);
    close(fd); /* all ranks of the node have mapped the record */
    return result;
}

void run_announce_end(struct run *run)
{
    recorder_ending();
    watchdog_leave_together(run->watchdog);
}

void run_watch_stop(struct run *run)
{
    comm_await_cause(0);
    if (watchdog_stop(run->watchdog)) {
        recorder_stop();
        free(run->locations);
    }
    run->watchdog = NULL;
    nodes_free(&run->nodes);
    free(run->slow);
    free(run->computed);
}

/* ---- stragglers ---- */

enum { MOST_STRAGGLERS = 4 };

/* Logs ranks that were found in this check and the one before; a single time is noise. */
static void log_stragglers(const struct run *run, const struct straggler *found, int n)
{
    char text[256];

    for (int i = 0; i < n && i < MOST_STRAGGLERS; i++) {
        if (!run->slow[found[i].rank])
            continue;
        straggler_text(text, sizeof text, &found[i], run->locations[found[i].rank].host);
        run_log(run, "%s", text);
    }
    memset(run->slow, 0, (size_t)comm_size(run->world) * sizeof *run->slow);
    for (int i = 0; i < n; i++)
        run->slow[found[i].rank] = true;
}

int run_stragglers(struct run *run, double own_seconds, struct error *err)
{
    struct rank_time own = {.group = (float)run->engine->config.coords.pp};
    struct straggler *found;
    struct rank_time *times;

    run->watched_steps++;
    run->where.steps++;
    run->own_seconds += own_seconds;
    if (run->engine->step % (uint64_t)run->job->report.log_every != 0 &&
        run->engine->step != (uint64_t)run->job->batch.steps)
        return 0;
    own.seconds = (float)(run->own_seconds / (double)run->watched_steps);
    run->watched_steps = 0;
    run->own_seconds = 0;
    run_where_take(run, &own);
    times = run_gather(run, &own, sizeof own / sizeof(float), "step times", err);
    if (!times)
        return -1;
    found = run->leader ? calloc((size_t)comm_size(run->world), sizeof *found) : NULL;
    if (found) {
        log_stragglers(run, found,
                       stragglers_find(found, times, comm_size(run->world), run->job->report.straggler_factor));
        run_where_add(run, times);
    }
    free(found);
    free(times);
    return 0;
}
