/*
 * run_claim.c - one directory, one run: rank 0 claims checkpoint.dir (struct ckpt_claim) before anything is loaded, and
 * keeps the claim until the run ends. Another process (muster-ckptd --claim), which may wait for the file system,
 * refreshes the heartbeat and finds out if another run has taken the directory over.
 *
 * The first of these rules that applies decides whether an owner is alive:
 *   - it released the directory: dead;
 *   - it is an earlier run of this job, which Slurm has requeued since: dead;
 *   - it is a job of this cluster that was requeued and waits: alive. If it is completing, it or its epilog may be
 *     saving: wait for its end;
 *   - it runs, or ran, on this machine: its process decides;
 *   - it is a job of this cluster: Slurm's answer about the job and its step decides;
 *   - Slurm does not answer: the time of the heartbeat decides, and, since clocks differ, whether it changes.
 * A wrong answer costs a run, never a checkpoint: an owner wrongly taken for dead commits nothing more.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/format/json_fields.h"
#include "common/clock.h"
#include "common/text.h"
#include "trainer/programs.h"
#include "trainer/run.h"
#include "trainer/watch/flight_record.h"
#include "trainer/watch/recorder.h"

#define START_SECONDS  10.0 /* between starts of a keeper that ends */
#define LOOK_SECONDS   1.0  /* for the keeper to check: a directory that does not answer must not delay training */
#define END_SECONDS    5.0  /* for the keeper to release the directory; else a later run finds that this one ended */
#define STALE_SECONDS  60.0 /* a heartbeat older than this is a dead run's, or its clock is wrong */
#define SILENT_SECONDS 22.0 /* such a run is dead if its heartbeat stays the same for so long */
#define ENDING_SECONDS 90.0 /* for a job that completes: the epilog takes at most 60 s */
#define POLL_SECONDS   1.0

struct claim_watch {
    const char *dir;
    struct ckpt_claim claim;
    double first_heartbeat; /* while it claims: the owner's heartbeat at the first look */
    bool lost;
    /* the keeper (CLAIM_LOOK in ckpt/ckpt.h) */
    pid_t keeper;    /* 0: none */
    int channel;     /* its input and its output */
    bool asked;      /* to look; it has not answered yet */
    double started;  /* clock_monotonic; 0: this run has not claimed the directory */
    char text[1100]; /* of its output, the last: how the directory was lost */
};

/* ---- this run ---------------------------------------------------------------------------------------------------- */

static void copy_variable(char *to, size_t size, const char *name)
{
    const char *value = getenv(name);

    snprintf(to, size, "%s", value ? value : "");
}

static void add_key(const char *path, const char *value, void *keys)
{
    char *line;

    if (asprintf(&line, "%s = %s", path, value) < 0)
        return;
    json_array_append_new(keys, json_text(line));
    free(line);
}

static void describe_self(struct ckpt_claim *claim, const struct run *run)
{
    char *boot = text_read_file("/proc/sys/kernel/random/boot_id", 64, NULL, NULL);
    struct process self = process_self();

    copy_variable(claim->cluster, sizeof claim->cluster, "SLURM_CLUSTER_NAME");
    copy_variable(claim->job, sizeof claim->job, "SLURM_JOB_ID");
    copy_variable(claim->step, sizeof claim->step, "SLURM_STEP_ID");
    if (strlen(claim->step) > 9) /* a number that Slurm reserves, as for salloc's shell: squeue does not list it */
        claim->step[0] = '\0';
    if (getenv("SLURM_ARRAY_JOB_ID") && getenv("SLURM_ARRAY_TASK_ID"))
        snprintf(claim->array_task, sizeof claim->array_task, "%.31s_%.31s", getenv("SLURM_ARRAY_JOB_ID"),
                 getenv("SLURM_ARRAY_TASK_ID"));
    if (getenv("SLURM_RESTART_COUNT"))
        claim->restart = atoi(getenv("SLURM_RESTART_COUNT"));
    snprintf(claim->host, sizeof claim->host, "%s", run->locations[0].host);
    if (boot && self.pid_namespace)
        snprintf(claim->machine, sizeof claim->machine, "%.36s pid:[%" PRIu64 "]", boot, self.pid_namespace);
    free(boot);
    claim->pid = (int)getpid();
    claim->pid_started = self.started;
    claim->keys = json_array();
    job_each_decisive(run->job, add_key, claim->keys);
}

/* ---- the owner's ------------------------------------------------------------------------------------------------- */

enum verdict { OWNER_DEAD, OWNER_DYING, OWNER_ALIVE }; /* it dies, or may be dead: wait */

/* Without Slurm: what runs on this machine; or, after a reboot or in a new container, the same job file on this host. */
static bool is_same_job(const struct ckpt_claim *owner, const struct ckpt_claim *own)
{
    if (own->job[0] || owner->job[0])
        return strcmp(owner->cluster, own->cluster) == 0 && strcmp(owner->job, own->job) == 0;
    return strcmp(owner->machine, own->machine) == 0 ||
           (strcmp(owner->host, own->host) == 0 && json_equal(owner->keys, own->keys));
}

static enum process_state inspect_owner(const struct ckpt_claim *owner, const struct ckpt_claim *own)
{
    struct process process = process_self();

    if (!own->machine[0] || strcmp(owner->machine, own->machine) != 0 || owner->pid_started == 0)
        return PROCESS_UNKNOWN;
    process.pid = owner->pid;
    process.started = owner->pid_started;
    return process_inspect(&process);
}

/* `waited`: seconds since the first look. */
static enum verdict judge_owner(const struct claim_watch *watch, const struct ckpt_claim *owner, double waited)
{
    const struct ckpt_claim *own = &watch->claim;
    bool ask = own->job[0] && owner->job[0] && strcmp(owner->cluster, own->cluster) == 0;
    enum process_state process;
    enum slurm_answer answer;

    if (owner->released > 0)
        return OWNER_DEAD;
    if (own->job[0] && is_same_job(owner, own) && owner->restart != own->restart)
        return owner->restart < own->restart ? OWNER_DEAD : OWNER_ALIVE;
    answer = ask ? slurm_job_ask(owner->array_task[0] ? owner->array_task : owner->job, owner->step) : SLURM_SILENT;
    process = inspect_owner(owner, own);
    if (answer == SLURM_COMPLETING)
        return waited < ENDING_SECONDS ? OWNER_DYING : OWNER_DEAD;
    if (answer == SLURM_WAITING || process == PROCESS_RUNNING || process == PROCESS_STOPPED)
        return OWNER_ALIVE;
    if (process == PROCESS_GONE || answer == SLURM_ENDED || (answer == SLURM_UNKNOWN && owner->user == geteuid()))
        return OWNER_DEAD;
    if (answer == SLURM_RUNNING || owner->heartbeat != watch->first_heartbeat ||
        fabs(clock_realtime() - owner->heartbeat) <= STALE_SECONDS)
        return OWNER_ALIVE;
    return waited < SILENT_SECONDS ? OWNER_DYING : OWNER_DEAD;
}

/* ---- claiming ---------------------------------------------------------------------------------------------------- */

/* The first key that differs: "; optimizer.lr = 0.001 there, optimizer.lr = 0.002 here". All runs list the same keys. */
static void describe_difference(char *text, size_t size, const struct ckpt_claim *owner, const struct ckpt_claim *own)
{
    json_t *key;
    size_t i;

    text[0] = '\0';
    json_array_foreach(own->keys, i, key)
    {
        const char *here = json_string_value(key), *there = json_string_value(json_array_get(owner->keys, i));

        if (there && !*text && strcmp(there, here) != 0)
            snprintf(text, size, "; %.80s there, %.80s here", there, here);
    }
}

/* `who` owns it. */
static int refuse_start(const struct run *run, const char *who, const struct ckpt_claim *owner, struct error *err)
{
    char difference[256];

    describe_difference(difference, sizeof difference, owner, &run->claim->claim);
    return error_set(err, CODE_CONFIG,
                     "checkpoint.dir = \"%.300s\" belongs to %s, which has not ended%s: give this run another "
                     "checkpoint.dir, by the job's number for example (\"%%j\", in an array \"%%A_%%a\"), or wait",
                     run->job->checkpoint.dir, who, difference);
}

/*
 * The owner is dead: claims the directory. As ckpt_claim_take. What another job has left complete is committed first:
 * afterwards it could not be. Where there was no owner, only one run gets the number 1, and goes on to that of the time.
 */
static int take_directory(struct claim_watch *watch, const struct ckpt_claim *owner, struct error *err)
{
    struct ckpt_claim *claim = &watch->claim;
    bool inherits = owner->accepts > 0 && is_same_job(owner, claim);
    int taken;

    if (ckpt_probe(watch->dir, err) < 0 || (owner->number > 0 && !inherits && ckpt_recover(watch->dir, err) < 0))
        return -1;
    claim->since = claim->heartbeat = clock_realtime();
    claim->number = owner->number + 1;
    claim->accepts = inherits ? owner->accepts : claim->number;
    taken = ckpt_claim_take(watch->dir, claim, err);
    if (taken <= 0 || owner->number > 0)
        return taken;
    claim->number = claim->accepts = (uint64_t)(claim->since * 1e3);
    return ckpt_claim_take(watch->dir, claim, err);
}

/* Rank 0: 0: claimed; 1: the owner may be dying, or another run was faster: wait; -1. `waited`: seconds so far. */
static int try_claim(struct run *run, double waited, struct error *err)
{
    struct claim_watch *watch = run->claim;
    enum verdict verdict = OWNER_DEAD;
    struct ckpt_claim owner;
    int taken = 0, found = ckpt_claim_read(watch->dir, &owner, err);
    double silence = clock_realtime() - owner.heartbeat;
    char who[256];

    if (found < 0)
        return -1;
    if (waited == 0)
        watch->first_heartbeat = owner.heartbeat;
    if (found > 0)
        verdict = judge_owner(watch, &owner, waited);
    ckpt_claim_describe(who, sizeof who, &owner);
    if (verdict == OWNER_ALIVE)
        taken = refuse_start(run, who, &owner, err);
    else if (verdict == OWNER_DEAD)
        taken = take_directory(watch, &owner, err);
    else if (waited == 0)
        run_log(run, "waiting for %s to leave %s, or to refresh its heartbeat, which is %.0f s old by this clock", who,
                watch->dir, silence);
    if (taken > 0 && found > 0 && owner.released == 0)
        run_log(run, "took over %s from %s, which ended without releasing it, %.0f s after its last heartbeat",
                watch->dir, who, fmax(0, silence));
    ckpt_claim_clear(&owner);
    return taken > 0 ? 0 : taken < 0 ? -1 : 1;
}

/* ---- while it runs ----------------------------------------------------------------------------------------------- */

static void end_keeper(struct claim_watch *watch)
{
    close(watch->channel);
    watch->keeper = 0;
    watch->asked = false;
}

/* Without one, nobody refreshes the heartbeat; a later look starts another. */
static void start_keeper(struct claim_watch *watch)
{
    char claim[48], child[32];
    const char *arguments[] = {claim, child, watch->dir, NULL};
    int ends[2];

    watch->started = clock_monotonic();
    watch->text[0] = '\0';
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    snprintf(claim, sizeof claim, "--claim=%" PRIu64, watch->claim.number);
    snprintf(child, sizeof child, "--child=%d", (int)getpid());
    ckptd_start(&watch->keeper, arguments, ends[1], ends[1], NULL);
    close(ends[1]);
    watch->channel = ends[0];
    if (watch->keeper == 0)
        end_keeper(watch);
}

/* Its output is an empty line for each look that found the directory to be still this run's, then how it was lost. */
static void look_at_keeper(struct claim_watch *watch)
{
    ssize_t got;
    int status = 0;

    if (watch->keeper == 0 && watch->started > 0 && clock_monotonic() - watch->started >= START_SECONDS)
        start_keeper(watch);
    if (watch->keeper == 0)
        return;
    while ((got = recv(watch->channel, watch->text, sizeof watch->text - 1, MSG_DONTWAIT)) > 0) {
        watch->text[got] = '\0';
        if (strcmp(watch->text, "\n") == 0)
            watch->asked = false;
    }
    if (got < 0 && errno == EAGAIN)
        return;
    waitpid(watch->keeper, &status, 0); /* it has closed its output */
    end_keeper(watch);
    watch->lost = WIFEXITED(status) && WEXITSTATUS(status) == CODE_CONFIG;
}

static bool command_keeper(const struct claim_watch *watch, char command)
{
    return send(watch->channel, &command, 1, MSG_NOSIGNAL) == 1;
}

/* Has the keeper look, and waits for its answer; but not while it owes an earlier one. */
static void ask_to_look(struct claim_watch *watch)
{
    double end = clock_monotonic() + LOOK_SECONDS;

    if (watch->keeper == 0 || watch->asked || !command_keeper(watch, CLAIM_LOOK))
        return;
    watch->asked = true;
    for (double left = LOOK_SECONDS; watch->asked && left > 0; left = end - clock_monotonic()) {
        poll(&(struct pollfd){.fd = watch->channel, .events = POLLIN}, 1, (int)(left * 1000) + 1);
        look_at_keeper(watch);
    }
}

static int prepare_claim(struct run *run, struct error *err)
{
    if (!run->leader)
        return 0;
    run->claim = error_calloc(1, sizeof *run->claim, err);
    if (!run->claim)
        return -1;
    run->claim->dir = run->job->checkpoint.dir;
    describe_self(&run->claim->claim, run);
    return 0;
}

int run_claim_start(struct run *run, struct error *err)
{
    double again = 1, started = clock_monotonic(), waited = 0;
    int result;

    if (!run->job->checkpoint.dir[0])
        return 0;
    recorder_phase("claiming checkpoint.dir");
    if (comm_agree(run->world, prepare_claim(run, err), err) < 0)
        return -1;
    /* In short operations, so that no watchdog takes this for a hang. */
    while (again > 0) {
        result = run->leader ? try_claim(run, waited, err) : 0;
        again = result > 0;
        if (comm_agree(run->world, result < 0 ? -1 : 0, err) < 0 || comm_max_f64(run->world, &again, 1, err) < 0)
            return -1;
        if (again > 0)
            clock_sleep(POLL_SECONDS);
        waited = clock_monotonic() - started;
    }
    if (run->leader)
        run->engine->claim = run->claim->claim.number;
    if (comm_broadcast(run->world, &run->engine->claim, sizeof run->engine->claim, 0, err) < 0)
        return -1;
    if (run->leader)
        start_keeper(run->claim);
    return 0;
}

bool run_claim_is_lost(const struct run *run)
{
    if (run->claim && !run->claim->lost)
        look_at_keeper(run->claim);
    return run->claim && run->claim->lost;
}

int run_claim_check(const struct run *run, struct error *err)
{
    if (run->claim && !run->claim->lost)
        ask_to_look(run->claim);
    if (!run_claim_is_lost(run))
        return 0;
    return error_set(err, CODE_CONFIG, "%s", run->claim->text + strspn(run->claim->text, "\n"));
}

/* The keeper ends when it has done it, or when this process ends. */
static void release_directory(struct claim_watch *watch)
{
    double end = clock_monotonic() + END_SECONDS;

    if (command_keeper(watch, CLAIM_RELEASE))
        while (waitpid(watch->keeper, NULL, WNOHANG) == 0 && clock_monotonic() < end)
            clock_sleep(0.005);
}

void run_claim_stop(struct run *run, bool release)
{
    struct claim_watch *watch = run->claim;

    if (!watch)
        return;
    if (!run_claim_is_lost(run) && watch->keeper > 0) {
        if (release)
            release_directory(watch);
        end_keeper(watch);
    }
    ckpt_claim_clear(&watch->claim);
    free(watch);
    run->claim = NULL;
}
