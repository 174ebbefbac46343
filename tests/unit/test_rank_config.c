/* What a rank is to hold and do: shares of a batch, and ZeRO's sizes. */
#include "ckpt/models/units.h"
#include "tests/cmocka_test.h"
#include "tests/unit/model_fields.h"
#include "plan/rank_config.h"

/* Over the dp ranks every sample once and in order, and as many micro-batches on each. */
static const struct device_traits on_cpu = {.threads = 1, .is_host = true};

static void shares_are_the_batch(void **state)
{
    struct job job;

    memset(&job, 0, sizeof job);
    for (int dp = 1; dp <= 9; dp++)
        for (int micro = 1; micro <= 5; micro++)
            for (int size = dp; size <= 40; size++) {
                struct mesh mesh = {dp, 2, 3};
                long next = 0, least = size, most = 0;
                int micro_batches;

                job.batch.micro_batch = micro;
                micro_batches = rank_config_share(&job, &mesh, 0, size).micro_batches;
                for (int rank = 0; rank < dp; rank++) {
                    struct share share = rank_config_share(&job, &mesh, rank, size);

                    assert_int_equal(share.first, next);
                    assert_int_equal(share.micro_batches, micro_batches);
                    next += share.count;
                    least = share.count < least ? share.count : least;
                    most = share.count > most ? share.count : most;
                }
                assert_int_equal(next, size);
                assert_true(most - least <= 1);
                assert_true((long)micro_batches * micro >= most && (long)(micro_batches - 1) * micro < most);
            }
}

static struct job tiny_job(void)
{
    static const char text[] = "model = { layers = 3; hidden = 16; heads = 4; seq_length = 8; vocab = 100; };\n"
                               "batch = { global_batch = 12; micro_batch = 2; };\n"
                               "data = { train = \"x\"; };\n";
    struct job job;
    struct error err;

    if (job_parse(&job, text, "tiny", NULL, 0, &err) < 0)
        fail_msg("%s", err.text);
    return job;
}

/* The units that are counted are those of the list. */
static void same_units(const struct rank_units *counts, const struct units *units)
{
    int number[UNIT_KINDS] = {0};

    for (int u = 0; u < units->nunits; u++) {
        int kind = u < UNIT_BLOCK0 ? u : u == units_head(units) ? UNIT_KIND_HEAD : UNIT_KIND_BLOCK;
        const struct unit *unit = &units->units[u];

        if (!unit->here)
            continue;
        number[kind]++;
        assert_int_equal(unit->count, counts->size[kind].count);
        assert_int_equal(unit->replicated, counts->size[kind].replicated);
    }
    assert_memory_equal(number, counts->number, sizeof number);
}

/* Every layer is on one stage; the embedding on the first and the head on the last, with the embedding if it is tied. */
static void check_stages(bool untied)
{
    struct job job = tiny_job();

    job.model.untied = untied;
    for (int layers = 1; layers <= 7; layers++)
        for (int pp = 1; pp <= 4; pp++)
            for (int chunks = 1; chunks <= (pp > 1 ? 3 : 1); chunks++) {
                struct mesh mesh = {2, 2, pp};
                int seen[8] = {0}, embeds = 0, heads = 0;
                struct error err;

                job.model.layers = layers;
                job.parallel.chunks = chunks;
                for (int stage = 0; stage < pp; stage++) {
                    int rank = mesh_rank(&mesh, (struct mesh_coords){.dp = 1, .tp = 1, .pp = stage});
                    struct units *units = units_create(&job.model, &mesh, chunks, rank, &err);
                    struct rank_config l;

                    assert_non_null(units);
                    assert_int_equal(rank_config_set(&l, &job, &mesh, rank, &on_cpu, &err), 0);
                    assert_int_equal(l.model.chunks, chunks);
                    for (int c = 0; c < chunks; c++) {
                        for (int i = 0; i < l.model.chunk[c].layers; i++) {
                            seen[l.model.chunk[c].first_layer + i]++;
                            assert_true(units->units[UNIT_BLOCK0 + l.model.chunk[c].first_layer + i].here);
                        }
                        embeds += l.model.chunk[c].has_embedding;
                        heads += l.model.chunk[c].has_head;
                    }
                    assert_int_equal(l.zero.tied, !untied && pp > 1 && (stage == 0 || stage == pp - 1));
                    assert_int_equal(units->units[UNIT_WTE].here, stage == 0 || (!untied && stage == pp - 1));
                    same_units(&l.units, units);
                    units_destroy(units);
                }
                for (int i = 0; i < layers; i++)
                    assert_int_equal(seen[i], 1);
                assert_int_equal(embeds, 1);
                assert_int_equal(heads, 1);
            }
    job_destroy(&job);
}

static void stages_have_all_layers_once(void **state)
{
    check_stages(false);
    check_stages(true);
}

static void too_few_samples_are_refused(void **state)
{
    struct job job = tiny_job();
    struct mesh most = {12, 1, 1}, more = {13, 1, 1};
    struct error err;
    struct rank_config l;

    assert_int_equal(rank_config_set(&l, &job, &most, 11, &on_cpu, &err), 0);
    assert_int_equal(rank_config_set(&l, &job, &more, 0, &on_cpu, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "batch.global_batch = 12"));
    job_destroy(&job);
}

/* ---- ZeRO's table, zero.h ---- */

enum { DP = 4, COUNT = 4 * DP * UNIT_ALIGN };

static struct zero_sizes sizes_of(struct zero_config config, bool is_block)
{
    config = zero_effective(&config);
    return zero_sizes_of(COUNT, is_block, &config);
}

static void the_stages_are_the_papers(void **state)
{
    for (int stage = 0; stage <= 3; stage++)
        for (int rank = 0; rank < DP; rank++) {
            struct zero_config config = {
                .zero_stage = stage, .dp = DP, .dp_rank = rank, .reduce_every_micro_batch = stage >= 2};
            struct zero_sizes s = sizes_of(config, true);

            assert_int_equal(s.shard_count, COUNT / DP);
            assert_int_equal(s.shard_first, rank * (COUNT / DP));
            assert_int_equal(s.param, stage == 3 ? COUNT / DP : COUNT);
            assert_int_equal(s.grad, stage >= 2 ? COUNT / DP : COUNT);
            assert_int_equal(s.state_count, stage >= 1 ? COUNT / DP : COUNT);
            assert_int_equal(s.state_first, stage >= 1 ? s.shard_first : 0);
            assert_int_equal(s.master, 0); /* fp32: the parameters are their own */
            assert_int_equal(s.host_grad, 0);
            config.compute_dtype = DTYPE_BF16;
            assert_int_equal(sizes_of(config, true).master, s.state_count);
            config.offload = true;
            assert_int_equal(sizes_of(config, true).host_grad, s.state_count);
            assert_int_equal(sizes_of(config, true).grad, stage >= 2 ? 0 : COUNT);
        }
}

/* One rank has all of everything, and no buffers for exchanges. */
static void alone_nothing_is_sharded(void **state)
{
    struct job job = tiny_job();
    struct error err;
    struct mesh alone = {1, 1, 1};

    for (int stage = 0; stage <= 3; stage++) {
        struct rank_config l;
        struct footprint bytes = {0};
        struct zero_sizes s =
            sizes_of((struct zero_config){.zero_stage = stage, .dp = 1, .reduce_every_micro_batch = true}, true);

        assert_int_equal(s.param, COUNT);
        assert_int_equal(s.grad, COUNT);
        assert_int_equal(s.state_count, COUNT);
        assert_int_equal(s.gathered, 0);
        job.parallel.zero = stage;
        assert_int_equal(rank_config_set(&l, &job, &alone, 0, &on_cpu, &err), 0);
        zero_footprint(&l.units, &l.zero, &bytes);
        assert_int_equal(bytes.bytes[FOOTPRINT_COMMUNICATION], 0);
    }
    job_destroy(&job);
}

/* Every stage holds no more than the one before it, in each of the three columns. */
static void more_sharding_is_less_memory(void **state)
{
    struct job job = tiny_job();
    struct mesh mesh = {3, 2, 2};
    struct footprint before;
    struct error err;

    memset(&before, 0xff, sizeof before);
    job.parallel.reduce = REDUCE_MICRO_BATCH;
    for (int stage = 0; stage <= 3; stage++) {
        struct footprint bytes = {0};
        struct rank_config l;

        job.parallel.zero = stage;
        assert_int_equal(rank_config_set(&l, &job, &mesh, 5, &on_cpu, &err), 0);
        zero_footprint(&l.units, &l.zero, &bytes);
        for (int kind = FOOTPRINT_PARAMETERS; kind <= FOOTPRINT_OPTIMIZER; kind++)
            assert_true(bytes.bytes[kind] <= before.bytes[kind]);
        assert_true(stage != 3 || bytes.bytes[FOOTPRINT_PARAMETERS] < before.bytes[FOOTPRINT_PARAMETERS]);
        assert_true(stage != 1 || bytes.bytes[FOOTPRINT_OPTIMIZER] < before.bytes[FOOTPRINT_OPTIMIZER]);
        before = bytes;
    }
    job_destroy(&job);
}

/* ---- rank_config_table ---- */

/* "stage N" and the bytes in all, in MiB, of the heaviest stage are in the table; where they lie does not matter. */
static void assert_shows(const char *table, int stage, size_t bytes, bool named)
{
    char text[64];

    snprintf(text, sizeof text, " stage %d", stage);
    assert_true(!named || strstr(table, text));
    snprintf(text, sizeof text, " %.1f", (double)bytes / (1 << 20));
    if (!strstr(strstr(table, "in all, on device"), text))
        fail_msg("stage %d has%s MiB, which the table does not show:\n%s", stage, text, table);
}

static void the_heaviest_stage_is_shown(void **state)
{
    struct job job = tiny_job();
    int middle = 0;

    job.model.hidden = 512;
    for (int layers = 1; layers <= 20; layers++)
        for (int pp = 1; pp <= 20; pp++) {
            struct mesh mesh = {1, 1, pp};
            char *table;
            size_t most = 0, bytes[20];
            struct footprint parts;
            struct error err;
            int heaviest = 0;

            job.model.layers = layers;
            for (int stage = 0; stage < pp; stage++) {
                assert_int_equal(rank_config_footprint(&job, &mesh, stage, &on_cpu, &parts, &err), 0);
                bytes[stage] = footprint_device(&parts);
                heaviest = bytes[stage] > most ? stage : heaviest;
                most = bytes[heaviest];
            }
            middle += heaviest > 4 && heaviest < pp - 1;
            table = rank_config_table(&job, &mesh, &on_cpu, false, &err);
            assert_non_null(table);
            assert_shows(table, heaviest, most, pp > 1);
            assert_shows(table, 0, bytes[0], pp > 1);
            assert_shows(table, pp - 1, bytes[pp - 1], pp > 1);
            free(table);
        }
    assert_true(middle > 10);
    job_destroy(&job);
}

/* A stage without layers takes no memory for products and attention, and none for norms but the last one's. */
static void a_stage_without_layers_takes_little(void **state)
{
    const struct device_traits devices[] = {on_cpu, {.threads = 4, .is_host = true, .widens = true}};
    struct job job = tiny_job();
    struct mesh mesh = {1, 1, 4};
    struct error err;

    for (size_t d = 0; d < 2; d++) {
        job.model.layers = 1; /* on stage 2 */
        for (int stage = 0; stage < 4; stage++) {
            struct rank_config l;
            size_t bytes;

            assert_int_equal(rank_config_set(&l, &job, &mesh, stage, &devices[d], &err), 0);
            bytes = rank_config_workspace(&l);
            if (stage == 0) /* the embedding: sums of squares alone, 4096 of fp64 */
                assert_int_equal(bytes, 32768);
            else if (stage == 1)
                assert_int_equal(bytes, 0);
            else
                assert_true(bytes >= 32768);
        }
    }
    job_destroy(&job);
}

/* The workspace has room for the gradients of all scores where cuDNN computes attention. */
static void attention_goes_to_cudnn_where_it_can(void **state)
{
    const struct device_traits gpu = {.gpu = true, .attention = ATTENTION_AUTO},
                               own = {.gpu = true, .attention = ATTENTION_OWN};
    const size_t scores = 4 * (size_t)1024 * 12 * 1024 * 2;
    struct job job = tiny_job(), changed;
    struct mesh mesh = {1, 1, 1};
    struct rank_config l;
    struct error err;

    job.model = (struct model_shape){MODEL_SIZES(2, 1536, 12, 1024, 256)};
    job.precision.compute = DTYPE_BF16;
    job.batch.micro_batch = job.batch.global_batch = 4;
    assert_int_equal(rank_config_set(&l, &job, &mesh, 0, &gpu, &err), 0);
    assert_true(rank_config_uses_cudnn(&job, &gpu));
    assert_true(rank_config_workspace(&l) > scores);
    assert_int_equal(rank_config_set(&l, &job, &mesh, 0, &own, &err), 0);
    assert_false(rank_config_uses_cudnn(&job, &own));
    assert_true(rank_config_workspace(&l) < scores);
    changed = job, changed.dropout.attention = 0.1;
    assert_false(rank_config_uses_cudnn(&changed, &gpu));
    changed = job, changed.data.reset = RESET_DOCUMENT;
    assert_false(rank_config_uses_cudnn(&changed, &gpu));
    changed = job, changed.model.bidirectional = true;
    assert_false(rank_config_uses_cudnn(&changed, &gpu));
    job_destroy(&job);
}

/* ---- tensor parallelism ---- */

/* Scratch for sums of gradients is bounded, whatever is replicated: a BERT's head here, positions there. */
static void scratch_of_tensor_parallelism_is_bounded(void **state)
{
    static const struct {
        struct model_shape shape;
        int tp;
    } models[] = {{{MODEL_SIZES(96, 12288, 96, 512, 30522), BERT_FIELDS}, 32},
                  {{MODEL_SIZES(40, 5120, 40, 131072, 50257)}, 8}};
    struct job job = tiny_job();
    struct error err;

    job.batch.micro_batch = 1;
    job.precision.compute = DTYPE_BF16;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const struct model_shape *m = &models[i].shape;
        struct mesh mesh = {1, models[i].tp, 1};
        size_t rows = (size_t)m->seq_length * (size_t)m->hidden * 2, sums = 4 * (size_t)TP_BUCKET_ELEMENTS;
        struct footprint bytes;

        job.model = *m;
        assert_int_equal(rank_config_footprint(&job, &mesh, 0, &on_cpu, &bytes, &err), 0);
        assert_int_equal(bytes.bytes[FOOTPRINT_COMMUNICATION],
                         rows > sums ? rows : sums); /* one stage and dp 1: nothing else */
    }
    job_destroy(&job);
}

/* Few gradients take no whole bucket. */
static void few_gradients_take_little_scratch(void **state)
{
    assert_int_equal(tp_scratch_bytes(4, DTYPE_BF16, 8, 16, 100), 100 * 4 * sizeof(float));
    assert_int_equal(tp_scratch_bytes(1, DTYPE_BF16, 8, 16, 100), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_the_batch),
        cmocka_unit_test(stages_have_all_layers_once),
        cmocka_unit_test(too_few_samples_are_refused),
        cmocka_unit_test(the_stages_are_the_papers),
        cmocka_unit_test(alone_nothing_is_sharded),
        cmocka_unit_test(more_sharding_is_less_memory),
        cmocka_unit_test(scratch_of_tensor_parallelism_is_bounded),
        cmocka_unit_test(few_gradients_take_little_scratch),
        cmocka_unit_test(the_heaviest_stage_is_shown),
        cmocka_unit_test(a_stage_without_layers_takes_little),
        cmocka_unit_test(attention_goes_to_cudnn_where_it_can),
    };

    return cmocka_run_group_tests_name("rank_config", tests, NULL, NULL);
}
