/* What nodes say, line by line, and who is bad because of it; faults put into random steps are all found, and no more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/preflight/judge.h"

#define NODES 64
#define NOW   1700000000.0

static struct answer records[NODES];
static int node_count;

static void start(int count)
{
    char name[16];

    node_count = count;
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "n%d", i);
        answer_start(&records[i], name);
    }
}

static void clear(void)
{
    for (int i = 0; i < node_count; i++)
        answer_clear(&records[i]);
}

static void hear(int node, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void hear(int node, const char *format, ...)
{
    char text[512], line[600];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(line, sizeof line, "preflight n%d %s", node, text);
    assert_true(answer_take(records, (size_t)node_count, line, NOW));
}

/* What a node says that has nothing to complain of; the talk and the end are the caller's. */
static void hear_good(int node)
{
    hear(node, "clock %.6f", NOW + 0.001 * node);
    hear(node, "version kernel 6.1.0-18-amd64");
    hear(node, "version NCCL libnccl.so.2.21.5 (120 bytes)");
    hear(node, "gpus 8 8");
    hear(node, "note machine DGX H100");
}

static void hear_talk(int node, bool works)
{
    int next = (node + 1) % node_count;

    if (works) {
        hear(node, "to n%d ok 94.1 0.021", next);
        hear(next, "from n%d ok", node);
    } else {
        hear(node, "to n%d connect 10.0.0.%d port 4000: Connection refused", next, next);
        hear(next, "from n%d listen nobody connected in 5 s", node);
    }
}

static void step_of_good_nodes(int count)
{
    start(count);
    for (int i = 0; i < count; i++) {
        hear_good(i);
        if (count > 1)
            hear_talk(i, true);
        hear(i, "end 0.7");
    }
}

static struct verdict *judge(void)
{
    struct verdict *verdict = verdict_create(records, (size_t)node_count, 20);

    assert_non_null(verdict);
    return verdict;
}

/* Exactly `bad` are bad (ended by -1), the first for a reason with `text` in it. */
static void assert_bad(const int *bad, const char *text)
{
    struct verdict *verdict = judge();
    size_t count = 0;

    for (; bad[count] >= 0; count++) {
        assert_non_null(verdict->reasons[bad[count]]);
        if (!strstr(verdict->reasons[bad[count]], text))
            fail_msg("n%d: \"%s\" does not say \"%s\"", bad[count], verdict->reasons[bad[count]], text);
    }
    assert_int_equal(verdict->bad, count);
    verdict_destroy(verdict);
    clear();
}

#define BAD(text, ...) assert_bad((const int[]){__VA_ARGS__, -1}, text)

static void assert_all_good(size_t notes)
{
    struct verdict *verdict = judge();

    assert_int_equal(verdict->bad, 0);
    assert_int_equal(verdict->note_count, notes);
    assert_false(verdict->everywhere);
    verdict_destroy(verdict);
    clear();
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void test_lines(void **state)
{
    (void)state;
    start(2);
    hear(0, "clock 1700000003.500000");
    hear(0, "gpus 7 8");
    hear(0, "to n1 data 10.0.0.1: Connection reset by peer");
    hear(0, "from - untried");
    assert_true(records[0].begun && records[0].has_clock && !records[0].ended);
    assert_true(records[0].ahead > 3.49 && records[0].ahead < 3.51);
    assert_string_equal(records[0].facts[0].name, "usable GPUs");
    assert_string_equal(records[0].facts[0].value, "7");
    assert_int_equal(records[0].to.state, TALK_DATA);
    assert_string_equal(records[0].to.peer, "n1");
    assert_string_equal(records[0].to.text, "10.0.0.1: Connection reset by peer");
    assert_string_equal(records[0].from.peer, "");
    assert_false(records[1].begun);
    /* Not ours, not of this step, cut short. */
    assert_false(answer_take(records, 2, "srun: error: preflight n0 end 1", NOW));
    assert_false(answer_take(records, 2, "preflight n7 end 1", NOW));
    assert_false(answer_take(records, 2, "preflight n0", NOW));
    assert_false(answer_take(records, 2, "", NOW));
    clear();
}

static void test_too_many_lines(void **state)
{
    (void)state;
    start(1);
    for (int i = 0; i < 200; i++) {
        hear(0, "problem %d", i);
        hear(0, "oddity %d", i);
        hear(0, "version v%d 1", i);
    }
    assert_int_equal(records[0].problem_count, ANSWER_TEXTS);
    assert_int_equal(records[0].oddity_count, ANSWER_TEXTS);
    assert_int_equal(records[0].fact_count, ANSWER_FACTS);
    clear();
}

/* ---- one fault at a time ----------------------------------------------------------------------------------------- */

static void test_good(void **state)
{
    (void)state;
    for (int count = 1; count <= 5; count++) {
        step_of_good_nodes(count);
        assert_all_good(0);
    }
}

static void test_silent(void **state)
{
    (void)state;
    start(4);
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            continue;
        hear_good(i);
        hear(i, "to - untried not all nodes came to talk");
        hear(i, "end 15.0");
    }
    BAD("no answer in 20 s", 2);
    step_of_good_nodes(3);
    records[1].ended = false;
    BAD("did not finish", 1);
}

/* A dead node: srun names it, and ends those that were still at it. */
static void test_unstarted(void **state)
{
    struct verdict *verdict;

    (void)state;
    step_of_good_nodes(4);
    records[0].ended = records[1].ended = false;
    records[2].ended = records[2].begun = false;
    assert_false(answer_take_srun(records, 4, "srun: error: Application launch failed: Communication failure"));
    assert_false(answer_take_srun(records, 4, "srun: error: Task launch for StepId=7.0 failed on node n9: timeout"));
    assert_false(answer_take_srun(records, 4, "srun: error: Task launch for StepId=7.0 failed on node n2"));
    assert_int_equal(records[2].problem_count, 0);
    assert_true(answer_take_srun(
        records, 4, "srun: error: Task launch for StepId=7.0 failed on node n2: Communication connection failure"));
    verdict = judge();
    assert_int_equal(verdict->bad, 1);
    assert_string_equal(verdict->reasons[2], "srun cannot start a task there: Communication connection failure");
    assert_string_equal(verdict->notes[0], "2 of 4 nodes could not finish: srun gave up");
    verdict_destroy(verdict);
    clear();
}

static void test_problem(void **state)
{
    (void)state;
    step_of_good_nodes(3);
    hear(1, "problem checkpoints cannot be written to /scratch: Read-only file system");
    hear(1, "problem GPU 3: rows of its memory need a reset to be remapped");
    BAD("/scratch: Read-only file system; GPU 3: rows", 1);
    step_of_good_nodes(1);
    hear(0, "problem x");
    BAD("x", 0);
}

/* Two nodes or more with the same trouble: the trouble is not theirs. */
static void test_everywhere(void **state)
{
    struct verdict *verdict;

    (void)state;
    step_of_good_nodes(3);
    for (int i = 0; i < 3; i++)
        hear(i, "problem /scratch is full");
    verdict = judge();
    assert_true(verdict->everywhere);
    assert_int_equal(verdict->bad, 3);
    verdict_destroy(verdict);
    hear(2, "problem and more");
    verdict = judge();
    assert_false(verdict->everywhere);
    verdict_destroy(verdict);
    clear();
}

static void test_oddities(void **state)
{
    (void)state;
    step_of_good_nodes(3);
    hear(2, "oddity InfiniBand port mlx5_3:1 is not active");
    BAD("mlx5_3:1", 2);
    step_of_good_nodes(2);
    hear(0, "oddity dead port");
    BAD("dead port", 0);
    /* A site's way: on all, on one alone, on most. The same words are told once. */
    step_of_good_nodes(3);
    for (int i = 0; i < 3; i++)
        hear(i, "oddity no NUMA");
    assert_all_good(1);
    step_of_good_nodes(1);
    hear(0, "oddity no NUMA");
    assert_all_good(1);
    step_of_good_nodes(4);
    for (int i = 0; i < 4; i++)
        hear(i, "oddity no NUMA");
    hear(3, "oddity dead port");
    BAD("dead port", 3);
}

static void test_versions(void **state)
{
    struct verdict *verdict;

    (void)state;
    step_of_good_nodes(3);
    snprintf(records[1].facts[1].value, sizeof records[1].facts[1].value, "none");
    BAD("NCCL: none, and libnccl.so.2.21.5 (120 bytes) on 2 of 3 nodes", 1);
    step_of_good_nodes(5);
    strcpy(records[4].facts[2].value, "7");
    BAD("usable GPUs: 7, and 8 on 4 of 5 nodes", 4);
    /* No majority, no culprit. */
    step_of_good_nodes(2);
    snprintf(records[1].facts[0].value, sizeof records[1].facts[0].value, "5.14");
    assert_all_good(1);
    /* Another machine is a note. */
    step_of_good_nodes(3);
    snprintf(records[1].facts[3].value, sizeof records[1].facts[3].value, "DGX A100");
    verdict = judge();
    assert_int_equal(verdict->bad, 0);
    assert_int_equal(verdict->note_count, 1);
    assert_non_null(strstr(verdict->notes[0], "machine: not the same on all nodes; 2 of 3 have DGX H100, n1 has DGX A100"));
    verdict_destroy(verdict);
    clear();
}

static void test_clocks(void **state)
{
    (void)state;
    step_of_good_nodes(5);
    records[3].ahead = -2.5;
    BAD("2.5 s behind", 3);
    /* srun's own node may be the wrong one: then all are as far from it, and none is bad. */
    step_of_good_nodes(3);
    for (int i = 0; i < 3; i++)
        records[i].ahead = 7;
    assert_all_good(0);
    step_of_good_nodes(2);
    records[1].ahead = 7;
    BAD("7.0 s ahead", 1);
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

/* A ring of `count` where the pairs that begin at `broken` (ended by -1) do not work. */
static void ring(int count, const int *broken)
{
    start(count);
    for (int i = 0; i < count; i++) {
        bool works = true;

        for (const int *b = broken; *b >= 0; b++)
            works = works && *b != i;
        hear_good(i);
        hear_talk(i, works);
        hear(i, "end 5.1");
    }
}

#define RING(count, ...) ring(count, (const int[]){__VA_ARGS__, -1})

static void test_pairs(void **state)
{
    (void)state;
    RING(5, 1, 2);
    BAD("either neighbour", 2);
    RING(5, 4, 0);
    BAD("either neighbour", 0);
    RING(3, 0, 1);
    BAD("either neighbour", 1);
    RING(5, 1, 2, 3);
    BAD("either neighbour", 2, 3);
    /* One pair alone: each talks to its other neighbour. */
    RING(5, 3);
    BAD("the pair n3 and n4 cannot talk: connect: 10.0.0.4 port 4000", 3, 4);
    RING(2, 0, 1);
    BAD("the pair", 0, 1);
    RING(2, 1);
    BAD("the pair n1 and n0", 0, 1);
}

static void test_pairs_with_bad_nodes(void **state)
{
    (void)state;
    /* The bad one explains that its neighbours could not talk to it. */
    RING(5, 1, 2);
    hear(2, "problem x");
    BAD("x", 2);
    /* Only the listener's word: the other end never came that far. */
    step_of_good_nodes(4);
    hear(2, "from n1 data Connection reset by peer");
    BAD("the pair n1 and n2 cannot talk: data: Connection reset", 1, 2);
    /* Peers that there are not, or that are one's own, are nobody. */
    step_of_good_nodes(3);
    hear(0, "to n77 connect x");
    hear(1, "from n77 connect x");
    assert_all_good(0);
}

/* ---- random steps ------------------------------------------------------------------------------------------------ */

/* A small generator of its own (splitmix64): the same steps on every machine. */
static uint64_t state_of_random = 6;

static int below(int bound)
{
    uint64_t z = state_of_random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (int)((z ^ (z >> 31)) % (uint64_t)bound);
}

enum { HEALTHY, SILENT, PROBLEM, ODDITY, VERSION, GPUS, CLOCK, CUT_OFF, FAULTS };

/* Two healthy nodes at least between faulty ones: then it is decided who is cut off. A majority is healthy. */
static void random_faults(int *faults, int count)
{
    memset(faults, 0, (size_t)count * sizeof *faults);
    for (int left = count / 4, at = below(3); left > 0 && at < count - 2; left--, at += 3 + below(3))
        faults[at] = 1 + below(FAULTS - 1);
}

static void hear_faulty(int node, int fault)
{
    if (fault == PROBLEM)
        hear(node, "problem x");
    else if (fault == ODDITY)
        hear(node, "oddity x");
    else if (fault == VERSION)
        hear(node, "version kernel 5.14");
    else if (fault == GPUS)
        hear(node, "gpus 7");
    else if (fault == CLOCK)
        hear(node, "clock %.3f", NOW + (below(2) ? 3 : -3) * (1 + below(1000)));
}

static void random_step(const int *faults, int count)
{
    start(count);
    for (int i = 0; i < count; i++) {
        int next = (i + 1) % count;
        bool talked = faults[i] != SILENT && faults[next] != SILENT;

        if (talked)
            hear_talk(i, faults[i] != CUT_OFF && faults[next] != CUT_OFF);
    }
    for (int i = 0; i < count; i++) {
        if (faults[i] == SILENT) {
            records[i].begun = false;
            continue;
        }
        if (faults[i] == VERSION || faults[i] == GPUS)
            hear_faulty(i, faults[i]); /* the first of a name counts */
        hear_good(i);
        if (faults[i] != VERSION && faults[i] != GPUS)
            hear_faulty(i, faults[i]);
        hear(i, "end 1");
    }
}

static void test_random(void **state)
{
    int faults[NODES], seen[FAULTS] = {0};

    (void)state;
    for (int round = 0; round < 2000; round++) {
        int count = 5 + below(NODES - 5);
        struct verdict *verdict;

        random_faults(faults, count);
        random_step(faults, count);
        verdict = judge();
        for (int i = 0; i < count; i++) {
            seen[faults[i]]++;
            if ((verdict->reasons[i] != NULL) != (faults[i] != HEALTHY))
                fail_msg("round %d, n%d of %d, fault %d: %s", round, i, count, faults[i],
                         verdict->reasons[i] ? verdict->reasons[i] : "good");
        }
        verdict_destroy(verdict);
        clear();
    }
    for (int i = 0; i < FAULTS; i++)
        assert_true(seen[i] > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_too_many_lines),
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_unstarted),
        cmocka_unit_test(test_silent),
        cmocka_unit_test(test_problem),
        cmocka_unit_test(test_everywhere),
        cmocka_unit_test(test_oddities),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_clocks),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_pairs_with_bad_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
