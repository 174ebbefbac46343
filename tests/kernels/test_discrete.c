/* test_discrete.c - the "cpu-discrete" device (tests/discrete), on which the engine's tests of device memory rely. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cmocka_test.h"
#include "tests/discrete/discrete.h"

enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };

static struct device *dev;
static const struct kernels *k;

static float *take(enum memory space)
{
    struct error err;
    float *at = device_alloc(dev, space, BYTES, &err);

    assert_non_null(at);
    return at;
}

static int open_device(void **state)
{
    struct error err;

    dev = device_open(&backend_discrete, 0, 1, &err);
    k = dev ? device_kernels(dev) : NULL;
    return dev ? 0 : -1;
}

static int close_device(void **state)
{
    device_destroy(dev);
    return 0;
}

static void assert_faults(const volatile float *at, bool writing)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        if (writing)
            *(volatile float *)at = 1;
        else if (*at == 1)
            _exit(1);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void test_host_cannot_touch(void **state)
{
    float *there = take(MEMORY_DEVICE);

    assert_false(device_is_host(dev));
    assert_faults(there, false);
    assert_faults(there, true);
    assert_faults(there + COUNT - 1, false);
    device_free(dev, MEMORY_DEVICE, there);
    assert_int_equal(dev->bytes_used[MEMORY_DEVICE], 0);
    assert_int_equal(device_bytes_peak(dev, MEMORY_DEVICE), BYTES);
}

static void test_done_when_waited_for(void **state)
{
    float *there = take(MEMORY_DEVICE), *host = take(MEMORY_HOST), *back = take(MEMORY_HOST);

    for (int i = 0; i < COUNT; i++)
        host[i] = (float)i;
    back[7] = -1;
    k->copy(dev, there, host, BYTES);
    k->add(dev, DTYPE_F32, there, there, COUNT);
    k->copy(dev, back, there, BYTES);
    assert_true(back[7] == -1);
    device_wait(dev);
    for (int i = 0; i < COUNT; i++)
        assert_true(back[i] == 2 * (float)i);
}

/* A transfer reads what is there when somebody asks for it: later than whoever enqueued it may have thought. */
static void test_transfers(void **state)
{
    float *there = take(MEMORY_DEVICE), *host = take(MEMORY_HOST), *back = take(MEMORY_HOST);
    uint64_t ticket;

    host[0] = 5;
    k->copy(dev, there, host, BYTES);
    ticket = device_transfer(dev, back, there, BYTES);
    device_wait(dev);
    assert_false(back[0] == 5);
    device_transfer_wait(dev, ticket);
    assert_true(back[0] == 5);

    device_transfer(dev, back, there, BYTES); /* nobody joins it before the memory is written again */
    k->zero(dev, there, BYTES);
    device_transfer_wait(dev, ticket + 1);
    assert_true(back[0] == 0);

    k->copy(dev, there, host, BYTES);
    ticket = device_transfer(dev, back, there, BYTES);
    device_transfer_join(dev, ticket);
    k->zero(dev, there, BYTES);
    device_wait(dev);
    assert_true(back[0] == 5);
    device_transfer_wait(dev, ticket);
    device_transfer_wait(dev, 0);
}

/* Whoever frees what a transfer still has finds out, at the latest when the device is closed. */
static void test_freed_too_early(void **state)
{
    float *there = take(MEMORY_DEVICE), *host = take(MEMORY_HOST);
    int status;
    pid_t pid;

    device_transfer_wait(dev, device_transfer(dev, host, there, BYTES));
    device_transfer(dev, host, there, BYTES);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        device_free(dev, MEMORY_HOST, host);
        device_destroy(dev);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void test_other_memory_is_refused(void **state)
{
    float *there = take(MEMORY_DEVICE), *host = take(MEMORY_HOST), stack[1] = {0};
    struct error err;

    k->copy(dev, there, stack, sizeof stack);
    assert_int_equal(device_status(dev, &err), -1);
    assert_non_null(strstr(err.text, "copy"));
    assert_int_equal(close_device(NULL) | open_device(NULL), 0);
    there = take(MEMORY_DEVICE);
    host = take(MEMORY_HOST);
    k->accumulate(dev, there, DTYPE_F32, host, COUNT);
    assert_int_equal(device_status(dev, &err), -1);
    assert_non_null(strstr(err.text, "accumulate: an operand is in host memory"));
}

/* What operations take for themselves is counted as this device's. */
static void test_workspace_counts(void **state)
{
    float *there = take(MEMORY_DEVICE);
    double sum = -1;

    k->zero(dev, there, BYTES);
    k->sum_of_squares(dev, &sum, &(struct squares){there, COUNT}, 1);
    assert_true(sum == 0);
    assert_true(dev->workspace > 0);
    assert_int_equal(dev->bytes_used[MEMORY_DEVICE], BYTES + dev->workspace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_host_cannot_touch, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_done_when_waited_for, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_transfers, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_freed_too_early, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_other_memory_is_refused, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_workspace_counts, open_device, close_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
