/* MASTER_PORT: neighbours do not share one, and a port that is taken is passed over. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "srun-plugin/spank/rank_setup.h"
#include "tests/cmocka_test.h"

static void every_port_is_in_range(void **state)
{
    static const uint32_t ids[] = {0, 1, 19390, 19391, 1000000, UINT32_MAX - 1, UINT32_MAX};
    const size_t count = sizeof ids / sizeof ids[0];

    for (size_t i = 0; i < count * count * PORT_ATTEMPTS; i++) {
        unsigned port = port_of_step(ids[i % count], ids[i / count % count], (unsigned)(i / count / count));

        assert_in_range(port, 10000, 29390); /* 29500 is torchrun's own */
    }
}

static void steps_of_a_job_differ(void **state)
{
    static char used[65536];

    for (uint32_t step = 0; step < PORT_COUNT; step++)
        assert_int_equal(used[port_of_step(4711, step, 0)]++, 0);
    assert_int_equal(port_of_step(4711, PORT_COUNT, 0), port_of_step(4711, 0, 0));
}

/* The table in rank_setup.h: no collision nearer than D for jobs up to J apart, and one at D. */
static void neighbouring_jobs_differ_as_far_as_the_header_says(void **state)
{
    static const struct {
        uint32_t jobs, steps;
    } rows[] = {{1, 7499}, {4, 3106}, {16, 532}, {64, 223}, {256, 35}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t nearest = PORT_COUNT;

        for (uint32_t apart = 1; apart <= rows[i].jobs; apart++)
            for (uint32_t step = 0; step < nearest; step++)
                if (port_of_step(100000 + apart, 0, 0) == port_of_step(100000, step, 0) ||
                    port_of_step(100000, 0, 0) == port_of_step(100000 + apart, step, 0))
                    nearest = step;
        assert_int_equal(nearest, rows[i].steps);
    }
}

static void candidates_of_a_step_differ(void **state)
{
    for (unsigned a = 0; a < PORT_ATTEMPTS; a++)
        for (unsigned b = 0; b < a; b++)
            assert_int_not_equal(port_of_step(42, 3, a), port_of_step(42, 3, b));
}

static bool only_the_fifth(unsigned port, void *arg)
{
    ++*(int *)arg;
    return port == port_of_step(42, 3, 4);
}

static bool none(unsigned port, void *arg)
{
    (void)port;
    ++*(int *)arg;
    return false;
}

static void takes_the_first_free_candidate(void **state)
{
    int asked = 0;

    assert_int_equal(port_choose(42, 3, only_the_fifth, &asked), port_of_step(42, 3, 4));
    assert_int_equal(asked, 5);
    asked = 0;
    assert_int_equal(port_choose(42, 3, none, &asked), port_of_step(42, 3, 0));
    assert_int_equal(asked, PORT_ATTEMPTS);
}

static void sees_who_listens(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    unsigned port;

    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    port = ntohs(address.sin_port);
    assert_false(port_is_free(port, NULL));
    close(fd);
    assert_true(port_is_free(port, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_port_is_in_range),
        cmocka_unit_test(steps_of_a_job_differ),
        cmocka_unit_test(neighbouring_jobs_differ_as_far_as_the_header_says),
        cmocka_unit_test(candidates_of_a_step_differ),
        cmocka_unit_test(takes_the_first_free_candidate),
        cmocka_unit_test(sees_who_listens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
