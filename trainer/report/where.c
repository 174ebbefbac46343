#include "trainer/report/report_commands.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

/* The events of one mesh, added up. */
struct where {
    json_t *first; /* has the mesh, and the names in their order */
    json_t *most;  /* the last one of those with the most steps: few steps are noise */
    json_int_t steps;
    double mean[METRICS_SHARES_MOST], rank0[METRICS_SHARES_MOST]; /* seconds */
    double ecc, xid; /* of the GPUs: uncorrected errors of their memory; the first error */
};

#define STEPS_MOST 1000000000 /* of an event: more is damage */

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

struct where_list {
    struct where *list;
    size_t count, room;
};

/* A mesh that the run comes back to counts as another one. */
static int add_event(void *arg, const char *kind, json_t *event, struct error *err)
{
    struct where_list *l = arg;
    struct where *w = l->count ? &l->list[l->count - 1] : NULL;
    json_int_t steps = json_integer_value(json_object_get(event, "steps"));
    json_t *gpus = json_object_get(event, "gpus");

    if (strcmp(kind, "where") != 0 || !json_object_get(event, "mean") || steps < 1 || steps > STEPS_MOST)
        return 0;
    if (!w || !same_mesh(w->first, event)) {
        if (error_reserve(&l->list, &l->room, l->count, 1, sizeof *w, err) < 0)
            return -1;
        w = &l->list[l->count++];
        *w = (struct where){.first = json_incref(event), .most = json_incref(event)};
    }
    w->steps += steps;
    w->ecc += json_number_value(json_object_get(gpus, "ecc_errors"));
    w->xid = w->xid > 0 ? w->xid : json_number_value(json_object_get(gpus, "xid"));
    add_shares(w->mean, json_object_get(w->first, "mean"), json_object_get(event, "mean"));
    add_shares(w->rank0, json_object_get(w->first, "mean"), json_object_get(event, "rank0"));
    if (steps >= json_integer_value(json_object_get(w->most, "steps"))) {
        json_decref(w->most);
        w->most = json_incref(event);
    }
    return 0;
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

static double number_of(json_t *object, const char *key)
{
    json_t *number = json_object_get(object, key);

    return json_is_number(number) ? json_number_value(number) : NAN;
}

/* If the event tells it. */
static void print_known(FILE *out, const char *before, double value, int digits, const char *after)
{
    if (!isnan(value))
        fprintf(out, "%s%.*f%s", before, digits, value, after);
}

/* A name of the event, safe to print. */
static const char *name_of(char name[static 256], json_t *object, const char *key)
{
    const char *told = json_string_value(json_object_get(object, key));

    snprintf(name, 256, "%s", told ? told : "?");
    error_tame(name);
    return name;
}

static void print_gpus(FILE *out, const struct where *w)
{
    json_t *gpus = json_object_get(w->most, "gpus"), *lowest = json_object_get(gpus, "lowest");
    char name[256];

    if (!gpus)
        return;
    fputs("  GPUs:", out);
    print_known(out, " ", number_of(gpus, "watts"), 0, " W each");
    print_known(out, " of ", number_of(gpus, "limit_watts"), 0, " W");
    print_known(out, ", clock held down by power for ", 100 * number_of(gpus, "power_limited"), 0, "% of the time");
    print_known(out, ", ", number_of(gpus, "sm_mhz"), 0, " MHz");
    print_known(out, ", ", number_of(gpus, "celsius"), 0, " C");
    if (lowest) {
        print_known(out, "\n  lowest clock: ", number_of(lowest, "sm_mhz"), 0, " MHz");
        print_known(out, " at ", number_of(lowest, "celsius"), 0, " C");
        fprintf(out, ", on %s", name_of(name, lowest, "node"));
    }
    if (w->ecc > 0)
        fprintf(out, "\n  uncorrected errors of GPU memory: %.0f", w->ecc);
    if (w->xid > 0)
        fprintf(out, "\n  first error of a GPU: XID %.0f", w->xid);
    fputc('\n', out);
}

/* What the events tell beside the shares. */
static void print_beside(FILE *out, const struct where *w)
{
    double slower = number_of(w->most, "slower"), device = number_of(w->most, "device_mib");
    char name[256];

    if (slower > 1)
        fprintf(out, "\n  slowest node: %s, a rank of which computes %.0f%% longer than its stage's mean\n",
                name_of(name, w->most, "slowest"), 100 * (slower - 1));
    if (isnan(device))
        return; /* of an earlier release */
    fprintf(out, "%s  memory of a rank, at most: device %.1f MiB", slower > 1 ? "" : "\n", device);
    print_known(out, ", host ", number_of(w->most, "host_mib"), 1, " MiB");
    fputc('\n', out);
    print_gpus(out, w);
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
    print_beside(out, w);
    if (plan && !times)
        fprintf(out, "\n  the plan does not have this mesh\n");
}

static int read_where(const char *path, struct where_list *where, struct error *err)
{
    struct metrics_damage ignored = {0};

    return metrics_each_event(path, add_event, where, &ignored, err) == 0 ? 0 : -1;
}

static void free_where(struct where_list *where)
{
    for (size_t i = 0; i < where->count; i++) {
        json_decref(where->list[i].first);
        json_decref(where->list[i].most);
    }
    free(where->list);
}

json_t *where_measured(const char *path)
{
    static const char *const keys[] = {"watts", "power_limited", "sm_mhz", "celsius"};
    struct where_list where = {0};
    json_t *measured = json_object();

    if (read_where(path, &where, NULL) == 0 && where.count > 0) {
        json_t *most = where.list[where.count - 1].most, *gpus = json_object_get(most, "gpus");

        json_object_set_new(measured, "device_mib", json_real(number_of(most, "device_mib"))); /* NaN: it stays unset */
        json_object_set_new(measured, "host_mib", json_real(number_of(most, "host_mib")));
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            json_object_set_new(measured, keys[i], json_real(number_of(gpus, keys[i])));
    }
    free_where(&where);
    return measured;
}

int where_print(FILE *out, const char *path, const char *plan_path, struct error *err)
{
    json_error_t why;
    json_t *plan = plan_path ? json_load_file(plan_path, 0, &why) : NULL;
    struct where_list where = {0};
    int result;

    if (plan_path && !plan)
        return error_set(err, CODE_DATA, "%s: %s; give the output of muster-plan --json", plan_path, why.text);
    result = read_where(path, &where, err);
    if (result == 0 && where.count == 0)
        result = error_set(
            err, CODE_DATA,
            "%s.events does not tell yet where the time went: it does once a minute, and at the last step", path);
    for (size_t i = 0; result == 0 && i < where.count; i++) {
        fputs(i ? "\n" : "", out);
        print_where(out, &where.list[i], plan);
    }
    free_where(&where);
    json_decref(plan);
    return result;
}
