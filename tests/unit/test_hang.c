/* Who holds up a run that hangs, and how that is said; test_hang_random.c has runs of random programs. */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"
#include "tests/unit/hang_world.h"
#include "tests/unit/test_files.h"
#include "trainer/watch/hang.h"

#define PATIENCE 300.0

static struct error err;

static void check_cause(const struct hang_world *w, enum hang_verdict_kind kind, const char *expected)
{
    struct hang_verdict v;
    struct record_cause cause;

    assert_int_equal(hang_judge(&v, w->ranks, w->size, PATIENCE, &err), 0);
    hang_cause(&cause, &v, w->ranks, w->size);
    assert_string_equal(cause.text, expected);
    assert_int_equal(v.kind, kind);
    free(v.named);
}

static void enter_and_wait(struct hang_world *w, int rank, int comm, enum record_kind kind, int peer,
                           const char *purpose)
{
    struct record_op op = hang_world_enter(w, rank, comm, kind, peer, purpose);

    hang_world_wait(w, rank, &op);
}

/* Rank 5 of 8 has reduced block 7; the others are two further, and wait. */
static struct hang_world two_behind(void)
{
    struct hang_world w = hang_world(8, 1, 1);

    for (int rank = 0; rank < 8; rank++) {
        hang_world_do(&w, rank, DP, RECORD_REDUCE_SCATTER, "block 7 gradients");
        if (rank == 5)
            continue;
        hang_world_enter(&w, rank, DP, RECORD_REDUCE_SCATTER, -1, "block 6 gradients");
        enter_and_wait(&w, rank, DP, RECORD_REDUCE_SCATTER, -1, "block 5 gradients");
    }
    return w;
}

static void a_rank_that_computes(void **state)
{
    struct hang_world w = two_behind();

    hang_world_take(&w, 603);
    check_cause(&w, HANG_LATE,
                "rank 5 on n3 is 2 collectives behind, last entered reduce-scatter of block 7 gradients (dp); it has "
                "been computing for 603 s");
    snprintf(w.ranks[5].record.phase, sizeof w.ranks[5].record.phase, "saving a checkpoint");
    check_cause(&w, HANG_LATE,
                "rank 5 on n3 is 2 collectives behind, last entered reduce-scatter of block 7 gradients (dp); it has "
                "been saving a checkpoint for 603 s");
    hang_world_free(&w);
}

static void a_rank_that_is_lost(void **state)
{
    struct hang_world w = two_behind();

    hang_world_take(&w, 20);
    w.ranks[5].state = HANG_STOPPED;
    check_cause(&w, HANG_LATE,
                "rank 5 on n3 is stopped (by SIGSTOP or a debugger); it is 2 collectives behind, last entered "
                "reduce-scatter of block 7 gradients (dp)");
    w.ranks[5].state = HANG_DEAD;
    check_cause(&w, HANG_LATE,
                "rank 5 on n3 is dead (its process is gone), probably by SIGKILL; it is 2 collectives behind, last "
                "entered reduce-scatter of block 7 gradients (dp)");
    w.ranks[5].state = HANG_SILENT;
    memset(&w.ranks[5].record, 0, sizeof w.ranks[5].record);
    check_cause(&w, HANG_LATE, "rank 5 on n3 is silent: it or its node is dead, stopped or cut off");
    hang_world_free(&w);
}

/* Before anybody has missed it. */
static void a_dead_rank_that_nobody_waits_for(void **state)
{
    struct hang_world w = hang_world(4, 1, 1);

    hang_world_take(&w, 0.1);
    w.ranks[2].state = HANG_DEAD;
    check_cause(&w, HANG_LATE,
                "rank 2 on n2 is dead (its process is gone), probably by SIGKILL; has entered nothing yet");
    hang_world_free(&w);
}

static void a_host_is_one_cause(void **state)
{
    struct hang_world w = two_behind();

    hang_world_take(&w, 20);
    for (int rank = 4; rank < 6; rank++)
        w.ranks[rank].state = HANG_SILENT;
    check_cause(&w, HANG_LATE, "ranks 4-5 on n3 are silent: their node is dead, stopped or cut off");
    for (int rank = 4; rank < 6; rank++)
        w.ranks[rank].state = HANG_DEAD;
    check_cause(&w, HANG_LATE, "ranks 4-5 on n3 are dead (their processes are gone), probably by SIGKILL");
    /* Hosts that have not published yet are no reason, where there is one. */
    w.ranks[4].state = HANG_SILENT;
    check_cause(&w, HANG_LATE,
                "rank 5 on n3 is dead (its process is gone), probably by SIGKILL; it is 2 collectives behind, last "
                "entered reduce-scatter of block 7 gradients (dp)");
    hang_world_free(&w);
}

/* 0 waits in tp for 1, which waits in dp for 3, which waits in pp for 7, which computes. */
static void a_chain_ends_at_one(void **state)
{
    struct hang_world w = hang_world(2, 2, 2);

    for (int rank = 0; rank < 8; rank++)
        hang_world_do(&w, rank, WORLD, RECORD_SUM, "losses");
    enter_and_wait(&w, 3, BACKWARD, RECORD_RECEIVE, 7, "micro-batch 2");
    enter_and_wait(&w, 1, DP, RECORD_REDUCE_SCATTER, -1, "block 1 gradients");
    enter_and_wait(&w, 0, TP, RECORD_ALL_REDUCE, -1, "block 1 attention");
    enter_and_wait(&w, 2, TP, RECORD_ALL_REDUCE, -1, "block 1 attention");
    for (int rank = 4; rank < 7; rank++)
        enter_and_wait(&w, rank, WORLD, RECORD_BARRIER, -1, "");
    hang_world_take(&w, 700);
    check_cause(&w, HANG_LATE,
                "rank 7 on n4 has not begun to send to rank 3, last entered sum of losses (world); it has been "
                "computing for 700 s");
    hang_world_free(&w);
}

/* Having sent, it has done its part; having entered, only when it waits or is through. */
static void entering_is_not_all(void **state)
{
    struct hang_world w = hang_world(2, 1, 1);
    struct record_op op;

    enter_and_wait(&w, 0, DP, RECORD_ALL_GATHER, -1, "block 0 parameters");
    op = hang_world_enter(&w, 1, DP, RECORD_ALL_GATHER, -1, "block 0 parameters");
    hang_world_take(&w, 700);
    check_cause(&w, HANG_LATE,
                "rank 1 on n1 last entered all-gather of block 0 parameters (dp); it has been computing for 700 s");
    hang_world_wait(&w, 1, &op);
    check_cause(&w, HANG_NETWORK,
                "no rank is late, but data does not arrive: rank 0 on n1 in all-gather of block 0 parameters (dp), "
                "which all others have entered; check the network of n1");
    hang_world_leave(&w, 1, &op);
    enter_and_wait(&w, 1, WORLD, RECORD_BARRIER, -1, "");
    hang_world_take(&w, 700);
    /* 1 waits for 0 now, which is in an operation that nobody holds up. */
    check_cause(&w, HANG_NETWORK,
                "no rank is late, but data does not arrive: rank 0 on n1 in all-gather of block 0 parameters (dp), "
                "which all others have entered; check the network of n1");
    hang_world_free(&w);
}

/* A message concerns two ranks, and has two ends. */
static void a_message_is_between_two(void **state)
{
    struct hang_world w = hang_world(1, 1, 3);

    enter_and_wait(&w, 0, BACKWARD, RECORD_RECEIVE, 1, "micro-batch 1");
    hang_world_take(&w, 700);
    check_cause(
        &w, HANG_LATE,
        "rank 1 on n1 has not begun to send to rank 0, has entered nothing yet; it has been computing for 700 s");
    hang_world_enter(&w, 1, BACKWARD, RECORD_RECEIVE, 0, "");
    hang_world_take(&w, 700);
    check_cause(&w, HANG_LATE,
                "rank 1 on n1 has not begun to send to rank 0, last entered receive from rank 0 (pp backward); it has "
                "been computing for 700 s");
    hang_world_enter(&w, 1, BACKWARD, RECORD_SEND, 0, "micro-batch 1");
    hang_world_take(&w, 700);
    check_cause(&w, HANG_LATE,
                "rank 1 on n1 last entered send of micro-batch 1 to rank 0 (pp backward); it has been computing for "
                "700 s");
    enter_and_wait(&w, 1, FORWARD, RECORD_SEND, 2, "micro-batch 2");
    hang_world_take(&w, 700);
    check_cause(&w, HANG_LATE,
                "rank 2 on n2 has not begun to receive from rank 1, has entered nothing yet; it has been computing for "
                "700 s");
    hang_world_free(&w);
}

static void a_circle(void **state)
{
    struct hang_world w = hang_world(2, 2, 1);

    enter_and_wait(&w, 0, DP, RECORD_SUM, -1, "");
    enter_and_wait(&w, 2, TP, RECORD_ALL_GATHER, -1, "x");
    enter_and_wait(&w, 3, DP, RECORD_SUM, -1, "");
    enter_and_wait(&w, 1, TP, RECORD_ALL_GATHER, -1, "x");
    hang_world_take(&w, 700);
    check_cause(&w, HANG_CYCLE,
                "ranks wait for each other in a cycle: rank 0 on n1 in sum (dp), rank 2 on n2 in all-gather of x (tp), "
                "rank 3 on n2 in sum (dp), rank 1 on n1 in all-gather of x (tp), which waits for rank 0; this is a "
                "bug in muster");
    hang_world_free(&w);
}

static void different_operations(void **state)
{
    struct hang_world w = hang_world(2, 1, 1);

    enter_and_wait(&w, 0, DP, RECORD_SUM, -1, "losses");
    enter_and_wait(&w, 1, DP, RECORD_ALL_GATHER, -1, "block 3 parameters");
    hang_world_take(&w, 700);
    check_cause(&w, HANG_MISMATCH,
                "two ranks are in different operations, both number 1 on their communicator: rank 0 on n1 in sum of "
                "losses (dp), "
                "rank 1 on n1 in all-gather of block 3 parameters (dp); this is a bug in muster");
    hang_world_free(&w);
}

/* What aborts for want of a lost peer is not to blame; what aborts of itself is. */
static void aborts(void **state)
{
    struct hang_world w = two_behind();
    struct record_cause cause;
    struct hang_verdict v;

    hang_world_take(&w, 1);
    w.ranks[3].state = HANG_ABORTED;
    w.ranks[5].state = HANG_DEAD;
    assert_int_equal(hang_judge(&v, w.ranks, w.size, PATIENCE, &err), 0);
    assert_int_equal(v.nnamed, 1);
    assert_int_equal(v.named[0].rank, 5);
    hang_cause(&cause, &v, w.ranks, w.size);
    assert_false(cause.aborted);
    free(v.named);

    w.ranks[5].state = HANG_RUNNING;
    assert_int_equal(hang_judge(&v, w.ranks, w.size, PATIENCE, &err), 0);
    assert_int_equal(v.nnamed, 1);
    assert_int_equal(v.named[0].rank, 3);
    hang_cause(&cause, &v, w.ranks, w.size);
    assert_true(cause.aborted);
    free(v.named);
    w.ranks[3].signal = SIGSEGV;
    check_cause(&w, HANG_LATE,
                "rank 3 on n2 was ended by signal 11 (Segmentation fault); last entered reduce-scatter of "
                "block 5 gradients (dp)");

    /* All that is known is that one node does not answer, and that the other ranks have aborted. */
    for (int rank = 0; rank < w.size; rank++)
        w.ranks[rank].state = rank == 5 ? HANG_SILENT : HANG_ABORTED;
    check_cause(&w, HANG_LATE, "rank 5 on n3 is silent: it or its node is dead, stopped or cut off");
    hang_world_free(&w);
}

static void nobody_waits(void **state)
{
    struct hang_world w = hang_world(4, 1, 1);

    hang_world_take(&w, 1);
    check_cause(&w, HANG_NOTHING, "no rank waits for another");
    hang_world_free(&w);
}

static void causes_are_cut(void **state)
{
    struct hang_world w = hang_world(64, 1, 1);
    struct record_cause cause;
    struct hang_verdict v;

    for (int rank = 0; rank < 64; rank++) {
        if (rank % 2)
            w.ranks[rank].state = rank % 4 == 1 ? HANG_DEAD : HANG_STOPPED;
        snprintf(w.ranks[rank].host, sizeof w.ranks[rank].host, "a-node-with-a-name-that-takes-all-of-its-room-%017d",
                 rank / 2);
    }
    hang_world_take(&w, 1);
    assert_int_equal(hang_judge(&v, w.ranks, w.size, PATIENCE, &err), 0);
    assert_int_equal(v.nnamed, 32);
    memset(&cause, '#', sizeof cause);
    hang_cause(&cause, &v, w.ranks, w.size);
    assert_int_equal(strlen(cause.text), sizeof cause.text - 1);
    free(v.named);
    hang_world_free(&w);
}

/* ---- the report and the files ---- */

static char *report_of(const struct hang_rank *ranks, int world)
{
    struct hang_verdict v;
    char *text;

    assert_int_equal(hang_judge(&v, ranks, world, PATIENCE, &err), 0);
    text = hang_compose("job 7", &v, ranks, world, 0);
    free(v.named);
    assert_non_null(text);
    return text;
}

static void the_report_says_who_waits(void **state)
{
    struct hang_world w = two_behind();
    char *text;

    w.ranks[5].state = HANG_STOPPED;
    w.ranks[5].record.step = 12;
    w.ranks[5].record.micro_batch = 3;
    hang_world_take(&w, 20);
    text = report_of(w.ranks, w.size);
    assert_int_equal(strncmp(text, "rank 5 on n3 is stopped", 23), 0);
    assert_non_null(strstr(text, "\njob 7, at step 12\n"));
    assert_non_null(strstr(text, "\n  ranks 0-4, 6-7 wait in reduce-scatter of block 5 gradients (dp), for 20 s\n"));
    assert_non_null(strstr(text, "\n*     5  n3               stopped "));
    assert_non_null(strstr(text, "12.3 "));
    assert_non_null(strstr(text, "\nlast operations of rank 5"));
    assert_non_null(strstr(text, "#1 reduce-scatter of block 7 gradients (dp), took 0.000 s\n"));
    free(text);
    hang_world_free(&w);
}

/* As a rank of this node, which has the records of its two ranks alone. */
static void publish_node(const struct hang_world *w, const char *path, int node)
{
    struct hang_rank *known = calloc((size_t)w->size, sizeof *known);

    memcpy(known + 2 * node, w->ranks + 2 * node, 2 * sizeof *known);
    assert_int_equal(hang_records_publish(path, 2 * node, known, w->size, &err), 0);
    free(known);
}

/* Rank 5's own node published its record just before it died; what others see stays with the record, in any order. */
static void a_death_seen_from_another_node(void **state)
{
    static const int seer[] = {0, 6}; /* before and after rank 4, which publishes rank 5's record */
    char dir[] = "/tmp/muster-hang-XXXXXX", command[64];
    struct hang_world w = two_behind();

    hang_world_take(&w, 1);
    assert_non_null(mkdtemp(dir));
    for (int k = 0; k < 2; k++) {
        struct hang_rank *known = calloc((size_t)w.size, sizeof *known), *read = calloc((size_t)w.size, sizeof *read);
        int lowest;

        publish_node(&w, dir, 2);
        memcpy(known + seer[k], w.ranks + seer[k], 2 * sizeof *known);
        known[5].state = HANG_DEAD;
        assert_int_equal(hang_records_publish(dir, seer[k], known, w.size, &err), 0);
        assert_int_equal(hang_collect(dir, &lowest, read, w.size, &err), 2);
        assert_int_equal(lowest, k == 0 ? 0 : 4);
        assert_int_equal(read[5].state, HANG_DEAD);
        assert_memory_equal(&read[5].record, &w.ranks[5].record, sizeof read[5].record);
        free(known);
        free(read);
        snprintf(command, sizeof command, "rm %s/records-*", dir);
        assert_int_equal(system(command), 0);
    }
    hang_world_free(&w);
    assert_int_equal(rmdir(dir), 0);
}

/* Through the files of four nodes, one of which has not published. */
static void files_bring_it_together(void **state)
{
    struct hang_world w = two_behind();
    char dir[] = "/tmp/muster-hang-XXXXXX", path[128];
    struct record_cause cause;
    struct hang_rank *read = calloc((size_t)w.size, sizeof *read);
    char *before, *after;
    int lowest;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/not/yet", dir);
    assert_false(hang_alarm_raised(path));
    assert_int_equal(hang_raise_alarm(path, &err), 0);
    assert_int_equal(hang_raise_alarm(path, &err), 0);
    assert_true(hang_alarm_raised(path));
    w.ranks[5].state = HANG_STOPPED;
    hang_world_take(&w, 20);
    for (int node = 1; node < 4; node++)
        publish_node(&w, path, node);
    for (int rank = 0; rank < 2; rank++) { /* the first node has not published: only its name is known */
        w.ranks[rank].state = HANG_SILENT;
        memset(&w.ranks[rank].record, 0, sizeof w.ranks[rank].record);
        snprintf(read[rank].host, sizeof read[rank].host, "%s", w.ranks[rank].host);
    }
    assert_int_equal(hang_collect(path, &lowest, NULL, w.size, &err), 3);
    assert_int_equal(lowest, 2);
    assert_int_equal(hang_collect(path, &lowest, read, w.size, &err), 3);
    for (int rank = 2; rank < 8; rank++)
        assert_memory_equal(&read[rank].record, &w.ranks[rank].record, sizeof read[rank].record);
    before = report_of(w.ranks, w.size);
    after = report_of(read, w.size);
    assert_string_equal(after, before);

    assert_false(hang_cause_read(path, &cause));
    assert_int_equal(hang_report_publish(path, 2, after, &err), 1);
    assert_int_equal(hang_report_publish(path, 4, "other\n", &err), 0);
    assert_true(hang_cause_read(path, &cause));
    assert_int_equal(strncmp(cause.text, "rank 5 on n3 is stopped", 23), 0);
    assert_false(cause.aborted);
    free(before);
    free(after);

    for (int rank = 0; rank < 8; rank++)
        w.ranks[rank].state = rank == 3 ? HANG_ABORTED : HANG_RUNNING;
    after = report_of(w.ranks, w.size);
    snprintf(path + strlen(path), sizeof path - strlen(path), "/again");
    assert_int_equal(hang_raise_alarm(path, &err), 0);
    assert_int_equal(hang_report_publish(path, 2, after, &err), 1);
    assert_true(hang_cause_read(path, &cause));
    assert_int_equal(strncmp(cause.text, "rank 3 on n2 has aborted", 24), 0);
    assert_true(cause.aborted);
    free(after);
    free(read);
    hang_world_free(&w);
    snprintf(path, sizeof path, "rm -r %s", dir);
    assert_int_equal(system(path), 0);
}

/* A damaged file, of which any byte differs, or one that is cut short, is skipped. */
static void collect_data(const char *path, const char *data, size_t bytes, struct hang_rank *ranks)
{
    char file[128];
    int lowest;

    snprintf(file, sizeof file, "%s/records-00004", path);
    write_file(file, data, bytes);
    assert_int_equal(hang_collect(path, &lowest, ranks, 8, &err), 1);
}

static void damaged_files_are_skipped(void **state)
{
    struct hang_world w = two_behind();
    char dir[] = "/tmp/muster-hang-XXXXXX", path[128], *data;
    struct hang_rank *read = calloc((size_t)8, sizeof *read);
    size_t bytes;

    assert_non_null(mkdtemp(dir));
    hang_world_take(&w, 20);
    publish_node(&w, dir, 2);
    snprintf(path, sizeof path, "%s/records-00004", dir);
    data = text_read_file(path, 1 << 20, &bytes, &err);
    assert_non_null(data);
    collect_data(dir, data, bytes, read);
    assert_int_equal(read[4].state, HANG_RUNNING);
    assert_int_equal(read[3].state, HANG_SILENT);
    read[4] = (struct hang_rank){0};
    for (size_t at = 0; at < bytes; at += at < 64 ? 1 : 97) {
        data[at] ^= 1;
        collect_data(dir, data, bytes, read);
        assert_int_equal(read[4].state, HANG_SILENT);
        data[at] ^= 1;
        collect_data(dir, data, at, read);
        assert_int_equal(read[4].state, HANG_SILENT);
    }
    free(data);
    free(read);
    hang_world_free(&w);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_computes),
        cmocka_unit_test(a_rank_that_is_lost),
        cmocka_unit_test(a_dead_rank_that_nobody_waits_for),
        cmocka_unit_test(a_host_is_one_cause),
        cmocka_unit_test(a_chain_ends_at_one),
        cmocka_unit_test(entering_is_not_all),
        cmocka_unit_test(a_message_is_between_two),
        cmocka_unit_test(a_circle),
        cmocka_unit_test(different_operations),
        cmocka_unit_test(aborts),
        cmocka_unit_test(nobody_waits),
        cmocka_unit_test(causes_are_cut),
        cmocka_unit_test(the_report_says_who_waits),
        cmocka_unit_test(a_death_seen_from_another_node),
        cmocka_unit_test(files_bring_it_together),
        cmocka_unit_test(damaged_files_are_skipped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
