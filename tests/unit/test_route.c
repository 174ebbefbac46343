/* Which interface leads to other nodes, and by which address they reach this one. */
#include <arpa/inet.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "srun-plugin/node/route.h"
#include "srun-plugin/node/sysfs.h"
#include "tests/cmocka_test.h"

/* A label of more than 63 letters: no name server is asked, which in some networks answers to anything. */
#define NO_NAME "no-such-node-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static void asks_this_kernel(void **state)
{
    struct route_address way;
    struct error err;

    assert_int_equal(route_to("127.0.0.1", &way, &err), 0);
    assert_string_equal(way.interface, "lo");
    assert_string_equal(way.address, "127.0.0.1");
    assert_int_equal(route_to(NO_NAME, &way, &err), -1);
    assert_memory_equal(err.text, NO_NAME " does not resolve: ", sizeof NO_NAME " does not resolve: " - 1);
}

static void knows_its_own_addresses(void **state)
{
    char *text = sysfs_text("/", "addresses"), *rest = text, *line, name[IF_NAMESIZE], address[INET6_ADDRSTRLEN];
    struct route_address way;
    int found = 0;

    while (rest && (line = strsep(&rest, "\n")))
        if (sscanf(line, "%15s %45[^/]", name, address) == 2) {
            assert_true(route_is_own(address, &way));
            assert_string_equal(way.address, address);
            found += strcmp(way.interface, name) == 0; /* fe80::1 may be several interfaces' */
        }
    free(text);
    assert_true(found > 0);
    assert_false(route_is_own("127.0.0.", &way));
    assert_false(route_is_own("27.0.0.1", &way));
    assert_false(route_is_own(NO_NAME, &way));
}

static bool give_address(const char *interface, const char *address)
{
    struct ifreq item = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&item.ifr_addr;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    bool given;

    snprintf(item.ifr_name, sizeof item.ifr_name, "%s", interface);
    in->sin_family = AF_INET;
    given = inet_pton(AF_INET, address, &in->sin_addr) == 1 && ioctl(fd, SIOCSIFADDR, &item) == 0;
    item.ifr_flags = IFF_UP;
    given = given && ioctl(fd, SIOCSIFFLAGS, &item) == 0;
    close(fd);
    return given;
}

enum { NO_NAMESPACE = 77 };

/* Returns an exit code. */
static int look_at_lo(void)
{
    struct route_address way;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 || !give_address("lo", "127.0.0.1") ||
        !give_address("lo:1", "10.88.0.1"))
        return NO_NAMESPACE;
    if (!route_is_own("127.0.0.1", &way) || strcmp(way.interface, "lo") != 0)
        return 1;
    if (!route_is_own("10.88.0.1", &way) || way.interface[0] || strcmp(way.address, "10.88.0.1") != 0)
        return 2;
    if (route_to("10.88.0.1", &way, NULL) < 0 || way.interface[0] || strcmp(way.address, "10.88.0.1") != 0)
        return 3;
    return give_address("lo", "10.88.0.2") && route_is_own("10.88.0.2", &way) && !way.interface[0] ? 0 : 4;
}

static void an_address_of_the_node_on_lo_has_no_interface_that_libraries_may_take(void **state)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(look_at_lo());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_NAMESPACE) {
        print_message("# no network namespace can be made here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void knows_loopback(void **state)
{
    assert_true(route_is_loopback("127.0.0.1"));
    assert_true(route_is_loopback("127.0.1.1"));
    assert_true(route_is_loopback("::1"));
    assert_true(route_is_loopback("::ffff:127.0.1.1"));
    assert_false(route_is_loopback("126.0.0.1"));
    assert_false(route_is_loopback("128.0.0.1"));
    assert_false(route_is_loopback("::2"));
    assert_false(route_is_loopback("::ffff:10.0.0.1"));
    assert_false(route_is_loopback("n1"));
}

static void chooses_a_head_that_others_reach(void **state)
{
    char debian[][INET6_ADDRSTRLEN] = {"127.0.1.1"}, both[][INET6_ADDRSTRLEN] = {"127.0.1.1", "10.0.0.1"};
    char two[][INET6_ADDRSTRLEN] = {"::1", "127.0.1.1"};

    assert_string_equal(route_master("n1", debian, 1, "10.0.0.1"), "10.0.0.1");
    assert_string_equal(route_master("n1", two, 2, "10.0.0.1"), "10.0.0.1");
    assert_string_equal(route_master("n1", both, 2, "10.0.0.7"), "n1");
    assert_string_equal(route_master("n1", both, 0, "10.0.0.7"), "n1");    /* does not resolve here */
    assert_string_equal(route_master("n1", debian, 1, NULL), "n1");        /* nothing better is known */
    assert_string_equal(route_master("n1", debian, 1, "127.0.0.1"), "n1"); /* all nodes are this machine */
}

static void resolves_a_name(void **state)
{
    char addresses[8][INET6_ADDRSTRLEN];
    struct error err;
    /* A bare root has no file that says what localhost is. */
    int count = route_resolve(access("/etc/hosts", R_OK) == 0 ? "localhost" : "127.0.0.1", addresses, 8, &err);

    assert_in_range(count, 1, 8);
    for (int i = 0; i < count; i++)
        assert_true(route_is_loopback(addresses[i]));
    assert_int_equal(route_resolve(NO_NAME, addresses, 8, &err), -1);
    assert_int_equal(err.code, CODE_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asks_this_kernel),
        cmocka_unit_test(knows_its_own_addresses),
        cmocka_unit_test(knows_loopback),
        cmocka_unit_test(chooses_a_head_that_others_reach),
        cmocka_unit_test(resolves_a_name),
        cmocka_unit_test(an_address_of_the_node_on_lo_has_no_interface_that_libraries_may_take),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
