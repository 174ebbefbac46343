#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "plan/cost.h"
#include "plan/sweep.h"

/* The columns of the published tables; the last two are in Markdown only. */
/* clang-format off */
static const char *const names[] = {
    "model", "layers", "hidden", "heads", "seq", "vocab", "nodes", "gpus", "dp", "tp", "pp", "chunks", "zero", "offload",
    "recompute", "precision", "gradients", "micro_batch", "global_batch", "keys", "ms_per_step", "tokens_per_second",
    "samples_per_second", "tflops", "mfu", "hfu", "max_gpu_mib", "note", "predicted", "predicted"};
enum { NODES = 6, RANKS, DP, MICRO_BATCH = 17, KEYS = 19, SECONDS, TOKENS, SAMPLES, TFLOPS, MFU, HFU, MEMORY, NOTE,
       PREDICTED_SECONDS, PREDICTED_MEMORY, COLUMNS };
/* clang-format on */
enum { CELL_SIZE = 512 };
static const int markdown_columns[] = {KEYS, DP,     MICRO_BATCH,      SECONDS, PREDICTED_SECONDS, TOKENS, TFLOPS,
                                       MFU,  MEMORY, PREDICTED_MEMORY, NOTE};
enum { MARKDOWN_COLUMNS = sizeof markdown_columns / sizeof *markdown_columns };

struct table_line {
    char cell[COLUMNS][CELL_SIZE];
};

struct sweep_table {
    struct table_line *lines;
    size_t count;
    const struct plan_machine *machine;
    struct stack stack;
    char *job_text;
    bool cpu;
};

static void put_cell(struct table_line *line, int column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void put_cell(struct table_line *line, int column, const char *format, ...)
{
    char *cell = line->cell[column];
    va_list args;

    va_start(args, format);
    vsnprintf(cell, CELL_SIZE, format, args);
    va_end(args);
    error_tame(cell);
    for (; (cell = strpbrk(cell, "\"|")); *cell = '\'') /* CSV and Markdown need not quote these then */
        ;
}

/* A number that is not known leaves its cell empty. */
static void put_number(struct table_line *line, int column, int digits, double value)
{
    if (value > 0)
        put_cell(line, column, "%.*f", digits, value);
}

/* ---- a row ------------------------------------------------------------------------------------------------------- */

/* The number behind a key of a result; 0 if there is none. */
static double find_number(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    return at ? strtod(at + strlen(key), NULL) : 0;
}

/* The rest of the line behind a key; "" if there is none. */
static void find_text(const char *text, const char *key, char value[512])
{
    const char *at = strstr(text, key);

    snprintf(value, 512, "%.*s", at ? (int)strcspn(at + strlen(key), "\n") : 0, at ? at + strlen(key) : "");
}

static void put_job(struct table_line *line, const struct job *job)
{
    const char *const kind = job->model.objective == OBJECTIVE_MASKED ? "BERT" : "GPT";
    const int shape[] = {job->model.layers, job->model.hidden, job->model.heads, job->model.seq_length,
                         job->model.vocab};
    int column = 0;

    put_cell(line, column++, "%s", job->preset[0] ? job->preset : kind);
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        put_cell(line, column++, "%d", shape[i]);
    column = DP + 1;
    put_cell(line, column++, "%d", job->parallel.tp);
    put_cell(line, column++, "%d", job->parallel.pp);
    put_cell(line, column++, "%d", job->parallel.chunks);
    put_cell(line, column++, "%d", job->parallel.zero);
    put_cell(line, column++, "%s", job_offloads[job->parallel.offload]);
    put_cell(line, column++, "%s", job_recomputes[job->parallel.recompute]);
    put_cell(line, column++, "%s", job_precisions[job->precision.compute]);
    put_cell(line, column++, "%s", job_precisions[job->precision.gradients]);
    put_cell(line, column++, "%d", job->batch.micro_batch);
    put_cell(line, column++, "%d", job->batch.global_batch);
}

static void put_prediction(const struct sweep_table *table, struct table_line *line, const struct job *job,
                           const struct mesh *mesh)
{
    struct plan_memory memory;
    struct plan_cost cost;
    struct error refused;

    if (!table->machine || plan_memory(job, mesh, table->machine, &table->stack, &memory, &refused) < 0 ||
        plan_cost(job, mesh, table->machine, &table->stack, &cost, &refused) < 0)
        return;
    put_number(line, PREDICTED_SECONDS, 2, cost.seconds * 1e3);
    put_cell(line, PREDICTED_MEMORY, "%.1f%s", memory.held / 0x1p20,
             memory.needed > table->machine->memory ? " (too much)" : "");
}

/* `text` is the result's file. */
static void fill_line(const struct sweep_table *table, const char *keys, const char *text, struct table_line *line)
{
    double micro_batch = find_number(text, "micro_batch="), nodes = find_number(text, "nodes="),
           ranks = find_number(text, "ranks="), seconds = find_number(text, "\"step_seconds\":");
    char note[512], chosen[512];
    static const struct {
        int column, digits;
        const char *key;
    } measured[] = {{TOKENS, 1, "\"tokens_per_second\":"},
                    {TFLOPS, 4, "\"tflops\":"},
                    {MFU, 4, "\"mfu\":"},
                    {HFU, 4, "\"hfu\":"},
                    {MEMORY, 1, "\nmemory_mib="}};
    struct sweep_row row;
    struct error refused;
    struct mesh mesh;
    struct job job;

    sweep_row_read(&row, keys, micro_batch > 0 ? micro_batch : 1);
    put_cell(line, KEYS, "%s", keys);
    ranks = ranks > 0 ? ranks : row.ranks;
    put_number(line, NODES, 0, nodes > 0 ? nodes : row.nodes);
    put_number(line, RANKS, 0, ranks);
    put_number(line, SECONDS, 2, seconds * 1e3);
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        put_number(line, measured[i].column, measured[i].digits, find_number(text, measured[i].key));
    find_text(text, "\nnote=", note);
    put_cell(line, NOTE, "%s", note);
    if (job_parse(&job, table->job_text, "job.cfg", row.sets, row.nsets, &refused) < 0)
        return;
    find_text(text, "\nchosen=", chosen); /* by parallel.mesh=auto; a choice that is refused now changes nothing */
    job_override(&job, "job.cfg", chosen, &refused);
    put_job(line, &job);
    if (row.largest && micro_batch == 0)
        put_cell(line, MICRO_BATCH, "max");
    put_number(line, SAMPLES, 3, seconds > 0 ? job.batch.global_batch / seconds : 0);
    if (ranks > 0 && mesh_fit(&mesh, (int)ranks, job.parallel.tp, job.parallel.pp, &refused) == 0) {
        put_cell(line, DP, "%d", mesh.dp);
        put_prediction(table, line, &job, &mesh);
    }
    job_destroy(&job);
}

static int read_sweep(struct sweep_table *table, const char *dir, struct error *err)
{
    char path[PATH_MAX], *rows = NULL, *rest = NULL;
    struct error absent;

    table->lines = error_calloc(SWEEP_MOST_ROWS, sizeof *table->lines, err);
    snprintf(path, sizeof path, "%s/job.cfg", dir);
    table->job_text = table->lines ? text_read_file(path, 1 << 20, NULL, err) : NULL;
    snprintf(path, sizeof path, "%s/rows", dir);
    rows = table->job_text ? text_read_file(path, SWEEP_MOST_ROWS * SWEEP_ROW_SIZE, NULL, err) : NULL;
    for (char *line = rows ? strtok_r(rows, "\n", &rest) : NULL; line && table->count < SWEEP_MOST_ROWS;
         line = strtok_r(NULL, "\n", &rest)) {
        char *text;

        snprintf(path, sizeof path, "%s/row-%zu", dir, table->count + 1);
        text = text_read_file(path, 1 << 16, NULL, &absent);
        table->cpu = table->cpu || (text && strstr(text, "\ndevice=cpu"));
        fill_line(table, line, text ? text : "\nnote=not run yet", &table->lines[table->count++]);
        free(text);
    }
    free(rows);
    return rows ? 0 : -1;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static const char *column_name(const struct sweep_table *table, int column)
{
    return table->cpu && column == RANKS ? "ranks" : table->cpu && column == MEMORY ? "max_mib" : names[column];
}

static void print_csv(const struct sweep_table *table, FILE *out)
{
    for (int c = 0; c <= NOTE; c++)
        fprintf(out, "%s%s", column_name(table, c), c < NOTE ? "," : "\n");
    for (size_t i = 0; i < table->count; i++)
        for (int c = 0; c <= NOTE; c++) {
            const char *cell = table->lines[i].cell[c], *quote = strchr(cell, ',') ? "\"" : "";

            fprintf(out, "%s%s%s%s", quote, cell, quote, c < NOTE ? "," : "\n");
        }
}

/* A row of cells, or the line of dashes below the names. Text is on the left, numbers are on the right. */
static void print_markdown(const struct sweep_table *table, FILE *out)
{
    int widths[MARKDOWN_COLUMNS];

    for (int k = 0; k < MARKDOWN_COLUMNS; k++) {
        widths[k] = (int)strlen(column_name(table, markdown_columns[k]));
        for (size_t i = 0; i < table->count; i++) {
            int width = (int)strlen(table->lines[i].cell[markdown_columns[k]]);

            widths[k] = width > widths[k] ? width : widths[k];
        }
    }
    for (int i = -2; i < (int)table->count; i++) {
        fputs(i == -2 ? "| row |" : i == -1 ? "|----:|" : "|", out);
        if (i >= 0)
            fprintf(out, " %3d |", i + 1);
        for (int k = 0; k < MARKDOWN_COLUMNS; k++) {
            int column = markdown_columns[k], left = column == KEYS || column == NOTE;
            const char *text = i < 0 ? column_name(table, column) : table->lines[i].cell[column];

            if (i == -1)
                for (int c = 0; c < widths[k] + 3; c++)
                    putc(c <= widths[k] ? '-' : c == widths[k] + 2 ? '|' : left ? '-' : ':', out);
            else
                fprintf(out, " %*s |", left ? -widths[k] : widths[k], text);
        }
        putc('\n', out);
    }
}

int sweep_tables(const char *dir, const struct plan_machine *machine, FILE *csv, FILE *markdown, struct error *err)
{
    struct sweep_table table = {.machine = machine};
    int result = machine ? stack_read(&table.stack, plan_machine_stack(machine), err) : 0;

    if (result == 0)
        result = read_sweep(&table, dir, err);
    if (result == 0) {
        print_csv(&table, csv);
        print_markdown(&table, markdown);
    }
    free(table.job_text);
    free(table.lines);
    return result;
}
