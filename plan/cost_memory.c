/* cost_memory.c - the bytes of a rank: muster's footprint, and what other stacks hold at the same settings. */
#include <math.h>
#include <stdlib.h>

#include "plan/cost.h"
#include "plan/rank_config.h"
#include "plan/schedule.h"

/* Of a device: what PyTorch's allocator holds at most of it before it returns blocks (Megatron-DeepSpeed's largest
 * batches on 40 GB: 33.0 to 39.6 GiB of 39.5; BigScience's on 80 GB: 69.8 to 70.8 of 79.1). */
static const double FILLED = 0.91;

/*
 * Activations of a stack without muster's memory plan, in bytes (arXiv 2205.05198, section 4). R rows of a micro-batch,
 * e bytes an element, a heads, s tokens of a sample:
 *
 *   a layer     R d (10 + 24 / t) e / 2, and 5 a s R / t where attention is not fused; all by t where rows are split
 *   recomputed  its input R d e alone; one layer at a time has all of the above
 *   head        logit_bytes a logit, all rows at once
 */
static double peer_activations(const struct rank_config *config, const struct stack *stack)
{
    const struct model_shape *shape = config->sizes.shape;
    double rows = (double)config->sizes.samples * shape->seq_length, t = config->mesh.tp, d = shape->hidden;
    double element = (double)dtype_size(config->sizes.dtype), local = stack->splits_rows ? t : 1;
    double scores = stack->fused_attention ? 0 : 5.0 * shape->heads * shape->seq_length * rows / t * element / 2;
    double whole = rows * d * (10 / local + 24 / t) * element / 2 + scores, input = rows * d * element / local;
    double kept = 0, recomputing = 0, head = 0;
    int layer = 0;

    for (int c = 0; c < config->model.chunks; c++) {
        const struct model_chunk *chunk = &config->model.chunk[c];

        for (int l = 0; l < chunk->layers; l++) {
            bool full = layer_recompute(config->job, layer++) == RECOMPUTE_FULL;

            kept += chunk->slots * (full ? input : whole);
            recomputing = full ? whole : recomputing;
        }
        if (chunk->has_head)
            head = rows * config->sizes.vocab_padded * stack->logit_bytes;
    }
    return kept + fmax(recomputing, head);
}

/* Of one stage. */
static void stage_memory(const struct rank_config *config, const struct plan_machine *machine,
                         const struct stack *stack, struct plan_memory *memory)
{
    struct footprint bytes = rank_config_bytes(config);
    double device = (double)footprint_device(&bytes) + (machine->gpu ? 0 : (double)footprint_host(&bytes));
    double held = device;

    if (!stack->exact_memory) {
        double state = device - (double)(bytes.bytes[FOOTPRINT_ACTIVATIONS] + bytes.bytes[FOOTPRINT_WORKSPACE]);
        double activations = peer_activations(config, stack);

        device = state + activations + stack->context;
        held = fmin(fmax(device, FILLED * machine->memory), state + activations * stack->cache + stack->context);
    }
    if (!machine->gpu)
        device += process_bytes(false);
    if (device > memory->needed) {
        memory->needed = device;
        memory->footprint = bytes;
    }
    memory->held = fmax(memory->held, held);
    memory->host = fmax(memory->host, (double)footprint_host(&bytes) + process_bytes(machine->gpu));
}

/* Of the stages between the first and the last: the first with most layers. */
static int most_layers(const struct job *job, const struct mesh *mesh, const int *first)
{
    int most = 0, stage = 1;

    for (int s = 1; s < mesh->pp - 1; s++) {
        int layers = 0;

        for (int part = s; part < mesh->pp * job->parallel.chunks; part += mesh->pp)
            layers += first[part + 1] - first[part];
        if (layers > most) {
            most = layers;
            stage = s;
        }
    }
    return stage;
}

int plan_memory(const struct job *job, const struct mesh *mesh, const struct plan_machine *machine,
                const struct stack *stack, struct plan_memory *memory, struct error *err)
{
    const struct device_traits traits = {.is_host = !machine->gpu,
                                         .gpu = machine->gpu,
                                         .threads = 1,
                                         .logits_rows = machine->gpu ? LOGITS_ROWS_GPU : LOGITS_ROWS_CPU,
                                         .attention = job->attention};
    struct rank_config config;
    struct job peer = *job;
    int *first, most, result = 0;

    if (stack->fp16_gradients)
        peer.precision.gradients = peer.precision.reduce = job->precision.compute;
    *memory = (struct plan_memory){0};
    first = error_calloc((size_t)mesh->pp * (size_t)job->parallel.chunks + 1, sizeof *first, err);
    if (!first)
        return -1;
    partition_layers(&job->model, mesh->pp * job->parallel.chunks, first);
    /* Stages that may be the largest: the first has the embedding, the last the head; of those between, stage 1 holds
     * the most micro-batches, and of those with as many layers the first holds the most. */
    most = most_layers(job, mesh, first);
    for (int s = 0; s < mesh->pp && result == 0; s++)
        if (s <= 1 || s == most || s == mesh->pp - 1) {
            result =
                rank_config_set(&config, &peer, mesh, mesh_rank(mesh, (struct mesh_coords){.pp = s}), &traits, err);
            if (result == 0)
                stage_memory(&config, machine, stack, memory);
        }
    free(first);
    return result;
}
