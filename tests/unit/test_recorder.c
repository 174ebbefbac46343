/* The flight recorder: what it writes is what another thread, or another process, reads. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/cmocka_test.h"
#include "trainer/watch/recorder.h"

#ifdef __SANITIZE_THREAD__
const char *__tsan_default_options(void); /* the sanitizer's name for it */
const char *__tsan_default_options(void)
{
    return "halt_on_error=1 exitcode=66";
}
#endif

static struct error err;
static int descriptor;
static const int everyone[] = {0, 1, 2, 3};

static void does_nothing_unless_started(void **state)
{
    int comm = 0;
    struct record_op op = {0};

    assert_false(recorder_must_add_comm(comm));
    recorder_add_comm(&comm, "dp", everyone, 4);
    recorder_enter(&op, comm, RECORD_SUM, -1, "a", "b");
    assert_int_equal(op.number, 0);
    recorder_wait_begin(&op);
    recorder_leave(&op);
    recorder_phase("saving");
    recorder_step(1);
    recorder_micro_batch(1);
    recorder_ending();
    recorder_remove_comm(&comm);
    recorder_stop();
}

static void says_what_is_done(void **state)
{
    struct record_file *file = recorder_start(&descriptor, &err);
    int comm = 0;
    struct record_op first, second;
    struct flight_record r;

    assert_non_null(file);
    assert_true(recorder_must_add_comm(comm));
    recorder_add_comm(&comm, "dp", everyone, 4);
    assert_false(recorder_must_add_comm(comm));
    recorder_phase(NULL);
    recorder_step(7);
    recorder_micro_batch(2);
    recorder_enter(&first, comm, RECORD_REDUCE_SCATTER, -1, "block 7", "gradients");
    recorder_enter(&second, comm, RECORD_SEND, 3, NULL, NULL);
    recorder_wait_begin(&second);

    assert_true(record_copy(&r, file));
    assert_int_equal(r.operations, 2);
    assert_int_equal(r.step, 7);
    assert_int_equal(r.micro_batch, 2);
    assert_string_equal(r.phase, "computing");
    assert_int_equal(r.ending, 0);
    assert_string_equal(r.ring[1].purpose, "block 7 gradients");
    assert_int_equal(r.ring[1].kind, RECORD_REDUCE_SCATTER);
    assert_int_equal(r.ring[1].peer, -1);
    assert_int_equal(r.ring[1].finished, 0);
    assert_true(r.waiting_since >= r.ring[2].entered && r.ring[2].entered >= r.ring[1].entered);
    assert_int_equal(r.waiting.number, 2);
    assert_string_equal(r.waiting.purpose, "");
    assert_ptr_equal(record_last(&r), &r.ring[2]);
    assert_int_equal(r.comms[0].collectives_entered, 1);
    assert_int_equal(r.comms[0].collectives_finished, 0);
    assert_int_equal(r.comms[0].npeers, 1);
    assert_int_equal(r.comms[0].peers[0].rank, 3);
    assert_int_equal(r.comms[0].peers[0].sends, 1);
    assert_int_equal(r.comms[0].peers[0].receives, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(record_member(&r.comms[0], i), everyone[i]);
    assert_int_equal(record_member(&r.comms[0], 4), -1);

    usleep(2000);
    recorder_leave(&second);
    recorder_leave(&first);
    recorder_ending();
    assert_true(record_copy(&r, file));
    assert_int_equal(r.waiting_since, 0);
    assert_int_equal(r.comms[0].collectives_finished, 1);
    assert_true(r.ring[1].finished >= r.ring[2].finished && r.ring[2].finished > r.ring[2].entered);
    assert_true(r.waited_seconds >= 0.002 && r.waited_seconds == recorder_waited_seconds());
    assert_int_equal(r.ending, 1);
    recorder_stop();
}

/* Waits for 20 ms in an operation of that communicator. */
static void wait_on(int comm)
{
    struct record_op op;

    recorder_enter(&op, comm, RECORD_SUM, -1, NULL, NULL);
    recorder_wait_begin(&op);
    usleep(20000);
    recorder_leave(&op);
}

/* Waits for 60 ms in an operation of that communicator; for the first 40 the device has work of before. */
static void wait_behind_work(int comm)
{
    double waited = recorder_waited_seconds();
    int64_t began = recorder_now();
    struct record_op op;

    recorder_enter(&op, comm, RECORD_SUM, -1, NULL, NULL);
    recorder_wait_begin(&op);
    recorder_device_busy(true);
    usleep(40000);
    recorder_device_busy(false);
    usleep(20000);
    recorder_leave(&op);
    waited = recorder_waited_seconds() - waited;
    assert_true(waited >= 0.02 && waited <= 1e-9 * (double)(recorder_now() - began) - 0.04);
}

/* All of the time, once: waits are an axis's while this rank computes, and else part of its work. */
static void tells_where_the_time_goes(void **state)
{
    struct record_file *file = recorder_start(&descriptor, &err);
    int64_t began = recorder_now();
    int dp = 0, tp = 0, pp = 0, world = 0;
    double s[RECORDER_SHARES], sum = 0;

    assert_non_null(file);
    recorder_add_comm(&dp, "dp", everyone, 4);
    recorder_add_comm(&tp, "tp", everyone, 2);
    recorder_add_comm(&pp, "pp up", everyone, 2);
    recorder_add_comm(&world, "world", everyone, 4);
    recorder_phase(NULL);
    usleep(10000);
    wait_on(dp);
    wait_behind_work(tp);
    wait_on(pp);
    wait_on(pp);
    wait_on(world);
    recorder_phase("reading data");
    usleep(30000);
    recorder_base("validating");
    wait_on(dp);
    recorder_phase("saving a checkpoint");
    wait_on(world);
    recorder_phase(NULL);
    usleep(10000);
    recorder_base(NULL);
    recorder_shares(s);
    for (int i = 0; i < RECORDER_SHARES; i++)
        sum += s[i];
    assert_true(sum >= 1e-9 * (double)(recorder_now() - began) - 0.01 &&
                sum < 1e-9 * (double)(recorder_now() - began) + 0.01);
    assert_true(s[SHARE_COMPUTING] >= 0.05 && s[SHARE_DATA] >= 0.03 && s[SHARE_SAVING] >= 0.02);
    assert_true(s[SHARE_DP] >= 0.02 && s[SHARE_WORLD] >= 0.02 && s[SHARE_VALIDATING] >= 0.03);
    assert_true(s[SHARE_PP] >= 0.04 && s[SHARE_TP] >= 0.02);
    recorder_stop();
    close(descriptor);
}

/* The same name and members are the same communicator on every rank, and only they. */
static void communicators_are_told_apart(void **state)
{
    struct record_file *file = recorder_start(&descriptor, &err);
    int a = 0, b = 0, c = 0;
    const int others[] = {0, 1, 3, 2};
    struct flight_record r;

    recorder_add_comm(&a, "dp", everyone, 4);
    recorder_add_comm(&b, "tp", everyone, 4);
    recorder_add_comm(&c, "dp", others, 4);
    record_copy(&r, file);
    assert_true(r.comms[0].id != 0 && r.comms[0].id != r.comms[1].id && r.comms[0].id != r.comms[2].id);
    recorder_remove_comm(&a);
    recorder_add_comm(&b, "dp", everyone, 4);
    recorder_stop();
}

static void is_full_without_harm(void **state)
{
    struct record_file *file = recorder_start(&descriptor, &err);
    int comms[RECORD_COMMS + 2] = {0};
    struct record_op op;
    struct flight_record r;

    for (int i = 0; i < RECORD_COMMS + 2; i++) {
        recorder_add_comm(&comms[i], "a name that is longer than its place", everyone, 4);
        recorder_enter(&op, comms[i], RECORD_SUM, -1, "a word that is much longer than its place", "and more");
        assert_int_equal(op.number, i < RECORD_COMMS ? i + 1 : 0);
        recorder_wait_begin(&op);
        recorder_leave(&op);
    }
    for (int peer = 0; peer < RECORD_PEERS + 3; peer++)
        recorder_enter(&op, comms[0], RECORD_RECEIVE, peer, NULL, NULL);
    assert_int_equal(op.sequence, 0);
    for (int i = 0; i < 3 * RECORD_RING; i++)
        recorder_enter(&op, comms[1], RECORD_SUM, -1, "ring", NULL);
    assert_true(record_copy(&r, file));
    assert_int_equal(r.comms[0].npeers, RECORD_PEERS);
    assert_int_equal(r.comms[1].collectives_entered, 3 * RECORD_RING + 1);
    assert_int_equal(strlen(r.comms[0].name), RECORD_NAME_SIZE - 1);
    assert_int_equal(record_last(&r)->number, r.operations);
    recorder_stop();
}

/* ---- across processes ---- */

struct child {
    pid_t pid;
    int record;
    struct process process;
};

/* A child that records one operation and then waits to be killed. */
static struct child start_child(void)
{
    struct child child;
    int pipes[2];

    if (getenv("MUSTER_TEST_EMULATED")) {
        print_message("# an emulator gives a child its parent's start time\n");
        skip();
    }
    assert_int_equal(pipe(pipes), 0);
    child.pid = fork();
    if (child.pid == 0) {
        int comm = 0;
        struct record_op op;

        recorder_start(&descriptor, &err);
        child.process = process_self();
        recorder_add_comm(&comm, "dp", everyone, 4);
        recorder_enter(&op, comm, RECORD_BROADCAST, -1, "the list", NULL);
        recorder_wait_begin(&op);
        child.record = descriptor;
        child.pid = getpid();
        if (write(pipes[1], &child, sizeof child) != sizeof child)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(pipes[0], &child, sizeof child), sizeof child);
    close(pipes[0]);
    close(pipes[1]);
    return child;
}

static void kill_child(struct child *child)
{
    kill(child->pid, SIGKILL);
    assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
}

static void await(const struct process *process, enum process_state state)
{
    for (int i = 0; i < 1000 && process_inspect(process) != state; i++)
        usleep(10000);
    assert_int_equal(process_inspect(process), state);
}

static void outlives_its_process(void **state)
{
    struct child child = start_child();
    struct record_file *file = record_map(&child.process, child.record, &err);
    struct flight_record r;

    assert_non_null(file);
    assert_int_equal(process_inspect(&child.process), PROCESS_RUNNING);
    kill(child.pid, SIGSTOP);
    await(&child.process, PROCESS_STOPPED);
    assert_true(record_copy(&r, file));
    assert_string_equal(r.waiting.purpose, "the list");
    kill(child.pid, SIGCONT);
    await(&child.process, PROCESS_RUNNING);
    kill(child.pid, SIGKILL);
    await(&child.process, PROCESS_GONE); /* though nobody has waited for it yet */
    kill_child(&child);
    assert_int_equal(process_inspect(&child.process), PROCESS_GONE);
    assert_true(record_copy(&r, file));
    assert_string_equal(r.waiting.purpose, "the list");
    record_close(file);
}

/* The descriptor may be of anything, if two hosts have the same name. */
static void what_is_no_record_is_refused_and_hangs_nobody(void **state)
{
    struct record_file *mapped;
    struct process self = process_self();
    int pipes[2];

    assert_non_null(recorder_start(&descriptor, &err));
    assert_non_null(mapped = record_map(&self, descriptor, &err));
    record_close(mapped);
    self.started--;
    assert_null(record_map(&self, descriptor, &err));
    self.started++;
    assert_int_equal(pipe(pipes), 0);
    alarm(20);
    assert_null(record_map(&self, pipes[0], &err));
    alarm(0);
    close(pipes[0]);
    close(pipes[1]);
    close(descriptor);
    assert_null(record_map(&self, descriptor, &err));
    recorder_stop();
}

static void a_number_that_was_given_again_is_another(void **state)
{
    struct process self = process_self();

    assert_int_equal(process_inspect(&self), PROCESS_RUNNING);
    self.started--;
    assert_int_equal(process_inspect(&self), PROCESS_GONE);
    self.started++;
    self.pid_namespace++; /* another container's */
    assert_int_equal(process_inspect(&self), PROCESS_UNKNOWN);
}

/* ---- while it is written ---- */

static void a_writer_stopped_in_the_middle_blocks_nobody(void **state)
{
    struct record_file *file = recorder_start(&descriptor, &err);
    struct flight_record r;

    record_write_begin(file);
    assert_false(record_copy(&r, file));
    record_write_end(file);
    assert_true(record_copy(&r, file));
    assert_string_equal(r.phase, "starting");
    recorder_stop();
}

static atomic_bool writing, torn;
static atomic_int copies;

/* Every copy that is whole is one moment: what was written together is read together. */
static void *copy_again_and_again(void *file)
{
    struct flight_record r;

    while (writing) {
        if (!record_copy(&r, file))
            continue;
        if (r.operations &&
            (record_last(&r)->number != r.operations || record_last(&r)->entered != r.last_change ||
             r.comms[0].collectives_entered != r.operations || strcmp(record_last(&r)->purpose, "x") != 0))
            torn = true;
        if (r.micro_batch != 0 && r.micro_batch != r.step)
            torn = true;
        copies++;
    }
    return NULL;
}

static void copies_are_of_one_moment(void **state)
{
    struct record_file *file = recorder_start(&descriptor, &err);
    int comm = 0;
    time_t deadline = time(NULL) + 60;
    struct record_op op;
    pthread_t reader;

    recorder_add_comm(&comm, "dp", everyone, 4);
    writing = true;
    assert_int_equal(pthread_create(&reader, NULL, copy_again_and_again, file), 0);
    /* The reader may get a core late, and a copy only where the writer lost its own or rests. */
    for (int i = 0; i < 100000 || (copies < 100 && time(NULL) < deadline); i++) {
        recorder_enter(&op, comm, RECORD_SUM, -1, "x", NULL);
        recorder_step(i);
        recorder_micro_batch(i);
        if (i % 1000 == 0)
            usleep(100);
    }
    writing = false;
    assert_int_equal(pthread_join(reader, NULL), 0);
    assert_false(torn);
    assert_true(copies >= 100);
    recorder_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(does_nothing_unless_started),
        cmocka_unit_test(says_what_is_done),
        cmocka_unit_test(tells_where_the_time_goes),
        cmocka_unit_test(communicators_are_told_apart),
        cmocka_unit_test(is_full_without_harm),
        cmocka_unit_test(outlives_its_process),
        cmocka_unit_test(a_number_that_was_given_again_is_another),
        cmocka_unit_test(a_writer_stopped_in_the_middle_blocks_nobody),
        cmocka_unit_test(copies_are_of_one_moment),
        cmocka_unit_test(what_is_no_record_is_refused_and_hangs_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
