/*
 * muster_topo.c - the program muster-topo: what srun --muster would do, on a laptop, without a cluster. Here are
 * its options and the command place.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io.h"
#include "common/option.h"
#include "common/text.h"
#include "srun-plugin/topo/muster_topo.h"

/* ---- muster-topo place ------------------------------------------------------------------------------------------- */

/* Without a job: about those of a model with a few hundred million parameters. */
static const uint64_t default_bytes[PLACE_AXES] = {
    [PLACE_DP] = 1000000000, [PLACE_PP] = 100000000, [PLACE_TP] = 10000000000};

/* The command line. Texts are argv's. */
struct place_options {
    const char *nodes, *topology, *slots, *mesh, *job, *bytes, *svg, *hostfile;
};

/* -1: go on; otherwise the exit code. */
static int read_options(int argc, char **argv, struct place_options *options)
{
    const struct option_row rows[] = {
        {"nodes", OPTION_TEXT, .to = &options->nodes},
        {"topology", OPTION_TEXT, .to = &options->topology},
        {"slots", OPTION_TEXT, .to = &options->slots},
        {"mesh", OPTION_TEXT, .to = &options->mesh},
        {"job", OPTION_TEXT, .to = &options->job},
        {"bytes", OPTION_TEXT, .to = &options->bytes},
        {"svg", OPTION_TEXT, .to = &options->svg},
        {"hostfile", OPTION_TEXT, .to = &options->hostfile},
        {0},
    };
    int code = options_read(rows, argc, argv, topo_usage);

    if (code >= 0)
        return code;
    if (optind < argc)
        return option_fail("place: unexpected argument \"%s\"", argv[optind]);
    return options->nodes ? -1 : option_fail("place: --nodes is needed, such as --nodes n[1-64]");
}

/* "dp=8,tp=8,pp=4"; numbers may end in k, M or G. */
static int read_axes(const char *text, uint64_t *values, const char *option, struct error *err)
{
    static const char *const names[PLACE_AXES] = {[PLACE_DP] = "dp=", [PLACE_PP] = "pp=", [PLACE_TP] = "tp="};

    for (const char *word = text + strspn(text, ","); *word; word += strspn(word, ",")) {
        const char *at = word + 3;
        uint64_t unit = 1;
        long number;
        int axis = 0;

        while (axis < PLACE_AXES && strncmp(word, names[axis], 3) != 0)
            axis++;
        if (axis < PLACE_AXES && text_take_number(&at, (long)PLACE_BYTES, &number)) {
            unit = *at == 'k' ? 1000 : *at == 'M' ? 1000000 : *at == 'G' ? 1000000000 : 1;
            at += unit > 1;
        }
        if (axis == PLACE_AXES || at == word + 3 || (*at && *at != ',') || (uint64_t)number > PLACE_BYTES / unit)
            return error_set(err, CODE_USAGE, "place: %s %s: must be dp=N, tp=N or pp=N, with commas between", option,
                             word);
        values[axis] = (uint64_t)number * unit;
        word = at;
    }
    return 0;
}

/* --mesh takes precedence over the job file. dp is 0, for as many replicas as fit, if neither has it. */
static int read_mesh(const struct place_options *options, const struct job *job, struct mesh *mesh, struct error *err)
{
    uint64_t axes[PLACE_AXES] = {[PLACE_PP] = 1, [PLACE_TP] = 1};

    if (job) {
        axes[PLACE_TP] = (uint64_t)job->parallel.tp;
        axes[PLACE_PP] = (uint64_t)job->parallel.pp;
    }
    if (options->mesh && read_axes(options->mesh, axes, "--mesh", err) < 0)
        return -1;
    for (int axis = 0; axis < PLACE_AXES; axis++)
        if (axes[axis] > PLACE_RANKS)
            return error_set(err, CODE_USAGE, "place: --mesh %s: more than %d ranks", options->mesh, PLACE_RANKS);
    *mesh = (struct mesh){.dp = (int)axes[PLACE_DP], .tp = (int)axes[PLACE_TP], .pp = (int)axes[PLACE_PP]};
    return 0;
}

static struct order *make_order(const struct place_options *options, const struct job *job, struct error *err)
{
    uint64_t bytes[PLACE_AXES] = {ORDER_BYTES_COMPUTED, ORDER_BYTES_COMPUTED, ORDER_BYTES_COMPUTED};
    struct mesh mesh;
    char *topology = options->topology ? switch_tree_read_text(options->topology, err) : NULL;
    const struct order_request request = {.job = job,
                                          .nodes = options->nodes,
                                          .tasks_per_node = options->slots ? options->slots : "8",
                                          .topology = topology,
                                          .where = options->topology,
                                          .mesh = &mesh,
                                          .bytes = bytes};
    struct order *order = NULL;

    if (!job)
        memcpy(bytes, default_bytes, sizeof bytes);
    if ((topology || !options->topology) && read_mesh(options, job, &mesh, err) == 0 &&
        (!options->bytes || read_axes(options->bytes, bytes, "--bytes", err) == 0))
        order = order_create(&request, err);
    free(topology);
    return order;
}

static int write_svg(const char *path, const struct order *order, struct error *err)
{
    FILE *out = io_create_file(path, err);

    return out ? io_close_file(out, path, place_svg(out, order, err), err) : -1;
}

static int write_hostfile(const char *path, const struct order *order, struct error *err)
{
    char *text = order_hostfile(order, err);
    FILE *out = text ? io_create_file(path, err) : NULL;

    if (out)
        fputs(text, out);
    free(text);
    return out ? io_close_file(out, path, 0, err) : -1;
}

static int topo_place(int argc, char **argv, struct error *err)
{
    struct place_options options = {0};
    int code = read_options(argc, argv, &options), rc;
    struct order *order;
    struct job job;

    if (code >= 0)
        return code;
    if (options.job && job_load(&job, options.job, NULL, 0, err) < 0)
        return -1;
    order = make_order(&options, options.job ? &job : NULL, err);
    if (options.job)
        job_destroy(&job);
    rc = order ? order_report_nodes(order, stdout, err) : -1;
    if (rc == 0)
        rc = order_report_traffic(order, stdout, err);
    if (rc == 0 && options.svg)
        rc = write_svg(options.svg, order, err);
    if (rc == 0 && options.hostfile)
        rc = write_hostfile(options.hostfile, order, err);
    order_destroy(order);
    return rc;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    int (*run)(int argc, char **argv, struct error *err);
} commands[] = {{"node", topo_node}, {"save", topo_save}, {"place", topo_place}};

const char topo_usage[] =
    "usage: muster-topo node [--xml FILE] [--ranks N] [--json] [--environment [--nodes N] [--cluster NAME]\n"
    "                        [--interface NAME] [--profiles DIR] [--site DIR]] [DIR]\n"
    "       muster-topo save DIR\n"
    "       muster-topo place --nodes LIST [--topology FILE] [--slots COUNTS] [--mesh dp=N,tp=N,pp=N] [--job FILE]\n"
    "                         [--bytes dp=N,tp=N,pp=N] [--svg FILE] [--hostfile FILE]\n"
    "\nSee muster-topo(1).\n";

int main(int argc, char **argv)
{
    struct error err = {0};
    int code;

    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].word) == 0) {
            code = commands[i].run(argc - 1, argv + 1, &err);
            return code < 0 ? error_report(&err) : error_output(code);
        }
    code = options_read(&(const struct option_row){0}, argc, argv, topo_usage);
    if (code >= 0)
        return error_output(code);
    return argc > 1 ? option_fail("no such command: %s", argv[1])
                    : option_fail("a command is needed: node, save or place");
}
