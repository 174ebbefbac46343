/* The GID of a RoCE port that routes, from a sysfs that the test writes. */
#include <sys/stat.h>

#include "srun-plugin/node/node_impl.h"
#include "tests/cmocka_test.h"

static char root[] = "gid-XXXXXX";

static void write_line(const char *device, const char *file, int index, const char *line)
{
    char path[512];
    FILE *stream;

    snprintf(path, sizeof path, "%s/sys/class/infiniband/%s/%s/%d", root, device, file, index);
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    stream = fopen(path, "w");
    assert_non_null(stream);
    fprintf(stream, "%s\n", line);
    assert_int_equal(fclose(stream), 0);
}

static void add(const char *port, int index, const char *type, const char *gid)
{
    char file[64];

    snprintf(file, sizeof file, "ports/%s/gids", strchr(port, ':') + 1);
    write_line(strncmp(port, "mlx5_0", 6) == 0 ? "mlx5_0" : "mlx5_1", file, index, gid);
    snprintf(file, sizeof file, "ports/%s/gid_attrs/types", strchr(port, ':') + 1);
    write_line(strncmp(port, "mlx5_0", 6) == 0 ? "mlx5_0" : "mlx5_1", file, index, type);
}

#define LINK_LOCAL "fe80:0000:0000:0000:a288:c2ff:fe3b:506a"
#define IPV4       "0000:0000:0000:0000:0000:ffff:0ac8:010a"
#define IPV6       "2010:0200:0000:0002:a288:c2ff:fe3b:506a"

static void finds_the_routed_ipv4_gid(void **state)
{
    /* As on a DGX: link-local and IPv4, each as v1 and v2. */
    add("mlx5_0:1", 0, "IB/RoCE v1", LINK_LOCAL);
    add("mlx5_0:1", 1, "RoCE v2", LINK_LOCAL);
    add("mlx5_0:1", 2, "IB/RoCE v1", IPV4);
    add("mlx5_0:1", 3, "RoCE v2", IPV4);
    /* An IPv6 address came first, and a GID between them is not in use. */
    add("mlx5_0:2", 0, "RoCE v2", LINK_LOCAL);
    add("mlx5_0:2", 1, "RoCE v2", IPV6);
    add("mlx5_0:2", 5, "RoCE v2", IPV4);
    add("mlx5_0:2", 7, "RoCE v2", IPV4);
    /* InfiniBand. */
    add("mlx5_1:1", 0, "IB/RoCE v1", LINK_LOCAL);
    /* IPv6 only. */
    add("mlx5_1:2", 0, "RoCE v2", IPV6);
    assert_int_equal(node_gid_index(root, "mlx5_0:1"), 3);
    assert_int_equal(node_gid_index(root, "mlx5_0"), 3);
    assert_int_equal(node_gid_index(root, "mlx5_0:2"), 5);
    assert_int_equal(node_gid_index(root, "mlx5_1:1"), -1);
    assert_int_equal(node_gid_index(root, "mlx5_1:2"), -1);
    assert_int_equal(node_gid_index(root, "mlx5_9:1"), -1);
    assert_int_equal(node_gid_index(root, ""), -1);
    assert_int_equal(node_gid_index("/no/such/root", "mlx5_0:1"), -1);
}

static int make_root(void **state)
{
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[64];

    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_routed_ipv4_gid),
    };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
