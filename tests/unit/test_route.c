/* Which interface leads to the other nodes: on saved machines, and on this one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "srun-plugin/node/route.h"
#include "srun-plugin/node/sysfs.h"

#define HEADER "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"

/* A node with a management network (the default route), a bridge of containers, two ways to 10.1/16, and IPoIB. */
static const char table[] = HEADER "eno1\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
                                   "eno1\t0000A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
                                   "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
                                   "slow0\t0000010A\t00000000\t0001\t0\t0\t200\t0000FFFF\t0\t0\t0\n"
                                   "fast0\t0000010A\t00000000\t0001\t0\t0\t50\t0000FFFF\t0\t0\t0\n"
                                   "ib0\t0002010A\t00000000\t0001\t0\t0\t300\t00FFFFFF\t0\t0\t0\n"
                                   "down0\t0003010A\t00000000\t0000\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
                                   "lo\t0004010A\t00000000\t0201\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";

static const struct route_address own[] = {
    {"lo", "127.0.0.1"},     {"eno1", "fe80::1"},     {"eno1", "192.168.0.7"}, {"docker0", "172.17.0.1"},
    {"slow0", "10.1.0.107"}, {"fast0", "10.1.0.207"}, {"ib0", "10.1.2.7"},
};

static void replays_what_the_kernel_does(void **state)
{
    static const struct {
        const char *peer, *interface, *address;
    } rows[] = {
        {"192.168.0.8", "eno1", "192.168.0.7"}, /* its own network; not the link-local address */
        {"8.8.8.8", "eno1", "192.168.0.7"},     /* the default route */
        {"172.17.0.2", "docker0", "172.17.0.1"}, {"10.1.0.9", "fast0", "10.1.0.207"}, /* two routes: the lower metric */
        {"10.1.2.9", "ib0", "10.1.2.7"},     /* the longer prefix, whatever the metric */
        {"10.1.3.9", "fast0", "10.1.0.207"}, /* the longer prefix is down */
        {"10.1.2.7", "ib0", "10.1.2.7"},     /* the node itself */
        {"127.0.0.1", "lo", "127.0.0.1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct route_address way;
        struct error err;

        assert_int_equal(route_replay(table, own, sizeof own / sizeof own[0], rows[i].peer, &way, &err), 0);
        assert_string_equal(way.interface, rows[i].interface);
        assert_string_equal(way.address, rows[i].address);
    }
}

static void says_why_there_is_no_way(void **state)
{
    static const struct {
        const char *table, *peer, *message;
    } rows[] = {
        {table, "10.1.4.1", "no route to 10.1.4.1"}, /* an unreachable route */
        {HEADER, "10.1.2.9", "no route to 10.1.2.9"},
        {"", "10.1.2.9", "no route to 10.1.2.9"},
        {"garbage\nib0 x y z\n", "10.1.2.9", "no route to 10.1.2.9"},
        {table, "n2", "\"n2\" is no IPv4 address"},
        {HEADER "ib1\t0002010A\t0\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n", "10.1.2.9",
         "the route to 10.1.2.9 is through ib1, which has no address"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct route_address way;
        struct error err;

        assert_int_equal(route_replay(rows[i].table, own, sizeof own / sizeof own[0], rows[i].peer, &way, &err), -1);
        assert_string_equal(err.text, rows[i].message);
        assert_int_equal(err.code, CODE_DATA);
    }
}

/* A label of more than 63 letters: no name server is asked, which in some networks answers to anything. */
#define NO_NAME "no-such-node-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static void asks_this_kernel(void **state)
{
    struct route_address way;
    struct error err;

    (void)state;
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

    (void)state;
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

/* The kernel and the replay of its own table agree on an address of documentation, if there is a way at all. */
static void the_replay_agrees_with_this_kernel(void **state)
{
    static char text[65536];
    struct route_address way, replayed;
    struct error err;
    FILE *file = fopen("/proc/net/route", "r");

    (void)state;
    if (!file || route_to("192.0.2.1", &way, &err) < 0)
        skip();
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(route_replay(text, &way, 1, "192.0.2.1", &replayed, &err), 0);
    assert_string_equal(replayed.interface, way.interface);
}

static void knows_loopback(void **state)
{
    (void)state;
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

    (void)state;
    assert_string_equal(route_head("n1", debian, 1, "10.0.0.1"), "10.0.0.1");
    assert_string_equal(route_head("n1", two, 2, "10.0.0.1"), "10.0.0.1");
    assert_string_equal(route_head("n1", both, 2, "10.0.0.7"), "n1");
    assert_string_equal(route_head("n1", both, 0, "10.0.0.7"), "n1");    /* does not resolve here */
    assert_string_equal(route_head("n1", debian, 1, NULL), "n1");        /* nothing better is known */
    assert_string_equal(route_head("n1", debian, 1, "127.0.0.1"), "n1"); /* all nodes are this machine */
}

static void resolves_a_name(void **state)
{
    char addresses[8][INET6_ADDRSTRLEN];
    struct error err;
    /* A bare root has no file that says what localhost is. */
    int count = route_resolve(access("/etc/hosts", R_OK) == 0 ? "localhost" : "127.0.0.1", addresses, 8, &err);

    (void)state;
    assert_in_range(count, 1, 8);
    for (int i = 0; i < count; i++)
        assert_true(route_is_loopback(addresses[i]));
    assert_int_equal(route_resolve(NO_NAME, addresses, 8, &err), -1);
    assert_int_equal(err.code, CODE_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_what_the_kernel_does),
        cmocka_unit_test(says_why_there_is_no_way),
        cmocka_unit_test(asks_this_kernel),
        cmocka_unit_test(knows_its_own_addresses),
        cmocka_unit_test(the_replay_agrees_with_this_kernel),
        cmocka_unit_test(knows_loopback),
        cmocka_unit_test(chooses_a_head_that_others_reach),
        cmocka_unit_test(resolves_a_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
