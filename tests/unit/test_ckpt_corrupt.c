/* Broken checkpoints, made from a good one: each is refused with one line that names the file. */
#include "config.h"

#include "ckpt/format/manifest.h"
#include "tests/cmocka_test.h"
#include "tests/unit/ckpt_good.h"

#include <errno.h>
#include <jansson.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void flip(const char *dir, const char *name, long offset)
{
    char path[512];
    size_t bytes;
    char *data = read_file(join(path, dir, name), &bytes);

    data[offset < 0 ? (long)bytes + offset : offset] ^= 4;
    write_file(path, data, bytes);
    free(data);
}

static void resize(const char *dir, const char *name, long change)
{
    char path[512];
    struct stat info;

    assert_int_equal(stat(join(path, dir, name), &info), 0);
    assert_int_equal(truncate(path, change == -1000000 ? 0 : info.st_size + change), 0);
}

/* Replace the first `old` of the manifest with `new`, and seal it. */
static void edit(const char *dir, const char *old, const char *new)
{
    char path[512];

    good_edit(join(path, dir, MANIFEST_NAME), old, new, true);
}

struct damage {
    const char *name; /* of the case */
    const char *file, *says;
    const char *old, *new; /* an edit of the manifest, sealed; or NULL */
    void (*apply)(const char *dir, const struct damage *damage);
    long number;
};

static void apply_flip(const char *dir, const struct damage *damage)
{
    flip(dir, damage->file, damage->number);
}

static void apply_resize(const char *dir, const struct damage *damage)
{
    resize(dir, damage->file, damage->number);
}

static void apply_remove(const char *dir, const struct damage *damage)
{
    char path[512];

    assert_int_equal(unlink(join(path, dir, damage->file)), 0);
}

static void apply_swap(const char *dir, const struct damage *damage)
{
    char a[512], b[512], c[512];

    (void)damage;
    assert_int_equal(rename(join(a, dir, SHARD0), join(c, dir, "x")), 0);
    assert_int_equal(rename(join(b, dir, SHARD1), a), 0);
    assert_int_equal(rename(c, b), 0);
}

static void apply_fifo(const char *dir, const struct damage *damage)
{
    char path[512];

    apply_remove(dir, damage);
    assert_int_equal(mkfifo(join(path, dir, damage->file), 0600), 0);
}

static const struct damage damages[] = {
    {.name = "shard truncated", .file = SHARD1, .says = "truncated", .apply = apply_resize, .number = -4},
    {.name = "shard empty", .file = SHARD1, .says = "truncated", .apply = apply_resize, .number = -1000000},
    {.name = "shard with bytes after its end",
     .file = SHARD0,
     .says = "the manifest says",
     .apply = apply_resize,
     .number = 1},
    {.name = "bit in data",
     .file = SHARD0,
     .says = "checksum mismatch in bytes 4096 to",
     .apply = apply_flip,
     .number = 4096},
    {.name = "bit in the last byte",
     .file = SHARD1,
     .says = "checksum mismatch in bytes",
     .apply = apply_flip,
     .number = -1},
    {.name = "bit in a pad",
     .file = SHARD1,
     .says = "checksum mismatch in bytes",
     .apply = apply_flip,
     .number = 4096 + 17 * 4},
    {.name = "bit in a header",
     .file = SHARD1,
     .says = "checksum mismatch in the header",
     .apply = apply_flip,
     .number = 30},
    {.name = "bit in a header's length", .file = SHARD1, .says = "header", .apply = apply_flip, .number = 1},
    {.name = "bit in a header's padding", .file = SHARD0, .says = "header", .apply = apply_flip, .number = 4095},
    {.name = "shard missing", .file = SHARD0, .says = "No such file", .apply = apply_remove},
    {.name = "shard a fifo", .file = SHARD0, .says = "not a regular file", .apply = apply_fifo},
    {.name = "shards swapped", .file = SHARD0, .says = "checksum mismatch", .apply = apply_swap},
    {.name = "manifest missing", .file = MANIFEST_NAME, .says = "No such file", .apply = apply_remove},
    {.name = "manifest empty",
     .file = MANIFEST_NAME,
     .says = "must begin with",
     .apply = apply_resize,
     .number = -1000000},
    {.name = "manifest truncated",
     .file = MANIFEST_NAME,
     .says = "checksum mismatch",
     .apply = apply_resize,
     .number = -40},
    {.name = "manifest with a byte more",
     .file = MANIFEST_NAME,
     .says = "checksum mismatch",
     .apply = apply_resize,
     .number = 1},
    {.name = "manifest's crc wrong", .file = MANIFEST_NAME, .says = "m", .apply = apply_flip, .number = 12},
    {.name = "bit in the manifest",
     .file = MANIFEST_NAME,
     .says = "checksum mismatch",
     .apply = apply_flip,
     .number = 100},
    {.name = "path out", .old = "\"file\":\"shard", .new = "\"file\":\"../shard", .says = "\"file\" is \"../shard"},
    {.name = "absolute path", .old = SHARD1, .new = "/etc/passwd", .says = "must be \"" SHARD1 "\""},
    {.name = "shards in another order", .old = SHARD0, .new = SHARD1, .says = "must be \"" SHARD0 "\""},
    {.name = "overlap", .old = "[1,5,5]", .new = "[1,4,5]", .says = "shards 0 and 1 both have 1 of its elements"},
    {.name = "overlap of boxes",
     .old = "[0,0,12,[3,0],[3,4]]",
     .new = "[0,0,12,[2,0],[3,4]]",
     .says = "both have 4 of its"},
    {.name = "gap", .old = "[1,5,5]", .new = "[1,0,5]", .says = "\"b\": shards 0 and 1"},
    {.name = "gap that keeps the size", .old = "[\"b\",[10]]", .new = "[\"b\",[11]]", .says = "of its"},
    {.name = "piece too long", .old = "[1,5,5]", .new = "[1,5,6]", .says = "not within tensor \"b\""},
    {.name = "piece of nothing", .old = "[1,5,5]", .new = "[1,5,0]", .says = "not within tensor"},
    {.name = "piece of no tensor", .old = "[1,5,5]", .new = "[2,5,5]", .says = "piece 1 must be"},
    {.name = "piece negative", .old = "[1,5,5]", .new = "[1,-5,5]", .says = "piece 1 must be"},
    {.name = "piece huge",
     .old = "[1,5,5]",
     .new = "[1,9223372036854775807,9223372036854775807]",
     .says = "not within"},
    {.name = "piece over 64 bits", .old = "[1,5,5]", .new = "[1,18446744073709551615,5]", .says = "too big"},
    {.name = "piece a string", .old = "[1,5,5]", .new = "\"[1,5,5]\"", .says = "piece 1 must be"},
    {.name = "box outside", .old = "[3,0],[3,4]", .new = "[4,0],[3,4]", .says = "not within tensor \"w\""},
    {.name = "box of another rank", .old = "[3,0],[3,4]", .new = "[3],[3]", .says = "piece 0 must be"},
    {.name = "shape wrong", .old = "[6,4]", .new = "[6,5]", .says = "of its 30"},
    {.name = "shape zero", .old = "[6,4]", .new = "[0,4]", .says = "shape must be"},
    {.name = "shape overflows", .old = "[6,4]", .new = "[4294967296,4294967296]", .says = "shape must be"},
    {.name = "shape of five", .old = "[6,4]", .new = "[6,4,1,1,1]", .says = "shape must be 1 to 4"},
    {.name = "tensor twice", .old = "[\"b\",", .new = "[\"w\",", .says = "tensor \"w\" is given twice"},
    {.name = "kind twice", .old = "\"exp_avg\"", .new = "\"param\"", .says = "kind \"param\" is given twice"},
    {.name = "kind unknown to the shards",
     .old = "\"exp_avg\"",
     .new = "\"exp_sum\"",
     .file = SHARD0,
     .says = "no tensor \"exp_sum\""},
    {.name = "no kinds", .old = "[\"param\",\"exp_avg\"]", .new = "[]", .says = "0 kinds"},
    {.name = "size wrong",
     .old = "\"bytes\":8260",
     .new = "\"bytes\":8264",
     .says = "\"bytes\" is 8264, the pieces make 8260"},
    {.name = "size huge",
     .old = "\"bytes\":8260",
     .new = "\"bytes\":9223372036854775807",
     .says = "the pieces make 8260"},
    {.name = "size negative", .old = "\"bytes\":8260", .new = "\"bytes\":-1", .says = "\"bytes\" must be"},
    {.name = "data offset unaligned",
     .old = "\"data_offset\":4096",
     .new = "\"data_offset\":4097",
     .says = "multiple of 4096"},
    {.name = "data offset of another",
     .old = "\"bytes\":8260,\"data_offset\":4096",
     .new = "\"bytes\":12356,\"data_offset\":8192",
     .file = SHARD0,
     .says = "12356"},
    {.name = "a checksum too many",
     .old = "\"block_crc32c\":\"",
     .new = "\"block_crc32c\":\"00000000",
     .says = "2 blocks"},
    {.name = "checksum no number",
     .old = "\"block_crc32c\":\"",
     .new = "\"block_crc32c\":\"0000zzzz",
     .says = "block 0"},
    {.name = "block size", .old = "\"block_bytes\":4194304", .new = "\"block_bytes\":1", .says = "must be 4194304"},
    {.name = "more shards", .old = "\"shards\":2", .new = "\"shards\":3", .says = "\"files\" has 2, must have 3"},
    {.name = "no shards", .old = "\"shards\":2", .new = "\"shards\":0", .says = "\"shards\" is 0"},
    {.name = "a billion shards",
     .old = "\"shards\":2",
     .new = "\"shards\":1000000000",
     .says = "\"shards\" is 1000000000"},
    {.name = "another format",
     .old = "\"muster-checkpoint\"",
     .new = "\"muster-checkpoint-part\"",
     .says = "\"format\" must be"},
    {.name = "member twice", .old = "\"version\":1", .new = "\"version\":1,\"version\":1", .says = "duplicate"},
    {.name = "step negative", .old = "\"step\":1", .new = "\"step\":-1", .says = "\"step\" must be"},
    {.name = "step real", .old = "\"step\":1", .new = "\"step\":1.0", .says = "\"step\" must be"},
    {.name = "mean no number",
     .old = "\"loss_mean\":0.0",
     .new = "\"loss_mean\":\"0\"",
     .says = "\"loss_mean\" must be"},
    {.name = "hysteresis negative",
     .old = "\"loss_scale_hysteresis\":0",
     .new = "\"loss_scale_hysteresis\":-1",
     .says = "\"loss_scale_hysteresis\" must be"},
    {.name = "no JSON", .old = "}", .new = "", .says = "offset"},
};

/* Its checksum is right: not damaged, but written by another release in a format that this one does not know. */
static const struct damage unknowns[] = {
    {.name = "a later version", .old = "\"version\":1", .new = "\"version\":2", .says = "format version 2 is unknown"},
    {.name = "another format",
     .old = "\"muster-checkpoint\"",
     .new = "\"other\"",
     .says = "format \"other\" is unknown"},
    {.name = "no version", .old = "\"version\":1,", .new = "", .says = "member \"version\" is missing"},
    {.name = "member unknown",
     .old = "\"version\":1",
     .new = "\"version\":1,\"x\":1",
     .says = "member \"x\" is unknown"},
    {.name = "member renamed", .old = "\"kinds\":", .new = "\"sorts\":", .says = "member \"sorts\" is unknown"},
    {.name = "member missing", .old = "\"shards\":2,", .new = "", .says = "member \"shards\" is missing"},
    {.name = "shard with another member",
     .old = "\"block_crc32c\":\"",
     .new = "\"x\":\"\",\"block_crc32c\":\"",
     .says = "member \"x\" is unknown"},
    {.name = "shard without a member",
     .old = "\"block_bytes\":4194304,",
     .new = "",
     .says = "member \"block_bytes\" is missing"},
    {.name = "state with another member", .old = "\"dp\":0,", .new = "\"dp\":0,\"cp\":1,", .says = "member \"cp\" is"},
    {.name = "state without a member", .old = "\"dp\":0,", .new = "", .says = "member \"dp\" is missing"},
    {.name = "checksum elsewhere", .old = "{\"crc32c\":", .new = "{\"version\":2,\"sum\":", .says = "must begin with"},
};

/* The line names both releases. */
static void an_unknown_form_is_no_damage(void **state)
{
    char dir[512], where[600];
    float out[2][34];
    struct error err;

    for (size_t i = 0; i < sizeof unknowns / sizeof *unknowns; i++) {
        const struct damage *unknown = &unknowns[i];

        snprintf(dir, sizeof dir, "%.400s/unknown-%zu", good_base, i);
        good_copy(dir);
        if (strstr(unknown->new, "\"sum\"")) /* only then would the version be there twice */
            edit(dir, "\"version\":1", "\"was\":1");
        edit(dir, "\"muster\":\"", "\"muster\":\"9.");
        edit(dir, unknown->old, unknown->new);
        memset(&err, 0, sizeof err);
        assert_int_equal(good_load(dir, out, &err), -1);
        snprintf(where, sizeof where, "%s/" MANIFEST_NAME ": ", dir);
        if (err.code != CODE_CONFIG || !strstr(err.text, where) || !strstr(err.text, unknown->says) ||
            !strstr(err.text, "written by muster 9." PACKAGE_VERSION) ||
            !strstr(err.text, "this is muster " PACKAGE_VERSION ", which knows format 1"))
            fail_msg("%s: %d, \"%s\"", unknown->name, err.code, err.text);
        scratch_destroy(dir);
    }
}

static void every_damage_is_named(void **state)
{
    char dir[512];
    float out[2][34];
    struct error err;

    snprintf(dir, sizeof dir, "%.400s/control", good_base);
    good_copy(dir); /* the control: an undamaged copy loads */
    if (good_load(dir, out, &err) < 0)
        fail_msg("%s", err.text);
    scratch_destroy(dir);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const struct damage *damage = &damages[i];
        char where[600];

        snprintf(dir, sizeof dir, "%.400s/damaged-%zu", good_base, i);
        good_copy(dir);
        if (damage->old)
            edit(dir, damage->old, damage->new);
        else
            damage->apply(dir, damage);
        memset(&err, 0, sizeof err);
        if (good_load(dir, out, &err) == 0)
            fail_msg("%s: loaded", damage->name);
        snprintf(where, sizeof where, "%s/%s", dir, damage->file ? damage->file : MANIFEST_NAME);
        if (!strstr(err.text, where))
            fail_msg("%s: \"%s\" does not name %s", damage->name, err.text, where);
        if (!strstr(err.text, damage->says) || strchr(err.text, '\n'))
            fail_msg("%s: \"%s\" does not say \"%s\" in one line", damage->name, err.text, damage->says);
        if (err.code != CODE_DATA)
            fail_msg("%s: code %d", damage->name, err.code);
        scratch_destroy(dir);
    }
}

/* ---- what is no damage ------------------------------------------------------------------------------------------- */

static void link_to(const char *target, const char *dir, const char *name)
{
    char path[512];

    remove(join(path, dir, name));
    assert_int_equal(symlink(target, path), 0);
}

/* Each file may be somewhere else, and so may the directory. */
static void links_are_followed(void **state)
{
    static const char *const files[] = {SHARD0, SHARD1, MANIFEST_NAME};
    char dir[512], link[512], target[512];
    float out[2][34];
    struct error err;

    good_copy(join(dir, good_base, "linked"));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        link_to(join(target, good_path, files[i]), dir, files[i]);
    link_to("linked", good_base, "link");
    if (good_load(dir, out, &err) < 0 || good_load(join(link, good_base, "link"), out, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(unlink(link), 0);
    scratch_destroy(dir);
}

/* CODE_DATA would have the checkpoint renamed. */
static void expect_unreadable(const char *path, const char *says)
{
    float out[2][34];
    struct error err = {0};

    assert_int_equal(good_load(path, out, &err), -1);
    if (err.code != CODE_IO || !strstr(err.text, says))
        fail_msg("%s: %d, \"%s\" should say \"%s\"", path, err.code, err.text, says);
}

static void a_link_that_leads_nowhere_is_no_damage(void **state)
{
    static const char *const files[] = {SHARD0, SHARD1, MANIFEST_NAME};
    char dir[512], link[512];

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        good_copy(join(dir, good_base, "linked"));
        link_to("/not/mounted", dir, files[i]);
        expect_unreadable(dir, ", a link to /not/mounted: No such file");
        link_to(files[i], dir, files[i]);
        expect_unreadable(dir, ": Too many levels of symbolic links");
        scratch_destroy(dir);
    }
    link_to("/not/mounted", good_base, "link");
    expect_unreadable(join(link, good_base, "link"), "/link, a link to /not/mounted: No such file");
    assert_int_equal(unlink(link), 0);
}

static int allocations; /* that succeed */

static void *allocate_some(size_t bytes)
{
    if (allocations-- > 0)
        return malloc(bytes);
    errno = ENOMEM;
    return NULL;
}

/* Of the JSON: everything else is checked malloc by malloc. */
static void a_lack_of_memory_is_no_damage(void **state)
{
    float out[2][34];
    struct error err = {0};
    int fits = 0;

    json_set_alloc_funcs(allocate_some, free);
    for (allocations = 0; good_load(good_path, out, &err) < 0; allocations = ++fits)
        if (err.code != CODE_IO)
            break;
    json_set_alloc_funcs(malloc, free);
    if (err.code != CODE_IO)
        fail_msg("with %d allocations: %d, %s", fits, err.code, err.text);
    assert_true(fits > 100);
}

static void a_lack_of_descriptors_is_no_damage(void **state)
{
    float out[2][34];
    struct error err = {0};
    struct rlimit before, some;
    int refused = 0;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    some = before;
    for (some.rlim_cur = 0; setrlimit(RLIMIT_NOFILE, &some) == 0 && good_load(good_path, out, &err) < 0;
         some.rlim_cur++, refused++)
        if (err.code != CODE_IO)
            break;
    setrlimit(RLIMIT_NOFILE, &before);
    if (err.code != CODE_IO)
        fail_msg("with %ju descriptors: %d, %s", (uintmax_t)some.rlim_cur, err.code, err.text);
    assert_true(refused > 2);
}

/* The first manifests had nine members of state; the later five come together or not at all. */
static void state_of_an_early_manifest_has_defaults(void **state)
{
    static const char later[] = ",\"skipped_in_a_row\":0";
    static const char scale[] =
        ",\"loss_scale_good_steps\":0,\"loss_scale_hysteresis\":0,\"loss_mean\":0.0,\"loss_count\":0";
    const struct ckpt_progress expected = {.step = 1, .loss_scale = 1};
    struct error err;
    struct ckpt *ckpt;
    float out[2][34];
    char dir[512];

    snprintf(dir, sizeof dir, "%.400s/early", good_base);
    good_copy(dir);
    edit(dir, later, "");
    assert_int_equal(good_load(dir, out, &err), -1);
    assert_non_null(strstr(err.text, "state: member \"skipped_in_a_row\" is missing"));
    edit(dir, scale, "");
    if (good_load(dir, out, &err) < 0)
        fail_msg("%s", err.text);
    ckpt = ckpt_open(dir, &err);
    assert_non_null(ckpt);
    assert_memory_equal(ckpt_progress(ckpt), &expected, sizeof expected);
    ckpt_close(ckpt);
    scratch_destroy(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_damage_is_named),
        cmocka_unit_test(links_are_followed),
        cmocka_unit_test(a_link_that_leads_nowhere_is_no_damage),
        cmocka_unit_test(a_lack_of_memory_is_no_damage),
        cmocka_unit_test(a_lack_of_descriptors_is_no_damage),
        cmocka_unit_test(an_unknown_form_is_no_damage),
        cmocka_unit_test(state_of_an_early_manifest_has_defaults),
    };

    return cmocka_run_group_tests(tests, good_create, good_destroy);
}
