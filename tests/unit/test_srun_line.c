/* srun's command line: only one that is understood whole may lead to another rank order. */
#include "srun-plugin/spank/srun_line.h"
#include "tests/cmocka_test.h"

#define MOST 32

/* "srun -n 4 a.out" as arguments; the text must stay. */
static struct srun_line read_line(char *text)
{
    char *argv[MOST], *rest = NULL;
    struct srun_line line;
    size_t count = 0;

    for (char *word = strtok_r(text, " ", &rest); word && count < MOST; word = strtok_r(NULL, " ", &rest))
        argv[count++] = word;
    srun_line_read(argv, count, &line);
    return line;
}

#define READ(text) read_line((char[]){text})

static void the_program_ends_the_options(void **state)
{
    struct srun_line line = READ("srun -N2 -n 4 --muster=gpt.cfg -lu muster-train --nodes=9 -m cyclic");

    assert_true(line.known);
    assert_true(line.muster);
    assert_string_equal(line.file, "gpt.cfg");
    assert_string_equal(line.nodes, "2");
    assert_string_equal(line.tasks, "4");
    assert_null(line.tasks_per_node);
    assert_false(line.places);
    assert_int_equal(line.program, 6);
}

static void values_are_in_the_same_argument_or_the_next(void **state)
{
    struct srun_line line = READ("srun --ntasks 8 --ntasks-per-node=2 --nodes 4 -J name -K1 -K --exclusive -- -N");

    assert_true(line.known);
    assert_false(line.muster);
    assert_string_equal(line.tasks, "8");
    assert_string_equal(line.tasks_per_node, "2");
    assert_string_equal(line.nodes, "4");
    assert_int_equal(line.program, 12);
    assert_false(line.shares);
    assert_true(READ("srun -lc2 prog").shares);
    assert_true(READ("srun --cpus-per-task 2 prog").shares);
    assert_true(READ("srun --tres-per-task=cpu:1 prog").shares);
    line = READ("srun -lN3 -vvn6 prog");
    assert_true(line.known);
    assert_string_equal(line.nodes, "3");
    assert_string_equal(line.tasks, "6");
    assert_int_equal(line.program, 3);
    line = READ("srun -n 2 -n 4 prog");
    assert_string_equal(line.tasks, "4");
}

static void what_places_or_binds_is_seen(void **state)
{
    static const char *const placing[] = {"-m cyclic",
                                          "--distribution=block",
                                          "-w n1",
                                          "-wn1",
                                          "--nodelist n1",
                                          "-r 1",
                                          "--relative=1",
                                          "--multi-prog",
                                          "--ntasks-per-socket=1",
                                          "-Z",
                                          "--het-group=0"};
    char text[128];

    for (size_t i = 0; i < sizeof placing / sizeof placing[0]; i++) {
        struct srun_line line;

        snprintf(text, sizeof text, "srun --muster %s prog", placing[i]);
        line = read_line(text);
        if (!line.known || !line.places || !line.muster)
            fail_msg("%s is not seen to place", placing[i]);
    }
    assert_true(READ("srun --cpu-bind=cores p").binds);
    assert_true(READ("srun --hint nomultithread p").binds);
    assert_true(READ("srun -B 2:4 p").binds);
    assert_false(READ("srun -c4 --mem-bind=local p").binds);
}

static void a_second_component_has_its_own_nodes(void **state)
{
    struct srun_line line = READ("srun --muster -q high -N2 a : -N2 b");

    assert_true(line.known);
    assert_true(line.muster);
    assert_true(line.places);
    assert_string_equal(line.nodes, "2");
    assert_false(READ("srun -q high a b:c").places);
    assert_false(READ("srun -x n3 prog").places); /* muster-supervise leaves nodes out */
}

/* They may take a value, which looks like a program, or decide about nodes. */
static void what_is_not_known_is_said_to_be(void **state)
{
    static const char *const lines[] = {"srun --new-option 4 -N2 --muster p", "srun --ntas=4 --muster p",
                                        "srun -j p --muster", "srun --label=3 --muster p", "srun --muster -n"};
    char text[128];

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct srun_line line;

        snprintf(text, sizeof text, "%s", lines[i]);
        line = read_line(text);
        if (line.known)
            fail_msg("%s is not known", lines[i]);
        if (!line.muster)
            fail_msg("%s has --muster", lines[i]);
    }
    assert_true(READ("srun --new 4 --cpu-bind=none --muster-report p").binds);
}

static void a_job_and_an_interactive_step_are_seen(void **state)
{
    assert_true(READ("srun --jobid=7 p").has_jobid);
    assert_true(READ("srun --jobid 7 p").places);
    assert_true(READ("srun --jobi=7 p").has_jobid); /* abbreviated */
    assert_false(READ("srun -n4 p --jobid=7").has_jobid);
    assert_true(READ("srun -n 1 --interactive --pty sh").interactive);
    assert_true(READ("srun --interactive p").places);
    assert_false(READ("srun --quiet p --interactive").interactive);
    assert_false(READ("srun -- --interactive").interactive);
    /* After an unknown option it may be srun's. */
    assert_true(READ("srun --quie p --interactive").interactive);
    assert_false(READ("srun --quie --in=file p").interactive);
}

static void this_process_has_a_line(void **state)
{
    struct srun_line line;
    struct error err;

    assert_int_equal(srun_line_own(&line, &err), 0);
    assert_true(line.known);
    assert_int_equal(line.program, 1);
    free(line.text);
}

static void a_line_may_be_empty(void **state)
{
    struct srun_line line = READ("srun");

    assert_true(line.known);
    assert_int_equal(line.program, 1);
    srun_line_read(NULL, 0, &line);
    assert_false(line.muster);
    line = READ("srun --muster - x"); /* "-" is a program's name, not an option */
    assert_int_equal(line.program, 2);
    line = READ("srun --muster= --muster-preflight=exclude p");
    assert_true(line.known && line.muster);
    assert_null(line.file);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_ends_the_options),
        cmocka_unit_test(values_are_in_the_same_argument_or_the_next),
        cmocka_unit_test(what_places_or_binds_is_seen),
        cmocka_unit_test(a_second_component_has_its_own_nodes),
        cmocka_unit_test(what_is_not_known_is_said_to_be),
        cmocka_unit_test(a_job_and_an_interactive_step_are_seen),
        cmocka_unit_test(this_process_has_a_line),
        cmocka_unit_test(a_line_may_be_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
