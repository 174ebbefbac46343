/* What a rank reads of its GPU, from a library that stands in for NVML; and what preflight finds with it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cmocka_test.h"
#include "trainer/watch/gpu_watch.h"

static unsigned char uuid[16];
static struct error err;

/* The letters of the stand-in. */
static int prepare(const char *letters)
{
    memset(uuid, 0x40, sizeof uuid);
    setenv("MUSTER_STANDIN_NVML", letters, 1);
    return setenv("MUSTER_NVML", "tests/cuda/.libs/libstandin_nvml.so", 1);
}

static void tells_what_the_driver_tells(void **state)
{
    struct gpu_watch *watch;
    struct gpu_reading r;

    (void)state;
    prepare("ex");
    watch = gpu_watch_create(uuid, &err);
    assert_non_null(watch);
    gpu_watch_read(watch, &r); /* too early */
    for (int i = 0; i < GPU_VALUES; i++)
        assert_true(isnan(r.values[i]));
    assert_true(r.ecc == 0 && r.xid == 0);
    usleep(1100000);
    gpu_watch_read(watch, &r);
    assert_float_equal(r.values[GPU_WATTS], 650, 200);
    assert_float_equal(r.values[GPU_LIMIT], 700, 0);
    assert_float_equal(r.values[GPU_POWER_LIMITED], 0.62, 0.2);
    assert_float_equal(r.values[GPU_CLOCK], 1410, 0);
    assert_float_equal(r.values[GPU_CELSIUS], 71, 0);
    assert_true(r.ecc == 3 && r.xid == 94);
    gpu_watch_destroy(watch);
}

static void leaves_out_what_a_gpu_does_not_tell(void **state)
{
    struct gpu_watch *watch;
    struct gpu_reading r;

    (void)state;
    prepare("en");
    watch = gpu_watch_create(uuid, &err);
    assert_non_null(watch);
    prepare("bn");
    usleep(1100000);
    gpu_watch_read(watch, &r);
    assert_true(isnan(r.values[GPU_WATTS]) && isnan(r.values[GPU_CLOCK]) && isnan(r.values[GPU_POWER_LIMITED]));
    assert_float_equal(r.values[GPU_CELSIUS], 71, 0);
    assert_true(r.ecc == 0);
    gpu_watch_destroy(watch);
}

static void does_without(void **state)
{
    struct gpu_reading r;

    (void)state;
    prepare("");
    uuid[15] = 0x41; /* another GPU */
    assert_null(gpu_watch_create(uuid, &err));
    assert_string_equal(err.text, "NVML does not know GPU-40404040-4040-4040-4040-404040404041: Not Found");
    setenv("MUSTER_NVML", "/nonexistent", 1);
    assert_null(gpu_watch_create(uuid, &err));
    assert_non_null(strstr(err.text, "NVML cannot be opened: /nonexistent"));
    assert_int_equal(gpu_watch_xid(NULL, 1000), 0);
    gpu_watch_read(NULL, &r);
    assert_true(isnan(r.values[GPU_WATTS]) && r.ecc == 0 && r.xid == 0);
    gpu_watch_destroy(NULL);
}

/* What muster-preflight writes, which must have this line, or no line about a GPU if it is NULL. */
static void assert_finds(const char *letters, const char *line)
{
    char all[8192] = "";
    FILE *pipe;
    size_t length;

    prepare(letters);
    pipe = popen("./muster-preflight", "r");
    assert_non_null(pipe);
    length = fread(all, 1, sizeof all - 1, pipe);
    all[length] = '\0';
    pclose(pipe);
    if (line ? !strstr(all, line) : strstr(all, "GPU 0") != NULL)
        fail_msg("%s: %s", letters, all);
}

static void preflight_finds_errors(void **state)
{
    (void)state;
    assert_finds("", NULL);
    assert_finds("e",
                 "GPU 0 (GPU-40404040-4040-4040-4040-404040404040): 3 uncorrected memory errors since its driver was");
    assert_finds("r",
                 "GPU 0 (GPU-40404040-4040-4040-4040-404040404040): rows of its memory need a reset to be remapped");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_what_the_driver_tells),
        cmocka_unit_test(leaves_out_what_a_gpu_does_not_tell),
        cmocka_unit_test(does_without),
        cmocka_unit_test(preflight_finds_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
