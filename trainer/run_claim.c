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
#include <fcntl.h>
#include <poll.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/tools/claim_keeper.h"
#include "common/clock.h"
#include "trainer/programs.h"
#include "trainer/run.h"
#include "trainer/slurm_job.h"
#include "trainer/watch/flight_record.h"
#include "trainer/watch/recorder.h"

#define START_SECONDS  10.0 /* between starts of a keeper that ends */
#define LOOK_SECONDS   1.0  /* for the keeper to check: a directory that does not answer must not delay training */
#define END_SECONDS    5.0  /* for the keeper to release the directory; else a later run finds that this one ended */
#define STALE_SECONDS  60.0 /* a heartbeat older than this is a dead run's, or its clock is wrong */
#define SILENT_SECONDS 22.0 /* such a run is dead if its heartbeat stays the same for so long */
#define ENDING_SECONDS 90.0 /* for a job that completes: the epilog takes at most 60 s */
#define POLL_SECONDS   1.0
#define MOST_RACES     100 /* others that claimed at the same moment, and have ended since */

struct claim_watch {
    const char *dir;
    struct ckpt_claim claim;
    bool lost;
    struct error why; /* of the loss */
    /* while it claims: the owner's heartbeat when that was first judged, and clock_monotonic then; 0: not yet */
    double beat, beat_seen;
    /* the keeper (ckpt/tools/claim_keeper.h) */
    pid_t keeper;    /* 0: none */
    int to, from;    /* its input and its output */
    bool asked;      /* to look; it has not answered yet */
    double started;  /* clock_monotonic; 0: this run has not claimed the directory */
    char text[1024]; /* how the directory was lost */
    size_t length;
};

/* ---- this run ---------------------------------------------------------------------------------------------------- */

static void copy_variable(char *to, size_t size, const char *name)
{
    const char *value = getenv(name);

    snprintf(to, size, "%s", value ? value : "");
}

static void read_line(char *line, size_t size, const char *path)
{
    FILE *file = fopen(path, "r");

    if (!file || !fgets(line, (int)size, file))
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (file)
        fclose(file);
}

/* The boot's id, and the namespace of process ids. */
static void name_machine(char *machine, size_t size)
{
    char boot[64], space[64];
    ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);

    read_line(boot, sizeof boot, "/proc/sys/kernel/random/boot_id");
    space[length > 0 ? length : 0] = '\0';
    snprintf(machine, size, "%s%s%s", boot, *space ? " " : "", space);
    if (!*boot || !*space)
        machine[0] = '\0';
}

struct key_text {
    char *text;
    size_t size;
    FILE *stream;
};

static void add_key(const char *path, const char *value, void *arg)
{
    struct key_text *keys = arg;

    fprintf(keys->stream, "%s = %s\n", path, value);
}

/* A line for each key that affects training; NULL without memory. */
static char *list_keys(const struct job *job)
{
    struct key_text keys = {0};

    keys.stream = open_memstream(&keys.text, &keys.size);
    if (!keys.stream)
        return NULL;
    job_each_decisive(job, add_key, &keys);
    fclose(keys.stream);
    return keys.text;
}

static void describe_self(struct ckpt_claim *claim, const struct run *run)
{
    char text[32];

    copy_variable(claim->cluster, sizeof claim->cluster, "SLURM_CLUSTER_NAME");
    copy_variable(claim->job, sizeof claim->job, "SLURM_JOB_ID");
    copy_variable(claim->step, sizeof claim->step, "SLURM_STEP_ID");
    if (strlen(claim->step) > 9) /* a number that Slurm reserves, as for salloc's shell: squeue does not list it */
        claim->step[0] = '\0';
    if (getenv("SLURM_ARRAY_JOB_ID") && getenv("SLURM_ARRAY_TASK_ID"))
        snprintf(claim->array_task, sizeof claim->array_task, "%.31s_%.31s", getenv("SLURM_ARRAY_JOB_ID"),
                 getenv("SLURM_ARRAY_TASK_ID"));
    copy_variable(text, sizeof text, "SLURM_RESTART_COUNT");
    claim->restart = atoi(text);
    snprintf(claim->host, sizeof claim->host, "%s", run->locations[0].host);
    name_machine(claim->machine, sizeof claim->machine);
    claim->pid = (int)getpid();
    claim->pid_started = process_self().started;
    claim->keys = list_keys(run->job);
}

/* ---- the owner's ------------------------------------------------------------------------------------------------- */

enum verdict { OWNER_DEAD, OWNER_ENDING, OWNER_SILENT, OWNER_ALIVE };

/* Without Slurm: what runs on this machine; or, after a reboot or in a new container, the same job file on this host. */
static bool is_same_job(const struct ckpt_claim *owner, const struct ckpt_claim *own)
{
    bool same_file = owner->keys && own->keys && strcmp(owner->keys, own->keys) == 0;

    if (own->job[0] || owner->job[0])
        return strcmp(owner->cluster, own->cluster) == 0 && strcmp(owner->job, own->job) == 0;
    return strcmp(owner->machine, own->machine) == 0 || (same_file && strcmp(owner->host, own->host) == 0);
}

static enum verdict judge_heartbeat(struct claim_watch *watch, const struct ckpt_claim *owner)
{
    double now = clock_monotonic();

    if (fabs(clock_realtime() - owner->heartbeat) <= STALE_SECONDS)
        return OWNER_ALIVE;
    if (watch->beat_seen == 0) {
        watch->beat = owner->heartbeat;
        watch->beat_seen = now;
    }
    if (owner->heartbeat != watch->beat)
        return OWNER_ALIVE;
    return now - watch->beat_seen < SILENT_SECONDS ? OWNER_SILENT : OWNER_DEAD;
}

/* 1: it runs; 0: it has ended; -1: it cannot be seen from here. */
static int find_process(const struct ckpt_claim *owner, const struct ckpt_claim *own)
{
    struct process process = process_self();
    enum process_state state;

    if (!own->machine[0] || strcmp(owner->machine, own->machine) != 0 || owner->pid_started == 0)
        return -1;
    process.pid = owner->pid;
    process.started = owner->pid_started;
    state = process_inspect(&process);
    return state == PROCESS_UNKNOWN ? -1 : state != PROCESS_GONE;
}

static enum verdict judge_owner(struct claim_watch *watch, const struct ckpt_claim *owner)
{
    const struct ckpt_claim *own = &watch->claim;
    bool ask = own->job[0] && owner->job[0] && strcmp(owner->cluster, own->cluster) == 0;
    enum slurm_answer answer;
    int process;

    if (owner->released > 0)
        return OWNER_DEAD;
    if (own->job[0] && is_same_job(owner, own) && owner->restart != own->restart)
        return owner->restart < own->restart ? OWNER_DEAD : OWNER_ALIVE;
    answer = ask ? slurm_job_ask(owner->array_task[0] ? owner->array_task : owner->job, owner->step) : SLURM_SILENT;
    process = find_process(owner, own);
    if (answer == SLURM_COMPLETING)
        return OWNER_ENDING;
    if (answer == SLURM_WAITING || process > 0)
        return OWNER_ALIVE;
    if (process == 0 || answer == SLURM_ENDED || (answer == SLURM_UNKNOWN && owner->user == geteuid()))
        return OWNER_DEAD;
    return answer == SLURM_RUNNING ? OWNER_ALIVE : judge_heartbeat(watch, owner);
}

/* ---- claiming ---------------------------------------------------------------------------------------------------- */

static int line_length(const char *line)
{
    size_t length = strcspn(line, "\n");

    return length < 80 ? (int)length : 80;
}

/* Among lines "path = value" the one that begins like `key`, up to its value; NULL if there is none. */
static const char *find_line(const char *lines, const char *key)
{
    const char *value = strstr(key, " = ");
    size_t length = value ? (size_t)(value - key) + 3 : strlen(key);

    while (*lines && strncmp(lines, key, length) != 0)
        lines += strcspn(lines, "\n") + 1;
    return *lines ? lines : NULL;
}

/* The first key that differs: "; optimizer.lr = 0.001 there, optimizer.lr = 0.002 here". */
static void describe_difference(char *text, size_t size, const struct ckpt_claim *owner, const struct ckpt_claim *own)
{
    text[0] = '\0';
    for (const char *ours = own->keys; ours && owner->keys && *ours; ours += strcspn(ours, "\n") + 1) {
        const char *theirs = find_line(owner->keys, ours);
        size_t length = strcspn(ours, "\n");

        if (theirs && strncmp(theirs, ours, length + 1) != 0) {
            snprintf(text, size, "; %.*s there, %.*s here", line_length(theirs), theirs, line_length(ours), ours);
            return;
        }
    }
}

static int refuse_start(const struct run *run, const struct ckpt_claim *owner, const struct ckpt_claim *own,
                        struct error *err)
{
    char who[256], difference[256];

    ckpt_claim_describe(who, sizeof who, owner);
    describe_difference(difference, sizeof difference, owner, own);
    return error_set(err, CODE_CONFIG,
                     "checkpoint.dir = \"%.300s\" belongs to %s, which has not ended%s: give this run another "
                     "checkpoint.dir, by the job's number for example (\"%%j\", in an array \"%%A_%%a\"), or wait",
                     run->job->checkpoint.dir, who, difference);
}

static void log_takeover(const struct run *run, const struct ckpt_claim *owner)
{
    char who[256];

    if (owner->number == 0 || owner->released > 0)
        return;
    ckpt_claim_describe(who, sizeof who, owner);
    run_log(run, "took over %s from %s, which ended without releasing it, %.0f s after its last heartbeat",
            run->job->checkpoint.dir, who, fmax(0, clock_realtime() - owner->heartbeat));
}

/*
 * The owner is dead: claims the directory. As ckpt_claim_take. What another job has left complete is committed first:
 * afterwards it could not be.
 */
static int take_directory(struct run *run, const struct ckpt_claim *owner, struct error *err)
{
    struct claim_watch *watch = run->claim;
    struct ckpt_claim *claim = &watch->claim;
    bool inherits = owner->accepts > 0 && is_same_job(owner, claim);

    if (ckpt_probe(watch->dir, err) < 0 || (owner->number > 0 && !inherits && ckpt_recover(watch->dir, err) < 0))
        return -1;
    claim->number = owner->number + 1;
    claim->accepts = inherits ? owner->accepts : claim->number;
    claim->since = claim->heartbeat = clock_realtime();
    claim->life = owner->number ? owner->life : claim->since;
    return ckpt_claim_take(watch->dir, claim, err);
}

static void log_waiting(const struct run *run, const struct ckpt_claim *owner, enum verdict verdict)
{
    char who[256];

    ckpt_claim_describe(who, sizeof who, owner);
    if (verdict == OWNER_ENDING)
        run_log(run, "waiting for job %s, which is ending, to leave %s", owner->job, run->claim->dir);
    else
        run_log(run, "waiting %.0f s to see whether %s still writes to %s: its heartbeat is %.0f s old by this clock",
                SILENT_SECONDS, who, run->claim->dir, clock_realtime() - owner->heartbeat);
}

/* Rank 0: 0: claimed; 1: the owner is ending or silent, wait; -1. `waited`: seconds so far. */
static int try_claim(struct run *run, double waited, struct error *err)
{
    struct ckpt_claim owner, *own = &run->claim->claim;
    int taken = 0, found = 0;

    for (int races = 0; taken == 0 && races < MOST_RACES; races++) {
        enum verdict verdict = OWNER_DEAD;

        found = ckpt_claim_read(run->claim->dir, &owner, err);
        if (found < 0)
            return -1;
        if (found > 0)
            verdict = judge_owner(run->claim, &owner);
        if ((verdict == OWNER_ENDING || verdict == OWNER_SILENT) && waited < ENDING_SECONDS) {
            if (waited == 0)
                log_waiting(run, &owner, verdict);
            ckpt_claim_clear(&owner);
            return 1;
        }
        taken = verdict == OWNER_ALIVE ? refuse_start(run, &owner, own, err) : take_directory(run, &owner, err);
        if (taken > 0)
            log_takeover(run, &owner);
        ckpt_claim_clear(&owner);
    }
    return taken > 0 ? 0 : taken < 0 ? -1 : error_set(err, CODE_IO, "%s: too many runs claim it", run->claim->dir);
}

/* ---- while it runs ----------------------------------------------------------------------------------------------- */

static void end_keeper(struct claim_watch *watch)
{
    close(watch->to);
    close(watch->from);
    watch->keeper = 0;
    watch->asked = false;
}

/* Without one, nobody refreshes the heartbeat; a later look starts another. */
static void start_keeper(struct claim_watch *watch)
{
    char claim[48], child[32];
    const char *arguments[] = {claim, child, watch->dir, NULL};
    int in[2], out[2];
    struct error ignored;

    watch->started = clock_monotonic();
    watch->length = 0;
    if (pipe2(in, O_CLOEXEC) < 0)
        return;
    if (pipe2(out, O_CLOEXEC) < 0) {
        close(in[0]);
        close(in[1]);
        return;
    }
    snprintf(claim, sizeof claim, "--claim=%" PRIu64, watch->claim.number);
    snprintf(child, sizeof child, "--child=%d", (int)getpid());
    ckptd_start(&watch->keeper, arguments, in[0], out[1], &ignored);
    close(in[0]);
    close(out[1]);
    watch->to = in[1];
    watch->from = out[0];
    fcntl(watch->from, F_SETFL, O_NONBLOCK);
    if (watch->keeper == 0)
        end_keeper(watch);
}

/* An empty line of its output says that the directory is still this run's; another one, how it was lost. */
static void take_output(struct claim_watch *watch, const char *output, ssize_t length)
{
    for (ssize_t i = 0; i < length; i++)
        if (output[i] == '\n')
            watch->asked = false;
        else if (watch->length + 1 < sizeof watch->text)
            watch->text[watch->length++] = output[i];
}

static void look_at_keeper(struct claim_watch *watch)
{
    char output[256];
    ssize_t got;
    int status = 0;

    if (watch->keeper == 0 && watch->started > 0 && clock_monotonic() - watch->started >= START_SECONDS)
        start_keeper(watch);
    if (watch->keeper == 0)
        return;
    while ((got = read(watch->from, output, sizeof output)) > 0)
        take_output(watch, output, got);
    if (got < 0)
        return;
    waitpid(watch->keeper, &status, 0); /* it has closed its output */
    end_keeper(watch);
    watch->text[watch->length] = '\0';
    watch->lost = WIFEXITED(status) && WEXITSTATUS(status) == CODE_CONFIG;
    if (watch->lost)
        error_set(&watch->why, CODE_CONFIG, "%s", watch->text);
}

/* Has the keeper look, and waits for its answer; but not while it owes an earlier one. */
static void ask_to_look(struct claim_watch *watch)
{
    const char command = CLAIM_LOOK;
    double end = clock_monotonic() + LOOK_SECONDS;

    if (watch->keeper == 0 || watch->asked || write(watch->to, &command, 1) != 1)
        return;
    watch->asked = true;
    for (double left = LOOK_SECONDS; watch->asked && left > 0; left = end - clock_monotonic()) {
        poll(&(struct pollfd){.fd = watch->from, .events = POLLIN}, 1, (int)(left * 1000) + 1);
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
    *err = run->claim->why;
    return -1;
}

/* The keeper ends when it has done it, or when this process ends. */
static void ask_keeper(struct claim_watch *watch, char command)
{
    double end = clock_monotonic() + END_SECONDS;

    if (write(watch->to, &command, 1) == 1)
        while (waitpid(watch->keeper, NULL, WNOHANG) == 0 && clock_monotonic() < end)
            clock_sleep(0.005);
    end_keeper(watch);
}

void run_claim_stop(struct run *run, bool trained)
{
    struct claim_watch *watch = run->claim;

    if (!watch)
        return;
    if (!run_claim_is_lost(run) && watch->keeper > 0)
        ask_keeper(watch, !trained ? CLAIM_WITHDRAW : run->all_saved ? CLAIM_RELEASE : CLAIM_STAYS);
    ckpt_claim_clear(&watch->claim);
    free(watch);
    run->claim = NULL;
}
