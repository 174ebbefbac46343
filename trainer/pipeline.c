#include <stdlib.h>

#include "plan/schedule.h"
#include "trainer/engine.h"
#include "trainer/watch/recorder.h"

enum { OUTPUTS = 2 }; /* a chunk's outputs that may be in flight at once: model_output has two buffers */

struct pipeline {
    struct comm *up, *down;
    struct model *model;
    struct zero *zero;
    int pp, pp_rank, chunks;
    struct schedule_entry *entries;
    size_t nentries;
    int *plan; /* the units that the schedule gathers */
    size_t nplan;
    bool training;

    /* this step */
    const struct micro_batch *micro_batches;
    int count;
    int backwards;                  /* begun so far: selects the gradient buffer */
    struct comm_request *receiving; /* the next entry's input */
    struct comm_request *sent_up[MODEL_MAX_CHUNKS][OUTPUTS], *sent_down[MODEL_GRADIENTS];
    struct error error; /* the first failure */
};

struct pipeline *pipeline_create(const struct job *job, struct comm *up, struct comm *down, struct model *model,
                                 struct zero *zero, int most_micro_batches, struct error *err)
{
    struct pipeline *p = error_calloc(1, sizeof *p, err);
    size_t most = (size_t)most_micro_batches * (size_t)job->parallel.chunks * 2 + 1;

    if (!p)
        return NULL;
    *p = (struct pipeline){
        .up = up,
        .down = down,
        .model = model,
        .zero = zero,
        .pp = comm_size(up),
        .pp_rank = comm_rank(up),
        .chunks = job->parallel.chunks,
        .entries = error_calloc(most, sizeof *p->entries, err),
        .plan = error_calloc(most, (size_t)(job->model.layers + 3) * sizeof *p->plan, err),
    };
    if (p->entries && p->plan)
        return p;
    pipeline_destroy(p);
    return NULL;
}

void pipeline_destroy(struct pipeline *p)
{
    if (!p)
        return;
    free(p->entries);
    free(p->plan);
    free(p);
}

static bool is_first(const struct pipeline *p, int chunk)
{
    return p->pp_rank == 0 && chunk == 0;
}

static bool is_last(const struct pipeline *p, int chunk)
{
    return p->pp_rank == p->pp - 1 && chunk == p->chunks - 1;
}

/* After the last stage's chunk comes the first stage's next chunk. */
static int stage_above(const struct pipeline *p)
{
    return (p->pp_rank + 1) % p->pp;
}

static int stage_below(const struct pipeline *p)
{
    return (p->pp_rank + p->pp - 1) % p->pp;
}

static size_t activation_bytes(const struct pipeline *p, int mb_index)
{
    return model_stream_bytes(p->model, p->micro_batches[mb_index].samples);
}

/* ---- messages between stages ---- */

static void wait_for(struct pipeline *p, struct comm_request **request)
{
    comm_wait(*request, error_first(&p->error));
    *request = NULL;
}

static void receive_input(struct pipeline *p, const struct schedule_entry *entry)
{
    size_t bytes = activation_bytes(p, entry->micro_batch);

    if (entry->kind == SCHEDULE_FORWARD && !is_first(p, entry->chunk)) {
        void *input = model_input(p->model, entry->chunk, entry->micro_batch);

        comm_purpose(p->up, "activations", NULL);
        p->receiving = comm_start_recv(p->up, input, bytes, stage_below(p), error_first(&p->error));
    } else if (entry->kind == SCHEDULE_BACKWARD && !is_last(p, entry->chunk)) {
        int index = p->backwards % MODEL_GRADIENTS;

        wait_for(p, &p->sent_down[index]); /* until the buffer's previous content was sent */
        comm_purpose(p->down, "gradients of activations", NULL);
        p->receiving =
            comm_start_recv(p->down, model_gradient(p->model, index), bytes, stage_above(p), error_first(&p->error));
    }
}

static void send_up(struct pipeline *p, const struct schedule_entry *entry)
{
    struct comm_request **sent = &p->sent_up[entry->chunk][entry->micro_batch % OUTPUTS];
    const void *output = model_output(p->model, entry->chunk, entry->micro_batch);

    if (is_last(p, entry->chunk))
        return;
    comm_purpose(p->up, "activations", NULL);
    *sent =
        comm_start_send(p->up, output, activation_bytes(p, entry->micro_batch), stage_above(p), error_first(&p->error));
}

static void send_down(struct pipeline *p, const struct schedule_entry *entry, int index)
{
    if (is_first(p, entry->chunk))
        return;
    comm_purpose(p->down, "gradients of activations", NULL);
    p->sent_down[index] =
        comm_start_send(p->down, model_gradient(p->model, index), activation_bytes(p, entry->micro_batch),
                        stage_below(p), error_first(&p->error));
}

static void finish_sends(struct pipeline *p)
{
    for (int chunk = 0; chunk < p->chunks; chunk++)
        for (int i = 0; i < OUTPUTS; i++)
            wait_for(p, &p->sent_up[chunk][i]);
    for (int i = 0; i < MODEL_GRADIENTS; i++)
        wait_for(p, &p->sent_down[i]);
}

/* ---- the schedule ---- */

static void run_forward(struct pipeline *p, const struct schedule_entry *entry)
{
    const struct micro_batch *mb = &p->micro_batches[entry->micro_batch];

    if (!is_last(p, entry->chunk))
        wait_for(p, &p->sent_up[entry->chunk][entry->micro_batch % OUTPUTS]);
    model_forward(p->model, entry->chunk, entry->micro_batch, mb);
    send_up(p, entry);
    if (!p->training && is_last(p, entry->chunk))
        model_losses(p->model, entry->micro_batch, mb);
}

static void run_backward(struct pipeline *p, const struct schedule_entry *entry, const struct loss_factors *scales,
                         int index)
{
    zero_begin_micro_batch(p->zero, entry->micro_batch == 0, entry->micro_batch == p->count - 1);
    model_backward(p->model, entry->chunk, entry->micro_batch, &p->micro_batches[entry->micro_batch], scales,
                   model_gradient(p->model, index));
    send_down(p, entry, index);
}

/* Waits for the entry's input, starts to receive the next one's, and computes. */
static void run_entry(struct pipeline *p, size_t i, const struct loss_factors *scales)
{
    const struct schedule_entry *entry = &p->entries[i];
    int index = p->backwards % MODEL_GRADIENTS;

    recorder_micro_batch(entry->micro_batch + 1);
    wait_for(p, &p->receiving);
    if (entry->kind == SCHEDULE_BACKWARD) {
        if (is_last(p, entry->chunk))
            wait_for(p, &p->sent_down[index]);
        p->backwards++;
    }
    if (i + 1 < p->nentries)
        receive_input(p, &p->entries[i + 1]);
    if (entry->kind == SCHEDULE_FORWARD)
        run_forward(p, entry);
    else
        run_backward(p, entry, scales, index);
}

/* Builds the schedule of `count` micro-batches, and the list of the units that it will gather. */
static void prepare_schedule(struct pipeline *p, int count, bool training)
{
    size_t n = schedule_build(p->entries, p->pp_rank, p->pp, count, p->chunks), kept = 0;

    p->nplan = 0;
    for (size_t i = 0; i < n; i++) {
        const struct schedule_entry entry = p->entries[i];

        if (entry.kind == SCHEDULE_FORWARD)
            p->nplan += model_forward_uses(p->model, entry.chunk, p->plan + p->nplan);
        else if (training)
            p->nplan += model_backward_uses(p->model, entry.chunk, p->plan + p->nplan);
        else
            continue;
        if (!training && is_last(p, entry.chunk))
            p->nplan += model_losses_uses(p->model, p->plan + p->nplan);
        p->entries[kept++] = entry;
    }
    p->nentries = kept;
    p->training = training;
    zero_plan(p->zero, p->plan, p->nplan);
}

int pipeline_run(struct pipeline *p, const struct micro_batch *micro_batches, int count,
                 const struct loss_factors *scales, struct error *err)
{
    p->micro_batches = micro_batches;
    p->count = count;
    p->backwards = 0;
    prepare_schedule(p, count, scales != NULL);
    receive_input(p, &p->entries[0]);
    for (size_t i = 0; i < p->nentries; i++)
        run_entry(p, i, scales);
    recorder_micro_batch(0);
    finish_sends(p);
    return error_take(&p->error, err);
}
