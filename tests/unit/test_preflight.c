/* What nodes say, line by line, and who is bad because of it; faults put into random steps are all found, and no more.
 */
#include "srun-plugin/preflight/judge.h"
#include "tests/cmocka_test.h"

#define NODES 64
#define NOW   1700000000.0

static struct answer records[NODES];
static int node_count;

static void start(int count)
{
    static char names[NODES][16];

    node_count = count;
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        records[i] = (struct answer){.name = names[i]};
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

/* What a good node says; the end is the caller's. */
static void hear_good(int node)
{
    hear(node, "clock %.6f", NOW + 0.001 * node);
    hear(node, "fact plugin 0.1.0");
    hear(node, "fact usable-GPUs 8");
    hear(node, "fact machine DGX H100");
}

static void step_of_good_nodes(int count)
{
    start(count);
    for (int i = 0; i < count; i++) {
        hear_good(i);
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
    start(2);
    hear(0, "clock 1700000003.500000");
    hear(0, "fact machine DGX H100");
    hear(0, "fact nothing");
    assert_true(records[0].begun && records[0].has_clock && !records[0].ended);
    assert_true(records[0].ahead > 3.49 && records[0].ahead < 3.51);
    assert_int_equal(records[0].fact_count, 1);
    assert_string_equal(records[0].facts[0].name, "machine");
    assert_string_equal(records[0].facts[0].value, "DGX H100");
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
    start(1);
    for (int i = 0; i < 200; i++) {
        hear(0, "problem %d", i);
        hear(0, "note %d", i);
        hear(0, "fact v%d 1", i);
    }
    assert_int_equal(records[0].problem_count, ANSWER_TEXTS);
    assert_int_equal(records[0].note_count, ANSWER_TEXTS);
    assert_int_equal(records[0].fact_count, ANSWER_FACTS);
    clear();
}

/* ---- one fault at a time ----------------------------------------------------------------------------------------- */

static void test_good(void **state)
{
    for (int count = 1; count <= 5; count++) {
        step_of_good_nodes(count);
        assert_all_good(0);
    }
}

static void test_silent(void **state)
{
    start(4);
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            continue;
        hear_good(i);
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

/* What may be the site's choice makes no node bad. The same text of several nodes is one note. */
static void test_notes(void **state)
{
    struct verdict *verdict;

    step_of_good_nodes(4);
    for (int i = 0; i < 4; i++)
        hear(i, "note no NUMA");
    hear(2, "note InfiniBand port mlx5_3:1 is not active");
    verdict = judge();
    assert_int_equal(verdict->bad, 0);
    assert_int_equal(verdict->note_count, 2);
    assert_string_equal(verdict->notes[0], "4 of 4 nodes: no NUMA");
    assert_string_equal(verdict->notes[1], "n2: InfiniBand port mlx5_3:1 is not active");
    verdict_destroy(verdict);
    clear();
}

static void test_facts(void **state)
{
    struct verdict *verdict;

    step_of_good_nodes(3);
    strcpy(records[2].facts[0].value, "0.0.9");
    strcpy(records[1].facts[2].value, "DGX A100");
    strcpy(records[2].facts[2].value, "DGX A100");
    verdict = judge();
    assert_int_equal(verdict->bad, 0);
    assert_int_equal(verdict->note_count, 2);
    assert_string_equal(verdict->notes[0], "plugin: not the same on all nodes: n0 has 0.1.0, n2 has 0.0.9");
    assert_string_equal(verdict->notes[1], "machine: not the same on all nodes: n0 has DGX H100, n1 has DGX A100");
    verdict_destroy(verdict);
    clear();
}

static void test_clocks(void **state)
{
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

enum { HEALTHY, NOTED, SILENT, PROBLEM, CLOCK, FAULTS };

static void random_step(const int *faults, int count)
{
    start(count);
    for (int i = 0; i < count; i++) {
        if (faults[i] == SILENT)
            continue;
        hear_good(i);
        if (faults[i] == NOTED)
            hear(i, "note x");
        else if (faults[i] == PROBLEM)
            hear(i, "problem x");
        else if (faults[i] == CLOCK)
            hear(i, "clock %.3f", NOW + (below(2) ? 3 : -3) * (1 + below(1000)));
        hear(i, "end 1");
    }
}

static void test_random(void **state)
{
    int faults[NODES], seen[FAULTS] = {0};

    for (int round = 0; round < 2000; round++) {
        int count = 5 + below(NODES - 5);
        struct verdict *verdict;

        for (int i = 0; i < count; i++) /* at most a third of the clocks are wrong */
            faults[i] = i % 3 ? HEALTHY : below(FAULTS);
        random_step(faults, count);
        verdict = judge();
        for (int i = 0; i < count; i++) {
            seen[faults[i]]++;
            if ((verdict->reasons[i] != NULL) != (faults[i] > NOTED))
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
        cmocka_unit_test(test_lines),      cmocka_unit_test(test_too_many_lines), cmocka_unit_test(test_good),
        cmocka_unit_test(test_unstarted),  cmocka_unit_test(test_silent),         cmocka_unit_test(test_problem),
        cmocka_unit_test(test_everywhere), cmocka_unit_test(test_notes),          cmocka_unit_test(test_facts),
        cmocka_unit_test(test_clocks),     cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
