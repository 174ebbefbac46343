#include "tests/unit/test_ckpt_world.h"
#include "tests/cmocka_test.h"

#include <dirent.h>
#include <ftw.h>
#include <unistd.h>

static const char *const kinds[] = {"param", "exp_avg", "exp_avg_sq"};

uint64_t world_random(uint64_t *state, uint64_t below)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) % below;
}

void world_create(struct world *world, uint64_t *random, bool large)
{
    memset(world, 0, sizeof *world);
    world->ntensors = 1 + world_random(random, WORLD_MAX_TENSORS);
    world->kinds = kinds;
    world->nkinds = 1 + world_random(random, 3);
    world->salt = (uint32_t)world_random(random, 1 << 20);
    for (size_t t = 0; t < world->ntensors; t++) {
        struct ckpt_tensor *tensor = &world->tensors[t];

        snprintf(tensor->name, sizeof tensor->name, "h.%zu.weight", t);
        tensor->ndim = 1 + (int)world_random(random, CKPT_MAX_DIMS);
        for (int d = 0; d < tensor->ndim; d++)
            tensor->shape[d] = 1 + world_random(random, tensor->ndim == 1 ? 5000 : tensor->ndim == 2 ? 60 : 9);
    }
    if (large) {
        world->tensors[0].ndim = 2;
        world->tensors[0].shape[0] = 1000 + world_random(random, 500);
        world->tensors[0].shape[1] = 1500 + world_random(random, 500);
    }
}

static void add_piece(struct topology *topology, const struct world *world, struct ckpt_piece piece, uint64_t *random)
{
    struct rank *rank = &topology->ranks[world_random(random, (uint64_t)topology->shards)];

    assert_true(rank->npieces < WORLD_MAX_PIECES);
    for (size_t k = 0; k < world->nkinds; k++) {
        void *data = malloc(piece.count * 4 + 1); /* exactly: the sanitizer sees one byte too many */

        assert_non_null(data);
        rank->data[rank->npieces * world->nkinds + k] = data;
    }
    rank->pieces[rank->npieces++] = piece;
}

/* Cut the box into runs. */
static void split_runs(struct topology *topology, const struct world *world, struct ckpt_piece box, uint64_t *random)
{
    uint64_t elements = 1, parts = 1 + world_random(random, 5);

    for (int d = 0; d < world->tensors[box.tensor].ndim; d++)
        elements *= box.shape[d];
    box.first = 0;
    for (uint64_t i = 0; i < parts; i++) {
        uint64_t left = elements - box.first;

        box.count = i + 1 == parts ? left : world_random(random, left + 1);
        add_piece(topology, world, box, random);
        box.first += box.count;
    }
}

/* Cut the box in two along some axis, and so on for a while. */
static void split_boxes(struct topology *topology, const struct world *world, struct ckpt_piece box, int depth,
                        uint64_t *random)
{
    int axis = (int)world_random(random, (uint64_t)world->tensors[box.tensor].ndim);
    uint64_t cut;
    struct ckpt_piece upper = box;

    if (depth == 0 || box.shape[axis] < 2 || world_random(random, 4) == 0) {
        split_runs(topology, world, box, random);
        return;
    }
    cut = 1 + world_random(random, box.shape[axis] - 1);
    box.shape[axis] = cut;
    upper.start[axis] += cut;
    upper.shape[axis] -= cut;
    split_boxes(topology, world, box, depth - 1, random);
    split_boxes(topology, world, upper, depth - 1, random);
}

struct topology *topology_create(const struct world *world, int shards, uint64_t *random)
{
    struct topology *topology = calloc(1, sizeof *topology);

    assert_non_null(topology);
    topology->shards = shards;
    for (size_t t = 0; t < world->ntensors; t++) {
        struct ckpt_piece box = {.tensor = (uint32_t)t};

        memcpy(box.shape, world->tensors[t].shape, sizeof box.shape);
        split_boxes(topology, world, box, (int)world_random(random, 4), random);
    }
    return topology;
}

void topology_destroy(struct topology *topology, const struct world *world)
{
    for (int r = 0; r < topology->shards; r++)
        for (size_t i = 0; i < topology->ranks[r].npieces * world->nkinds; i++)
            free(topology->ranks[r].data[i]);
    free(topology);
}

uint64_t world_place(const struct ckpt_tensor *tensor, const struct ckpt_piece *piece, uint64_t i)
{
    uint64_t index = piece->first + i, stride = 1, place = 0;

    for (int d = tensor->ndim - 1; d >= 0; d--) {
        place += (piece->start[d] + index % piece->shape[d]) * stride;
        index /= piece->shape[d];
        stride *= tensor->shape[d];
    }
    return place;
}

/* Any 32 bits, NaNs among them: nothing may be lost on the way. */
static uint32_t value_of(const struct world *world, uint32_t tensor, size_t kind, uint64_t place)
{
    uint64_t x = (place + 1) * 0x9e3779b97f4a7c15 ^ ((uint64_t)world->salt << 32 | tensor << 4 | kind);

    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    return (uint32_t)(x >> 32);
}

enum action { FILL, CLEAR, CHECK };

static bool for_all_values(struct topology *topology, const struct world *world, enum action action)
{
    bool right = true;

    for (int r = 0; r < topology->shards; r++)
        for (size_t p = 0; p < topology->ranks[r].npieces; p++)
            for (size_t k = 0; k < world->nkinds; k++) {
                const struct ckpt_piece *piece = &topology->ranks[r].pieces[p];
                uint32_t *data = topology->ranks[r].data[p * world->nkinds + k];

                for (uint64_t i = 0; i < piece->count; i++) {
                    uint64_t place = world_place(&world->tensors[piece->tensor], piece, i);
                    uint32_t value = value_of(world, piece->tensor, k, place);

                    if (action == CHECK)
                        right = right && data[i] == value;
                    else
                        data[i] = action == FILL ? value : ~value;
                }
            }
    return right;
}

void topology_fill(struct topology *topology, const struct world *world)
{
    for_all_values(topology, world, FILL);
}

void topology_clear(struct topology *topology, const struct world *world)
{
    for_all_values(topology, world, CLEAR);
}

bool topology_is_right(const struct topology *topology, const struct world *world)
{
    return for_all_values((struct topology *)topology, world, CHECK);
}

struct ckpt_save world_save(const struct world *world, const struct topology *topology, int shard, const char *dir,
                            uint64_t step, const char *attempt)
{
    const struct rank *rank = &topology->ranks[shard];

    return (struct ckpt_save){
        .dir = dir,
        .shard = shard,
        .shards = topology->shards,
        .tensors = world->tensors,
        .ntensors = world->ntensors,
        .kinds = world->kinds,
        .nkinds = world->nkinds,
        .pieces = rank->pieces,
        .npieces = rank->npieces,
        .sources = (const void *const *)rank->data,
        .state = {.step = step,
                  .consumed_samples = 32 * step,
                  .seed = UINT64_MAX - 5,
                  .skipped_steps = 1,
                  .skipped_in_a_row = 2,
                  .loss_scale = 1.0 / 3,
                  .loss_scale_good_steps = 999,
                  .loss_scale_hysteresis = 3,
                  .loss_mean = 0x1.23456789abcdfp1,
                  .loss_count = 4567890123456789,
                  .dp = topology->shards,
                  .tp = 1,
                  .pp = 1,
                  .zero = 2},
        .job_text = "model = \"gpt-tiny\"; # caf\xe9\n", /* not UTF-8, and that is no reason to fail */
        .attempt = attempt,
    };
}

void world_write(const struct world *world, struct topology *topology, const char *dir, uint64_t step,
                 const char *attempt)
{
    struct error err = {0};

    topology_fill(topology, world);
    for (int s = 0; s < topology->shards; s++) {
        struct ckpt_save save = world_save(world, topology, s, dir, step, attempt);

        assert_int_equal(ckpt_commit(dir, step, attempt, &err), 0);
        if (ckpt_write_shard(&save, &err) < 0)
            fail_msg("%s", err.text);
    }
    if (ckpt_commit(dir, step, attempt, &err) != 1)
        fail_msg("%s", err.text);
}

int world_read(const struct world *world, struct topology *topology, struct ckpt *ckpt, struct error *err)
{
    for (int r = 0; r < topology->shards; r++) {
        struct rank *rank = &topology->ranks[r];

        if (ckpt_read(ckpt, world->tensors, world->ntensors, world->kinds, world->nkinds, rank->pieces, rank->npieces,
                      rank->data, err) < 0)
            return -1;
    }
    return 0;
}

void world_expect(const struct world *world, struct topology *topology, const char *dir, uint64_t step)
{
    struct error err = {0};
    struct ckpt *ckpt;
    char path[512];

    ckpt_step_path(path, sizeof path, dir, step);
    ckpt = ckpt_open(path, &err);
    if (!ckpt || ckpt_verify(ckpt, 2, NULL, NULL, &err) < 0)
        fail_msg("%s", err.text);
    topology_clear(topology, world);
    if (world_read(world, topology, ckpt, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(topology_is_right(topology, world));
    ckpt_close(ckpt);
}

void scratch_create(char path[256], const char *base)
{
    const char *temporary = getenv("TMPDIR");

    snprintf(path, 256, "%s/muster-test-XXXXXX", base ? base : temporary ? temporary : "/tmp");
    assert_non_null(mkdtemp(path));
}

const char *scratch_fast(void)
{
    const char *memory = getenv("MUSTER_TEST_MEMORY");

    if (memory && *memory)
        return memory;
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : NULL;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

void scratch_destroy(const char *path)
{
    assert_int_equal(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

const char *join(char path[512], const char *a, const char *b)
{
    snprintf(path, 512, "%s/%s", a, b);
    return path;
}

int count_entries(const char *path)
{
    DIR *stream = opendir(path);
    int count = 0;

    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream));)
        count += entry->d_name[0] != '.';
    closedir(stream);
    return count;
}

void shell(const char *format, ...)
{
    char command[4096];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}
