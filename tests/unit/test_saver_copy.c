/* A shard copied into the stage in a thread: what is drained is what would have been at once; and what failed is told.
 */
#include "trainer/saver_impl.h"

#include "tests/cmocka_test.h"
#include "tests/unit/ckpt_stage_world.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t seed = 4711;

static void start(struct shard_save *own, struct node *node, uint64_t step, const char *attempt, bool beside)
{
    own->save = world_save(node->world, node->topology, 0, node->target, step, attempt);
    shard_save_copy(own, node->stage, beside);
    assert_true(own->copying);
}

static volatile sig_atomic_t interrupted;
static pthread_t trainer;

static void interrupt(int number)
{
    (void)number;
    if (!pthread_equal(pthread_self(), trainer))
        _exit(1);
    interrupted = 1;
}

/* What a trainer does meanwhile: looks after its drainer, asks whether the copy is over, and is told to stop. */
static void train_beside(const struct shard_save *own, struct node *node)
{
    do {
        assert_true(ckpt_stage_updated(node->stage) > 0);
        assert_non_null(strstr(ckpt_stage_directory(node->stage), node->root));
        kill(getpid(), SIGUSR1);
    } while (!atomic_load(&own->copied));
}

static void beside_is_as_at_once(void **state)
{
    struct shard_save own = {0};
    struct world world;
    struct node node;
    struct error err;

    trainer = pthread_self();
    signal(SIGUSR1, interrupt);
    node_begin(&node, &world, &seed, 1, true);
    for (uint64_t step = 1; step <= 6; step++) {
        start(&own, &node, step, "a", step % 3 != 0);
        if (step % 3 == 0)
            assert_true(atomic_load(&own.copied));
        train_beside(&own, &node);
        assert_int_equal(shard_save_wait(&own, &err), 0);
        assert_false(own.copying);
        assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
        world_expect(&world, node.topology, node.target, step);
    }
    assert_true(interrupted);
    signal(SIGUSR1, SIG_DFL);
    node_destroy(&node);
}

/* Nobody asked whether it is over: waiting for it is enough. */
static void waiting_is_enough(void **state)
{
    struct shard_save own = {0};
    struct world world;
    struct node node;
    struct error err;

    node_begin(&node, &world, &seed, 1, false);
    for (uint64_t step = 1; step <= 2; step++) {
        start(&own, &node, step, "a", true);
        assert_int_equal(shard_save_wait(&own, &err), 0);
    }
    assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
    world_expect(&world, node.topology, node.target, 1);
    world_expect(&world, node.topology, node.target, 2);
    node_destroy(&node);
}

static void failures_are_told(void **state)
{
    struct rlimit before, small = {100000, RLIM_INFINITY};
    struct shard_save own = {0};
    struct world world;
    struct node node;
    struct error err = {0};

    signal(SIGXFSZ, SIG_IGN);
    node_begin(&node, &world, &seed, 1, true);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    start(&own, &node, 1, "a", true);
    assert_int_equal(shard_save_wait(&own, &err), 1);
    assert_int_equal(err.code, CODE_IO);
    assert_non_null(strstr(err.text, node.root));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(ckpt_stage_drop(node.stage, 1, "a", "", &err), 0);

    err = (struct error){0};
    start(&own, &node, 2, "not a name", true); /* which is not for want of room */
    assert_int_equal(shard_save_wait(&own, &err), -1);
    assert_int_equal(err.code, CODE_INTERNAL);

    start(&own, &node, 3, "b", true); /* and the next is none the worse for it */
    assert_int_equal(shard_save_wait(&own, &err), 0);
    assert_int_equal(node_drain(&node), CKPT_DRAIN_DONE);
    world_expect(&world, node.topology, node.target, 3);
    node_destroy(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_is_as_at_once),
        cmocka_unit_test(waiting_is_enough),
        cmocka_unit_test(failures_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
