#include "tests/unit/test_ckpt_model.h"

#include "ckpt/format/pieces.h"
#include "tests/cmocka_test.h"
#include "tests/unit/test_ckpt_world.h"

const char *const state_kinds[MODEL_KINDS] = {"param", "exp_avg", "exp_avg_sq"};

static int draw(uint64_t *random, int least, int most)
{
    return least + (int)world_random(random, (uint64_t)(most - least + 1));
}

struct model_shape draw_model(uint64_t *random)
{
    const int kind = draw(random, 0, 1);
    struct model_shape shape = {
        .layers = draw(random, 1, 5),
        .heads = 12,
        .hidden = 12 * draw(random, 1, 3),
        .seq_length = 12 * draw(random, 1, 3),
        .vocab = draw(random, 13, 400),
    };

    model_set_kind(&shape, kind);
    return shape;
}

struct mesh draw_mesh(uint64_t *random, int *chunks)
{
    static const int tps[] = {1, 1, 2, 3, 4, 6};
    struct mesh mesh;

    do
        mesh = (struct mesh){.dp = draw(random, 1, 9), .tp = tps[draw(random, 0, 5)], .pp = draw(random, 1, 5)};
    while (mesh_world(&mesh) > 64);
    *chunks = mesh.pp > 1 ? draw(random, 1, 2) : 1;
    return mesh;
}

struct units *model_units(const struct model_shape *shape)
{
    struct units *units = units_create_whole(shape, NULL);

    assert_non_null(units);
    return units;
}

/* Odd multiples of a power of two, 24 bits of them: a value that was rounded or came from a neighbour shows. */
float model_value(uint32_t tensor, size_t kind, uint64_t place)
{
    uint64_t x = (place + 1) * 0x9e3779b97f4a7c15 ^ ((uint64_t)tensor << 8 | kind);

    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    return ((float)(x >> 40) - 0x1p23f) * 0x1p-23f;
}

static int fill(void *arg, const struct ckpt_tensor *tensors, size_t ntensors, size_t kind,
                const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    (void)arg;
    (void)ntensors;
    (void)err;
    for (size_t p = 0; p < npieces; to += pieces[p++].count)
        for (uint64_t i = 0; i < pieces[p].count; i++)
            to[i] = model_value(pieces[p].tensor, kind, world_place(&tensors[pieces[p].tensor], &pieces[p], i));
    return 0;
}

void model_write(const struct model_shape *shape, const struct mesh *mesh, int chunks, const char *dir)
{
    char text[JOB_MODEL_SIZE], job[sizeof text + 128];
    struct rewrite rewrite = {
        .dir = dir,
        .name = "test",
        .shape = *shape,
        .to = {.mesh = *mesh, .chunks = chunks},
        .kinds = state_kinds,
        .nkinds = MODEL_KINDS,
        .state = {.step = 5, .consumed_samples = 40, .seed = 9, .loss_scale = 1},
        .job_text = job,
        .read = fill,
    };
    struct error err;

    job_model_text(text, shape);
    snprintf(job, sizeof job, "%sparallel = { tp = %d; pp = %d; chunks = %d; };\ndata = { train = \"none\"; };\n", text,
             mesh->tp, mesh->pp, chunks);
    if (rewrite_run(&rewrite, &err) < 0)
        fail_msg("%s", err.text);
}

bool model_is_right(const struct units *units, const struct ckpt_piece *piece, size_t kind, const float *data)
{
    for (uint64_t i = 0; i < piece->count; i++) {
        float value = model_value(piece->tensor, kind, world_place(&units->tensors[piece->tensor], piece, i));

        if (memcmp(&data[i], &value, sizeof value) != 0)
            return false;
    }
    return true;
}

/* One whole tensor of one kind. */
static bool tensor_matches(struct ckpt *ckpt, const struct units *units, uint32_t t, size_t kind, float (*round)(float),
                           bool zero)
{
    uint64_t count = box_elements(units->tensors[t].shape, units->tensors[t].ndim);
    struct ckpt_piece piece = piece_of_tensor(t, &units->tensors[t], 0, count);
    float *data = malloc(count * sizeof *data);
    bool right = true;
    struct error err;

    assert_non_null(data);
    if (ckpt_read(ckpt, units->tensors, units->ntensors, &state_kinds[kind], 1, &piece, 1, (void *[]){data}, &err) < 0)
        fail_msg("%s", err.text);
    for (uint64_t i = 0; i < count && right; i++) {
        float value = zero ? 0 : round ? round(model_value(t, kind, i)) : model_value(t, kind, i);

        right = memcmp(&data[i], &value, sizeof value) == 0;
    }
    free(data);
    return right;
}

bool model_matches(const struct model_shape *shape, const char *dir, uint64_t step, float (*round)(float),
                   bool zero_moments)
{
    struct units *units = model_units(shape);
    char path[512];
    struct error err;
    struct ckpt *ckpt;
    bool right = true;

    ckpt_step_path(path, sizeof path, dir, step);
    ckpt = ckpt_open(path, &err);
    if (!ckpt || ckpt_verify(ckpt, 2, NULL, NULL, &err) < 0)
        fail_msg("%s", err.text);
    for (uint32_t t = 0; t < units->ntensors; t++)
        for (size_t k = 0; k < MODEL_KINDS; k++)
            right = right && tensor_matches(ckpt, units, t, k, k == 0 ? round : NULL, k > 0 && zero_moments);
    ckpt_close(ckpt);
    units_destroy(units);
    return right;
}
