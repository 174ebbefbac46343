/* Who holds up a run that hangs, and how that is said; test_hang_random.c has runs of random programs. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/hang_world.h"
#include "trainer/watch/hang.h"

#define PATIENCE 300.0

static struct error err;

static void check_sentence(const struct hang_world *w, enum hang_verdict_kind kind, const char *expected)
{
    struct hang_verdict v;
    char text[2048];

    assert_int_equal(hang_judge(&v, w->ranks, w->size, PATIENCE, &err), 0);
    hang_sentence(text, sizeof text, &v, w->ranks, w->size);
    assert_string_equal(text, expected);
    assert_int_equal(v.kind, kind);
    hang_verdict_free(&v);
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

    (void)state;
    hang_world_take(&w, 603);
    check_sentence(
        &w, HANG_LATE,
        "rank 5 on n3 is 2 collectives behind, last entered reduce-scatter of block 7 gradients (dp); it has "
        "been computing for 603 s");
    snprintf(w.ranks[5].record.phase, sizeof w.ranks[5].record.phase, "saving a checkpoint");
    check_sentence(
        &w, HANG_LATE,
        "rank 5 on n3 is 2 collectives behind, last entered reduce-scatter of block 7 gradients (dp); it has "
        "been saving a checkpoint for 603 s");
    hang_world_free(&w);
}

static void a_rank_that_is_lost(void **state)
{
    struct hang_world w = two_behind();

    (void)state;
    hang_world_take(&w, 20);
    w.ranks[5].state = HANG_STOPPED;
    check_sentence(&w, HANG_LATE,
                   "rank 5 on n3 is stopped (by SIGSTOP or a debugger); it is 2 collectives behind, last entered "
                   "reduce-scatter of block 7 gradients (dp)");
    w.ranks[5].state = HANG_DEAD;
    check_sentence(
        &w, HANG_LATE,
        "rank 5 on n3 is dead (its process is gone); it is 2 collectives behind, last entered reduce-scatter "
        "of block 7 gradients (dp)");
    w.ranks[5].state = HANG_SILENT;
    memset(&w.ranks[5].record, 0, sizeof w.ranks[5].record);
    check_sentence(&w, HANG_LATE, "rank 5 on n3 gave no sign: its node or it is dead, stopped or cut off");
    hang_world_free(&w);
}

/* Before anybody has missed it. */
static void a_dead_rank_that_nobody_waits_for(void **state)
{
    struct hang_world w = hang_world(4, 1, 1);

    (void)state;
    hang_world_take(&w, 0.1);
    w.ranks[2].state = HANG_DEAD;
    check_sentence(&w, HANG_LATE, "rank 2 on n2 is dead (its process is gone); has entered nothing yet");
    hang_world_free(&w);
}

static void a_host_is_one_sentence(void **state)
{
    struct hang_world w = two_behind();

    (void)state;
    hang_world_take(&w, 20);
    for (int rank = 4; rank < 6; rank++)
        w.ranks[rank].state = HANG_SILENT;
    check_sentence(&w, HANG_LATE, "ranks 4-5 on n3 gave no sign: their node is dead, stopped or cut off");
    for (int rank = 4; rank < 6; rank++)
        w.ranks[rank].state = HANG_DEAD;
    check_sentence(&w, HANG_LATE, "ranks 4-5 on n3 are dead (their processes are gone)");
    /* Hosts that have not spoken yet are no reason, where there is one. */
    w.ranks[4].state = HANG_SILENT;
    check_sentence(
        &w, HANG_LATE,
        "rank 5 on n3 is dead (its process is gone); it is 2 collectives behind, last entered reduce-scatter "
        "of block 7 gradients (dp)");
    hang_world_free(&w);
}

/* 0 waits in tp for 1, which waits in dp for 3, which waits in pp for 7, which computes. */
static void a_chain_ends_at_one(void **state)
{
    struct hang_world w = hang_world(2, 2, 2);

    (void)state;
    for (int rank = 0; rank < 8; rank++)
        hang_world_do(&w, rank, WORLD, RECORD_SUM, "losses");
    enter_and_wait(&w, 3, BACKWARD, RECORD_RECEIVE, 7, "micro-batch 2");
    enter_and_wait(&w, 1, DP, RECORD_REDUCE_SCATTER, -1, "block 1 gradients");
    enter_and_wait(&w, 0, TP, RECORD_ALL_REDUCE, -1, "block 1 attention");
    enter_and_wait(&w, 2, TP, RECORD_ALL_REDUCE, -1, "block 1 attention");
    for (int rank = 4; rank < 7; rank++)
        enter_and_wait(&w, rank, WORLD, RECORD_BARRIER, -1, "");
    hang_world_take(&w, 700);
    check_sentence(&w, HANG_LATE,
                   "rank 7 on n4 has not begun to send to rank 3, last entered sum of losses (world); it has been "
                   "computing for 700 s");
    hang_world_free(&w);
}

/* Having sent, it has done its part; having entered, only when it waits or is through. */
static void entering_is_not_all(void **state)
{
    struct hang_world w = hang_world(2, 1, 1);
    struct record_op op;

    (void)state;
    enter_and_wait(&w, 0, DP, RECORD_ALL_GATHER, -1, "block 0 parameters");
    op = hang_world_enter(&w, 1, DP, RECORD_ALL_GATHER, -1, "block 0 parameters");
    hang_world_take(&w, 700);
    check_sentence(&w, HANG_LATE,
                   "rank 1 on n1 last entered all-gather of block 0 parameters (dp); it has been computing for 700 s");
    hang_world_wait(&w, 1, &op);
    check_sentence(&w, HANG_TRANSFER,
                   "no rank is late, but data does not arrive: rank 0 on n1 in all-gather of block 0 parameters (dp), "
                   "which all others have entered; check the network of n1");
    hang_world_leave(&w, 1, &op);
    enter_and_wait(&w, 1, WORLD, RECORD_BARRIER, -1, "");
    hang_world_take(&w, 700);
    /* 1 waits for 0 now, which is in an operation that nobody holds up. */
    check_sentence(&w, HANG_TRANSFER,
                   "no rank is late, but data does not arrive: rank 0 on n1 in all-gather of block 0 parameters (dp), "
                   "which all others have entered; check the network of n1");
    hang_world_free(&w);
}

/* A message concerns two ranks, and has two ends. */
static void a_message_is_between_two(void **state)
{
    struct hang_world w = hang_world(1, 1, 3);

    (void)state;
    enter_and_wait(&w, 0, BACKWARD, RECORD_RECEIVE, 1, "micro-batch 1");
    hang_world_take(&w, 700);
    check_sentence(
        &w, HANG_LATE,
        "rank 1 on n1 has not begun to send to rank 0, has entered nothing yet; it has been computing for 700 s");
    hang_world_enter(&w, 1, BACKWARD, RECORD_RECEIVE, 0, "");
    hang_world_take(&w, 700);
    check_sentence(
        &w, HANG_LATE,
        "rank 1 on n1 has not begun to send to rank 0, last entered receive from rank 0 (pp backward); it has "
        "been computing for 700 s");
    hang_world_enter(&w, 1, BACKWARD, RECORD_SEND, 0, "micro-batch 1");
    hang_world_take(&w, 700);
    check_sentence(&w, HANG_LATE,
                   "rank 1 on n1 last entered send of micro-batch 1 to rank 0 (pp backward); it has been computing for "
                   "700 s");
    enter_and_wait(&w, 1, FORWARD, RECORD_SEND, 2, "micro-batch 2");
    hang_world_take(&w, 700);
    check_sentence(
        &w, HANG_LATE,
        "rank 2 on n2 has not begun to receive from rank 1, has entered nothing yet; it has been computing for "
        "700 s");
    hang_world_free(&w);
}

static void a_circle(void **state)
{
    struct hang_world w = hang_world(2, 2, 1);

    (void)state;
    enter_and_wait(&w, 0, DP, RECORD_SUM, -1, "");
    enter_and_wait(&w, 2, TP, RECORD_ALL_GATHER, -1, "x");
    enter_and_wait(&w, 3, DP, RECORD_SUM, -1, "");
    enter_and_wait(&w, 1, TP, RECORD_ALL_GATHER, -1, "x");
    hang_world_take(&w, 700);
    check_sentence(
        &w, HANG_CYCLE,
        "ranks wait for each other in a cycle: rank 0 on n1 in sum (dp), rank 2 on n2 in all-gather of x (tp), "
        "rank 3 on n2 in sum (dp), rank 1 on n1 in all-gather of x (tp), which waits for rank 0; this is a "
        "bug in muster");
    hang_world_free(&w);
}

static void different_operations(void **state)
{
    struct hang_world w = hang_world(2, 1, 1);

    (void)state;
    enter_and_wait(&w, 0, DP, RECORD_SUM, -1, "losses");
    enter_and_wait(&w, 1, DP, RECORD_ALL_GATHER, -1, "block 3 parameters");
    hang_world_take(&w, 700);
    check_sentence(&w, HANG_MISMATCH,
                   "two ranks are in different operations, both number 1 on their communicator: rank 0 on n1 in sum of "
                   "losses (dp), "
                   "rank 1 on n1 in all-gather of block 3 parameters (dp); this is a bug in muster");
    hang_world_free(&w);
}

/* What aborts for want of a lost peer is not to blame; what aborts of itself is. */
static void aborts(void **state)
{
    struct hang_world w = two_behind();
    struct hang_verdict v;
    char text[1024];

    (void)state;
    hang_world_take(&w, 1);
    w.ranks[3].state = HANG_ABORTED;
    w.ranks[5].state = HANG_DEAD;
    assert_int_equal(hang_judge(&v, w.ranks, w.size, PATIENCE, &err), 0);
    assert_int_equal(v.nlate, 1);
    assert_int_equal(v.late[0].rank, 5);
    hang_sentence(text, sizeof text, &v, w.ranks, w.size);
    assert_false(hang_blames_abort(text, 3));
    assert_false(hang_blames_abort(text, 5));
    hang_verdict_free(&v);

    w.ranks[5].state = HANG_RUNNING;
    assert_int_equal(hang_judge(&v, w.ranks, w.size, PATIENCE, &err), 0);
    assert_int_equal(v.nlate, 1);
    assert_int_equal(v.late[0].rank, 3);
    hang_sentence(text, sizeof text, &v, w.ranks, w.size);
    assert_true(hang_blames_abort(text, 3));
    assert_false(hang_blames_abort(text, 5));
    assert_false(hang_blames_abort(text, 33));
    hang_verdict_free(&v);
    hang_world_free(&w);
}

static void nobody_waits(void **state)
{
    struct hang_world w = hang_world(4, 1, 1);

    (void)state;
    hang_world_take(&w, 1);
    check_sentence(&w, HANG_NOTHING, "no rank waits for another");
    hang_world_free(&w);
}

/* Whatever the size of the buffer, the text ends in it. */
static void sentences_are_cut(void **state)
{
    struct hang_world w = hang_world(64, 1, 1);
    struct hang_verdict v;

    (void)state;
    for (int rank = 0; rank < 64; rank++)
        if (rank % 2)
            w.ranks[rank].state = rank % 4 == 1 ? HANG_DEAD : HANG_STOPPED;
    hang_world_take(&w, 1);
    assert_int_equal(hang_judge(&v, w.ranks, w.size, PATIENCE, &err), 0);
    assert_int_equal(v.nlate, 32);
    for (size_t size = 1; size < 1200; size++) {
        char *text = malloc(size);

        hang_sentence(text, size, &v, w.ranks, w.size);
        assert_true(strlen(text) < size);
        free(text);
    }
    hang_verdict_free(&v);
    hang_world_free(&w);
}

/* ---- the report and the files ---- */

static char *report_of(const struct hang_rank *ranks, int world)
{
    struct hang_verdict v;
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);

    assert_int_equal(hang_judge(&v, ranks, world, PATIENCE, &err), 0);
    hang_print(out, "job 7", &v, ranks, world, 0);
    assert_int_equal(fclose(out), 0);
    hang_verdict_free(&v);
    return text;
}

static void the_report_says_who_waits(void **state)
{
    struct hang_world w = two_behind();
    char *text;

    (void)state;
    w.ranks[5].state = HANG_STOPPED;
    w.ranks[5].record.step = 12;
    w.ranks[5].record.micro_batch = 3;
    hang_world_take(&w, 20);
    text = report_of(w.ranks, w.size);
    assert_int_equal(strncmp(text, "rank 5 on n3 is stopped", 23), 0);
    assert_non_null(strstr(text, "\njob 7\n"));
    assert_non_null(strstr(text, "\n  ranks 0-4, 6-7 wait in reduce-scatter of block 5 gradients (dp), for 20 s\n"));
    assert_non_null(strstr(text, "\n*     5  n3               stopped "));
    assert_non_null(strstr(text, "12.3 "));
    assert_non_null(strstr(text, "\nlast operations of rank 5"));
    assert_non_null(strstr(text, "#1 reduce-scatter of block 7 gradients (dp), took 0.000 s\n"));
    free(text);
    hang_world_free(&w);
}

/* Through the files of four hosts, one of which is a host that has not spoken. */
static void files_bring_it_together(void **state)
{
    struct hang_world w = two_behind();
    char dir[] = "/tmp/muster-hang-XXXXXX", path[128], sentence[512];
    struct hang_rank *read = hang_ranks_create(w.size, &err);
    bool spoken[8];
    char *before, *after;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/not/yet", dir);
    assert_false(hang_raised(path));
    assert_int_equal(hang_raise(path, &err), 0);
    assert_int_equal(hang_raise(path, &err), 0);
    assert_true(hang_raised(path));
    w.ranks[5].state = HANG_STOPPED;
    hang_world_take(&w, 20);
    for (int host = 1; host < 4; host++) {
        bool chosen[8] = {false};

        chosen[2 * host] = chosen[2 * host + 1] = true;
        assert_int_equal(hang_publish(path, 2 * host, w.ranks, chosen, w.size, &err), 0);
    }
    for (int rank = 0; rank < 2; rank++) { /* the first host has not spoken: what is known of it is its name */
        w.ranks[rank].state = HANG_SILENT;
        memset(&w.ranks[rank].record, 0, sizeof w.ranks[rank].record);
        snprintf(read[rank].host, sizeof read[rank].host, "%s", w.ranks[rank].host);
    }
    assert_int_equal(hang_spoken(path, spoken, w.size, &err), 0);
    for (int rank = 0; rank < 8; rank++)
        assert_int_equal(spoken[rank], rank == 2 || rank == 4 || rank == 6);
    hang_collect(path, spoken, read, w.size);
    for (int rank = 2; rank < 8; rank++) {
        assert_memory_equal(&read[rank].record, &w.ranks[rank].record, sizeof read[rank].record);
        assert_memory_equal(read[rank].members[DP], w.ranks[rank].members[DP], 8 * sizeof(int));
    }
    before = report_of(w.ranks, w.size);
    after = report_of(read, w.size);
    assert_string_equal(after, before);

    assert_false(hang_report_sentence(path, sentence, sizeof sentence));
    assert_int_equal(hang_report_publish(path, 2, after, strlen(after), &err), 1);
    assert_int_equal(hang_report_publish(path, 4, "other\n", 6, &err), 0);
    assert_true(hang_report_sentence(path, sentence, sizeof sentence));
    assert_int_equal(strncmp(sentence, "rank 5 on n3 is stopped", 23), 0);
    free(before);
    free(after);
    hang_ranks_destroy(read, w.size);
    hang_world_free(&w);
    snprintf(path, sizeof path, "rm -r %s", dir);
    assert_int_equal(system(path), 0);
}

/* A file of another version, or half a file, is as good as none; it breaks nothing. */
static void broken_files_are_left_out(void **state)
{
    struct hang_world w = two_behind();
    bool chosen[8] = {[5] = true};
    json_t *json;
    char *text;
    size_t length;

    (void)state;
    hang_world_take(&w, 20);
    json = hang_encode(w.ranks, chosen, w.size);
    text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    length = strlen(text);
    for (size_t at = 0; at < length; at++) {
        struct hang_rank *read = hang_ranks_create(8, &err);
        char *broken = strdup(text);

        broken[at] = broken[at] == '9' ? '7' : '9';
        json = json_loads(broken, 0, NULL);
        if (json && hang_decode(read, 8, json, &err) == 0) {
            free(report_of(read, 8)); /* what was taken in can be used */
        }
        json_decref(json);
        free(broken);
        hang_ranks_destroy(read, 8);
    }
    json = json_loads("{\"version\": 2, \"ranks\": []}", 0, NULL);
    assert_int_equal(hang_decode(w.ranks, 8, json, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    json_decref(json);
    free(text);
    hang_world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_computes),
        cmocka_unit_test(a_rank_that_is_lost),
        cmocka_unit_test(a_dead_rank_that_nobody_waits_for),
        cmocka_unit_test(a_host_is_one_sentence),
        cmocka_unit_test(a_chain_ends_at_one),
        cmocka_unit_test(entering_is_not_all),
        cmocka_unit_test(a_message_is_between_two),
        cmocka_unit_test(a_circle),
        cmocka_unit_test(different_operations),
        cmocka_unit_test(aborts),
        cmocka_unit_test(nobody_waits),
        cmocka_unit_test(sentences_are_cut),
        cmocka_unit_test(the_report_says_who_waits),
        cmocka_unit_test(files_bring_it_together),
        cmocka_unit_test(broken_files_are_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
