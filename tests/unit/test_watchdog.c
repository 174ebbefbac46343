/*
 * The watchdog, between real processes that communicate with nobody: each child is a rank that says what it would be
 * doing, and waits until it is interrupted. Built twice: as it is, and with the thread sanitizer.
 */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cmocka_test.h"
#include "trainer/watch/hang.h"
#include "trainer/watch/recorder.h"
#include "trainer/watch/watchdog.h"

enum { RANKS = 4 };

#ifdef __SANITIZE_THREAD__
const char *__tsan_default_options(void); /* the sanitizer's name for it */
const char *__tsan_default_options(void)
{
    return "halt_on_error=1 exitcode=66"; /* of the child: no rank should end with that */
}
#endif

/* What children and parent share. */
struct scene {
    double hang_seconds;
    char hosts[RANKS][8];
    char directory[128];
    void (*act[RANKS])(struct scene *scene, int rank);
    struct rank_location all[RANKS];
    atomic_int met[3]; /* who has come to each meeting */
    atomic_int ready;
    atomic_bool go_on;
    char text[RANKS][1024]; /* of the error that a rank ended with */
};

static struct scene *scene;
static char dir[64];
static pid_t pids[RANKS];

/* ---- a rank ---- */

static struct error interruption;
static atomic_bool interrupted;
static struct watchdog *watchdog;
static int comm;

static void interrupt(const struct error *err)
{
    interruption = *err;
    interrupted = true;
}

static void meet(struct scene *s, int meeting)
{
    for (s->met[meeting]++; s->met[meeting] < RANKS;)
        usleep(1000);
}

static void enter(const char *what, bool wait)
{
    struct record_op op;

    recorder_enter(&op, comm, RECORD_REDUCE_SCATTER, -1, what, "gradients");
    if (wait)
        recorder_wait_begin(&op);
    else
        recorder_leave(&op);
}

static void end(struct scene *s, int rank, const struct error *err)
{
    snprintf(s->text[rank], sizeof s->text[rank], "%s", err->text);
    recorder_ending();
    watchdog_leave_together(watchdog);
    if (watchdog_stop(watchdog))
        recorder_stop();
    _exit((int)err->code);
}

static void wait_in(struct scene *s, int rank, const char *what)
{
    enter("block 2", false);
    enter(what, true);
    s->ready++;
    while (!interrupted && !s->go_on)
        usleep(1000);
    end(s, rank, interrupted ? &interruption : &(struct error){.code = CODE_OK});
}

static void waits(struct scene *s, int rank)
{
    wait_in(s, rank, "block 1");
}

/* What a rank does that is late, after the last operation. */
static void be_late(struct scene *s)
{
    enter("block 2", false);
    recorder_phase("computing");
    while (s->ready < RANKS - 1)
        usleep(1000);
}

static void computes(struct scene *s, int rank)
{
    (void)rank;
    be_late(s);
    for (;;)
        pause();
}

static void is_stopped(struct scene *s, int rank)
{
    be_late(s);
    raise(SIGSTOP);
    waits(s, rank);
}

static void is_killed(struct scene *s, int rank)
{
    (void)rank;
    be_late(s);
    raise(SIGKILL);
}

static void aborts(struct scene *s, int rank)
{
    (void)rank;
    be_late(s);
    abort();
}

static void exits(struct scene *s, int rank)
{
    (void)rank;
    be_late(s);
    exit(3);
}

static void use_up_the_stack(volatile char *before)
{
    volatile char frame[4096];

    frame[0] = before ? *before : 0;
    if (frame[0] == 0)
        use_up_the_stack(frame);
    frame[1] = frame[0];
}

static void crashes(struct scene *s, int rank)
{
    (void)rank;
    be_late(s);
    use_up_the_stack(NULL);
}

static void loses_its_peer(struct scene *s, int rank)
{
    be_late(s);
    enter("block 1", true);
    sleep(1); /* a collective fails after its peer is gone, not before */
    recorder_alarm();
    while (!interrupted)
        usleep(1000);
    end(s, rank, &interruption);
}

static void ends_early(struct scene *s, int rank)
{
    be_late(s);
    end(s, rank, &(struct error){.code = CODE_OK});
}

static void be_rank(struct scene *s, int rank)
{
    static const int everyone[] = {0, 1, 2, 3};
    struct watchdog_config config = {
        .rank = rank,
        .world = RANKS,
        .hang_seconds = s->hang_seconds,
        .output.title = "a test",
        .on_cause = interrupt,
    };
    struct error err;
    int fd;

    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    alarm(60);
    snprintf(config.output.directory, sizeof config.output.directory, "%s", s->directory);
    config.record_file = recorder_start(&fd, &err);
    if (!config.record_file)
        _exit(1);
    s->all[rank] = (struct rank_location){.process = process_self(), .record = fd};
    memcpy(s->all[rank].host, s->hosts[rank], sizeof s->hosts[rank]);
    config.links = links_create(RANKS, rank, &s->all[rank].link, &err);
    meet(s, 0);
    config.local_ranks = local_ranks_create(s->all, RANKS, rank, config.record_file, &err);
    if (links_connect(config.links, &s->all[links_parent(rank)].link, &err) < 0)
        _exit(1);
    meet(s, 1);
    if (!config.local_ranks || links_accept(config.links, &err) < 0)
        _exit(1);
    close(fd);
    watchdog = watchdog_start(&config, &err);
    if (!watchdog)
        _exit(1);
    recorder_add_comm(&comm, "dp", everyone, RANKS);
    meet(s, 2);
    s->act[rank](s, rank);
    _exit(1);
}

/* ---- the parent ---- */

static int begin(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/muster-watchdog-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    scene = mmap(NULL, sizeof *scene, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (scene == MAP_FAILED)
        return -1;
    scene->hang_seconds = 0.6;
    snprintf(scene->directory, sizeof scene->directory, "%s/hang", dir);
    for (int rank = 0; rank < RANKS; rank++) {
        snprintf(scene->hosts[rank], sizeof scene->hosts[rank], "n1");
        scene->act[rank] = waits;
    }
    return 0;
}

static int clean_up(void **state)
{
    char command[128];

    munmap(scene, sizeof *scene);
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

static void start_ranks(void)
{
    if (getenv("MUSTER_TEST_EMULATED")) {
        print_message("# an emulator gives a child its parent's start time\n");
        skip();
    }
    fflush(NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] == 0)
            be_rank(scene, rank);
    }
}

/* Exit code, or minus the signal, of a rank. */
static int ended_with(int rank)
{
    int status;

    while (waitpid(pids[rank], &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void all_end_with(int code, int but, int its_code)
{
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(ended_with(rank), rank == but ? its_code : code);
}

static void starts_with(const char *text, const char *start)
{
    if (strncmp(text, start, strlen(start)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", text, start);
}

static void report_is(const char *expected)
{
    struct record_cause cause;

    assert_true(hang_cause_read(scene->directory, &cause));
    starts_with(cause.text, expected);
    for (int rank = 0; rank < RANKS; rank++)
        if (scene->text[rank][0])
            starts_with(scene->text[rank], expected);
}

static void skip_if_sanitized(const char *why)
{
#ifdef __SANITIZE_THREAD__
    print_message("# %s\n", why);
    skip();
#else
    (void)why;
#endif
}

static void names_one_that_is_stopped_and_wakes_it(void **state)
{
    scene->act[2] = is_stopped;
    start_ranks();
    all_end_with(CODE_PEER, -1, 0);
    report_is("rank 2 on n1 is stopped (by SIGSTOP or a debugger); it is 1 collective behind, last entered "
              "reduce-scatter of block 2 gradients (dp)");
    assert_string_not_equal(scene->text[0], "");
}

/* The lowest rank is the one that would speak. */
static void names_the_lowest_too(void **state)
{
    scene->act[0] = is_stopped;
    start_ranks();
    all_end_with(CODE_PEER, -1, 0);
    report_is("rank 0 on n1 is stopped");
}

/* It takes no notice, so its watchdog ends it. */
static void names_one_that_computes_for_ever(void **state)
{
    scene->act[3] = computes;
    start_ranks();
    all_end_with(CODE_PEER, -1, 0);
    report_is("rank 3 on n1 is 1 collective behind, last entered reduce-scatter of block 2 gradients (dp); it has been "
              "computing for");
}

/* Without waiting for hang_seconds, which would be beyond this test's end. */
static void sees_at_once_that_one_is_dead(void **state)
{
    scene->hang_seconds = 1000;
    scene->act[1] = is_killed;
    start_ranks();
    all_end_with(CODE_PEER, 1, -SIGKILL);
    report_is("rank 1 on n1 is dead (its process is gone)");
}

static void lets_one_abort_that_does_so_of_itself(void **state)
{
    scene->hang_seconds = 1000;
    scene->act[1] = aborts;
    start_ranks();
    all_end_with(CODE_PEER, 1, -SIGABRT);
    report_is("rank 1 on n1 has aborted");
}

/* Nobody else is on its node, and no rank waits for hang_seconds. */
static void sees_at_once_that_one_on_another_node_is_dead(void **state)
{
    scene->hang_seconds = 1000;
    scene->act[1] = is_killed;
    for (int rank = 0; rank < RANKS; rank++)
        snprintf(scene->hosts[rank], sizeof scene->hosts[rank], "n%hhd", (signed char)rank);
    start_ranks();
    all_end_with(CODE_PEER, 1, -SIGKILL);
    report_is("rank 1 on n1 is dead (its process is gone), probably by SIGKILL");
}

/* Libraries do that when they give up, as in MPI_Abort. */
static void lets_one_exit_that_does_so_of_itself(void **state)
{
    skip_if_sanitized("the thread sanitizer changes the code of an exit with a thread that was not joined");
    scene->hang_seconds = 1000;
    scene->act[3] = exits;
    start_ranks();
    all_end_with(CODE_PEER, 3, 3);
    report_is("rank 3 on n1 has aborted");
}

static void names_the_signal_of_a_crash(void **state)
{
    skip_if_sanitized("the thread sanitizer has no place for a stack that is used up");
    scene->hang_seconds = 1000;
    scene->act[2] = crashes;
    snprintf(scene->hosts[2], sizeof scene->hosts[2], "n2");
    start_ranks();
    all_end_with(CODE_PEER, 2, -SIGSEGV);
    report_is("rank 2 on n2 was ended by signal 11 (Segmentation fault); it is 1 collective behind, "
              "last entered");
}

/* The library of each survivor finds the peer gone: one fails, one aborts. */
static void explains_a_lost_peer(void **state)
{
    scene->hang_seconds = 1000;
    scene->act[0] = loses_its_peer;
    scene->act[1] = is_killed;
    scene->act[2] = aborts;
    scene->ready = 2; /* rank 3 is the only one that waits for the others to be late */
    start_ranks();
    all_end_with(CODE_PEER, 1, -SIGKILL);
    report_is("rank 1 on n1 is dead (its process is gone)");
    assert_string_not_equal(scene->text[0], "");
}

/* The third host's only rank is stopped: nobody is there to speak for it, nor to wake it. */
static void names_the_host_that_is_silent(void **state)
{
    snprintf(scene->hosts[2], sizeof scene->hosts[2], "n2");
    snprintf(scene->hosts[3], sizeof scene->hosts[3], "n3");
    scene->act[3] = is_stopped;
    start_ranks();
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(ended_with(rank), CODE_PEER);
    report_is("rank 3 on n3 is silent");
    assert_int_equal(waitpid(pids[3], NULL, WNOHANG), 0);
    kill(pids[3], SIGCONT);
    assert_int_equal(ended_with(3), CODE_PEER);
    report_is("rank 3 on n3 is silent");
}

/* The file system may be what hangs the run. */
static void judges_by_host_where_nothing_can_be_written(void **state)
{
#ifdef MUSTER_SANITIZED
    print_message("# ranks of a sanitized program may end before the others have looked at them\n");
    skip();
#endif
    snprintf(scene->directory, sizeof scene->directory, "/proc/nowhere/hang");
    scene->act[2] = is_stopped;
    start_ranks();
    all_end_with(CODE_PEER, -1, 0);
    for (int rank = 0; rank < 2; rank++)
        starts_with(scene->text[rank], "rank 2 on n1 is stopped");
}

static void no_alarm(void)
{
    scene->go_on = true;
    all_end_with(CODE_OK, -1, 0);
    assert_false(hang_alarm_raised(scene->directory));
}

static void one_that_ends_is_not_missed(void **state)
{
    scene->hang_seconds = 1000;
    scene->act[2] = ends_early;
    start_ranks();
    assert_int_equal(ended_with(2), CODE_OK);
    sleep(3); /* some looks at the local_ranks */
    scene->go_on = true;
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(rank == 2 ? CODE_OK : ended_with(rank), CODE_OK);
    assert_false(hang_alarm_raised(scene->directory));
}

/* It may be swapped out, or in a debugger: its node answers for it. */
static void one_that_is_stopped_is_not_dead(void **state)
{
    scene->hang_seconds = 1000;
    snprintf(scene->hosts[2], sizeof scene->hosts[2], "n2");
    start_ranks();
    while (scene->ready < RANKS)
        usleep(1000);
    kill(pids[2], SIGSTOP);
    sleep(3);
    kill(pids[2], SIGCONT);
    no_alarm();
}

/* As Slurm does with `scontrol suspend`, or a laptop with its lid closed. */
static void time_suspended_does_not_count(void **state)
{
    scene->hang_seconds = 4;
    start_ranks();
    while (scene->ready < RANKS)
        usleep(1000);
    for (int rank = 0; rank < RANKS; rank++)
        kill(pids[rank], SIGSTOP);
    sleep(5);
    for (int rank = 0; rank < RANKS; rank++)
        kill(pids[rank], SIGCONT);
    usleep(700000); /* two looks, at least one of them after the gap */
    no_alarm();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, clean_up)
        TEST(names_one_that_is_stopped_and_wakes_it),
        TEST(names_the_lowest_too),
        TEST(names_one_that_computes_for_ever),
        TEST(sees_at_once_that_one_is_dead),
        TEST(sees_at_once_that_one_on_another_node_is_dead),
        TEST(lets_one_abort_that_does_so_of_itself),
        TEST(lets_one_exit_that_does_so_of_itself),
        TEST(names_the_signal_of_a_crash),
        TEST(explains_a_lost_peer),
        TEST(names_the_host_that_is_silent),
        TEST(judges_by_host_where_nothing_can_be_written),
        TEST(one_that_ends_is_not_missed),
        TEST(one_that_is_stopped_is_not_dead),
        TEST(time_suspended_does_not_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
