#include "plan/predict.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/text.h"
#include "plan/cost.h"
#include "plan/sweep.h"

enum { MOST_COLUMNS = 128 };

/* ---- CSV --------------------------------------------------------------------------------------------------------- */

/* Cuts a line at its commas, in place; quotes are taken off. Returns the number of fields. */
static int split_line(char *line, char *fields[MOST_COLUMNS])
{
    int n = 0;

    while (line && n < MOST_COLUMNS) {
        char *to = line, *from = line;
        bool quoted = false;

        fields[n++] = line;
        for (; *from && (quoted || *from != ','); from++)
            if (*from != '"')
                *to++ = *from;
            else if (quoted && from[1] == '"')
                *to++ = *from++;
            else
                quoted = !quoted;
        line = *from ? from + 1 : NULL;
        *to = '\0';
    }
    return n;
}

struct table_row {
    char *fields[MOST_COLUMNS], **names;
    int count, columns;
    struct error wrong; /* the first column that must be a number and is not */
};

/* The first column of these names that the row has a value for; NULL: none. The list ends with NULL. */
static const char *row_text(const struct table_row *row, const char *const *names)
{
    for (; *names; names++)
        for (int i = 0; i < row->columns && i < row->count; i++)
            if (strcasecmp(row->names[i], *names) == 0 && row->fields[i][0])
                return row->fields[i];
    return NULL;
}

#define ROW_TEXT(row, ...) row_text(row, (const char *const[]){__VA_ARGS__, NULL})

/* 0 if the row has none. Also 0 for what is not a number: then row->wrong is set. */
static double row_number(struct table_row *row, const char *const *names)
{
    const char *text = row_text(row, names);
    char *end = NULL;
    double value = text ? strtod(text, &end) : 0;

    if (!text || (value >= 0 && value <= 1e9 && end > text && !end[strspn(end, " ")]))
        return value;
    error_set(error_first(&row->wrong), CODE_DATA, "%s = \"%s\" is not a number of 0 or more", *names, text);
    return 0;
}

#define ROW_NUMBER(row, ...) row_number(row, (const char *const[]){__VA_ARGS__, NULL})

static bool is_true(const char *text)
{
    return text && (strncasecmp(text, "y", 1) == 0 || strncasecmp(text, "t", 1) == 0 || strcmp(text, "1") == 0 ||
                    strncasecmp(text, "full", 4) == 0 || strncasecmp(text, "opt", 3) == 0);
}

/* ---- a row as a job ---------------------------------------------------------------------------------------------- */

/* Sets are "path=value" each. Without memory a line is missing, and job_parse fails too. */
static void add_set(struct sweep_lines *sets, const char *path, const char *value)
{
    text_add_line(&sets->text, &sets->count, "%s=%s", path, value);
}

static void set_number(struct sweep_lines *sets, const char *path, double value)
{
    if (value > 0)
        text_add_line(&sets->text, &sets->count, "%s=%.0f", path, value);
}

/* Published sizes that are no presets of a job file: MosaicML's and GPT-3's (layers, hidden, heads). */
static const struct {
    const char *name;
    int layers, hidden, heads;
} published[] = {{"13b", 40, 5120, 40},  {"30b", 48, 7168, 56},   {"65b", 64, 9216, 72},   {"66b", 64, 9216, 72},
                 {"70b", 64, 8192, 64},  {"120b", 96, 10240, 80}, {"175b", 96, 12288, 96}, {"2.7b", 32, 2560, 32},
                 {"6.7b", 32, 4096, 32}, {"20b", 44, 6144, 64},   {"18b", 40, 6144, 48},   {"355m", 24, 1024, 16}};

/* gpt7b, GPT-345M, BERT-175B, 200B: the size after letters and dashes. */
static int set_shape(struct sweep_lines *sets, struct table_row *row, struct error *err)
{
    double layers = ROW_NUMBER(row, "layers"), hidden = ROW_NUMBER(row, "hidden", "hidden_size", "d_model"),
           heads = ROW_NUMBER(row, "heads", "n_heads");
    const char *model = ROW_TEXT(row, "model", "size"), *size = model ? model : "";
    struct model_shape shape = {0};
    char name[64];
    int kind;

    while (*size && !isdigit((unsigned char)*size))
        size++;
    snprintf(name, sizeof name, "gpt-%.40s", size);
    for (char *c = name; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        if (strcmp(name + 4, published[i].name) == 0)
            shape = (struct model_shape){
                .layers = published[i].layers, .hidden = published[i].hidden, .heads = published[i].heads};
    if (!shape.layers && !(layers > 0 && hidden > 0 && heads > 0) && model_preset(&shape, &kind, name, NULL) < 0)
        return error_set(err, CODE_DATA, "layers, hidden and heads of \"%s\" are not known", model ? model : "");
    set_number(sets, "model.layers", layers > 0 ? layers : shape.layers);
    set_number(sets, "model.hidden", hidden > 0 ? hidden : shape.hidden);
    set_number(sets, "model.heads", heads > 0 ? heads : shape.heads);
    if (model && strncasecmp(model, "bert", 4) == 0) {
        add_set(sets, "model.kind", "bert");
        add_set(sets, "model.vocab", "30522");
        add_set(sets, "model.seq_length", "512");
    }
    set_number(sets, "model.seq_length", ROW_NUMBER(row, "seq", "seq_length", "seq_len", "sequence", "max_seq_len"));
    set_number(sets, "model.vocab", ROW_NUMBER(row, "vocab", "vocab_size"));
    return 0;
}

/* Where a row's ranks are fewer than dp x tp x pp, dp follows from the ranks. dp 0: the row says neither. */
static struct mesh row_mesh(struct table_row *row, const struct plan_machine *machine)
{
    double tp = ROW_NUMBER(row, "tp"), pp = ROW_NUMBER(row, "pp"), dp = ROW_NUMBER(row, "dp");
    double gpus = ROW_NUMBER(row, "gpus", "ranks"), nodes = ROW_NUMBER(row, "nodes");
    struct mesh mesh = {0, tp > 0 ? (int)tp : 1, pp > 0 ? (int)pp : 1};

    if (gpus == 0)
        gpus = nodes * machine->level[0].ranks;
    /* A table of one node may list meshes of fewer ranks than it has; of many, it has at most a node to spare. */
    if (dp > 0 && (gpus == 0 || dp * mesh.tp * mesh.pp <= gpus))
        mesh.dp = (int)dp;
    else if (gpus >= mesh.tp * mesh.pp)
        mesh.dp = (int)gpus / (mesh.tp * mesh.pp);
    return mesh;
}

static void set_batch(struct sweep_lines *sets, struct table_row *row, const struct mesh *mesh)
{
    double micro = ROW_NUMBER(row, "micro_batch", "microbatch", "micro_batch_size");
    double global = ROW_NUMBER(row, "global_batch", "global_batch_size"), steps = ROW_NUMBER(row, "grad_accum");

    if (micro == 0)
        micro = global > mesh->dp ? (double)(long)(global / mesh->dp / (steps > 0 ? steps : 1)) : 1;
    if (global == 0)
        global = micro * mesh->dp * (steps > 0 ? steps : 1);
    set_number(sets, "batch.micro_batch", micro > 1 ? micro : 1);
    set_number(sets, "batch.global_batch", global > mesh->dp ? global : mesh->dp);
}

static void set_rest(struct sweep_lines *sets, struct table_row *row, const struct mesh *mesh)
{
    const char *zero = ROW_TEXT(row, "zero", "zero_stage"), *recompute = ROW_TEXT(row, "recompute");
    const char *precision = ROW_TEXT(row, "precision", "dtype"), *gradients = ROW_TEXT(row, "gradients");
    bool bf16 = precision && strcasestr(precision, "bf16"), fp16 = precision && strcasestr(precision, "fp16");

    set_number(sets, "parallel.tp", mesh->tp);
    set_number(sets, "parallel.pp", mesh->pp);
    set_number(sets, "parallel.chunks", ROW_NUMBER(row, "chunks", "virtual_stages"));
    if (zero)
        add_set(sets, "parallel.zero", zero);
    if (is_true(ROW_TEXT(row, "offload")))
        add_set(sets, "parallel.offload", "optimizer");
    if (recompute)
        add_set(sets, "parallel.recompute",
                strcasecmp(recompute, "selective") == 0 ? "selective"
                : is_true(recompute)                    ? "full"
                                                        : "none");
    if (precision)
        add_set(sets, "precision.compute",
                bf16                      ? "bf16"
                : fp16                    ? "fp16"
                : strstr(precision, "32") ? "fp32"
                                          : precision);
    if (gradients)
        add_set(sets, "precision.gradients", strcasecmp(gradients, "fp32") == 0 ? "fp32" : "compute");
}

static int parse_row(struct job *job, struct table_row *row, const struct mesh *mesh,
                     const struct plan_machine *machine, const struct stack *stack, struct error *err)
{
    struct sweep_lines sets = {NULL, 0};
    int result;

    add_set(&sets, "model.vocab", "50257");
    add_set(&sets, "device", machine->gpu ? "cuda" : "cpu");
    for (int i = 0; i < stack->nsettings; i++)
        text_add_line(&sets.text, &sets.count, "%s", stack->settings[i]);
    if (!machine->gpu)
        add_set(&sets, "precision.compute", "fp32");
    result = set_shape(&sets, row, err);
    set_batch(&sets, row, mesh);
    set_rest(&sets, row, mesh);
    if (result == 0 && mesh->dp == 0)
        result = error_set(err, CODE_DATA, "one of gpus, ranks, nodes and dp is needed, for at least tp x pp ranks");
    result = error_take(&row->wrong, err) < 0 ? -1 : result;
    if (result == 0)
        result = job_parse(job, "data = { train = \"x\"; };\n", "row", sets.text, (int)sets.count, err);
    text_free_lines(sets.text, sets.count);
    return result;
}

static int row_predict(struct table_row *row, const struct plan_machine *machine, const struct stack *stack,
                       struct plan_memory *memory, struct plan_cost *cost, struct error *err)
{
    struct mesh mesh = row_mesh(row, machine);
    struct job job;
    int result;

    if (parse_row(&job, row, &mesh, machine, stack, err) < 0)
        return -1;
    result = plan_memory(&job, &mesh, machine, stack, memory, err);
    if (result == 0)
        result = plan_cost(&job, &mesh, machine, stack, cost, err);
    job_destroy(&job);
    return result;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* Returns whether it was predicted. */
static bool print_row(FILE *out, const char *line, struct table_row *row, const struct plan_machine *machine,
                      const struct stack *stack, const char *where, int number)
{
    struct plan_memory memory;
    struct plan_cost cost;
    struct error err;
    int result;

    if (row->count != row->columns)
        result = error_set(&err, CODE_DATA, "%d fields, but line 1 names %d columns", row->count, row->columns);
    else
        result = row_predict(row, machine, stack, &memory, &cost, &err);
    if (result == 0) {
        fprintf(out, "%s,%.2f,%.5g,%s\n", line, memory.held / 0x1p30, cost.seconds,
                memory.needed <= machine->memory ? "true" : "false");
        return true;
    }
    fprintf(stderr, "muster-plan: %s:%d: %s\n", where, number, err.text);
    fprintf(out, "%s,,,\n", line);
    return false;
}

/* Refuses a table whose columns are not enough to predict any row. `head`: has the columns' names. */
static int check_head(struct table_row *head, const char *line, const char *where, struct error *err)
{
    static const struct {
        const char *usual, *names[6];
    } needed[] = {{"model, size or layers", {"model", "size", "layers"}},
                  {"gpus, ranks, nodes or dp", {"gpus", "ranks", "nodes", "dp"}},
                  {"micro_batch or global_batch",
                   {"micro_batch", "microbatch", "micro_batch_size", "global_batch", "global_batch_size"}}};

    if (head->columns == 1 && strpbrk(line, ";\t"))
        return error_set(err, CODE_DATA, "%s:1: columns must be separated by commas, not by %s", where,
                         strchr(line, ';') ? "semicolons" : "tabs");
    for (int i = 0; i < head->count; i++)
        head->fields[i] = head->names[i];
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!row_text(head, needed[i].names))
            return error_set(err, CODE_DATA, "%s:1: no column is called %s", where, needed[i].usual);
    return 0;
}

int predict_table(FILE *in, FILE *out, const char *name, const struct plan_machine *machine, const struct stack *stack,
                  struct error *err)
{
    struct table_row row = {.count = 0};
    char *line = NULL, *head = NULL, *names[MOST_COLUMNS];
    long rows = 0, predicted = 0;
    size_t size = 0;
    int result = 0;

    for (int number = 1; result == 0 && getline(&line, &size, in) >= 0; number++) {
        char *copy;

        line[strcspn(line, "\r\n")] = '\0';
        if (!(copy = strdup(line)))
            break;
        if (!head) {
            size_t mark = text_mark(line, strlen(line), name);

            head = copy;
            row.columns = row.count = split_line(head + mark, names);
            row.names = names;
            result = check_head(&row, line + mark, name, err);
            if (result == 0)
                fprintf(out, "%s,predicted_gib,predicted_seconds,predicted_fits\n", line + mark);
            continue;
        }
        row.count = split_line(copy, row.fields);
        if (line[0]) {
            rows++;
            predicted += print_row(out, line, &row, machine, stack, name, number);
        }
        free(copy);
    }
    free(line);
    free(head);
    if (!head)
        return error_set(err, CODE_DATA, "%s: no line with the names of its columns", name);
    if (result == 0 && predicted < rows)
        return error_set(err, CODE_DATA, "%s: %ld of %ld rows are not predicted", name, rows - predicted, rows);
    return result;
}
