/* parallel.mesh = "auto": what is kept, what is chosen, what is refused; and the text that srun hands to the ranks. */
#include <unistd.h>

#include "common/memory_limit.h"
#include "plan/auto.h"
#include "plan/state.h"
#include "tests/cmocka_test.h"

static char machine[256];

static void write_machine(double memory)
{
    FILE *file = fopen(machine, "w");

    fprintf(file,
            "gpu = false; peak_fp32 = 1e11; product = 0.8; attention = 0.3; memory = %.1f; bandwidth = 1e10;\n"
            "host_rate = 1e10; levels = ( { ranks = 1; bandwidth = 2e9; latency = 5e-6; },\n"
            "{ bandwidth = 1e9; latency = 2e-5; } );\n",
            memory);
    assert_int_equal(fclose(file), 0);
}

static void read_job(struct job *job, const char *more)
{
    char text[1024];
    struct error err;

    snprintf(text, sizeof text,
             "model: { layers = 4; hidden = 256; heads = 4; seq_length = 128; vocab = 256; };\n"
             "batch: { global_batch = 32; };\ndata: { train = \"x\"; };\n%s",
             more);
    if (job_parse(job, text, "job", NULL, 0, &err) < 0)
        fail_msg("%s", err.text);
}

static int choose(struct auto_choice *choice, const struct job *job, int ranks, struct error *err)
{
    return auto_choose(choice, job, &(struct auto_start){.machine = machine, .ranks = ranks, .per_node = 1}, err);
}

static void applies(void **state)
{
    struct auto_choice choice, again;
    struct error err;
    struct job job;

    write_machine(1e9);
    read_job(&job, "");
    assert_int_equal(choose(&choice, &job, 4, &err), 0);
    assert_int_equal(choose(&again, &job, 4, &err), 0);
    assert_string_equal(choice.text, again.text);
    assert_non_null(strstr(choice.why, "the best of "));
    assert_int_equal(job_override(&job, "job", choice.text, &err), 0);
    assert_int_equal(4 % (job.parallel.tp * job.parallel.pp), 0);
    assert_non_null(strstr(job.text, "#! --set parallel.tp="));
    job_destroy(&job);
}

static void keeps_what_is_given(void **state)
{
    struct auto_choice choice;
    struct error err;
    struct job job;

    write_machine(1e9);
    read_job(&job, "parallel: { tp = 1; pp = 2; zero = 0; recompute = \"full\"; };\n");
    assert_true(job_gives(&job, "parallel.zero") && !job_gives(&job, "parallel.chunks"));
    assert_int_equal(choose(&choice, &job, 4, &err), 0);
    assert_non_null(strstr(choice.text, "parallel.tp=1 parallel.pp=2 "));
    assert_non_null(strstr(choice.text, " parallel.zero=0 parallel.recompute=full "));
    job_destroy(&job);
}

/* Less memory: another mesh, and at last none, the process itself included; the refusal names what would help. */
static void saves_memory(void **state)
{
    struct auto_choice rich, poor;
    struct error err;
    struct job job;

    read_job(&job, "parallel: { pp = 1; };\n");
    write_machine(1e9);
    assert_int_equal(choose(&rich, &job, 2, &err), 0);
    write_machine(67e6 + process_bytes(false));
    assert_int_equal(choose(&poor, &job, 2, &err), 0);
    assert_string_not_equal(rich.text, poor.text);
    write_machine(50e6 + process_bytes(false));
    assert_int_equal(choose(&poor, &job, 2, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "nothing fits 2 ranks"));
    assert_non_null(strstr(err.text, "start "));
    assert_non_null(strstr(err.text, "let the job not give parallel.pp"));
    job_destroy(&job);
}

static void refuses_a_wrong_machine(void **state)
{
    struct auto_choice choice;
    struct error err;
    struct job job;

    read_job(&job, "");
    assert_int_equal(auto_choose(&choice, &job, &(struct auto_start){.machine = "/no/such.cfg", .ranks = 2, .per_node = 1}, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    write_machine(1e9);
    job_destroy(&job);
    read_job(&job, "device = \"cuda\";\n");
    assert_int_equal(choose(&choice, &job, 2, &err), -1);
    assert_non_null(strstr(err.text, "is a machine without GPUs, but device = \"cuda\""));
    job_destroy(&job);
}

static void hands_over(void **state)
{
    struct auto_choice choice = {.text = "parallel.tp=2 parallel.pp=1"};
    const char *name, *sets;
    char text[AUTO_SIZE];

    auto_write(text, "/a b/h100.cfg", &choice);
    assert_string_equal(text, "/a b/h100.cfg parallel.tp=2 parallel.pp=1");
    auto_read(text, &name, &sets);
    assert_string_equal(name, "/a b/h100.cfg");
    assert_string_equal(sets, choice.text);
    choice.text[0] = '\0';
    auto_write(text, "h100", &choice);
    auto_read(text, &name, &sets);
    assert_string_equal(name, "h100");
    assert_string_equal(sets, "");
}

static void knows_what_the_job_asked_for(void **state)
{
    unsetenv("SLURM_MEM_PER_NODE");
    unsetenv("SLURM_MEM_PER_CPU");
    assert_int_equal(memory_asked(), 0);
    setenv("SLURM_MEM_PER_CPU", "300", 1);
    setenv("SLURM_CPUS_ON_NODE", "4", 1);
    assert_int_equal(memory_asked(), 1200 << 20);
    setenv("SLURM_MEM_PER_NODE", "0", 1);
    unsetenv("SLURM_MEM_PER_CPU");
    assert_int_equal(memory_asked(), 0);
    setenv("SLURM_MEM_PER_NODE", "66", 1);
    assert_int_equal(memory_asked(), 66 << 20);
    assert_true(memory_limit() <= 66 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(applies),      cmocka_unit_test(keeps_what_is_given),
        cmocka_unit_test(saves_memory), cmocka_unit_test(refuses_a_wrong_machine),
        cmocka_unit_test(hands_over),   cmocka_unit_test(knows_what_the_job_asked_for),
    };
    char folder[] = "/tmp/muster-auto-XXXXXX";
    int result;

    if (!mkdtemp(folder))
        return 1;
    snprintf(machine, sizeof machine, "%s/node.cfg", folder);
    result = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(machine);
    rmdir(folder);
    return result;
}
