#include "plan/cost.h"

#include <math.h>
#include <stdlib.h>

#include "plan/rank_config.h"
#include "plan/schedule.h"

/* Constants of the formulas in cost.h, with their sources. */
static const double ALIGNED = 0.74;  /* BigScience: 14400 / 8 -> 13824 / 8, 94.4 -> 120.0 TFLOP/s a GPU */
static const double EDGES = 0.7;     /* of a product's bytes, what is not hidden (H200: n and k from 768 to 12288) */
static const double LOGIT_BYTES = 8; /* moved by a fused cross-entropy (H200: 8.4) */
static const double HELD_LOGIT_MOVES = 6; /* times that logits held whole are read or written, both passes */
static const double HOST_BYTES = 32;      /* moved a parameter by an optimizer on the host (arXiv 2101.06840) */

/* Of causal fused attention: tiles on the diagonal are computed whole, as if a sequence were so much longer; and what
 * its backward pass takes of the forward pass's time. GPUs (H200): 204, 242, 286, 304 TFLOP/s at 512, 1024, 2048, 8192;
 * 2.5 times the FLOPs at 0.78 to 0.86 of the rate. CPUs (AVX-512): 24, 56, 182 ms for 2048 rows at 128, 512, 2048. */
static const struct {
    double diagonal, backward;
} ATTENTION_GPU = {380, 2.9}, ATTENTION_CPU = {160, 2.4};
const char *const cost_names[COST_PARTS] = {"products", "attention", "rows",     "head",      "launch",
                                            "tp",       "dp",        "pipeline", "optimizer", "offload"};

double plan_machine_peak(const struct plan_machine *m, enum dtype dtype)
{
    double peak = dtype == DTYPE_F32 ? m->peak_fp32 : dtype == DTYPE_BF16 ? m->peak_bf16 : m->peak_fp16;

    return peak > 0 ? peak : m->peak_fp32;
}

struct cost_model {
    const struct job *job;
    struct mesh mesh;
    const struct plan_machine *machine;
    const struct stack *stack;
    double rows;                  /* of a micro-batch */
    double row_rows, stream_rows; /* that a tp rank's row operations handle; that it sends to the next stage */
    double element;               /* bytes */
    double product_rate, attention_rate;
    double row_bandwidth;
    struct model_tensor block[UNIT_MAX_TENSORS];
    int block_tensors;
};

static struct cost_model model_of(const struct job *job, const struct mesh *mesh, const struct plan_machine *machine,
                                  const struct stack *stack)
{
    double peak = plan_machine_peak(machine, job->precision.compute);
    struct cost_model m = {.job = job, .mesh = *mesh, .machine = machine, .stack = stack};

    m.rows = (double)job->batch.micro_batch * job->model.seq_length;
    m.row_rows = stack->splits_rows ? m.rows / mesh->tp : m.rows * (10 + 24.0 / mesh->tp) / 34;
    m.stream_rows = stack->splits_rows ? m.rows / mesh->tp : m.rows;
    m.element = (double)dtype_size(job->precision.compute);
    m.product_rate = peak * machine->product * stack->product;
    m.attention_rate = peak * machine->attention * stack->attention;
    m.row_bandwidth = machine->row_bandwidth > 0 ? machine->row_bandwidth : machine->bandwidth;
    m.block_tensors = model_tensors(&job->model, UNIT_KIND_BLOCK, m.block);
    return m;
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

/* The level at which ranks that are `span` apart meet. */
static const struct machine_level *level_of(const struct plan_machine *machine, int span)
{
    int level = 0;

    while (level < machine->levels - 1 && span > machine->level[level].ranks)
        level++;
    return &machine->level[level];
}

/* All-gather or reduce-scatter of `bytes` in all, by n ranks that are `stride` apart. */
static double collective_seconds(const struct cost_model *m, int n, int stride, double bytes)
{
    const struct machine_level *inner = &m->machine->level[0], *level = level_of(m->machine, n * stride);
    double bandwidth = level->bandwidth, messages = fmin(n - 1, 2 * log2(n));

    if (n == 1)
        return 0;
    if (level != inner && stride < inner->ranks) /* the members within a node share its links to others */
        bandwidth = fmin(inner->bandwidth, bandwidth * (inner->ranks / stride));
    return (n - 1.0) / n * bytes / (bandwidth * m->stack->links) + messages * level->latency;
}

/* What is left of an exchange beside what computes for `seconds`. */
static double exposed_seconds(const struct cost_model *m, double exchange, double seconds)
{
    return fmax(0, exchange - m->stack->overlap * seconds);
}

static double message_seconds(const struct cost_model *m)
{
    const struct machine_level *level = level_of(m->machine, m->mesh.dp * m->mesh.tp + 1);
    double bytes = m->stream_rows * m->job->model.hidden * m->element;

    return bytes / (level->bandwidth * m->stack->links) + level->latency;
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

/* Sizes at which 16-byte loads and whole tiles of the tensor cores fit. */
static bool is_aligned(double n)
{
    return fmod(n, 64) == 0 || (n < 256 && fmod(n, 8) == 0);
}

/* The share of the device's units that a product of `batch` matrices rows x n keeps busy. cuBLAS has several tiles and
 * takes the best; the smaller ones read their operands more often. */
static double tile_share(double units, double batch, double rows, double n)
{
    static const struct {
        double rows, cols, rate;
    } tiles[] = {{128, 256, 1}, {256, 128, 1}, {128, 128, 0.92}, {64, 128, 0.75}, {64, 64, 0.6}};
    double best = 0;

    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        double count = batch * ceil(rows / tiles[i].rows) * ceil(n / tiles[i].cols);
        double used = batch * rows / tiles[i].rows * n / tiles[i].cols;

        best = fmax(best, tiles[i].rate * used / (ceil(count / units) * units));
    }
    return best;
}

static double product_seconds(const struct cost_model *m, double batch, double rows, double n, double k)
{
    double rate = m->product_rate * (is_aligned(n) && is_aligned(k) ? 1 : ALIGNED);
    double bytes = batch * m->element * (rows * k + k * n + rows * n);

    if (m->machine->units <= 0)
        return 2 * batch * rows * n * k / m->product_rate;
    return 2 * batch * rows * n * k / (rate * tile_share(m->machine->units, batch, rows, n)) +
           EDGES * bytes / m->machine->bandwidth;
}

double cost_attention_flops(const struct model_shape *shape, double batch, bool gpu, bool backward)
{
    double s = shape->seq_length, diagonal = gpu ? ATTENTION_GPU.diagonal : ATTENTION_CPU.diagonal;
    double times = !backward ? 1 : gpu ? ATTENTION_GPU.backward : ATTENTION_CPU.backward;
    double seen = shape->bidirectional ? s : (s + diagonal) / 2, window = shape->window;

    if (window > 0 && window < s) /* the first tokens see less */
        seen = fmin(seen, window * (1 - window / (2 * s)) + diagonal / 2);
    return times * 4 * seen * batch * s * model_query_width(shape);
}

/* Time of a layer's attention; backward: of its backward pass. */
static double attention_seconds(const struct cost_model *m, bool backward)
{
    const struct model_shape *shape = &m->job->model;
    double s = shape->seq_length, heads = shape->heads / (double)m->mesh.tp, head = model_head_size(shape);
    double batch = m->job->batch.micro_batch * heads, scores = batch * s * s, products;

    if (m->stack->fused_attention)
        return cost_attention_flops(shape, m->job->batch.micro_batch, m->machine->gpu, backward) / m->mesh.tp /
               m->attention_rate;
    products = product_seconds(m, batch, s, s, head) + product_seconds(m, batch, s, head, s);
    return (backward ? 2 : 1) * (products + m->stack->attention / 3 * scores / m->machine->bandwidth);
}

/* Bytes of making outputs of norms and activations again: y1 (twice where attention needs it too), y2, and act. */
static double light_row_bytes(const struct cost_model *m, enum recompute recompute)
{
    const struct model_shape *shape = &m->job->model;
    double norms = recompute == RECOMPUTE_SELECTIVE ? 3 : 2;
    double columns = (double)(model_fc_width(shape) + model_inner(shape));

    return m->element * (2 * norms * m->row_rows * shape->hidden + columns * m->rows / m->mesh.tp);
}

/* A pass over a chunk of the model is a plan_cost too; its seconds are not set. */
static double sum_parts(const struct plan_cost *cost)
{
    double sum = 0;

    for (int i = 0; i < COST_PARTS; i++)
        sum += cost->part[i];
    return sum;
}

static void add_parts(struct plan_cost *to, const struct plan_cost *cost, double times)
{
    for (int i = 0; i < COST_PARTS; i++)
        to->part[i] += times * cost->part[i];
}

/* The forward pass of a layer's products, of these parts. Ranks share its inputs, or its outputs. Tensors that are
 * joined are one product. */
static double layer_products(const struct cost_model *m, enum model_part from, enum model_part to)
{
    const struct model_tensor *end = m->block + m->block_tensors;
    double seconds = 0;

    for (const struct model_tensor *w = m->block; w < end; w++) {
        double in = w->shape[w->out_in], out = (double)w->elements / in, t = m->mesh.tp;
        bool shares_inputs = w->split == (int)w->out_in;

        if (!tensor_is_product(w) || w->part < from || w->part > to)
            continue;
        for (; w + 1 < end && w[1].joined; w++)
            out += (double)w[1].elements / in;
        seconds += product_seconds(m, 1, m->rows, shares_inputs ? out : out / t, shares_inputs ? in / t : in);
    }
    return seconds;
}

/* Bytes of what a rank's row operations read and write beside those of every block: queries and keys in place, and the
 * gate. */
static double more_row_bytes(const struct cost_model *m, bool backward)
{
    const struct model_shape *shape = &m->job->model;
    double columns = 0;

    if (model_changes_queries(shape))
        columns += 2 * (model_query_width(shape) + model_key_width(shape));
    if (shape->activation == ACTIVATION_SWIGLU)
        columns += (backward ? 5 : 3) * (double)model_inner(shape);
    return columns * m->element * m->rows / m->mesh.tp;
}

/* A layer's forward pass. */
static struct plan_cost forward_layer(const struct cost_model *m)
{
    double d = m->job->model.hidden, exchange = collective_seconds(m, m->mesh.tp, 1, m->rows * d * m->element);
    struct plan_cost pass = {0};

    pass.part[COST_PRODUCTS] = layer_products(m, PART_QKV, PART_MLP_PROJ);
    pass.part[COST_ATTENTION] = attention_seconds(m, false);
    pass.part[COST_ROWS] =
        (m->stack->rows * m->element / 2 / 3 * m->row_rows * d + more_row_bytes(m, false)) / m->row_bandwidth;
    pass.part[COST_LAUNCH] = m->stack->launch;
    pass.part[COST_TP] = 4 * exchange;
    return pass;
}

static struct plan_cost backward_layer(const struct cost_model *m, const struct plan_cost *forward,
                                       enum recompute recompute)
{
    double exchange = forward->part[COST_TP] / 4;
    struct plan_cost pass = *forward;

    pass.part[COST_PRODUCTS] *= 2;
    if (m->stack->splits_rows)
        pass.part[COST_TP] = 2 * exchange + exposed_seconds(m, 4 * exchange, pass.part[COST_PRODUCTS]);
    pass.part[COST_ROWS] =
        2 * pass.part[COST_ROWS] + (more_row_bytes(m, true) - 2 * more_row_bytes(m, false)) / m->row_bandwidth;
    pass.part[COST_LAUNCH] *= 2;
    pass.part[COST_ATTENTION] = attention_seconds(m, true);
    if (recompute == RECOMPUTE_FULL) {
        add_parts(&pass, forward, 1);
        if (m->stack->splits_rows) { /* muster does not recompute the last product and its exchange */
            pass.part[COST_PRODUCTS] -= layer_products(m, PART_MLP_PROJ, PART_MLP_PROJ);
            pass.part[COST_TP] -= exchange;
        }
    } else if (recompute >= RECOMPUTE_LIGHT) {
        pass.part[COST_ROWS] += light_row_bytes(m, recompute) / m->row_bandwidth;
    }
    if (recompute == RECOMPUTE_SELECTIVE) {
        pass.part[COST_ATTENTION] += attention_seconds(m, false);
        pass.part[COST_PRODUCTS] += layer_products(m, PART_QKV, PART_QKV);
        if (m->stack->splits_rows) /* the product's input is gathered again */
            pass.part[COST_TP] += exchange;
    }
    return pass;
}

/* Logits, losses and their backward pass. */
static double head_seconds(const struct cost_model *m)
{
    const struct model_shape *shape = &m->job->model;
    double vocab = vocabulary_padded(shape, m->mesh.tp), d = shape->hidden;
    double held = m->stack->logit_bytes * HELD_LOGIT_MOVES;
    double bytes = m->rows * vocab * (held > 0 ? held : LOGIT_BYTES * m->element / 2);

    return 3 * product_seconds(m, 1, m->rows, vocab, d) + bytes / m->row_bandwidth +
           2 * collective_seconds(m, m->mesh.tp, 1, m->rows * d * m->element);
}

/* ---- exchanges between data-parallel ranks ----------------------------------------------------------------------- */

static double exchange_seconds(const struct cost_model *m, double parameters, enum dtype dtype)
{
    return collective_seconds(m, m->mesh.dp, m->mesh.tp, parameters * (double)dtype_size(dtype));
}

static enum dtype reduce_dtype(const struct cost_model *m)
{
    return m->stack->fp16_gradients ? m->job->precision.compute : m->job->precision.reduce;
}

/* ---- passes of a stage's chunks ---------------------------------------------------------------------------------- */

struct stage_cost {
    struct plan_cost forward[MODEL_MAX_CHUNKS], backward[MODEL_MAX_CHUNKS];
    double busy;       /* of one micro-batch, all chunks */
    double parameters; /* elements of a rank's, before ZeRO divides them */

    size_t at; /* walk_schedule: the next entry, and when the last one has ended */
    double now;
};

/* ZeRO's exchanges of a chunk in every micro-batch. */
static void add_zero(const struct cost_model *m, const struct rank_config *config, const struct model_chunk *chunk,
                     struct plan_cost *forward, struct plan_cost *backward)
{
    double share = chunk->layers * (double)config->units.size[UNIT_KIND_BLOCK].count;
    double gather = exchange_seconds(m, share, m->job->precision.compute), back = 0;

    if (m->job->parallel.zero == 3) {
        forward->part[COST_DP] = exposed_seconds(m, gather, sum_parts(forward));
        back += gather;
    }
    if (m->job->parallel.reduce == REDUCE_MICRO_BATCH)
        back += exchange_seconds(m, share, reduce_dtype(m));
    backward->part[COST_DP] = exposed_seconds(m, back, sum_parts(backward));
}

/* *stage is zeros. */
static void cost_stage(const struct cost_model *m, const struct rank_config *config, struct stage_cost *stage)
{
    struct plan_cost forward = forward_layer(m);
    int layer = 0; /* of the stage */

    for (int kind = 0; kind < UNIT_KINDS; kind++)
        stage->parameters += (double)config->units.number[kind] * (double)config->units.size[kind].count;
    for (int c = 0; c < config->model.chunks; c++) {
        const struct model_chunk *chunk = &config->model.chunk[c];

        add_parts(&stage->forward[c], &forward, chunk->layers);
        for (int l = 0; l < chunk->layers; l++) {
            struct plan_cost backward = backward_layer(m, &forward, layer_recompute(m->job, layer++));

            add_parts(&stage->backward[c], &backward, 1);
        }
        if (chunk->has_head)
            stage->backward[c].part[COST_HEAD] += head_seconds(m);
        add_zero(m, config, chunk, &stage->forward[c], &stage->backward[c]);
        stage->busy += sum_parts(&stage->forward[c]) + sum_parts(&stage->backward[c]);
    }
}

/* ---- the schedule ------------------------------------------------------------------------------------------------ */

/* The walk of all stages' entries: when each entry of a (micro-batch, part) has ended; 0: not yet. */
struct schedule_walk {
    int stages, chunks, micro_batches;
    struct stage_cost *stage;
    double message;
    struct schedule_entry *entries; /* [stages][count] */
    double *end;                    /* [forward, backward][micro_batches][stages * chunks] */
};

static double *end_of(const struct schedule_walk *w, enum schedule_kind kind, int micro_batch, int part)
{
    return &w->end[((int)kind * w->micro_batches + micro_batch) * w->stages * w->chunks + part];
}

/* When the input of an entry has arrived; < 0: not known yet. */
static double input_time(const struct schedule_walk *w, const struct schedule_entry *e, int stage)
{
    int parts = w->stages * w->chunks, part = e->chunk * w->stages + stage;
    int from = e->kind == SCHEDULE_FORWARD ? part - 1 : part + 1;
    double end;

    if (from < 0)
        return 0;
    if (from == parts)
        return *end_of(w, SCHEDULE_FORWARD, e->micro_batch, part);
    end = *end_of(w, e->kind, e->micro_batch, from);
    return end > 0 ? end + (w->stages > 1 ? w->message : 0) : -1;
}

/* Returns when the last stage has ended; entries of one stage run in order. */
static double walk_schedule(struct schedule_walk *w)
{
    size_t count = (size_t)w->micro_batches * (size_t)w->chunks * 2, left = count * (size_t)w->stages;
    double last = 0;

    while (left > 0)
        for (int s = 0; s < w->stages; s++) {
            struct stage_cost *stage = &w->stage[s];

            for (; stage->at < count; stage->at++, left--) {
                const struct schedule_entry *e = &w->entries[(size_t)s * count + stage->at];
                const struct plan_cost *pass = e->kind == SCHEDULE_FORWARD ? stage->forward : stage->backward;
                double input = input_time(w, e, s);

                if (input < 0)
                    break;
                stage->now = fmax(stage->now, input) + sum_parts(&pass[e->chunk]);
                *end_of(w, e->kind, e->micro_batch, e->chunk * w->stages + s) = fmax(stage->now, 1e-12);
                last = fmax(last, stage->now);
            }
        }
    return last;
}

/* A step's seconds in the pipeline. A schedule repeats itself after some groups of micro-batches; the rest are added at
 * the pace of the busiest stage. */
static int pipeline_seconds(const struct cost_model *m, struct stage_cost *stage, int micro_batches, double busiest,
                            double *seconds, struct error *err)
{
    int few = m->mesh.pp * SCHEDULE_GROUPS, chunks = m->job->parallel.chunks;
    struct schedule_walk w = {.stages = m->mesh.pp, .chunks = chunks, .stage = stage, .message = message_seconds(m)};
    size_t count;

    if (m->mesh.pp == 1) {
        *seconds = micro_batches * busiest;
        return 0;
    }
    w.micro_batches = micro_batches < few ? micro_batches : few;
    count = (size_t)w.micro_batches * (size_t)chunks * 2;
    w.entries = error_calloc(count * (size_t)w.stages, sizeof *w.entries, err);
    w.end = error_calloc(count * (size_t)w.stages, sizeof *w.end, err);
    if (w.entries && w.end) {
        for (int s = 0; s < w.stages; s++)
            schedule_build(w.entries + (size_t)s * count, s, w.stages, w.micro_batches, chunks);
        *seconds = walk_schedule(&w) + (micro_batches - w.micro_batches) * busiest;
    }
    free(w.entries);
    free(w.end);
    return w.entries && w.end ? 0 : -1;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* What follows the last micro-batch: sums of gradients, the optimizer, gathers. */
static void add_step_end(const struct cost_model *m, const struct stage_cost *stage, struct plan_cost *cost)
{
    double parameters = stage->parameters, dp = m->mesh.dp, local = m->machine->level[0].ranks;
    double reduce = exchange_seconds(m, parameters, reduce_dtype(m));
    double gather = exchange_seconds(m, parameters, m->job->precision.compute);
    double state = m->job->parallel.zero > 0 ? parameters / dp : parameters;
    double host = state * HOST_BYTES * fmin(local, (double)mesh_world(&m->mesh)) / m->machine->host_rate;

    if (m->job->parallel.reduce == REDUCE_STEP)
        cost->part[COST_DP] += exposed_seconds(m, reduce, sum_parts(&stage->backward[0]));
    if (m->job->parallel.zero == 0)
        cost->part[COST_DP] += reduce;
    else if (m->job->parallel.zero < 3)
        cost->part[COST_DP] += gather;
    if (!m->machine->gpu)
        cost->part[COST_OPTIMIZER] += host;
    else if (m->job->parallel.offload == OFFLOAD_NONE)
        cost->part[COST_OPTIMIZER] += state * m->stack->optimizer / m->machine->bandwidth;
    else
        cost->part[COST_OFFLOAD] +=
            host + (m->machine->host_link > 0 ? state * 2 * m->element / m->machine->host_link : 0);
}

static int cost_stages(const struct cost_model *m, struct stage_cost *stages, struct plan_cost *cost, struct error *err)
{
    const struct device_traits traits = {.is_host = !m->machine->gpu, .gpu = m->machine->gpu, .threads = 1};
    const struct stage_cost *busiest = stages;
    struct rank_config config = {0};
    double passes = 0;

    for (int s = 0; s < m->mesh.pp; s++) {
        int rank = mesh_rank(&m->mesh, (struct mesh_coords){.pp = s});

        if (rank_config_set(&config, m->job, &m->mesh, rank, &traits, err) < 0)
            return -1;
        cost_stage(m, &config, &stages[s]);
        busiest = stages[s].busy > busiest->busy ? &stages[s] : busiest;
    }
    if (pipeline_seconds(m, stages, config.most_micro_batches, busiest->busy, &passes, err) < 0)
        return -1;
    for (int c = 0; c < m->job->parallel.chunks; c++) {
        struct plan_cost both = busiest->forward[c];

        add_parts(&both, &busiest->backward[c], 1);
        add_parts(cost, &both, config.most_micro_batches);
    }
    cost->part[COST_PIPELINE] = passes - config.most_micro_batches * busiest->busy;
    add_step_end(m, busiest, cost);
    return 0;
}

int plan_cost(const struct job *job, const struct mesh *mesh, const struct plan_machine *machine,
              const struct stack *stack, struct plan_cost *cost, struct error *err)
{
    struct cost_model m = model_of(job, mesh, machine, stack);
    struct stage_cost *stage;
    int result;

    *cost = (struct plan_cost){0};
    stage = error_calloc((size_t)mesh->pp, sizeof *stage, err);
    result = stage ? cost_stages(&m, stage, cost, err) : -1;
    free(stage);
    cost->seconds = sum_parts(cost);
    return result;
}

int plan_traffic(const struct job *job, const struct mesh *mesh, struct plan_traffic *traffic, struct error *err)
{
    static const struct plan_machine links = {.gpu = true,
                                              .peak_fp32 = 1e30,
                                              .product = 1,
                                              .attention = 1,
                                              .bandwidth = 1e30,
                                              .level = {{.bandwidth = 1}},
                                              .levels = 1};
    static const struct stack bare = {
        .product = 1, .attention = 1, .links = 1, .fused_attention = true, .splits_rows = true, .exact_memory = true};
    struct cost_model m = model_of(job, mesh, &links, &bare);
    double messages = 2.0 * rank_config_share(job, mesh, 0, job->batch.global_batch).micro_batches;
    struct plan_cost cost;

    if (plan_cost(job, mesh, &links, &bare, &cost, err) < 0)
        return -1;
    *traffic = (struct plan_traffic){
        .tp = cost.part[COST_TP],
        .dp = cost.part[COST_DP],
        .pp = mesh->pp > 1 ? messages * job->parallel.chunks * message_seconds(&m) : 0,
    };
    return 0;
}

/* The part of the layers that is recomputed: the first recompute_layers of each stage. */
static double recomputed_part(const struct job *job)
{
    double layers = (double)job->parallel.recompute_layers * job->parallel.pp;

    return layers == 0 || layers > job->model.layers ? 1.0 : layers / job->model.layers;
}

struct plan_rates plan_rates(const struct job *job, int samples, int ranks, double peak, double seconds)
{
    const struct model_shape *m = &job->model;
    double tokens = (double)samples * m->seq_length, model = flops_model(m, tokens);
    double hardware = flops_hardware(m, tokens, job->parallel.recompute);
    double device = 1 / (seconds * ranks), share = device / peak;
    bool full = job->parallel.recompute == RECOMPUTE_FULL;

    return (struct plan_rates){
        .tokens = tokens / seconds,
        .samples = samples / seconds,
        .tflops = flops_megatron(m, tokens, full) * device * 1e-12,
        .tflops_before = flops_megatron_before(m, tokens, full) * device * 1e-12,
        .mfu = model * share,
        .hfu = (model + (hardware - model) * recomputed_part(job)) * share,
        .mosaic_mfu = flops_mosaicml(m, tokens, false, true) * share,
        .mosaic_hfu = flops_mosaicml(m, tokens, full, true) * share,
        .mosaic_mfu_params = flops_mosaicml(m, tokens, false, false) * share,
        .mosaic_hfu_params = flops_mosaicml(m, tokens, full, false) * share,
    };
}
