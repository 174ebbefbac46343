/*
 * test_transfer.c - device_transfer beside operations that take long: on a GPU, the order of two streams. On the device
 * of MUSTER_TEST_DEVICE, else on "cpu" and on "cpu-discrete", which does everything as late as the rules allow.
 */
#include "tests/kernels/harness.h"

enum { MOST = 4 << 20, PIECE = 1000, PIECES = 200 };

static struct device *dev;
static const struct kernels *k;
static size_t count;
static int rounds;
static float *one, *sum, *host, *other; /* one and sum are the device's */

static float *take(enum memory space, size_t elements)
{
    struct error err;
    float *at = device_alloc(dev, space, elements * sizeof *at, &err);

    if (!at)
        fail_msg("%s", err.text);
    return at;
}

static void open_device(const char *kind)
{
    struct error err;

    dev = create_device(kind, 1, &err);
    if (!dev)
        fail_msg("%s", err.text);
    k = device_kernels(dev);
    count = device_traits(dev, DTYPE_F32).gpu && !getenv("MUSTER_TEST_EMULATED") ? MOST : PIECE * PIECES;
    rounds = count == MOST ? 200 : 3;
    one = take(MEMORY_DEVICE, count);
    sum = take(MEMORY_DEVICE, count);
    host = take(MEMORY_HOST, count);
    other = take(MEMORY_HOST, count);
    for (size_t i = 0; i < count; i++)
        host[i] = 1;
    k->copy(dev, one, host, count * sizeof *host);
    device_wait(dev);
}

static void close_device(void)
{
    struct error err;
    int status = device_status(dev, &err);

    if (status < 0)
        print_message("%s\n", err.text);
    device_free(dev, MEMORY_DEVICE, one);
    device_free(dev, MEMORY_DEVICE, sum);
    device_free(dev, MEMORY_HOST, host);
    device_free(dev, MEMORY_HOST, other);
    device_destroy(dev);
    assert_int_equal(status, 0);
}

/* Enqueued, and not waited for: sum grows by `rounds`, which takes a GPU longer than it takes the host to say so. */
static void add_rounds(void)
{
    for (int i = 0; i < rounds; i++)
        k->accumulate(dev, sum, DTYPE_F32, one, count);
}

static void assert_all(const float *at, float value)
{
    for (size_t i = 0; i < count; i++)
        if (at[i] != value)
            fail_msg("element %zu is %g, not %g", i, (double)at[i], (double)value);
}

/* It begins when what was enqueued before it is done; and what it reads may be written by what is joined to it. */
static void try_order(void)
{
    size_t bytes = count * sizeof *sum;
    uint64_t first, second;

    k->zero(dev, sum, bytes);
    add_rounds();
    first = device_transfer(dev, host, sum, bytes);
    device_transfer_join(dev, first);
    add_rounds();
    second = device_transfer(dev, other, sum, bytes);
    device_transfer_join(dev, second);
    k->zero(dev, sum, bytes);
    device_transfer_wait(dev, first);
    assert_all(host, (float)rounds);
    device_transfer_wait(dev, second);
    assert_all(other, (float)(2 * rounds));
    k->copy(dev, host, sum, bytes);
    device_wait(dev);
    assert_all(host, 0);
}

/* Joined operations come after it, though it was itself behind others; the host may then change what it read. */
static void try_arrival(void)
{
    size_t bytes = count * sizeof *sum;
    uint64_t ticket;

    for (size_t i = 0; i < count; i++)
        host[i] = 7;
    k->zero(dev, sum, bytes);
    add_rounds();
    ticket = device_transfer(dev, sum, host, bytes);
    device_transfer_join(dev, ticket);
    add_rounds();
    k->copy(dev, other, sum, bytes);
    device_transfer_wait(dev, ticket);
    for (size_t i = 0; i < count; i++)
        host[i] = -1;
    device_wait(dev);
    assert_all(other, (float)(7 + rounds));
}

/* Two halves of a buffer in turn, more transfers than a device keeps events for: as the offloaded state goes. */
static void try_halves(void)
{
    uint64_t tickets[2] = {0}, first = 0;

    k->zero(dev, sum, count * sizeof *sum);
    for (int i = 0; i < PIECES; i++) {
        float *half = host + (size_t)(i % 2) * PIECE;

        device_transfer_wait(dev, tickets[i % 2]);
        for (int j = 0; j < PIECE; j++)
            half[j] = (float)(i * PIECE + j);
        tickets[i % 2] = device_transfer(dev, sum + (size_t)i * PIECE, half, PIECE * sizeof *half);
        first = first ? first : tickets[0];
        k->accumulate(dev, one + count - PIECE, DTYPE_F32, one, PIECE); /* the queue goes on */
    }
    device_transfer_wait(dev, first); /* whose event others have had since */
    device_transfer_join(dev, tickets[0]);
    device_transfer_join(dev, tickets[1]);
    k->copy(dev, other, sum, PIECE * PIECES * sizeof *sum);
    device_wait(dev);
    for (int i = 0; i < PIECES * PIECE; i++)
        if (other[i] != (float)i)
            fail_msg("element %d is %g", i, (double)other[i]);
}

static void on_every_device(void (*try)(void))
{
    const char *chosen = getenv("MUSTER_TEST_DEVICE");
    bool has_streams = chosen && chosen[0] && strcmp(chosen, "cuda-emulated") != 0;
    const char *const kinds[] = {has_streams ? chosen : "cpu", "cpu-discrete"};

    for (int i = 0; i < (has_streams ? 1 : 2); i++) {
        open_device(kinds[i]);
        try();
        close_device();
    }
}

static void test_order(void **state)
{
    on_every_device(try_order);
}

static void test_arrival(void **state)
{
    on_every_device(try_arrival);
}

static void test_halves(void **state)
{
    on_every_device(try_halves);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_arrival),
        cmocka_unit_test(test_halves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
