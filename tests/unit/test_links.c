/* The connections between ranks. All ranks are in this process: what a link sees is the kernel closing a socket. */
#include "config.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/cmocka_test.h"
#include "trainer/watch/links.h"

enum { RANKS = 20 };

static struct links *links[RANKS];
static struct link_address addresses[RANKS];
static struct error err;

static void create_all(void)
{
    for (int rank = 0; rank < RANKS; rank++)
        assert_non_null(links[rank] = links_create(RANKS, rank, &addresses[rank], &err));
}

static void connect_all(void)
{
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(links_connect(links[rank], &addresses[links_parent(rank)], &err), 0);
    for (int rank = 0; rank < RANKS; rank++)
        if (links_accept(links[rank], &err) < 0)
            fail_msg("%s", err.text);
}

static int begin(void **state)
{
    create_all();
    connect_all();
    return 0;
}

static int clean_up(void **state)
{
    for (int rank = 0; rank < RANKS; rank++)
        links_destroy(links[rank]);
    memset(links, 0, sizeof links);
    return 0;
}

static void lose(int rank)
{
    links_destroy(links[rank]);
    links[rank] = NULL;
}

static bool sees_dead(int rank, int other)
{
    struct hang_rank *ranks = calloc((size_t)RANKS, sizeof *ranks);
    bool dead;

    links_poll(links[rank], ranks);
    dead = ranks[other].state == HANG_DEAD;
    for (int k = 0; k < RANKS; k++)
        assert_true(k == other || ranks[k].state == HANG_SILENT);
    free(ranks);
    return dead;
}

static bool is_neighbor(int a, int b)
{
    return a != b && (links_parent(a) == b || links_parent(b) == a);
}

static void neighbors_see_that_one_is_gone(void **state)
{
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(links_poll(links[rank], NULL), LINKS_QUIET);
    lose(1);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(links_poll(links[rank], NULL), is_neighbor(rank, 1) ? LINKS_ALARM : LINKS_QUIET);
        assert_int_equal(sees_dead(rank, 1), is_neighbor(rank, 1));
    }
}

static void who_announces_its_end_is_not_missed(void **state)
{
    links_tell(links[1], LINK_ENDING);
    lose(1);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(links_poll(links[rank], NULL), LINKS_QUIET);
        assert_false(sees_dead(rank, 1));
    }
}

static void an_alarm_is_no_death(void **state)
{
    links_tell(links[0], LINK_ALARM);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(links_poll(links[rank], NULL), is_neighbor(rank, 0) ? LINKS_ALARM : LINKS_QUIET);
        assert_false(sees_dead(rank, 0));
    }
}

static void strangers_are_not_ranks(void **state)
{
    struct link_address wrong;

    clean_up(state);
    create_all();
    wrong = addresses[0];
    wrong.token++;
    assert_int_equal(links_connect(links[1], &wrong, &err), 0); /* it does not know yet */
    lose(1);
    assert_non_null(links[1] = links_create(RANKS, 1, &addresses[1], &err));
    connect_all();
    assert_int_equal(links_poll(links[0], NULL), LINKS_QUIET);
}

static void where_nobody_listens_it_is_said(void **state)
{
    struct link_address nowhere = addresses[0]; /* whose listener was closed */

    lose(1);
    assert_non_null(links[1] = links_create(RANKS, 1, &addresses[1], &err));
    assert_int_equal(links_connect(links[1], &nowhere, &err), -1);
    assert_int_equal(err.code, CODE_PEER);
    assert_string_equal(err.text, "rank 1 cannot connect to rank 0 by TCP: Connection refused");
}

static bool set_loopback(bool up)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = up ? IFF_UP : 0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool done = ioctl(fd, SIOCSIFFLAGS, &request) == 0;

    close(fd);
    return done;
}

/* In a network of its own: 0 if all is as it should be. */
static int cut_the_network(void)
{
    double deadline;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 || !set_loopback(true))
        return 77;
    for (int rank = 0; rank < 2; rank++)
        if (!(links[rank] = links_create(2, rank, &addresses[rank], &err)))
            return 2;
    if (links_connect(links[1], &addresses[0], &err) < 0 || links_accept(links[0], &err) < 0)
        return 3;
    set_loopback(false);
    deadline = clock_monotonic() + 30;
    while (links_poll(links[0], NULL) == LINKS_QUIET && clock_monotonic() < deadline)
        clock_sleep(0.05);
    return links_poll(links[0], NULL) == LINKS_CUT && !sees_dead(0, 1) ? 0 : 4;
}

static void a_node_that_does_not_answer_is_cut_off(void **state)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0)
        _exit(cut_the_network());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("# no network namespace can be made here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, clean_up)
        TEST(neighbors_see_that_one_is_gone),
        TEST(who_announces_its_end_is_not_missed),
        TEST(an_alarm_is_no_death),
        TEST(strangers_are_not_ranks),
        TEST(where_nobody_listens_it_is_said),
        cmocka_unit_test(a_node_that_does_not_answer_is_cut_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
