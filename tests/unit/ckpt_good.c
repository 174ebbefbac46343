#include "tests/unit/ckpt_good.h"
#include "tests/cmocka_test.h"
#include "ckpt/format/manifest.h"

#include <sys/stat.h>

static const struct ckpt_tensor tensors[] = {
    {.name = "w", .ndim = 2, .shape = {6, 4}},
    {.name = "b", .ndim = 1, .shape = {10}},
};
static const char *const kinds[] = {"param", "exp_avg"};
static const struct ckpt_piece pieces[2][2] = {
    {{.tensor = 0, .shape = {3, 4}, .count = 12}, {.tensor = 1, .shape = {10}, .count = 5}},
    {{.tensor = 0, .start = {3, 0}, .shape = {3, 4}, .count = 12},
     {.tensor = 1, .shape = {10}, .first = 5, .count = 5}},
};

char good_base[256], good_path[512];

int good_create(void **state)
{
    float data[2][2][2][12];
    struct error err;

    scratch_create(good_base, scratch_fast());
    for (size_t i = 0; i < sizeof data / 4; i++)
        (&data[0][0][0][0])[i] = (float)i + 0.5f;
    for (int s = 0; s < 2; s++) {
        const void *sources[] = {data[s][0][0], data[s][0][1], data[s][1][0], data[s][1][1]};
        struct ckpt_save save = {.dir = good_base,
                                 .shard = s,
                                 .shards = 2,
                                 .tensors = tensors,
                                 .ntensors = 2,
                                 .kinds = kinds,
                                 .nkinds = 2,
                                 .pieces = pieces[s],
                                 .npieces = 2,
                                 .sources = sources,
                                 .state = {.step = 1, .loss_scale = 1},
                                 .job_text = "job",
                                 .attempt = "a"};

        assert_int_equal(ckpt_write_shard(&save, &err), 0);
    }
    assert_int_equal(ckpt_commit(good_base, 1, "a", &err), 1);
    ckpt_step_path(good_path, sizeof good_path, good_base, 1);
    return 0;
}

int good_destroy(void **state)
{
    scratch_destroy(good_base);
    return 0;
}

static void copy_file(const char *to, const char *name)
{
    char path[512];
    size_t bytes;
    char *data = read_file(join(path, good_path, name), &bytes);

    write_file(join(path, to, name), data, bytes);
    free(data);
}

void good_copy(const char *to)
{
    mkdir(to, 0700);
    copy_file(to, MANIFEST_NAME);
    copy_file(to, SHARD0);
    copy_file(to, SHARD1);
}

int good_load(const char *path, float out[2][34], struct error *err)
{
    struct ckpt *ckpt = ckpt_open(path, err);
    struct ckpt_piece whole[] = {{.tensor = 0, .shape = {6, 4}, .count = 24},
                                 {.tensor = 1, .shape = {10}, .count = 10}};
    void *targets[] = {out[0], out[1], out[0] + 24, out[1] + 24};
    int result = -1;

    if (ckpt && ckpt_verify(ckpt, 1, NULL, NULL, err) == 0)
        result = ckpt_read(ckpt, tensors, 2, kinds, 2, whole, 2, targets, err);
    /* A reader that does not verify first must find the same. */
    if (ckpt && result < 0 && ckpt_read(ckpt, tensors, 2, kinds, 2, whole, 2, targets, NULL) == 0)
        fail_msg("%s: ckpt_read took what ckpt_verify or the first ckpt_read refused: %s", path, err->text);
    ckpt_close(ckpt);
    return result;
}

void good_seal(const char *path, char *text, size_t bytes)
{
    char crc[9];

    snprintf(crc, sizeof crc, "%08x", manifest_crc(text, bytes));
    memcpy(text + MANIFEST_CRC_AT, crc, 8);
    write_file(path, text, bytes);
}

void good_edit(const char *path, const char *old, const char *new, bool seal)
{
    size_t bytes;
    char *text = read_file(path, &bytes), *at = strstr(text, old), *edited = malloc(bytes + strlen(new) + 1);

    if (!at || !edited)
        fail_msg("%s has no %s: %s", path, old, text);
    sprintf(edited, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    if (seal && strncmp(edited, MANIFEST_START, MANIFEST_CRC_AT) == 0)
        good_seal(path, edited, strlen(edited));
    else
        write_file(path, edited, strlen(edited));
    free(edited);
    free(text);
}
