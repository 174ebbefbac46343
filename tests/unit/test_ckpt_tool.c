/* muster-ckpt as its user sees it: output and exit codes. And shards as Python sees them. */
#include "tests/cmocka_test.h"
#include "tests/unit/test_ckpt_world.h"

#include <isa-l/crc.h>
#include <jansson.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct world world;
static struct topology *one, *four;
static char dir[256];

static int make(void **state)
{
    char path[512];
    uint64_t random = 31;

    scratch_create(dir, scratch_fast());
    world_create(&world, &random, false);
    one = topology_create(&world, 1, &random);
    four = topology_create(&world, 4, &random);
    world_write(&world, one, join(path, dir, "a"), 10, "4711.0.1");
    world_write(&world, four, path, 20, "4711.0.2");
    world_write(&world, four, join(path, dir, "b"), 10, "4712.0.1");
    return 0;
}

static int unmake(void **state)
{
    topology_destroy(one, &world);
    topology_destroy(four, &world);
    scratch_destroy(dir);
    return 0;
}

/* Run a command line in `dir`; what it prints on either stream is in `output`. Returns its exit code. */
static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...)
{
    char inner[2048], absolute[4096];
    va_list args;

    va_start(args, format);
    vsnprintf(inner, sizeof inner, format, args);
    va_end(args);
    assert_non_null(realpath(built_program("muster-ckpt"), absolute));
    return run_shell("muster() { %s \"$@\"; }; cd %s && %s", absolute, dir, inner);
}

static int lines(void)
{
    int count = 0;

    for (const char *at = output; *at; at++)
        count += *at == '\n';
    return count;
}

static void help_and_usage(void **state)
{
    assert_int_equal(run("muster --help"), 0);
    says("verify PATH");
    assert_int_equal(run("muster --version"), 0);
    assert_int_equal(lines(), 1);
    assert_int_equal(run("muster 2>&1"), 64);
    says("a command is needed");
    assert_int_equal(run("muster mend a 2>&1"), 64);
    says("no such command: mend");
    assert_int_equal(run("muster diff a 2>&1"), 64);
    says("diff: takes two paths");
    assert_int_equal(run("muster verify --threads=0 a 2>&1"), 64);
    assert_int_equal(run("muster list --wrong a 2>&1"), 64);
    assert_int_equal(run("muster export --format gguf a out 2>&1"), 64);
    says("export --format gguf: the only format is hf");
    assert_int_equal(run("muster export nothing out 2>&1"), 65); /* the format need not be given */
    says("nothing: No such file");
}

static void list_and_show(void **state)
{
    json_t *json;

    assert_int_equal(run("muster list a"), 0);
    assert_int_equal(lines(), 3);
    says("dp 4 x tp 1 x pp 1, ZeRO 2");
    assert_int_equal(run("muster list --json a"), 0);
    json = json_loads(output, 0, NULL);
    assert_int_equal(json_array_size(json), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(json, 0), "step")), 20);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json, 1), "attempt")), "4711.0.1");
    json_decref(json);
    assert_int_equal(run("muster show a"), 0); /* the newest */
    says("a/step-00000020\n");
    says("seed              18446744073709551610\n");
    says("in 4 shards");
    assert_int_equal(run("muster show --tensors a/step-00000010/"), 0);
    says("h.0.weight");
    says("in 1 shard\n");
    assert_int_equal(run("muster show --job a"), 0);
    assert_string_equal(output, "model = \"gpt-tiny\"; # caf?\n");
    assert_int_equal(run("muster show --json a"), 0);
    json = json_loads(output, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "tensors")), world.ntensors);
    json_decref(json);
    assert_int_equal(run("muster list nowhere 2>&1"), 65);
    says("nowhere: No such file or directory");
    assert_int_equal(run("muster show nowhere 2>&1"), 65);
    says("nowhere: No such file or directory");
    assert_int_equal(run("muster list a/step-00000010 2>&1"), 65);
    says("muster-ckpt: a/step-00000010: holds no checkpoints (no step-* in it)\n");
    assert_int_equal(run("mkdir empty; muster list --json empty"), 0);
    says("[]\n");
    assert_int_equal(run("touch file; muster list file 2>&1"), 65);
    says("file: not a directory");
    assert_int_equal(run("ln -s a \"$(printf 'caf\\351')\" && muster list --json \"$(printf 'caf\\351')\""), 0);
    says("\"caf?/step-00000020\"");
    assert_int_equal(run("mkdir -p empty; muster show empty 2>&1"), 65);
    says("empty: no checkpoint");
    assert_int_equal(run("muster show a >/dev/full 2>&1"), 74);
}

/* l/step-10: its shard on another file system; l/step-20: all of it; m: a directory of them; l/step-30: not mounted. */
static void links_are_followed(void **state)
{
    assert_int_equal(
        run("mkdir l away; cp -r a/step-00000010 l; mv l/step-00000010/shard* away; "
            "ln -s ../../away/shard-00000-of-00001.safetensors l/step-00000010; cp -r a/step-00000020 away; "
            "ln -s ../away/step-00000020 l/step-00000020; ln -s l m"),
        0);
    assert_int_equal(run("muster list m && muster verify --all m && muster show m"), 0);
    says("m/step-00000020: whole, ");
    says("m/step-00000010: whole, ");
    says("in 4 shards");
    assert_int_equal(run("muster diff m/step-00000010 l/step-00000020"), 1);
    assert_int_equal(run("muster diff l/step-00000020 a"), 0);
}

/* It is not mounted, maybe: it is neither removed nor broken. */
static void a_link_that_leads_nowhere_is_named(void **state)
{
    assert_int_equal(run("ln -s /not/mounted l/step-00000030; muster list l"), 0);
    says("        30  unreadable: l/step-00000030, a link to /not/mounted: No such file or directory\n");
    assert_int_equal(run("muster list --json l | grep unreadable"), 0);
    assert_int_equal(run("muster show l 2>&1"), 74);
    assert_int_equal(run("muster verify --all l 2>&1"), 74);
    says("l/step-00000030, a link to /not/mounted: No such");
    assert_int_equal(run("mkdir n; ln -s /not/mounted n/manifest.json; muster show n 2>&1"), 74);
    says("n/manifest.json, a link to /not/mounted: No such");
    assert_int_equal(run("ln -s /not/mounted o; muster list o 2>&1"), 74);
    says("muster-ckpt: o, a link to /not/mounted: No such");
    assert_int_equal(run("muster rm l/step-00000030 2>&1"), 74);
    says("cannot tell whether it is whole (--force removes it): l/step-00000030, a link to");
    assert_int_equal(run("muster rm --force l/step-00000030; test ! -L l/step-00000030"), 0);
}

static void the_link_is_removed_and_not_what_it_points_to(void **state)
{
    assert_int_equal(run("cp -r l p; muster prune --keep 1 p"), 0);
    assert_string_equal(output, "p: removed step 10\n");
    assert_int_equal(run("cp -r a/step-00000010 p; muster rm p/step-00000020 p/step-00000010 2>&1"), 64);
    says("p/step-00000010 is the last whole");
    assert_int_equal(run("ls away; ls -A p/.trash; muster verify away/step-00000020"), 0);
    says("shard-00000-of-00001.safetensors\nstep-00000020\naway/step-00000020: whole");
}

static void verify_and_diff(void **state)
{
    assert_int_equal(run("muster verify a 2>&1"), 0);
    says("a/step-00000020: whole, ");
    assert_int_equal(lines(), 1);
    assert_int_equal(run("muster verify --all -j 2 a"), 0);
    assert_int_equal(lines(), 2);
    assert_int_equal(run("muster diff a/step-00000010 b"), 0);
    assert_string_equal(output, "");
    assert_int_equal(run("muster diff a b"), 1);
    assert_string_equal(output, "state step: 20 and 10\nstate consumed_samples: 640 and 320\n");
    assert_int_equal(run("muster diff a nowhere 2>&1"), 65);
    /* One byte in the middle of a shard of the newer checkpoint. */
    assert_int_equal(run("printf X | dd of=a/step-00000020/shard-00003-of-00004.safetensors bs=1 seek=4099 "
                         "conv=notrunc 2>/dev/null"),
                     0);
    assert_int_equal(run("muster verify a 2>&1"), 65);
    assert_int_equal(lines(), 1);
    says("muster-ckpt: a/step-00000020/shard-00003-of-00004.safetensors: checksum mismatch in bytes 4096 to ");
    assert_int_equal(run("muster verify --all a 2>&1"), 65);
    says("a/step-00000010: whole");
    assert_int_equal(run("rm a/step-00000020/manifest.json && muster list a"), 0);
    says("broken: a/step-00000020/manifest.json");
    assert_int_equal(run("muster verify a 2>&1"), 65);
}

static void verify_and_diff_in_json(void **state)
{
    char path[512];
    json_t *json;

    assert_int_equal(run("rm -rf j; cp -r b j"), 0);
    world_write(&world, four, join(path, dir, "j"), 20, "4712.0.1");
    assert_int_equal(run("muster verify --all --json j 2>&1"), 0);
    json = json_loads(output, 0, NULL);
    assert_int_equal(json_array_size(json), 2);
    assert_true(json_is_true(json_object_get(json_array_get(json, 0), "whole")));
    assert_true(json_integer_value(json_object_get(json_array_get(json, 1), "bytes")) > 4096);
    json_decref(json);
    assert_int_equal(
        run("printf X | dd of=j/step-00000010/shard-00003-of-00004.safetensors bs=1 seek=4099 conv=notrunc "
            "2>/dev/null; muster verify --json j/step-00000010 2>/dev/null"),
        65);
    json = json_loads(output, 0, NULL);
    assert_true(json_is_false(json_object_get(json_array_get(json, 0), "whole")));
    assert_non_null(strstr(json_string_value(json_object_get(json_array_get(json, 0), "broken")), "checksum mismatch"));
    json_decref(json);
    assert_int_equal(run("muster diff --json a/step-00000010 b"), 0);
    assert_string_equal(output, "[]\n");
    assert_int_equal(run("muster diff --json a b"), 1);
    json = json_loads(output, 0, NULL);
    assert_int_equal(json_array_size(json), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json, 0), "kind")), "step");
    json_decref(json);
}

/* `r` holds steps 10, 20, 30, 40 and 50, of which 40 is broken. */
static void make_five(void)
{
    char path[512];

    assert_int_equal(run("rm -rf r"), 0);
    for (uint64_t step = 10; step <= 50; step += 10)
        world_write(&world, four, join(path, dir, "r"), step, "4712.0.1");
    assert_int_equal(run("rm r/step-00000040/shard-00001-of-00004.safetensors"), 0);
}

static void left_are(const char *steps)
{
    assert_int_equal(run("cd r && echo step-*"), 0);
    assert_string_equal(output, steps);
}

static void pruning(void **state)
{
    make_five();
    assert_int_equal(run("muster prune r 2>&1"), 64);
    says("missing --keep N");
    assert_int_equal(run("muster prune --keep 0 r 2>&1"), 64);
    assert_int_equal(run("muster prune --keep 2 --keep-every 20 r"), 0);
    assert_string_equal(output, "r: removed step 10\n");
    left_are("step-00000020 step-00000030 step-00000040 step-00000050\n");
    assert_int_equal(run("cp -r r other && muster prune --keep 1 --keep-every 15 other"), 0);
    assert_string_equal(output, "other: removed step 40\n"); /* broken; 20 is the first after 15 */
    assert_int_equal(run("muster prune --keep 2 r"), 0);
    left_are("step-00000030 step-00000040 step-00000050\n");
    assert_int_equal(run("muster prune --keep 1 r; ls -A r/.trash"), 0);
    assert_string_equal(output, "r: removed step 40\nr: removed step 30\n"); /* and nothing is left in .trash */
    assert_int_equal(run("muster prune --keep 1 nowhere 2>&1"), 65);
}

static void removing(void **state)
{
    make_five();
    assert_int_equal(
        run("muster rm r/step-00000010 r/step-00000020/ r/step-00000040 && cd r && muster rm step-00000030"), 0);
    left_are("step-00000050\n");
    assert_int_equal(run("muster rm r/step-00000050 2>&1"), 64);
    says("is the last whole checkpoint");
    assert_int_equal(run("cp -r r/step-00000050 r/step-00000060; rm r/step-00000060/manifest.json; "
                         "muster rm r/step-00000050 2>&1"),
                     64); /* the other one is broken */
    assert_int_equal(run("muster rm r/step-00000060"), 0);
    assert_int_equal(run("muster rm r/step-00000070 2>&1"), 65);
    assert_int_equal(run("touch r/keep; muster rm r/keep 2>&1; muster rm r/.. 2>&1; muster rm --force r 2>&1"), 64);
    assert_int_equal(run("test -e r/keep"), 0);
    assert_int_equal(run("mv r/step-00000050 r/step-00000055; muster verify r/step-00000055 2>&1"), 65);
    says("has step 50, its directory's name has another");
    assert_int_equal(run("mv r/step-00000055 r/step-00000050; ln -s ../b/step-00000010 r/step-00000080 && muster rm "
                         "--force r/step-00000080 && "
                         "muster verify b/step-00000010"),
                     0); /* the link goes, not what it points to */
    assert_int_equal(run("muster rm --force r/step-00000050"), 0);
    left_are("step-*\n");
}

static void conversions_say_what_they_need(void **state)
{
    assert_int_equal(run("muster reshard b c 2>&1"), 64);
    says("--to dp=4");
    assert_int_equal(run("muster reshard --to dp=4,tp b c 2>&1"), 64);
    assert_int_equal(run("muster reshard --to dp=0 b c 2>&1"), 64);
    assert_int_equal(run("muster reshard --to dp=2 b c 2>&1"), 65);
    says("its model is not known: its job file:1: "); /* the toy world's has no model */
    assert_int_equal(run("muster export --format hf --dtype int8 b c 2>&1"), 64);
    assert_int_equal(run("muster export --format hf --shard-size 5parsecs b c 2>&1"), 64);
    assert_int_equal(run("muster import --format hf nowhere c 2>&1"), 65);
    assert_int_equal(run("test -e c"), 1);
}

/*
 * Names, shapes and data of a shard by Python's `safetensors`, or by an independent parser where that is not installed.
 */
static void python_reads_a_shard(void **state)
{
    const char *source = getenv("top_srcdir");
    char script[4096], relative[512], expected[256];

    if (system("python3 -c '' 2>/dev/null") != 0) {
        print_message("# no python3\n");
        skip();
    }
    snprintf(relative, sizeof relative, "%s/tests/interop/safetensors.py", source ? source : "..");
    assert_non_null(realpath(relative, script));
    topology_fill(one, &world);
    assert_int_equal(run("python3 %s a/step-00000010/shard-00000-of-00001.safetensors 2>&1", script), 0);
    print_message("# %.*s\n", (int)strcspn(output, "\n"), output);
    for (size_t k = 0; k < world.nkinds; k++) {
        uint64_t elements = 0;
        uint32_t crc = 0;

        for (size_t p = 0; p < one->ranks[0].npieces; p++) {
            uint64_t count = one->ranks[0].pieces[p].count;

            crc = crc32_gzip_refl(crc, one->ranks[0].data[p * world.nkinds + k], count * 4);
            elements += count;
        }
        snprintf(expected, sizeof expected, "%s F32 [%llu] %08x\n", world.kinds[k], (unsigned long long)elements, crc);
        says(expected);
    }
    assert_int_equal(run("printf x >>a/step-00000010/shard-00000-of-00001.safetensors; "
                         "python3 %s a/step-00000010/shard-00000-of-00001.safetensors 2>&1",
                         script),
                     65);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_and_usage),
        cmocka_unit_test(list_and_show),
        cmocka_unit_test(links_are_followed),
        cmocka_unit_test(a_link_that_leads_nowhere_is_named),
        cmocka_unit_test(the_link_is_removed_and_not_what_it_points_to),
        cmocka_unit_test(verify_and_diff_in_json),
        cmocka_unit_test(pruning),
        cmocka_unit_test(removing),
        cmocka_unit_test(conversions_say_what_they_need),
        cmocka_unit_test(verify_and_diff),
        cmocka_unit_test(python_reads_a_shard),
    };

    return cmocka_run_group_tests(tests, make, unmake);
}
