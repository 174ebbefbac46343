#include "trainer/report/report_commands.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include <jansson.h>

/* The events of one mesh, added up. */
struct where {
    json_t *first;                                                /* has the mesh, and the names in their order */
    json_int_t steps, most;                                       /* most: of one event */
    double mean[METRICS_SHARES_MOST], rank0[METRICS_SHARES_MOST]; /* seconds */
    char slowest[256];                                            /* of that event */
    double slower;
};

/* In the order of the first event's names. */
static void add_shares(double *sums, json_t *names, json_t *shares)
{
    void *at = json_object_iter(names);

    for (int i = 0; at && i < METRICS_SHARES_MOST; i++, at = json_object_iter_next(names, at))
        sums[i] += json_number_value(json_object_get(shares, json_object_iter_key(at)));
}

static bool same_mesh(json_t *a, json_t *b)
{
    static const char *const axes[] = {"dp", "tp", "pp"};
    bool same = true;

    for (int i = 0; i < 3; i++)
        same &= json_integer_value(json_object_get(a, axes[i])) == json_integer_value(json_object_get(b, axes[i]));
    return same;
}

/* A mesh that the run comes back to counts as another one. */
static int add_event(struct where **list, size_t *count, json_t *event, struct error *err)
{
    struct where *w = *count ? &(*list)[*count - 1] : NULL;
    const char *slowest = json_string_value(json_object_get(event, "slowest"));
    json_int_t steps = json_integer_value(json_object_get(event, "steps"));
    size_t room = *count;

    if (!w || !same_mesh(w->first, event)) {
        if (error_reserve(list, &room, *count, 1, sizeof **list, err) < 0)
            return -1;
        w = &(*list)[(*count)++];
        *w = (struct where){.first = json_incref(event)};
    }
    w->steps += steps;
    add_shares(w->mean, json_object_get(w->first, "mean"), json_object_get(event, "mean"));
    add_shares(w->rank0, json_object_get(w->first, "mean"), json_object_get(event, "rank0"));
    if (steps <= w->most) /* few steps are noise */
        return 0;
    w->most = steps;
    snprintf(w->slowest, sizeof w->slowest, "%s", slowest ? slowest : "?");
    error_tame(w->slowest);
    w->slower = json_number_value(json_object_get(event, "slower"));
    return 0;
}

static int read_where(const char *path, struct where **list, size_t *count, struct error *err)
{
    char name[PATH_MAX], *line = NULL;
    size_t size = 0;
    int result = 0;
    FILE *file;

    snprintf(name, sizeof name, "%s.events", path);
    file = fopen(name, "re");
    if (!file)
        return error_errno(err, CODE_IO, "cannot open %s", name);
    while (result == 0 && getline(&line, &size, file) > 0) {
        json_t *event = json_loads(line, 0, NULL);
        const char *kind = json_string_value(json_object_get(event, "event"));

        if (kind && strcmp(kind, "where") == 0 && json_object_get(event, "mean"))
            result = add_event(list, count, event, err);
        json_decref(event);
    }
    free(line);
    fclose(file);
    if (result == 0 && *count == 0)
        return error_set(err, CODE_DATA,
                         "%s does not tell yet where the time went: it does once a minute, and at the last step", name);
    return result;
}

/* ---- muster-plan's prediction ------------------------------------------------------------------------------------ */

/* Seconds a step that muster-plan --json predicts for a share; NaN for none. */
static double predict_share(json_t *times, const char *name)
{
    static const struct {
        const char *share, *keys[8];
    } rows[] = {{"computing", {"products", "attention", "rows", "head", "launch", "optimizer", "offload"}},
                {"waiting, dp", {"dp"}},
                {"waiting, tp", {"tp"}},
                {"waiting, pp", {"pipeline"}}};
    double sum = NAN;

    for (size_t i = 0; times && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].share, name) == 0) {
            sum = 0;
            for (int k = 0; rows[i].keys[k]; k++)
                sum += json_number_value(json_object_get(times, rows[i].keys[k]));
        }
    return sum;
}

/* The times of that mesh; NULL: it is not among the best. */
static json_t *find_plan(json_t *plan, json_t *mesh)
{
    json_t *row;
    size_t i;

    json_array_foreach(json_object_get(plan, "best"), i, row) if (same_mesh(row, mesh)) return json_object_get(row,
                                                                                                               "time");
    return NULL;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static double sum_of(const double *values)
{
    double sum = 0;

    for (int i = 0; i < METRICS_SHARES_MOST; i++)
        sum += values[i];
    return sum;
}

static void print_row(FILE *out, const char *name, double seconds, double all, double rank0, double all_rank0,
                      double predicted)
{
    char printable[32];

    snprintf(printable, sizeof printable, "%s", name);
    error_tame(printable);
    fprintf(out, "  %-24s %10.4f %7.1f%% %9.1f%%", printable, seconds, 100 * seconds / all, 100 * rank0 / all_rank0);
    if (isfinite(predicted))
        fprintf(out, " %12.4f", predicted);
    fputc('\n', out);
}

static void print_where(FILE *out, const struct where *w, json_t *plan)
{
    double all = sum_of(w->mean), rank0 = sum_of(w->rank0), steps = (double)w->steps, predicted = 0;
    json_t *times = find_plan(plan, w->first), *value;
    const char *name;
    int i = 0;

    fprintf(out, "%lld steps on dp %lld x tp %lld x pp %lld\n\n  %-24s %10s %8s %10s%s\n", (long long)w->steps,
            json_integer_value(json_object_get(w->first, "dp")), json_integer_value(json_object_get(w->first, "tp")),
            json_integer_value(json_object_get(w->first, "pp")), "", "s a step", "share", "of rank 0",
            times ? "    predicted" : "");
    json_object_foreach(json_object_get(w->first, "mean"), name, value)
    {
        double expected = predict_share(times, name);

        if (i == METRICS_SHARES_MOST)
            break;
        predicted += isfinite(expected) ? expected : 0;
        if (w->mean[i] > 0.0005 * all || w->rank0[i] > 0.0005 * rank0 || expected > 0)
            print_row(out, name, w->mean[i] / steps, all / steps, w->rank0[i], rank0, expected);
        i++;
    }
    print_row(out, "all", all / steps, all / steps, rank0, rank0, times ? predicted : NAN);
    if (w->slower > 1)
        fprintf(out, "\n  slowest node: %s, a rank of which computes %.0f%% longer than its stage's mean\n", w->slowest,
                100 * (w->slower - 1));
    if (plan && !times)
        fprintf(out, "\n  the plan does not have this mesh\n");
}

int where_print(FILE *out, const char *path, const char *plan_path, struct error *err)
{
    json_error_t why;
    json_t *plan = plan_path ? json_load_file(plan_path, 0, &why) : NULL;
    struct where *list = NULL;
    size_t count = 0;
    int result = 0;

    if (plan_path && !plan)
        return error_set(err, CODE_DATA, "%s: %s; give the output of muster-plan --json", plan_path, why.text);
    result = read_where(path, &list, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (result == 0) {
            fputs(i ? "\n" : "", out);
            print_where(out, &list[i], plan);
        }
        json_decref(list[i].first);
    }
    free(list);
    json_decref(plan);
    return result;
}
