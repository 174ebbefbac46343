/*
 * test_nccl.c - comm_nccl.c on one GPU: NCCL refuses two ranks there, so each group is of one, whose sums are its own
 * data. What it shows is that NCCL is called as it wants to be, in the order of the streams, and is aborted.
 */
#include "tests/cmocka_test.h"
#include "trainer/comm/comm_nccl.h"

#ifndef TEST_SIZE /* elements; another where a GPU is emulated */
#define TEST_SIZE (4 << 20)
#endif

enum { GROUPS = 2, COUNT = TEST_SIZE, STRIDE = COUNT + 64, ROUNDS = 200 };

static struct device *dev;
static const struct kernels *k;
static struct comm *world;
static struct nccl_root *root;
static struct comm *groups[GROUPS];
static float *host, *send, *recv, *scratch;
static struct error err;

static int done(int result)
{
    if (result < 0)
        print_message("%s\n", err.text);
    return result;
}

/* A machine without a GPU or without NCCL is no failure; all else is. */
static int open_all(void **state)
{
    dev = device_create("cuda", 0, &err);
    if (!dev || comm_nccl_load(&err) < 0)
        return err.code == CODE_CONFIG ? 0 : done(-1);
    k = device_kernels(dev);
    host = device_alloc(dev, MEMORY_HOST, STRIDE * sizeof *host, &err);
    send = host ? device_alloc(dev, MEMORY_DEVICE, STRIDE * sizeof *send, &err) : NULL;
    recv = send ? device_alloc(dev, MEMORY_DEVICE, STRIDE * sizeof *recv, &err) : NULL;
    scratch = recv ? device_alloc(dev, MEMORY_DEVICE, STRIDE * sizeof *scratch, &err) : NULL;
    world = scratch ? comm_alone_create(&err) : NULL;
    root = world ? comm_nccl_root_create(world, dev, &err) : NULL;
    for (int i = 0; root && i < GROUPS; i++) {
        struct comm *alone = comm_alone_create(&err);

        groups[i] = alone ? comm_nccl_create(root, alone, 1, i, 0, &err) : NULL;
        if (!groups[i])
            return done(-1);
    }
    return root ? 0 : done(-1);
}

static int close_all(void **state)
{
    for (int i = 0; i < GROUPS; i++)
        comm_destroy(groups[i]);
    comm_nccl_root_destroy(root);
    comm_destroy(world);
    if (dev) {
        device_free(dev, MEMORY_HOST, host);
        device_free(dev, MEMORY_DEVICE, send);
        device_free(dev, MEMORY_DEVICE, recv);
        device_free(dev, MEMORY_DEVICE, scratch);
    }
    device_destroy(dev);
    return 0;
}

static void need_nccl(void)
{
    char version[32];

    if (!root) {
        print_message("%s\n", err.text);
        skip();
    }
    comm_nccl_version(version, sizeof version);
    print_message("%s\n", version);
}

/* Enqueued, and not waited for: COUNT times `value` in send; it takes the GPU longer than the host to say so. */
static void slowly_fill(float value)
{
    device_wait(dev); /* for what may still be copied from host */
    for (int i = 0; i < COUNT; i++)
        host[i] = value / ROUNDS;
    k->copy(dev, scratch, host, COUNT * sizeof *host);
    k->zero(dev, send, STRIDE * sizeof *send);
    k->zero(dev, recv, STRIDE * sizeof *recv);
    for (int i = 0; i < ROUNDS; i++)
        k->accumulate(dev, send, DTYPE_F32, scratch, COUNT);
}

static void assert_all(const float *at, float value)
{
    k->copy(dev, host, at, COUNT * sizeof *host);
    device_wait(dev);
    assert_int_equal(done(device_status(dev, &err)), 0);
    for (int i = 0; i < COUNT; i++)
        assert_float_equal(host[i], value, 1e-3f);
}

static int reduce_scatter(struct comm *group, enum dtype dtype, void *to, const void *from)
{
    struct comm_request *request = comm_start_reduce_scatter(group, dtype, to, from, COUNT, COUNT, NULL, &err);

    return request ? comm_wait(request, &err) : -1;
}

/* A collective begins when what was enqueued before it is done; what is enqueued after its wait comes after it. */
static void test_reduce_scatter(void **state)
{
    need_nccl();
    for (int round = 1; round <= 4; round++) {
        size_t stride = round % 2 ? COUNT : STRIDE;
        struct comm_request *request;

        slowly_fill((float)round);
        request =
            comm_start_reduce_scatter(groups[round % GROUPS], DTYPE_F32, recv, send, COUNT, stride, scratch, &err);
        assert_int_equal(done(request ? 0 : -1), 0);
        assert_int_equal(done(comm_wait(request, &err)), 0);
        assert_all(recv, (float)round);
    }
}

static void test_in_place(void **state)
{
    need_nccl();
    slowly_fill(3);
    assert_int_equal(done(comm_all_reduce(groups[0], DTYPE_F32, send, COUNT, NULL, &err)), 0);
    assert_all(send, 3);
    slowly_fill(5);
    assert_int_equal(done(comm_all_gather(groups[1], DTYPE_F32, send, COUNT, &err)), 0);
    assert_all(send, 5);
    assert_int_equal(done(reduce_scatter(groups[0], DTYPE_F32, send, send)), 0);
    assert_all(send, 5);
}

static void test_types(void **state)
{
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_F16};

    need_nccl();
    for (int i = 0; i < 2; i++) {
        slowly_fill(2);
        k->cast(dev, types[i], scratch, DTYPE_F32, send, COUNT);
        assert_int_equal(done(reduce_scatter(groups[i], types[i], recv, scratch)), 0);
        k->zero(dev, send, COUNT * sizeof *send);
        k->accumulate(dev, send, types[i], recv, COUNT);
        assert_all(send, 2);
    }
}

/* Last, for nothing goes after it: operations under way in both groups, and none may be waited for with success. */
static void test_abandon(void **state)
{
    struct comm_request *requests[GROUPS];
    struct error why = {.code = CODE_PEER, .text = "another rank is gone"};

    need_nccl();
    slowly_fill(1);
    for (int i = 0; i < GROUPS; i++) {
        requests[i] = comm_start_all_gather(groups[i], DTYPE_F32, i ? send : recv, COUNT, &err);
        assert_int_equal(done(requests[i] ? 0 : -1), 0);
    }
    nccl_root_abort(root, &why);
    for (int i = 0; i < GROUPS; i++) {
        assert_int_equal(comm_wait(requests[i], &err), -1);
        assert_int_equal(err.code, CODE_PEER);
    }
    assert_int_equal(comm_all_gather(groups[0], DTYPE_F32, send, COUNT, &err), -1);
    slowly_fill(7);
    assert_all(send, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_scatter),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_abandon),
    };

    return cmocka_run_group_tests(tests, open_all, close_all);
}
