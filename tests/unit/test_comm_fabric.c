/* test_comm_fabric.c - which way devices reach each other, and which device a job gets; where there is no GPU. */
#include "config.h"
#include "tests/cmocka_test.h"
#include "tests/discrete/discrete.h"
#include "trainer/choose.h"
#include "trainer/comm/comm_impl.h"
#ifdef HAVE_NCCL
#include "trainer/comm/comm_nccl.h"
#endif

/* Ranks that see the same GPU, wherever they stand in the order, cannot be joined by NCCL. */
static void test_names_differ(void **state)
{
    unsigned char names[5][16];

    memset(names, 7, sizeof names);
    for (int i = 0; i < 5; i++)
        names[i][15] = (unsigned char)i; /* only the last byte tells them apart */
    assert_true(comm_names_differ(names[0], 16, 5));
    assert_true(comm_names_differ(names[0], 16, 1));
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            unsigned char kept = names[i][15];

            names[i][15] = names[j][15];
            assert_int_equal(comm_names_differ(names[0], 16, 5), i == j);
            names[i][15] = kept;
        }
}

/* One rank alone needs nothing, on any device: the group stays what it is. */
static void test_alone(void **state)
{
    const struct backend *const backends[] = {&backend_cpu, &backend_discrete};

    for (int i = 0; i < 2; i++) {
        struct error err;
        struct device *dev = device_open(backends[i], 0, 1, &err);
        struct comm *self = comm_alone_create(&err);
        struct comm_fabric *fabric = comm_fabric_create(self, dev, &err);

        assert_non_null(fabric);
        assert_string_equal(comm_fabric_describe(fabric), "");
        assert_ptr_equal(comm_on_device(fabric, self, COMM_COLLECTIVES, 0, 0, &err), self);
        assert_ptr_equal(comm_host(self), self);
        comm_fabric_destroy(fabric);
        comm_destroy(self);
        device_destroy(dev);
    }
}

static void test_choices(void **state)
{
    struct error err;
    struct device *dev, *cuda;

    dev = choose_device(DEVICE_CPU, &err);
    assert_non_null(dev);
    assert_true(strncmp(device_describe(dev), "cpu, ", 5) == 0 && device_is_host(dev));
    device_destroy(dev);

    cuda = choose_device(DEVICE_CUDA, &err);
    dev = choose_device(DEVICE_AUTO, &err);
    assert_non_null(dev);
    assert_int_equal(device_is_host(dev), cuda == NULL);
    device_destroy(dev);
    device_destroy(cuda);
}

#ifdef HAVE_NCCL
/* A library that is not there is a reason to exchange by the host, and no failure of the run. */
static void test_no_nccl(void **state)
{
    struct error err = {0};

    setenv("MUSTER_NCCL", "/nowhere/libnccl.so.2", 1);
    assert_int_equal(comm_nccl_load(&err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "/nowhere/libnccl.so.2"));
    unsetenv("MUSTER_NCCL");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_differ),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_choices),
#ifdef HAVE_NCCL
        cmocka_unit_test(test_no_nccl),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
