/*
 * run_start.c - everything before the first step of a run; also whether the ranks of each host fit into its memory,
 * before it is allocated, and have a processor for each thread.
 */
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "common/clock.h"
#include "common/crc32c.h"
#include "common/memory_limit.h"
#include "trainer/optim/optim.h"
#include "plan/cost.h"
#include "plan/rank_config.h"
#include "trainer/choose.h"
#include "trainer/run.h"
#include "trainer/watch/recorder.h"

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

void *run_gather(const struct run *run, const void *own, size_t count, const char *purpose, struct error *err)
{
    float *all = error_calloc((size_t)comm_size(run->world), count * sizeof *all, err);

    if (!all)
        return NULL;
    memcpy(all + (size_t)comm_rank(run->world) * count, own, count * sizeof *all);
    comm_purpose(run->world, purpose, NULL);
    return comm_all_gather(run->world, DTYPE_F32, all, count, err) == 0 ? all : NULL; /* may still be written to */
}

/* ---- memory ---- */

#define MIB 0x1p20

/* The host memory that this rank will hold, in MiB: its buffers, what its process holds now, and what libraries add in
 * the first steps. */
static int predict_bytes(const struct run *run, float *mib, struct error *err)
{
    struct device *dev = choose_device(run->job->device, err);
    struct device_traits device = {.threads = 1};
    uint64_t held = memory_own() + memory_shared() + PROCESS_GROWTH;
    struct footprint bytes;
    struct mesh mesh;

    if (!dev)
        return -1;
    device.is_host = device_is_host(dev);
    device_destroy(dev);
    if (mesh_fit(&mesh, comm_size(run->world), run->job->parallel.tp, run->job->parallel.pp, err) < 0 ||
        rank_config_footprint(run->job, &mesh, comm_rank(run->world), &device, &bytes, err) < 0)
        return -1;
    *mib = (float)((double)(footprint_of_host(&bytes, device.is_host) + held) / MIB);
    return 0;
}

/* On a CPU both memories are the host's; its ranks share it, up to the job's limit. */
static int compare_limit(const struct run *run, const float *mib, struct error *err)
{
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / MIB, wanted = 0;
    double limit = (double)memory_limit() / MIB;
    const char *host = run->locations[comm_rank(run->world)].host;
    int node = run->nodes.of[comm_rank(run->world)], ranks = run->nodes.locals[node];

    for (int rank = 0; rank < comm_size(run->world); rank++)
        if (run->nodes.of[rank] == node)
            wanted += mib[rank];
    if (wanted <= fmin(machine, limit))
        return 0;
    return error_set(err, CODE_CONFIG,
                     "%d rank%s on %s would hold %.3g GiB, and %s %.3g GiB: %sstart more nodes, or set parallel.mesh "
                     "= \"auto\", which takes a mesh that fits; or lower batch.micro_batch or model.seq_length: "
                     "muster-train --plan shows what takes the memory",
                     ranks, ranks == 1 ? "" : "s", host, wanted / 1024,
                     limit < machine ? "the job's memory limit there is" : "it has", fmin(machine, limit) / 1024,
                     limit < machine ? "ask for more (sbatch --mem) or " : "");
}

/*
 * Fails with CODE_CONFIG if the ranks of a host would hold more than its memory, or the job does not fit the mesh. An
 * operating system that overcommits memory kills processes later, and often the wrong ones.
 */
static int check_memory(const struct run *run, struct error *err)
{
    float own = 0, *mib;
    int result = predict_bytes(run, &own, err);

    if (comm_agree(run->world, result, err) < 0)
        return -1;
    mib = run_gather(run, &own, 1, "memory", err);
    if (!mib)
        return -1;
    result = comm_agree(run->world, compare_limit(run, mib, err), err);
    free(mib);
    return result;
}

/* ---- threads ---- */

struct part_of_host {
    float threads, processors; /* the rank's threads, and the processors that it may run on */
    float first;               /* the number of the first of these; -1 if unknown */
};

static struct part_of_host own_share(const struct run *run)
{
    const struct device_traits *device = &run->engine->config.device;
    struct part_of_host part = {
        .threads = device->is_host ? (float)device->threads : 0, .processors = INFINITY, .first = -1};
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return part;
    part.processors = (float)CPU_COUNT(&set);
    part.first = 0;
    while (part.first < CPU_SETSIZE && !CPU_ISSET((int)part.first, &set))
        part.first++;
    return part;
}

/* Processors that several ranks share, as in a job without binding, are counted once. */
static bool is_counted(const struct run *run, const struct part_of_host *shares, int rank)
{
    for (int r = 0; r < rank; r++)
        if (run->nodes.of[r] == run->nodes.of[rank] && shares[r].first == shares[rank].first &&
            shares[r].processors == shares[rank].processors)
            return true;
    return false;
}

/*
 * Threads that share a processor wait for each other at the end of every operation: training is not half but a
 * hundredth as fast, without any other sign of the reason. Ranks of one thread each are assumed to be intended.
 */
static void check_threads(const struct run *run, const struct part_of_host *shares)
{
    float online = (float)sysconf(_SC_NPROCESSORS_ONLN), threads = 0, processors = 0, most = 0;
    const char *host = run->locations[0].host;
    int ranks = run->nodes.locals[0];

    for (int rank = 0; rank < comm_size(run->world); rank++)
        if (run->nodes.of[rank] == 0) {
            threads += shares[rank].threads;
            if (!is_counted(run, shares, rank))
                processors += shares[rank].processors;
            most = fmaxf(most, shares[rank].threads);
        }
    processors = fminf(processors, online);
    if (threads <= processors || most <= 1)
        return;
    run_log(run,
            "%d rank%s on %s compute%s with %.0f threads on %.0f processor%s, which is very slow: "
            "set OMP_NUM_THREADS=%.0f, or give the ranks more processors",
            ranks, ranks == 1 ? "" : "s", host, ranks == 1 ? "s" : "", threads, processors, processors > 1 ? "s" : "",
            fmaxf(1, floorf(processors / (float)ranks)));
}

/* Warns if the ranks on rank 0's host have more threads than processors. */
static int compare_threads(const struct run *run, struct error *err)
{
    struct part_of_host own = own_share(run), *shares;

    shares = run_gather(run, &own, sizeof own / sizeof(float), "threads", err);
    if (!shares)
        return -1;
    if (run->leader)
        check_threads(run, shares);
    free(shares);
    return 0;
}

/* ---- what the log says of the run --------------------------------------------------------------------------- */

static void describe_mesh(const struct run *run)
{
    static const char *const recompute[] = {"", ", norms and activations recomputed", ", attention recomputed",
                                            ", layers recomputed"};
    const struct job *job = run->job;
    const struct engine *e = run->engine;
    const struct mesh *mesh = &e->config.mesh;
    char chunks[32] = "";

    if (job->parallel.chunks > 1)
        snprintf(chunks, sizeof chunks, " x %d chunks", job->parallel.chunks);
    run_log(run, "mesh: dp %d x tp %d x pp %d%s, ZeRO-%d%s, %s%s, %s", mesh->dp, mesh->tp, mesh->pp, chunks,
            job->parallel.zero, job->parallel.offload ? ", optimizer offloaded" : "",
            job_precisions[job->precision.compute], recompute[job->parallel.recompute], comm_describe(run->world));
    if (comm_fabric_describe(e->fabric)[0])
        run_log(run, "devices communicate by %s", comm_fabric_describe(e->fabric));
}

static void describe_memory(const struct run *run)
{
    const struct engine *e = run->engine;
    struct error err;
    char *text = run->leader ? rank_config_table(run->job, &e->config.mesh, &e->config.device, false, &err) : NULL;

    if (text)
        run_log(run, "%s", text);
    free(text);
}

static void describe_documents(const struct run *run)
{
    const struct job *job = run->engine->job;
    char eod[80] = "";

    if (job->data.reset == RESET_NONE)
        return;
    if (job->data.eod >= 0)
        snprintf(eod, sizeof eod, " and after token %d%s", job->data.eod,
                 run->job->data.eod < 0 ? ", the tokenizer's end of a document" : "");
    run_log(run, "documents are separated: they begin at the boundaries of the data's index%s", eod);
}

static void describe_attention(const struct run *run)
{
    const struct engine *e = run->engine;

    if (!e->config.device.gpu)
        return;
    if (rank_config_uses_cudnn(e->job, &e->config.device))
        run_log(run, "attention: cuDNN's kernels (muster's own if it has no deterministic plan)");
    else
        run_log(run, "attention: muster's own kernels%s",
                e->job->attention == ATTENTION_CUDNN ? "; cuDNN has none for this job (muster.cfg(5))" : "");
}

/* A run without these keys trains, and leaves nothing. */
static void describe_unkept(const struct run *run)
{
    bool weights = !run->job->checkpoint.dir[0], metrics = !run->job->report.metrics[0];

    if (weights || metrics)
        run_log(run, "not kept when the run ends: %s%s%s", weights ? "its weights (set checkpoint.dir)" : "",
                weights && metrics ? ", " : "", metrics ? "its metrics (set report.metrics)" : "");
}

/* fp32 is the default, and rarely what a GPU's user wants. */
static void describe_precision(const struct run *run)
{
    if (run->engine->config.device.gpu && run->job->precision.compute == DTYPE_F32)
        run_log(run,
                "precision: fp32%s, in which a GPU is several times slower than in 16 bits: precision.compute = "
                "\"bf16\" is the usual choice",
                run->job->precision.tf32 ? " with TF32 products" : "");
}

static void describe_run(const struct run *run)
{
    const struct job *job = run->job;
    const struct engine *e = run->engine;

    run_log(run, "muster %s: %s on %s", VERSION, job->preset[0] ? job->preset : model_kinds[job->kind],
            device_describe(e->dev));
    run_log(run, "model: %d layers, hidden %d, %d heads, sequence %d, vocabulary %d: %" PRIu64 " parameters",
            job->model.layers, job->model.hidden, job->model.heads, job->model.seq_length, job->model.vocab,
            model_parameters(&job->model));
    describe_mesh(run);
    run_log(
        run,
        "batch: %d samples a step, micro-batches of %d; peak %.1f GFLOP/s in all; MFU counts attention whole (PaLM); "
        "with half of a causal one (Megatron) it is %.3f of that",
        job->batch.global_batch, job->batch.micro_batch, run->peak_flops * 1e-9,
        flops_causal(&job->model, 1) / flops_model(&job->model, 1));
    if (job->model.seq_length > model_max_positions(&job->model))
        run_log(run, "model.seq_length = %d is more than model.max_positions = %d, which the model is made for",
                job->model.seq_length, job->model.max_positions);
    describe_documents(run);
    describe_attention(run);
    describe_precision(run);
    describe_memory(run);
    describe_unkept(run);
}

static int measure_peak(struct run *run, struct error *err)
{
    if (run->job->report.peak_tflops > 0) {
        run->peak_flops = run->job->report.peak_tflops * 1e12 * comm_size(run->world);
        return 0;
    }
    /* All at once, as in training: ranks on one machine share its rate. */
    if (comm_barrier(run->world, err) < 0)
        return -1;
    recorder_phase("measuring its device");
    run->peak_flops = device_measure_peak(run->engine->dev, run->job->precision.compute);
    return comm_sum_f64(run->world, &run->peak_flops, 1, err);
}

static void log_skipped_checkpoint(const char *why)
{
    printf("skipped a checkpoint: %s\n", why);
}

static void log_difference(const char *path, const char *before, const char *now, void *arg)
{
    const struct run *run = arg;

    run_log(run, "%s was %s up to step %" PRIu64 ", and is %s from now on", path, before, run->engine->step, now);
}

/* A job file may change between restarts, possibly by mistake, which nothing else would show. */
static void log_changed_job(struct run *run)
{
    const struct engine *e = run->engine;
    long next = (long)e->step + 1;
    double before, now;

    if (!e->loaded.text)
        return;
    job_each_difference(&e->loaded, run->job, log_difference, run);
    before = learning_rate(&e->loaded, next);
    now = learning_rate(run->job, next);
    if (fabs(before - now) > 1e-6 * now)
        run_log(run, "the learning rate of step %ld is %.3E, and would have been %.3E", next, now, before);
}

/* A run that starts from checkpoint.load and trains nothing would only copy that checkpoint. */
static int fail_trained(const struct run *run, const char *load, struct error *err)
{
    uint64_t step = run->engine->step;

    return error_set(err, CODE_CONFIG,
                     "batch.steps = %ld, and checkpoint.load = \"%.500s\" is of step %" PRIu64
                     ", which counts: nothing is left to train; %" PRIu64 " would train one step more",
                     run->job->batch.steps, load, step, step + 1);
}

/* What a run may start from: the first that has a checkpoint. */
struct start {
    const char *key, *path;
    enum restore_from from;
};

/* other: checkpoint.load or init, if one is given. */
static int log_resumed(struct run *run, const struct start *start, const struct start *other, struct error *err)
{
    const struct engine *e = run->engine;
    bool done = e->step >= (uint64_t)run->job->batch.steps;

    run_log(run, "resumed from %s at step %" PRIu64 " (%" PRIu64 " samples)", start->path, e->step,
            e->consumed_samples);
    run->resumed = start->from == RESTORE_OWN;
    if (run->resumed && other)
        run_log(run, "%s = \"%s\" was for the first start: the run goes on from its own checkpoints", other->key,
                other->path);
    if (e->changed.text[0])
        run_log(run, "warning: %s", e->changed.text);
    if (!run->resumed && done)
        return fail_trained(run, start->path, err);
    if (done)
        run_log(run, "nothing is left to train: batch.steps = %ld, counted from the first start of the run",
                run->job->batch.steps);
    else if (run->resumed)
        log_changed_job(run);
    return 0;
}

int run_restore(struct run *run, struct error *err)
{
    const struct start starts[] = {{"checkpoint.dir", run->job->checkpoint.dir, RESTORE_OWN},
                                   {"checkpoint.load", run->job->checkpoint.load, RESTORE_OTHER},
                                   {"checkpoint.init", run->job->checkpoint.init, RESTORE_WEIGHTS}};
    const struct start *other = starts[1].path[0] ? &starts[1] : starts[2].path[0] ? &starts[2] : NULL;
    struct engine *e = run->engine;

    recorder_phase("loading a checkpoint");
    for (const struct start *start = starts; start < starts + 3; start++) {
        int restored = start->path[0] ? engine_restore(e, start->path, start->from, log_skipped_checkpoint, err) : 0;

        if (restored < 0)
            return -1;
        if (!restored)
            continue;
        if (start->from == RESTORE_WEIGHTS) {
            run_log(run, "starting from the weights of %s", start->path);
            e->step = 0; /* its own */
        } else if (log_resumed(run, start, other, err) < 0) {
            return -1;
        }
        if (!run->resumed)
            run_tokenizer_loaded(run, start->key, start->path);
        return 0;
    }
    /* A user who gave one of these does not want to start from initial weights. */
    if (other)
        return error_set(err, CODE_CONFIG,
                         "%s = \"%s\", but that is no checkpoint, no directory of checkpoints and no folder with a "
                         "config.json (in Hugging Face's cache that is snapshots/HASH): correct it, or remove the key "
                         "to start from initial weights",
                         other->key, other->path);
    if (e->zero && engine_initialize(e, err) < 0)
        return -1;
    run_log(run, "starting from initial weights, seed %" PRIu64, run->job->batch.seed);
    return 0;
}

/* Only the batch sizes from this step on limit the number of ranks: a ramp-up may be over. */
static int check_next_batch(const struct run *run, struct error *err)
{
    int next = batch_size_at(run->job, run->engine->consumed_samples);

    return rank_config_check_batch(run->job, &run->engine->config.mesh, next, err);
}

/* A validation that the metrics lack was interrupted. Without metrics nothing shows that it was done. Weights of another
 * run are validated before the first step: their loss is what the run has to improve. */
static int find_validation(struct run *run, struct error *err)
{
    run->validation_due = run->engine->step == 0 && run->job->checkpoint.init[0]
                              ? run->engine->valid != NULL
                              : run->resumed && run_validates_step(run) && !run_metrics_has_validation(run);
    return comm_broadcast(run->world, &run->validation_due, sizeof run->validation_due, 0, err);
}

/* Fails on all ranks, naming the first rank whose number differs from rank 0's: it reads other files. */
static int compare_ranks(const struct run *run, uint64_t own, enum exit_code code, const char *differs,
                         struct error *err)
{
    uint64_t leaders = own;
    int result = 0;

    if (comm_broadcast(run->world, &leaders, sizeof leaders, 0, err) < 0)
        return -1;
    if (own != leaders)
        result = error_set(err, code, "rank %d %s", comm_rank(run->world), differs);
    return comm_agree(run->world, result, err);
}

/* Of the text of a job, without its options --set. */
static uint32_t file_checksum(const char *text)
{
    uint32_t sum = 0;
    size_t length;

    for (; *text; text += length) {
        length = strcspn(text, "\n");
        length += text[length] == '\n';
        if (strncmp(text, "#! --set ", strlen("#! --set ")) != 0)
            sum = crc32c(sum, text, length);
    }
    return sum;
}

/* This comes first: ranks with different jobs would call different operations, or split the world into groups that do
 * not match, and deadlock. */
static int compare_jobs(const struct run *run, struct error *err)
{
    const char *text = run->job->text;

    if (compare_ranks(run, file_checksum(text), CODE_CONFIG,
                      "reads another job file than rank 0: is the directory shared?", err) < 0)
        return -1;
    return compare_ranks(run, crc32c(0, text, strlen(text)), CODE_CONFIG,
                         "has other options --set than rank 0: give all ranks the same", err);
}

static int compare_data(const struct run *run, struct error *err)
{
    const struct blend *const data[] = {run->engine->train, run->engine->valid};

    for (int k = 0; k < 2; k++)
        for (int i = 0; data[k] && i < blend_sets(data[k]); i++) {
            struct blend_set set = blend_set(data[k], i);
            char differs[JOB_PATH_SIZE + 64];

            snprintf(differs, sizeof differs, "reads different data than rank 0: is %s shared?", set.prefix);
            if (compare_ranks(run, set.facts.checksum, CODE_DATA, differs, err) < 0)
                return -1;
        }
    return 0;
}

/* With attention = "auto", a rank without cuDNN would not compute the same numbers as the others. */
static int compare_attention(const struct run *run, struct error *err)
{
    return compare_ranks(run, rank_config_uses_cudnn(run->engine->job, &run->engine->config.device), CODE_CONFIG,
                         "computes attention by other kernels than rank 0: install the same cuDNN on every node, or "
                         "set attention = \"own\"",
                         err);
}

int run_create_engine(struct run *run, struct error *err)
{
    if (compare_jobs(run, err) < 0 || run_watch_start(run, err) < 0 || check_memory(run, err) < 0 ||
        run_tokenizer_eod(run, err) < 0)
        return -1;
    run->engine = engine_create(&run->job_of_engine, run->world, err);
    return run->engine && compare_attention(run, err) == 0 ? compare_data(run, err) : -1;
}

/* Drains what an earlier run has staged. */
static int create_saver(struct run *run, struct error *err)
{
    double began = clock_monotonic();

    run->saver = saver_create(run, err);
    run->drain_seconds = clock_monotonic() - began;
    return run->saver ? 0 : -1;
}

int run_start(struct run *run, struct error *err)
{
    run->began = clock_realtime();
    if (comm_agree(run->world, run_kill_file_start(run, err), err) < 0)
        return -1;
    if (run_create_engine(run, err) < 0 || run_claim_start(run, err) < 0 || measure_peak(run, err) < 0)
        return -1;
    describe_run(run);
    if (run_tokenizer_start(run, run->job->checkpoint.dir, true, err) < 0 || compare_threads(run, err) < 0 ||
        create_saver(run, err) < 0 || run_restore(run, err) < 0 || check_next_batch(run, err) < 0 ||
        saver_reserve(run->saver, run->resumed, err) < 0 || run_data_start(run, err) < 0 ||
        comm_agree(run->world, run_metrics_start(run, err), err) < 0 || find_validation(run, err) < 0)
        return -1;
    recorder_phase(NULL);
    return 0;
}
