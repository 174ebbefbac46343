/* The copy of the machine that slurmd saves: equal to a new reading, and refused if others could have written it. */
#include <sys/stat.h>
#include <unistd.h>

#include "srun-plugin/node/machine.h"
#include "srun-plugin/node/node_impl.h"
#include "srun-plugin/node/sysfs.h"
#include "tests/cmocka_test.h"

static char base[] = "/tmp/muster-cache-XXXXXX", dir[64], file[256];

static int set_up(void **state)
{
    char boot[64];

    if (!mkdtemp(base) || !sysfs_line("/", boot, sizeof boot, "proc/sys/kernel/random/boot_id"))
        return -1;
    snprintf(dir, sizeof dir, "%s/muster", base);
    snprintf(file, sizeof file, "%s/machine-%s", dir, boot);
    return 0;
}

static int tear_down(void **state)
{
    unlink(file);
    rmdir(dir);
    return rmdir(base);
}

static void write_now(void)
{
    struct error err = {0};

    if (machine_cache_write(dir, &err) < 0)
        fail_msg("%s", err.text);
}

static void same_numas(const struct node *a, const struct node *b)
{
    assert_int_equal(a->numa_count, b->numa_count);
    for (size_t i = 0; i < a->numa_count; i++) {
        assert_int_equal(a->numas[i].os_index, b->numas[i].os_index);
        assert_int_equal(a->numas[i].package, b->numas[i].package);
        assert_true(a->numas[i].memory == b->numas[i].memory);
        assert_true(cpus_equal(&a->numas[i].cpus, &b->numas[i].cpus));
    }
}

static void it_equals_a_new_reading(void **state)
{
    struct node looked = {0}, cached = {0};
    struct error err = {0};
    char *now, *kept;

    write_now();
    write_now(); /* slurmd starts again */
    assert_non_null(kept = slurmd_cache_read(dir, MACHINE_CACHE));
    assert_non_null(now = machine_read(NULL, &err));
    assert_string_equal(kept, now);
    assert_int_equal(node_read_text(&looked, now), 0);
    assert_int_equal(node_read_text(&cached, kept), 0);
    assert_in_range(looked.core_count, 1, CPUS_MAX);
    assert_int_equal(cached.core_count, looked.core_count);
    assert_memory_equal(cached.cores, looked.cores, looked.core_count * sizeof *looked.cores);
    same_numas(&cached, &looked);
    assert_int_equal(cached.gpu_count, looked.gpu_count);
    assert_true(cpus_equal(&cached.cpus, &looked.cpus));
    assert_int_equal(cpus_count(&cached.cpus), sysconf(_SC_NPROCESSORS_CONF));
    free(now);
    free(kept);
    node_clear(&looked);
    node_clear(&cached);
}

/* A hypervisor's and a host's names, and DMIProductSerial, which is root's to read; everybody reads the file. */
static void it_tells_no_names(void **state)
{
    char *text, *line, *rest;
    struct stat status;

    write_now();
    assert_non_null(text = slurmd_cache_read(dir, MACHINE_CACHE));
    for (rest = text; (line = strsep(&rest, "\n")) && line[0];)
        if (strcmp(line, MACHINE_FORM) != 0 && strcmp(line, "end") != 0) {
            size_t word = strcspn(line, " "), values = strspn(line + word, " 0123456789abcdef,:.-");

            assert_true(line[word + values] == '\0' || strncmp(line, "bridge ", 7) == 0);
        }
    assert_int_equal(stat(file, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0644);
    free(text);
}

static void nobody_else_may_write_it(void **state)
{
    struct error err = {0};
    char *text;

    write_now();
    assert_int_equal(chmod(file, 0666), 0);
    assert_null(slurmd_cache_read(dir, MACHINE_CACHE));
    assert_int_equal(chmod(file, 0644), 0);
    assert_int_equal(chmod(dir, 0777), 0);
    assert_null(slurmd_cache_read(dir, MACHINE_CACHE));
    assert_int_equal(machine_cache_write(dir, &err), -1);
    assert_int_equal(err.code, CODE_IO);
    assert_non_null(strstr(err.text, dir));
    assert_int_equal(chmod(dir, 0755), 0);
    assert_non_null(text = slurmd_cache_read(dir, MACHINE_CACHE));
    free(text);
}

/* GPUs are drained and unplugged while a machine runs. */
static void a_gpu_that_is_gone_is_told(void **state)
{
    struct node_gpu gpu = {.address = "ffff:ff:1f.7", .numa = -1};
    struct node node = {.gpus = &gpu, .gpu_count = 1};

    node_check_gone(&node);
    assert_int_equal(gpu.state, GPU_LOST);
    assert_int_equal(node.problem_count, 1);
    assert_non_null(strstr(node.problems[0], "ffff:ff:1f.7"));
    node.gpus = NULL;
    node_clear(&node);
}

/* A link that another user laid there, a file that was cut short, and one of another boot. */
static void what_is_no_cache_is_not_read(void **state)
{
    struct node node = {0};
    char *text;

    write_now();
    assert_non_null(text = slurmd_cache_read(dir, MACHINE_CACHE));
    assert_int_equal(truncate(file, (off_t)strlen(text) / 2), 0);
    free(text);
    assert_non_null(text = slurmd_cache_read(dir, MACHINE_CACHE));
    assert_int_equal(node_read_text(&node, text), -1);
    free(text);
    assert_int_equal(unlink(file), 0);
    assert_null(slurmd_cache_read(dir, MACHINE_CACHE));
    assert_int_equal(symlink("/etc/passwd", file), 0);
    assert_null(slurmd_cache_read(dir, MACHINE_CACHE));
    assert_null(slurmd_cache_read("/nowhere", MACHINE_CACHE));
}

/* Each line that cannot be right makes a text none, and leaves nothing of those before it. */
static void a_broken_text_is_none(void **state)
{
#define BEGIN MACHINE_FORM "\nallowed 0-1\ncpus 0-1\nnuma 0 0 1000 0-1\ncore 0\ncore 1\n"
    static const char *const broken[] = {
        "",
        "\n",
        "muster-machine 2\ncore 0\nend\n",
        MACHINE_FORM "\nend\n",
        BEGIN,
        BEGIN "en",
        BEGIN "core x\nend\n",
        BEGIN "core 0-\nend\n",
        BEGIN "core 4096\nend\n",
        BEGIN "numa 0 0\nend\n",
        BEGIN "numa 0 0 1000\nend\n",
        BEGIN "cores 0\nend\n",
        BEGIN "\nend\n",
        BEGIN "bridge 0 host\nend\n",
        BEGIN "bridge -2 host\nend\n",
        BEGIN "bridge -1 isa\nend\n",
        BEGIN "bridge -1 host\ndevice 1 0 0302 10de:20b0 0000:07:00.0\nend\n",
        BEGIN "bridge -1 host\ndevice 0 1 0302 10de:20b0 0000:07:00.0\nend\n",
        BEGIN "bridge -1 host\ndevice 0 0 0302 10de:20b0\nend\n",
    };
    static const char good[] = BEGIN "bridge -1 host\ndevice 0 0 0302 10de:20b0 0000:07:00.0\nend\n";
    struct node node = {0};
    char text[512];

    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        snprintf(text, sizeof text, "%s", broken[i]);
        if (node_read_text(&node, text) == 0)
            fail_msg("number %zu is one: %s", i, broken[i]);
        assert_int_equal(node.core_count + node.numa_count + node.gpu_count + cpus_count(&node.cpus), 0);
    }
    snprintf(text, sizeof text, "%s", good);
    assert_int_equal(node_read_text(&node, text), 0);
    assert_int_equal(node.gpu_count, 1);
    assert_string_equal(node.gpus[0].address, "0000:07:00.0");
    assert_int_equal(node_find_numa(&node, "0000:07:00.0"), 0);
    node_clear(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_equals_a_new_reading),      cmocka_unit_test(it_tells_no_names),
        cmocka_unit_test(nobody_else_may_write_it),     cmocka_unit_test(a_gpu_that_is_gone_is_told),
        cmocka_unit_test(what_is_no_cache_is_not_read), cmocka_unit_test(a_broken_text_is_none),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
