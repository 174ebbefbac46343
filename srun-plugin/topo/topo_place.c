#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/job.h"
#include "common/option.h"
#include "srun-plugin/topo/muster_topo.h"
#include "srun-plugin/place/place.h"
#include "srun-plugin/place/place_report.h"
#include "srun-plugin/topo/place_svg.h"
#include "srun-plugin/place/hostlist.h"

/* Gradients of a few hundred million parameters, and the activations that go with them. */
static const uint64_t default_bytes[PLACE_AXES] = {
    [PLACE_DP] = 1000000000, [PLACE_PP] = 100000000, [PLACE_TP] = 10000000000};

/* The command line. Texts are argv's. */
struct place_options {
    const char *nodes, *topology, *slots, *mesh, *job, *bytes, *svg, *hostfile;
};

/* What is made of it. */
struct place {
    struct cluster *cluster;
    struct mesh mesh;
    uint64_t bytes[PLACE_AXES];
    int *slots, *order;
    struct place_report report;
};

static int read_options(int argc, char **argv, struct place_options *options, struct error *err)
{
    static const struct option known[] = {{"nodes", required_argument, NULL, 'n'},
                                          {"topology", required_argument, NULL, 't'},
                                          {"slots", required_argument, NULL, 's'},
                                          {"mesh", required_argument, NULL, 'm'},
                                          {"job", required_argument, NULL, 'j'},
                                          {"bytes", required_argument, NULL, 'b'},
                                          {"svg", required_argument, NULL, 'v'},
                                          {"hostfile", required_argument, NULL, 'h'},
                                          {0}};
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        const char **text = c == 'n'   ? &options->nodes
                            : c == 't' ? &options->topology
                            : c == 's' ? &options->slots
                            : c == 'm' ? &options->mesh
                            : c == 'j' ? &options->job
                            : c == 'b' ? &options->bytes
                            : c == 'v' ? &options->svg
                            : c == 'h' ? &options->hostfile
                                       : NULL;

        if (!text)
            return error_set(err, CODE_USAGE, "place: option %s is unknown or lacks its value", option_refused(argv));
        *text = optarg;
    }
    if (optind < argc)
        return error_set(err, CODE_USAGE, "place: \"%s\" belongs to no option", argv[optind]);
    if (!options->nodes)
        return error_set(err, CODE_USAGE, "place: --nodes is needed, such as --nodes n[1-64]");
    return 0;
}

/* One "dp=8" of "dp=8,tp=8,pp=4"; numbers may end in k, M or G. */
static int read_axis(char *word, uint64_t *values, const char *option, struct error *err)
{
    static const char *const names[PLACE_AXES] = {[PLACE_DP] = "dp", [PLACE_PP] = "pp", [PLACE_TP] = "tp"};
    char *equals = strchr(word, '='), *end;

    for (int axis = 0; equals && axis < PLACE_AXES; axis++) {
        uint64_t number, unit;

        if (strncmp(word, names[axis], (size_t)(equals - word)) != 0 || equals - word != 2)
            continue;
        errno = 0;
        number = strtoull(equals + 1, &end, 10);
        unit = *end == 'k' ? 1000 : *end == 'M' ? 1000000 : *end == 'G' ? 1000000000 : 1;
        if (end == equals + 1 || equals[1] == '-' || errno || *(end + (unit > 1)) || number > PLACE_BYTES / unit)
            break;
        values[axis] = number * unit;
        return 0;
    }
    return error_set(err, CODE_USAGE, "place: %s %s: must be dp=N, tp=N or pp=N, with commas between", option, word);
}

static int read_axes(const char *text, uint64_t *values, const char *option, struct error *err)
{
    char *copy = strdup(text), *rest = NULL;
    int rc = copy ? 0 : error_errno(err, CODE_IO, "no memory for %s", option);

    for (char *word = copy ? strtok_r(copy, ",", &rest) : NULL; word && rc == 0; word = strtok_r(NULL, ",", &rest))
        rc = read_axis(word, values, option, err);
    free(copy);
    return rc;
}

static int make_cluster(const struct place_options *options, struct place *place, struct error *err)
{
    struct hostlist *nodes = hostlist_create(options->nodes, err);
    char *text = options->topology && nodes ? cluster_read_text(options->topology, err) : NULL;

    if (nodes && (text || !options->topology))
        place->cluster = cluster_create(nodes, text, options->topology ? options->topology : "no file", err);
    free(text);
    hostlist_destroy(nodes);
    return place->cluster ? 0 : -1;
}

static int make_slots(const struct place_options *options, struct place *place, int *all, struct error *err)
{
    place->slots = calloc((size_t)place->cluster->node_count, sizeof *place->slots);
    if (!place->slots)
        return error_errno(err, CODE_IO, "no memory for %d nodes", place->cluster->node_count);
    return hostlist_counts(options->slots ? options->slots : "8", place->slots, place->cluster->node_count, all, err);
}

/* --mesh over the job file, and dp whatever is left where neither says it. */
static int make_mesh(const struct place_options *options, const struct job *job, int slots, struct place *place,
                     struct error *err)
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
    if (axes[PLACE_DP] == 0)
        return mesh_fit(&place->mesh, slots, (int)axes[PLACE_TP], (int)axes[PLACE_PP], err);
    place->mesh = (struct mesh){(int)axes[PLACE_DP], (int)axes[PLACE_TP], (int)axes[PLACE_PP]};
    return 0;
}

static int make_bytes(const struct place_options *options, const struct job *job, struct place *place,
                      struct error *err)
{
    if (job)
        place_bytes(job, &place->mesh, place->bytes);
    else
        memcpy(place->bytes, default_bytes, sizeof place->bytes);
    return options->bytes ? read_axes(options->bytes, place->bytes, "--bytes", err) : 0;
}

static int make_all(const struct place_options *options, struct place *place, struct error *err)
{
    struct job job;
    int slots, rc = -1;

    if (options->job && job_load(&job, options->job, NULL, 0, err) < 0)
        return -1;
    if (make_cluster(options, place, err) == 0 && make_slots(options, place, &slots, err) == 0 &&
        make_mesh(options, options->job ? &job : NULL, slots, place, err) == 0)
        rc = make_bytes(options, options->job ? &job : NULL, place, err);
    if (options->job)
        job_destroy(&job);
    if (rc < 0 || place->mesh.dp < 1 || place->mesh.tp < 1 || place->mesh.pp < 1 || mesh_world(&place->mesh) > slots)
        return rc < 0 ? -1
                      : error_set(err, CODE_CONFIG, "a mesh of dp %d, tp %d, pp %d does not fit %d slots",
                                  place->mesh.dp, place->mesh.tp, place->mesh.pp, slots);
    place->order = calloc((size_t)mesh_world(&place->mesh), sizeof *place->order);
    if (!place->order)
        return error_errno(err, CODE_IO, "no memory for %d ranks", mesh_world(&place->mesh));
    return place_ranks(place->cluster, &place->mesh, place->bytes, place->slots, place->order, &place->report, err);
}

/* ---- what comes out ---- */

static void print_line(const char *line, void *arg)
{
    (void)arg;
    puts(line);
}

/* A failure leaves no half a file behind; but what is no file, such as /dev/full, is not ours to remove. */
static void remove_file(const char *path)
{
    struct stat found;

    if (lstat(path, &found) == 0 && S_ISREG(found.st_mode))
        unlink(path);
}

static int close_file(FILE *out, const char *path, int rc, struct error *err)
{
    if (fclose(out) != 0 && rc == 0)
        rc = error_errno(err, CODE_IO, "cannot write %s", path);
    if (rc < 0)
        remove_file(path);
    return rc;
}

static int write_svg(const char *path, const struct placement *placement, struct error *err)
{
    FILE *out = fopen(path, "we");

    if (!out)
        return error_errno(err, CODE_IO, "cannot make %s", path);
    return close_file(out, path, place_svg(out, placement, err), err);
}

static int write_hostfile(const char *path, const struct placement *placement, struct error *err)
{
    FILE *out = fopen(path, "we");
    char *text = out ? place_hostfile(placement->cluster, placement->order, mesh_world(placement->mesh), err) : NULL;

    if (!out)
        return error_errno(err, CODE_IO, "cannot make %s", path);
    if (text)
        fputs(text, out);
    free(text);
    return close_file(out, path, text ? 0 : -1, err);
}

int topo_place(int argc, char **argv, struct error *err)
{
    struct place_options options = {0};
    struct place place = {0};
    int rc = -1;

    if (read_options(argc, argv, &options, err) == 0 && make_all(&options, &place, err) == 0) {
        const struct placement placement = {.cluster = place.cluster,
                                            .mesh = &place.mesh,
                                            .bytes = place.bytes,
                                            .slots = place.slots,
                                            .order = place.order,
                                            .report = &place.report};

        rc = place_report_nodes(&placement, print_line, NULL, err);
        if (rc == 0)
            rc = place_report_traffic(&placement, print_line, NULL, err);
        if (rc == 0 && options.svg)
            rc = write_svg(options.svg, &placement, err);
        if (rc == 0 && options.hostfile)
            rc = write_hostfile(options.hostfile, &placement, err);
    }
    cluster_destroy(place.cluster);
    free(place.slots);
    free(place.order);
    return rc;
}
