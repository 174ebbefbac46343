/*
 * run_claim.c - one directory, one run: rank 0 claims checkpoint.dir (struct ckpt_claim) before anything is loaded, and
 * keeps the claim until the run ends. Another process, the keeper (muster-ckptd --claim), makes all calls on the
 * directory, since these may wait for the file system for ever: it reads who owns the directory, claims it, refreshes
 * the heartbeat, and finds out if another run has taken the directory over. Rank 0 decides, and never waits for long.
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
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/format/json_fields.h"
#include "common/clock.h"
#include "common/text.h"
#include "trainer/programs.h"
#include "trainer/run.h"
#include "trainer/watch/recorder.h"

#define START_SECONDS  10.0 /* between starts of a keeper that ends */
#define LOOK_SECONDS   1.0  /* for the keeper to check: a directory that does not answer must not delay training */
#define END_SECONDS    5.0  /* for the keeper to release the directory; else a later run finds that this one ended */
#define STALE_SECONDS  60.0 /* a heartbeat older than this is a dead run's, or its clock is wrong */
#define SILENT_SECONDS 22.0 /* such a run is dead if its heartbeat stays the same for so long */
#define ENDING_SECONDS 90.0 /* for a job that completes: the epilog takes at most 60 s */
#define POLL_SECONDS   1.0
#define SAY_SECONDS    3.0 /* without an answer, until it is logged; then each time thrice as long */

struct claim_watch {
    const char *dir;
    struct ckpt_claim claim; /* number 0: it is not known yet who owns the directory */
    bool claimed, lost, warned;
    struct error why; /* how it was lost */
    /* while it claims: */
    double first_heartbeat; /* the owner's, at the first look */
    char took_over[512];    /* from whom, for the log; "": it had been released */
    double asked_at, say_at;
    bool named; /* the log has the owner for whose end it waits */
    /* the keeper (enum claim_command in ckpt/ckpt.h) */
    pid_t keeper;   /* 0: none */
    int channel;    /* the socket */
    bool asked;     /* it owes an answer */
    double started; /* clock_monotonic */
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

/* In this allocation, by muster-supervise(1), which has cancelled that step: a lost node may keep it listed for long. */
static bool has_ended_here(const struct ckpt_claim *owner, const struct ckpt_claim *own)
{
    const char *ended = getenv("MUSTER_ENDED_STEP");

    return ended && ended[0] && owner->step[0] && owner->restart == own->restart &&
           strtol(owner->step, NULL, 10) <= strtol(ended, NULL, 10);
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
    if (own->job[0] && is_same_job(owner, own) && has_ended_here(owner, own))
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

/* ---- the keeper -------------------------------------------------------------------------------------------------- */

static void end_keeper(struct claim_watch *watch)
{
    close(watch->channel);
    watch->keeper = 0;
    watch->asked = false;
}

static bool command_keeper(struct claim_watch *watch, enum claim_command command)
{
    const struct claim_message message = {.command = command, .claim = watch->claim};

    watch->asked = watch->keeper > 0 && claim_message_send(watch->channel, &message) == 0;
    return watch->asked;
}

/* Without one, nobody refreshes the heartbeat; a later look starts another. */
static int start_keeper(struct claim_watch *watch, struct error *err)
{
    const char *arguments[] = {"--claim", watch->dir, NULL};

    watch->started = clock_monotonic();
    watch->channel = program_start(&watch->keeper, CKPTD, arguments, -1, err);
    if (watch->claimed)
        command_keeper(watch, CLAIM_KEEP);
    return watch->channel < 0 ? -1 : 0;
}

/* The next message of the keeper: its answer, or what it reports by itself. False if there is none. */
static bool hear_keeper(struct run *run, struct claim_message *message)
{
    struct claim_watch *watch = run->claim;
    int heard = watch->keeper > 0 ? claim_message_receive(watch->channel, message) : 0;

    if (heard < 0) {
        waitpid(watch->keeper, NULL, 0); /* it has closed its end */
        end_keeper(watch);
    }
    if (heard <= 0)
        return false;
    watch->asked = false;
    if (message->command == CLAIM_LOOK && message->result > 0) {
        watch->lost = true;
        watch->why = message->error;
    } else if (message->command == CLAIM_LOOK && message->result < 0 && !watch->warned) {
        watch->warned = true;
        run_log(run, "warning: the claim on %s cannot be refreshed: %s", watch->dir, message->error.text);
    }
    return true;
}

/* Gives the keeper a command, unless it owes an answer, and waits for that: 1 and *answer; 0: none yet; -1: it cannot
 * be started, or has ended. */
static int ask_keeper(struct run *run, enum claim_command command, double seconds, struct claim_message *answer,
                      struct error *err)
{
    struct claim_watch *watch = run->claim;
    double end = clock_monotonic() + seconds;

    if (watch->keeper == 0 && start_keeper(watch, err) < 0)
        return -1;
    if (!watch->asked && command_keeper(watch, command))
        watch->asked_at = clock_monotonic();
    for (double left = seconds; left > 0 && watch->keeper > 0; left = end - clock_monotonic()) {
        poll(&(struct pollfd){.fd = watch->channel, .events = POLLIN}, 1, (int)(left * 1000) + 1);
        if (hear_keeper(run, answer))
            return 1;
    }
    return watch->keeper > 0
               ? 0
               : error_set(err, CODE_IO, CKPTD " ended while it claimed %s: is it the one of this muster-train?",
                           watch->dir);
}

/* ---- claiming ---------------------------------------------------------------------------------------------------- */

/* The owner is dead, or there is none (number 0): what CLAIM_TAKE is to take. */
static void prepare_to_take(struct claim_watch *watch, const struct ckpt_claim *owner)
{
    struct ckpt_claim *claim = &watch->claim;
    bool inherits = owner->accepts > 0 && is_same_job(owner, claim);
    char who[256];

    claim->number = owner->number + 1;
    claim->accepts = inherits ? owner->accepts : claim->number;
    watch->took_over[0] = '\0';
    if (owner->number == 0 || owner->released > 0)
        return;
    ckpt_claim_describe(who, sizeof who, owner);
    snprintf(watch->took_over, sizeof watch->took_over,
             "%s, which ended without releasing it, %.0f s after its last heartbeat", who,
             fmax(0, clock_realtime() - owner->heartbeat));
}

/* 1: it is dead, and its directory can be taken; or it may be dying: look again. -1 if it is alive. */
static int judge_answer(struct run *run, const struct claim_message *answer, double waited, struct error *err)
{
    struct claim_watch *watch = run->claim;
    const struct ckpt_claim *owner = &answer->claim;
    enum verdict verdict;
    char who[256];

    if (watch->first_heartbeat == 0)
        watch->first_heartbeat = owner->heartbeat;
    verdict = answer->result > 0 ? judge_owner(watch, owner, waited) : OWNER_DEAD;
    ckpt_claim_describe(who, sizeof who, owner);
    if (verdict == OWNER_ALIVE)
        return refuse_start(run, who, owner, err);
    if (verdict == OWNER_DEAD) {
        prepare_to_take(watch, owner);
        return 1;
    }
    if (!watch->named)
        run_log(run, "waiting for %s to leave %s, or to refresh its heartbeat, which is %.0f s old by this clock", who,
                watch->dir, clock_realtime() - owner->heartbeat);
    watch->named = true;
    clock_sleep(POLL_SECONDS);
    return 1;
}

/* The keeper has no answer yet. */
static void report_wait(const struct run *run)
{
    struct claim_watch *watch = run->claim;
    double waited = clock_monotonic() - watch->asked_at;

    if (waited < watch->say_at)
        return;
    watch->say_at *= 3;
    run_log(run, "waiting for checkpoint.dir = \"%s\", which has not answered for %.0f s", watch->dir, waited);
}

/* On rank 0. 0: claimed. 1: try again, since the directory does not answer, its owner is dead or may be dying, or
 * another run was faster. `waited`: seconds so far. */
static int try_claim(struct run *run, double waited, struct error *err)
{
    struct claim_watch *watch = run->claim;
    struct ckpt_claim own = watch->claim;
    struct claim_message answer;
    int result = ask_keeper(run, own.number > 0 ? CLAIM_TAKE : CLAIM_READ, POLL_SECONDS, &answer, err);

    if (result == 0)
        report_wait(run);
    if (result <= 0)
        return result < 0 ? -1 : 1;
    if (answer.result < 0) {
        *err = answer.error;
        result = -1;
    } else if (answer.command == CLAIM_READ) {
        result = judge_answer(run, &answer, waited, err);
    } else if (answer.result > 0) {
        watch->claim = answer.claim; /* with the number and the time that the keeper has chosen */
        answer.claim = own;
        watch->claimed = true;
        result = 0;
        if (watch->took_over[0])
            run_log(run, "took over %s from %s", watch->dir, watch->took_over);
    } else {
        watch->claim.number = 0;
    }
    ckpt_claim_clear(&answer.claim);
    return result;
}

static int prepare_claim(struct run *run, struct error *err)
{
    uint64_t random;

    if (!run->leader)
        return 0;
    run->claim = error_calloc(1, sizeof *run->claim, err);
    if (!run->claim)
        return -1;
    run->claim->dir = run->job->checkpoint.dir;
    run->claim->say_at = SAY_SECONDS;
    describe_self(&run->claim->claim, run);
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return error_errno(err, CODE_IO, "random numbers");
    snprintf(run->id, sizeof run->id, "%016" PRIx64, random);
    memcpy(run->claim->claim.run, run->id, sizeof run->id);
    return 0;
}

int run_claim_start(struct run *run, struct error *err)
{
    double started = clock_monotonic();
    int result;

    if (!run->job->checkpoint.dir[0])
        return 0;
    recorder_phase("claiming checkpoint.dir");
    if (comm_agree(run->world, prepare_claim(run, err), err) < 0)
        return -1;
    /* In short operations, so that no watchdog takes this for a hang, and a request to stop is noticed. */
    for (double state[2] = {1, 0}; state[0] > 0;) { /* whether to try again; a signal */
        result = run->leader ? try_claim(run, clock_monotonic() - started, err) : 0;
        state[0] = result > 0;
        state[1] = run_signal();
        if (comm_agree(run->world, result < 0 ? -1 : 0, err) < 0 || comm_max_f64(run->world, state, 2, err) < 0)
            return -1;
        if (state[0] > 0 && state[1] > 0)
            return error_set(err, CODE_STOPPED,
                             "stopped by signal %.0f (%s) before checkpoint.dir = \"%.300s\" was claimed: nothing was "
                             "trained",
                             state[1], strsignal((int)state[1]), run->job->checkpoint.dir);
    }
    if (run->leader)
        run->engine->claim = run->claim->claim.number;
    if (comm_broadcast(run->world, run->id, sizeof run->id, 0, err) < 0)
        return -1;
    return comm_broadcast(run->world, &run->engine->claim, sizeof run->engine->claim, 0, err);
}

/* ---- while it runs ----------------------------------------------------------------------------------------------- */

bool run_claim_is_lost(struct run *run)
{
    struct claim_watch *watch = run->claim;
    struct claim_message message;

    if (!watch || watch->lost)
        return watch != NULL;
    if (watch->keeper == 0 && clock_monotonic() - watch->started >= START_SECONDS)
        start_keeper(watch, NULL);
    while (hear_keeper(run, &message))
        ckpt_claim_clear(&message.claim);
    return watch->lost;
}

/* Has the keeper do something, if it is idle, and waits for that. */
static void tell_keeper(struct run *run, enum claim_command command, double seconds)
{
    struct claim_watch *watch = run->claim;
    struct claim_message answer;

    if (!run_claim_is_lost(run) && watch->keeper > 0 && !watch->asked &&
        ask_keeper(run, command, seconds, &answer, NULL) > 0)
        ckpt_claim_clear(&answer.claim);
}

int run_claim_check(struct run *run, struct error *err)
{
    if (run->claim)
        tell_keeper(run, CLAIM_LOOK, LOOK_SECONDS);
    if (!run_claim_is_lost(run))
        return 0;
    *err = run->claim->why;
    return -1;
}

void run_claim_stop(struct run *run, bool release)
{
    struct claim_watch *watch = run->claim;

    if (!watch)
        return;
    if (release && watch->claimed)
        tell_keeper(run, CLAIM_RELEASE, END_SECONDS);
    if (watch->keeper > 0)
        end_keeper(watch);
    ckpt_claim_clear(&watch->claim);
    free(watch);
    run->claim = NULL;
}
