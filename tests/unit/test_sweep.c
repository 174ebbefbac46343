/* muster-plan sweep: the rows of a grid, a row's keys, and the tables of results as sweep.sbatch writes them. */
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"
#include "plan/predict.h"
#include "plan/sweep.h"
#include "tests/unit/test_files.h"

static void add_text(struct sweep_lines *lines, const char *text)
{
    assert_true(text_add_line(&lines->text, &lines->count, "%s", text));
}

static void free_text(struct sweep_lines *lines)
{
    text_free_lines(lines->text, lines->count);
}

static void grid_has_all_combinations(void **state)
{
    static const char *const expected[] = {"nodes=1 batch.micro_batch=1",   "nodes=1 batch.micro_batch=8",
                                           "nodes=1 batch.micro_batch=max", "nodes=2 batch.micro_batch=1",
                                           "nodes=2 batch.micro_batch=8",   "nodes=2 batch.micro_batch=max"};
    struct sweep_lines axes = {NULL, 0}, rows = {NULL, 0};
    struct error err;

    add_text(&axes, "nodes=1,2");
    add_text(&axes, "batch.micro_batch=1,8,max");
    assert_int_equal(sweep_rows(&axes, &rows, &err), 0);
    assert_int_equal(rows.count, 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(rows.text[i], expected[i]);
    free_text(&axes);
    free_text(&rows);
}

static void bad_axes_are_refused(void **state)
{
    static const char *const bad[] = {"parallel.tp", "data.train=a b", "parallel.tp=1,2\tx"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sweep_lines axes = {NULL, 0}, rows = {NULL, 0};
        struct error err;

        add_text(&axes, bad[i]);
        assert_int_equal(sweep_rows(&axes, &rows, &err), -1);
        assert_int_equal(err.code, CODE_USAGE);
        assert_non_null(strstr(err.text, "PATH=VALUE"));
        free_text(&axes);
        free_text(&rows);
    }
}

/* 11^3 rows */
static void too_many_rows_are_refused(void **state)
{
    struct sweep_lines axes = {NULL, 0}, rows = {NULL, 0};
    struct error err;

    for (int i = 0; i < 3; i++)
        add_text(&axes, "parallel.tp=1,2,3,4,5,6,7,8,9,10,11");
    assert_int_equal(sweep_rows(&axes, &rows, &err), -1);
    assert_non_null(strstr(err.text, "more than 1000 rows"));
    free_text(&axes);
    free_text(&rows);
}

static void row_has_nodes_ranks_and_keys(void **state)
{
    struct sweep_row row;

    sweep_row_read(&row, "nodes=4 ranks=32 parallel.tp=2 batch.micro_batch=max parallel.zero=3", 12);
    assert_int_equal(row.nodes, 4);
    assert_int_equal(row.ranks, 32);
    assert_true(row.largest);
    assert_int_equal(row.nsets, 3);
    assert_string_equal(row.sets[0], "parallel.tp=2");
    assert_string_equal(row.sets[1], "parallel.zero=3");
    assert_string_equal(row.sets[2], "batch.micro_batch=12");
    sweep_row_read(&row, "batch.micro_batch=4", 1);
    assert_false(row.largest);
    assert_int_equal(row.nodes, 0);
    assert_int_equal(row.nsets, 1);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

#define NOTE                                                                                                           \
    "out of memory: 1 rank on n1 would hold 0.0495 GiB and the limit is 0.0488 GiB: ask for more (sbatch --mem)"

struct sweep_dir {
    char path[64];
    char *csv, *markdown;
};

static void write_row(const struct sweep_dir *dir, const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", dir->path, name);
    write_text(path, text);
}

/* Four rows: one ran, one found the largest micro-batch, one is out of memory, one has not been run. */
static int make_sweep(void **state)
{
    struct sweep_dir *dir = calloc(1, sizeof *dir);

    strcpy(dir->path, "/tmp/muster-sweep.XXXXXX");
    assert_non_null(mkdtemp(dir->path));
    write_row(dir, "job.cfg",
              "model = { preset = \"gpt-125m\"; seq_length = 512; };\n"
              "data = { train = \"x\"; };\nbatch = { global_batch = 32; };\ndevice = \"cuda\";\n");
    write_row(dir, "rows",
              "parallel.tp=2 batch.micro_batch=4\nbatch.micro_batch=max\nmodel.hidden=49152 ranks=2\n"
              "parallel.zero=3 batch.micro_batch=max\n");
    write_row(dir, "row-1",
              "micro_batch=\nnodes=1\nranks=8\ndevice=cuda\nmemory_mib=1234.5\n"
              "step={\"step\":3,\"step_seconds\":0.25,\"tokens_per_second\":65536,\"tflops\":12.5,\"mfu\":0.1,"
              "\"hfu\":0.2,\"world\":8,\"dp\":4,\"tp\":2,\"pp\":1}\nnote=\n");
    write_row(dir, "row-2",
              "micro_batch=7\nnodes=1\nranks=1\nmemory_mib=900\nstep={\"step_seconds\":0.5,\"tp\":1,\"pp\":1}\n"
              "note=micro-batch 8: out of memory: 1, \"2\"\n");
    write_row(dir, "row-3", "micro_batch=\nnodes=1\nranks=2\nnote=" NOTE "\n");
    *state = dir;
    return 0;
}

static int remove_sweep(void **state)
{
    struct sweep_dir *dir = *state;
    static const char *const files[] = {"job.cfg", "rows", "row-1", "row-2", "row-3"};
    char path[128];

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir->path, files[i]);
        unlink(path);
    }
    free(dir->csv);
    free(dir->markdown);
    assert_int_equal(rmdir(dir->path), 0);
    free(dir);
    return 0;
}

static void read_machine(struct plan_machine *machine, const char *name)
{
    char path[512];
    struct error err;

    snprintf(path, sizeof path, "%s/etc/machines", getenv("top_srcdir"));
    setenv("MUSTER_MACHINES", path, 1);
    assert_int_equal(plan_machine_read(machine, name, &err), 0);
}

static void make_tables(struct sweep_dir *dir, const char *machine_name)
{
    size_t sizes[2];
    FILE *csv = open_memstream(&dir->csv, &sizes[0]), *markdown = open_memstream(&dir->markdown, &sizes[1]);
    struct plan_machine machine;
    struct error err;

    if (machine_name)
        read_machine(&machine, machine_name);
    assert_int_equal(sweep_tables(dir->path, machine_name ? &machine : NULL, csv, markdown, &err), 0);
    fclose(csv);
    fclose(markdown);
}

static void csv_has_the_published_columns(void **state)
{
    struct sweep_dir *dir = *state;

    make_tables(dir, NULL);
    assert_string_equal(
        dir->csv,
        "model,layers,hidden,heads,seq,vocab,nodes,gpus,dp,tp,pp,chunks,zero,offload,recompute,precision,gradients,"
        "micro_batch,global_batch,keys,ms_per_step,tokens_per_second,samples_per_second,tflops,mfu,hfu,max_gpu_mib,"
        "note\n"
        "gpt-125m,12,768,12,512,50257,1,8,4,2,1,1,1,none,none,fp32,fp32,4,32,parallel.tp=2 batch.micro_batch=4,"
        "250.00,65536.0,128.000,12.5000,0.1000,0.2000,1234.5,\n"
        "gpt-125m,12,768,12,512,50257,1,1,1,1,1,1,1,none,none,fp32,fp32,7,32,batch.micro_batch=max,"
        "500.00,,64.000,,,,900.0,\"micro-batch 8: out of memory: 1, '2'\"\n"
        "gpt-125m,12,49152,12,512,50257,1,2,2,1,1,1,1,none,none,fp32,fp32,1,32,model.hidden=49152 ranks=2,"
        ",,,,,,," NOTE "\n"
        "gpt-125m,12,768,12,512,50257,,,,1,1,1,3,none,none,fp32,fp32,max,32,parallel.zero=3 batch.micro_batch=max,"
        ",,,,,,,not run yet\n");
}

/* The number of lines of `text` that have all of these. */
static int lines_with(const char *text, const char *a, const char *b)
{
    char *copy = strdup(text), *rest = NULL;
    int count = 0;

    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        count += strstr(line, a) && strstr(line, b);
    free(copy);
    return count;
}

static void markdown_has_the_prediction_beside(void **state)
{
    struct sweep_dir *dir = *state;
    size_t width = 0;
    char *copy, *rest = NULL;

    make_tables(dir, "h100");
    assert_int_equal(lines_with(dir->markdown, "| row | keys", "| ms_per_step | predicted |"), 1);
    assert_int_equal(lines_with(dir->markdown, "model.hidden=49152 ranks=2", "(too much)"), 1);
    assert_int_equal(lines_with(dir->markdown, "parallel.tp=2", "(too much)"), 0);
    assert_int_equal(lines_with(dir->markdown, "|   4 | parallel.zero=3", "| not run yet"), 1);
    assert_int_equal(lines_with(dir->markdown, "|   3 |", NOTE), 1); /* not cut */
    copy = strdup(dir->markdown);                                    /* all lines have the same width */
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        width = width ? width : strlen(line);
        assert_int_equal(strlen(line), width);
    }
    free(copy);
}

static void predict_reads_the_csv(void **state)
{
    struct sweep_dir *dir = *state;
    struct plan_machine machine;
    struct stack stack;
    struct error err;
    size_t size;
    char *text;
    FILE *in, *out = open_memstream(&text, &size);

    make_tables(dir, NULL);
    read_machine(&machine, "h100");
    assert_int_equal(stack_read(&stack, "muster", &err), 0);
    in = fmemopen(dir->csv, strlen(dir->csv), "r");
    assert_int_equal(predict_table(in, out, "table.csv", &machine, &stack, &err), -1);
    assert_string_equal(err.text, "table.csv: 1 of 4 rows are not predicted"); /* it has not run */
    fclose(in);
    fclose(out);
    assert_int_equal(lines_with(text, "parallel.tp=2", ",true"), 1);
    assert_int_equal(lines_with(text, "model.hidden=49152", ",false"), 1);
    free(text);
}

static void table_of_no_sweep_is_refused(void **state)
{
    FILE *out = tmpfile();
    struct error err;

    assert_int_equal(sweep_tables("/nonexistent", NULL, out, out, &err), -1);
    assert_non_null(strstr(err.text, "/nonexistent/job.cfg"));
    fclose(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grid_has_all_combinations),
        cmocka_unit_test(bad_axes_are_refused),
        cmocka_unit_test(too_many_rows_are_refused),
        cmocka_unit_test(row_has_nodes_ranks_and_keys),
        cmocka_unit_test_setup_teardown(csv_has_the_published_columns, make_sweep, remove_sweep),
        cmocka_unit_test_setup_teardown(markdown_has_the_prediction_beside, make_sweep, remove_sweep),
        cmocka_unit_test_setup_teardown(predict_reads_the_csv, make_sweep, remove_sweep),
        cmocka_unit_test(table_of_no_sweep_is_refused),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("sweep", tests, NULL, NULL);
}
