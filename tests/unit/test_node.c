/*
 * Replayed machines: what is seen of each and how eight ranks or so are bound on it is expected.txt beside its
 * description. To renew one after a wanted change, look at the difference first:
 *
 *     tests/fixtures/make-machines tests/fixtures/machines/NAME/machine DIR && muster-topo node DIR
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>

#include "srun-plugin/node/bind.h"
#include "srun-plugin/topo/muster_topo.h"
#include "srun-plugin/node/sysfs.h"
#include "tests/unit/machines.h"
#include "tests/unit/test_files.h"

/* What `muster-topo node ROOT` prints; the caller frees it. */
static char *describe(const char *root)
{
    struct error err = {0};
    struct node *node = node_read(root, NULL, &err);
    struct binding *binding;
    size_t size, ranks;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);

    if (!node)
        fail_msg("%s: %s", root, err.text);
    ranks = node_usable_gpus(node, NULL) ? node_usable_gpus(node, NULL) : node->numa_count;
    binding = binding_create(node, &(struct bind_request){.local_ranks = ranks ? (unsigned)ranks : 1}, &err);
    assert_non_null(binding);
    node_report(node, out);
    fputc('\n', out);
    bind_report(node, binding, out);
    fclose(out);
    binding_destroy(binding);
    node_destroy(node);
    return text;
}

static void test_machines(void **state)
{
    size_t count = 0;

    for (char **name = machines_names(); *name; name++, count++) {
        char *text = describe(machines_snapshot(*name)), *expected = machines_file(*name, "expected.txt");

        if (!expected)
            fail_msg("%s has no expected.txt", *name);
        if (strcmp(text, expected) != 0)
            fail_msg("%s is now\n%s", *name, text);
        free(expected);
        free(text);
    }
    assert_in_range(count, 14, 1000);
}

/* A snapshot of a snapshot says the same, and so does one of this machine. */
static void test_save(void **state)
{
    for (char **name = machines_names(); *name; name++) {
        char saved[PATH_MAX], *before = describe(machines_snapshot(*name)), *after;
        struct error err;

        snprintf(saved, sizeof saved, "%s-saved", machines_snapshot(*name));
        if (snapshot_save(machines_snapshot(*name), saved, &err) < 0)
            fail_msg("%s: %s", *name, err.text);
        after = describe(saved);
        assert_string_equal(after, before);
        assert_int_equal(snapshot_save("/", saved, &err), -1); /* not empty */
        assert_non_null(strstr(err.text, "not empty"));
        free(before);
        free(after);
    }
}

/* node_gid_index reads the GIDs of RoCE ports: those in use are saved, the others not. */
static void test_save_gids(void **state)
{
    static const char port[] = "sys/class/infiniband/mlx5_0/ports/1";
    char saved[PATH_MAX], line[64];

    snprintf(saved, sizeof saved, "%s", machines_snapshot("hgx-roce-saved"));
    assert_true(sysfs_line(saved, line, sizeof line, "%s/gids/3", port));
    assert_string_equal(line, "0000:0000:0000:0000:0000:ffff:0a0a:0001");
    assert_true(sysfs_line(saved, line, sizeof line, "%s/gid_attrs/types/3", port));
    assert_string_equal(line, "RoCE v2");
    assert_true(sysfs_exists(machines_snapshot("hgx-roce"), "%s/gids/4", port));
    assert_false(sysfs_exists(saved, "%s/gids/4", port));
}

/* Memory that is free changes while we look, so only what stays is compared. */
static void test_live(void **state)
{
    struct error err = {0};
    const char *saved = machines_scratch("live");
    struct node *live = node_read("/", NULL, &err), *replayed;

    if (!live)
        fail_msg("%s", err.text);
    assert_true(live->core_count > 0);
    assert_in_range(live->core_count, 1, CPUS_MAX);
    assert_in_range(cpus_count(&live->allowed), 1, CPUS_MAX);
    assert_in_range(live->memory_total, 1 << 20, UINT64_MAX);
    if (snapshot_save("/", saved, &err) < 0 || !(replayed = node_read(saved, NULL, &err)))
        fail_msg("%s", err.text);
    assert_int_equal(replayed->core_count, live->core_count);
    assert_int_equal(replayed->gpu_count, live->gpu_count);
    assert_int_equal(replayed->nic_count, live->nic_count);
    assert_true(cpus_equal(&replayed->allowed, &live->allowed));
    assert_true(cpus_equal(&replayed->cpus, &live->cpus));
    node_destroy(live);
    node_destroy(replayed);
}

static bool has_rdma(const struct node *node)
{
    return node->nic_count && node->nics[0].kind < NIC_ETHERNET; /* they are sorted by kind */
}

static void plain_interfaces_are_read_where_they_matter(void **state)
{
    int left_out = 0;

    for (char **name = machines_names(); *name; name++) {
        struct error err;
        struct node *node = node_read(machines_snapshot(*name), NULL, &err);
        struct node *bare = node_read_bare(machines_snapshot(*name), NULL, false, &err);
        bool matter = node && (node->gpu_count || has_rdma(node));

        if (!node || !bare)
            fail_msg("%s: %s", *name, err.text);
        assert_int_equal(bare->nic_count, matter ? node->nic_count : 0);
        left_out += !matter;
        node_destroy(node);
        node_destroy(bare);
    }
    assert_in_range(left_out, 2, 18);
}

/* One line of `addresses`, as getifaddrs has it; false for what is no IP address. */
static bool line_of(const struct ifaddrs *item, char *line, size_t size)
{
    char host[INET6_ADDRSTRLEN];
    const uint8_t *mask;
    const void *bytes;
    unsigned bits = 0, length;

    if (!item->ifa_addr || !item->ifa_netmask)
        return false;
    if (item->ifa_addr->sa_family == AF_INET) {
        bytes = &((const struct sockaddr_in *)(const void *)item->ifa_addr)->sin_addr;
        mask = (const uint8_t *)&((const struct sockaddr_in *)(const void *)item->ifa_netmask)->sin_addr;
        length = 4;
    } else if (item->ifa_addr->sa_family == AF_INET6) {
        bytes = &((const struct sockaddr_in6 *)(const void *)item->ifa_addr)->sin6_addr;
        mask = (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)item->ifa_netmask)->sin6_addr;
        length = 16;
    } else {
        return false;
    }
    for (unsigned i = 0; i < length; i++)
        bits += (unsigned)__builtin_popcount(mask[i]);
    snprintf(line, size, "%s %s/%u\n", item->ifa_name, inet_ntop(item->ifa_addr->sa_family, bytes, host, sizeof host),
             bits);
    return true;
}

static void test_addresses(void **state)
{
    char *text = sysfs_text("/", "addresses"), line[128];
    struct ifaddrs *all;
    size_t lines = 0;

    assert_non_null(text);
    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *item = all; item; item = item->ifa_next)
        if (line_of(item, line, sizeof line)) {
            const char *at = strstr(text, line);

            if (!at || (at != text && at[-1] != '\n'))
                fail_msg("no %s in %s", line, text);
            lines++;
        }
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines--;
    assert_int_equal(lines, 0);
    freeifaddrs(all);
    free(text);
}

/* Another machine's XML, as of `lstopo --of xml`: its GPUs are there, though this one's sysfs has none of them. */
static void test_foreign_xml(void **state)
{
    struct error err = {0};
    char path[PATH_MAX];
    struct node *node;

    snprintf(path, sizeof path, "%s/machine.xml", machines_snapshot("dgx-a100"));
    if (!(node = node_read(NULL, path, &err)))
        fail_msg("%s", err.text);
    assert_int_equal(node->core_count, 128);
    assert_int_equal(node->gpu_count, 8);
    for (size_t i = 0; i < node->gpu_count; i++)
        assert_int_not_equal(node->gpus[i].state, GPU_LOST);
    node_destroy(node);
}

static void test_broken_xml(void **state)
{
    static const char *const texts[] = {"", "no XML\n", "<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n",
                                        "<a/>"};
    struct error err;
    char path[PATH_MAX];

    assert_null(node_read("/nowhere", NULL, &err));
    assert_int_equal(err.code, CODE_IO);
    assert_null(node_read("/", "/nowhere.xml", &err));
    assert_int_equal(err.code, CODE_IO);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(path, sizeof path, "%s", machines_scratch("broken.xml"));
        write_text(path, texts[i]);
        assert_null(node_read("/", path, &err));
        assert_int_equal(err.code, CODE_DATA);
        assert_non_null(strstr(err.text, path));
    }
}

/* Fills names with the files beneath a snapshot; `find` is everywhere that a shell is. */
static size_t list_files(const char *dir, char (*names)[256], size_t max)
{
    char command[PATH_MAX + 64];
    size_t count = 0;
    FILE *in;

    snprintf(command, sizeof command, "cd '%s' && find . -type f ! -name machine.xml", dir);
    assert_non_null(in = popen(command, "r"));
    while (count < max && fgets(names[count], 256, in)) {
        names[count][strcspn(names[count], "\n")] = '\0';
        count++;
    }
    pclose(in);
    return count;
}

/* A file that holds anything else than we know is a fact that is not known: a node is read all the same. */
static void test_broken_files(void **state)
{
    static char names[1024][256], garbage[6000];
    char dir[PATH_MAX];
    size_t count;

    memset(garbage, 0xfe, sizeof garbage - 1);
    snprintf(dir, sizeof dir, "%s", machines_snapshot("hgx-roce-saved"));
    count = list_files(dir, names, 1024);
    assert_in_range(count, 50, 1023);
    for (size_t i = 0; i < count; i++) {
        static const char *const texts[] = {"", garbage, "-1\n", "4294967296 99999999999999999999 x\n"};
        char path[PATH_MAX + 300], *text = sysfs_text(dir, names[i]);

        assert_non_null(text);
        snprintf(path, sizeof path, "%s/%.255s", dir, names[i]);
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++) {
            write_text(path, texts[j]);
            free(describe(dir));
        }
        write_text(path, text);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_save),
        cmocka_unit_test(test_save_gids),
        cmocka_unit_test(test_live),
        cmocka_unit_test(plain_interfaces_are_read_where_they_matter),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_foreign_xml),
        cmocka_unit_test(test_broken_xml),
        cmocka_unit_test(test_broken_files),
    };

    return cmocka_run_group_tests(tests, machines_make, machines_remove);
}
