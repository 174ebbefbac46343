/* What slurmd leaves of hwloc's view: the same as a look, and of nobody else's making. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "srun-plugin/machine_cache.h"
#include "srun-plugin/node_impl.h"
#include "srun-plugin/sysfs.h"

static char base[] = "/tmp/muster-cache-XXXXXX", dir[64], file[256];

static int set_up(void **state)
{
    char boot[64];

    (void)state;
    if (!mkdtemp(base) || !sysfs_line("/", boot, sizeof boot, "proc/sys/kernel/random/boot_id"))
        return -1;
    snprintf(dir, sizeof dir, "%s/muster", base);
    snprintf(file, sizeof file, "%s/machine-%s.xml", dir, boot);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
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

static void it_says_what_a_look_says(void **state)
{
    struct node looked = {0}, cached = {0};
    struct node_tree *look = NULL, *cache = NULL;
    struct error err = {0};
    char *text;

    (void)state;
    write_now();
    write_now(); /* slurmd starts again */
    assert_non_null(text = machine_cache_read(dir));
    assert_int_equal(node_tree_open(&looked, &look, "/", NULL, &err), 0);
    assert_int_equal(node_tree_parse(&cached, &cache, text), 0);
    assert_int_equal(node_read_cores(&looked, look) | node_read_gpus(&looked, look), 0);
    assert_int_equal(node_read_cores(&cached, cache) | node_read_gpus(&cached, cache), 0);
    assert_in_range(looked.core_count, 1, CPUS_MAX);
    assert_int_equal(cached.core_count, looked.core_count);
    assert_memory_equal(cached.cores, looked.cores, looked.core_count * sizeof *looked.cores);
    assert_int_equal(cached.numa_count, looked.numa_count);
    for (size_t i = 0; i < looked.numa_count; i++) {
        assert_int_equal(cached.numas[i].package, looked.numas[i].package);
        assert_true(cached.numas[i].memory == looked.numas[i].memory);
        assert_true(cpus_equal(&cached.numas[i].cpus, &looked.numas[i].cpus));
    }
    assert_int_equal(cached.gpu_count, looked.gpu_count);
    assert_true(cpus_equal(&cached.cpus, &looked.cpus));
    free(text);
    node_tree_close(look);
    node_tree_close(cache);
    node_clear(&looked);
    node_clear(&cached);
}

/* DMIProductSerial and its like are root's to read; everybody reads the file. */
static void it_tells_no_serial_numbers(void **state)
{
    char *text, *at;
    struct stat status;

    (void)state;
    write_now();
    assert_non_null(text = machine_cache_read(dir));
    for (at = text; (at = strstr(at, "name=\"DMI")); at++)
        assert_memory_equal(strstr(at, "value="), "value=\"\"", 8);
    assert_int_equal(stat(file, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0644);
    free(text);
}

static void nobody_else_may_write_it(void **state)
{
    struct error err = {0};
    char *text;

    (void)state;
    write_now();
    assert_int_equal(chmod(file, 0666), 0);
    assert_null(machine_cache_read(dir));
    assert_int_equal(chmod(file, 0644), 0);
    assert_int_equal(chmod(dir, 0777), 0);
    assert_null(machine_cache_read(dir));
    assert_int_equal(machine_cache_write(dir, &err), -1);
    assert_int_equal(err.code, CODE_IO);
    assert_non_null(strstr(err.text, dir));
    assert_int_equal(chmod(dir, 0755), 0);
    assert_non_null(text = machine_cache_read(dir));
    free(text);
}

/* GPUs are drained and unplugged while a machine runs. */
static void a_gpu_that_is_gone_is_told(void **state)
{
    struct node_gpu gpu = {.address = "ffff:ff:1f.7", .numa = -1};
    struct node node = {.gpus = &gpu, .gpu_count = 1};

    (void)state;
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
    struct node_tree *tree;
    char *text;

    (void)state;
    write_now();
    assert_non_null(text = machine_cache_read(dir));
    assert_int_equal(truncate(file, (off_t)strlen(text) / 2), 0);
    free(text);
    assert_non_null(text = machine_cache_read(dir));
    assert_int_equal(node_tree_parse(&node, &tree, text), -1);
    free(text);
    assert_int_equal(unlink(file), 0);
    assert_null(machine_cache_read(dir));
    assert_int_equal(symlink("/etc/passwd", file), 0);
    assert_null(machine_cache_read(dir));
    assert_null(machine_cache_read("/nowhere"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_a_look_says),     cmocka_unit_test(it_tells_no_serial_numbers),
        cmocka_unit_test(nobody_else_may_write_it),     cmocka_unit_test(a_gpu_that_is_gone_is_told),
        cmocka_unit_test(what_is_no_cache_is_not_read),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
