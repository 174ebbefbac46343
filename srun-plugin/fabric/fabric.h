/*
 * fabric.h - fabric profiles: which variables NCCL, libfabric and Gloo need on this network. Data decides, not code
 * (muster-fabric(5)). A profile is a libconfig file: `match` is its condition, `set` the variables it sets, each with
 * its reason and its source. muster ships profiles in etc/fabric; a site adds its own.
 *
 *     struct fabric *fabric = fabric_create(&err);
 *     fabric_add_directory(fabric, FABRIC_SHIPPED, "/usr/share/muster/fabric", NULL, complain, NULL);
 *     fabric_add_directory(fabric, FABRIC_SITE, "/etc/muster/fabric", NULL, complain, NULL);
 *     struct fabric_plan *plan = fabric_plan_create(fabric, &facts, &inputs, &err);
 *     for (size_t i = 0; i < plan->count; i++)
 *         if (fabric_sets(&plan->variables[i]))
 *             setenv(plan->variables[i].name, plan->variables[i].value, 1);
 *
 * Precedence, for each variable by itself: the user's environment, the job file, NCCL's own nccl.conf, the site's
 * profiles, the one shipped profile for this network. Variables that the user or nccl.conf has set are in the plan for
 * the report only.
 *
 * fabric_add_directory, fabric_conf_read and fabric_find_file read files. Everything else is pure: the environment and
 * the facts are arguments.
 */
#ifndef MUSTER_SRUN_PLUGIN_FABRIC_FABRIC_H
#define MUSTER_SRUN_PLUGIN_FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

/* ---- facts ------------------------------------------------------------------------------------------------------- */

/* One port of a network card. Strings are borrowed. No profile matches a port of another kind (a bridge's). */
struct fabric_nic {
    const char *kind;      /* "infiniband", "roce", "slingshot", "efa" or "ethernet" */
    const char *driver;    /* "mlx5_core", "cxi_ss1", "efa", "ena", ...; NULL if not known */
    const char *hca;       /* RDMA device in the form of NCCL_IB_HCA: "mlx5_0:1"; NULL or "" for none */
    const char *interface; /* "ib0", "hsn0", "eth0"; NULL or "" for none */
    int gid_index;         /* index of its RoCE v2 GID with an IPv4 address (node.h); -1 for none, or not known */
    double gbps;           /* 0 if not known */
    bool live;             /* the link is up; profiles see no other ports */
};

/* True if the file exists. A name without a slash is a library, searched for where the dynamic linker would. */
typedef bool fabric_has_file(const char *name, void *arg);

/* All that a profile's conditions can test. Strings are borrowed. */
struct fabric_facts {
    unsigned nodes;         /* of the step */
    unsigned job_nodes;     /* of the job, in all its components */
    unsigned gpus;          /* of the step on this node; 0 for none */
    const char *vendor;     /* of the GPUs: "nvidia", "amd", "intel"; NULL without GPUs */
    const char *cluster;    /* SLURM_CLUSTER_NAME; NULL if not known */
    const char *interface;  /* that routes to the other nodes of the step (route.h); NULL if not known */
    unsigned local_rank;    /* of the rank on its node */
    unsigned cores;         /* that the rank may run on */
    fabric_has_file *files; /* NULL: no file exists */
    void *files_arg;
    const struct fabric_nic *nics;
    size_t nic_count;
};

/* A fabric_has_file for this machine. arg is LD_LIBRARY_PATH, or NULL. Does not read the linker's cache. */
bool fabric_find_file(const char *name, void *arg);

/* ---- profiles ---------------------------------------------------------------------------------------------------- */

enum fabric_layer { FABRIC_SHIPPED, FABRIC_SITE };

struct fabric;

struct fabric *fabric_create(struct error *err);
void fabric_destroy(struct fabric *fabric);

/*
 * Adds a profile. -1 with CODE_CONFIG and "FILE:LINE: what is wrong; what would be right": nothing was added, the
 * others stay. `file` names the text in errors and in the report.
 */
int fabric_add_text(struct fabric *fabric, enum fabric_layer layer, const char *text, const char *file,
                    struct error *err);

typedef void fabric_complain(const struct error *err, void *arg);

/*
 * Adds every *.cfg of a directory, in the order of their names. Skips a broken profile and calls `complain` for it. A
 * site's directory may be missing; for shipped profiles that is one more call of `complain`. Returns how many were
 * added.
 *
 * `absent`: kinds of NIC that this node does not have, NULL behind the last; NULL for none. Files whose name begins
 * with one ("slingshot-cscs.cfg") are not read: to read all that muster ships takes 0.35 ms of each step.
 */
int fabric_add_directory(struct fabric *fabric, enum fabric_layer layer, const char *path, const char *const *absent,
                         fabric_complain *complain, void *arg);

/* ---- variables set by files -------------------------------------------------------------------------------------- */

/* Variables that a file sets: the job file, or nccl.conf. The strings are owned. Zeroed, it is empty. */
struct fabric_given {
    char *name, *value;
    char *source; /* "gpt.cfg:7", "nccl.conf" */
};

struct fabric_givens {
    struct fabric_given *items;
    size_t count;
};

/* The first of several with one name counts. */
int fabric_givens_add(struct fabric_givens *givens, const char *name, const char *value, const char *source,
                      struct error *err);
void fabric_givens_clear(struct fabric_givens *givens);

/*
 * Adds the lines NAME=VALUE of an nccl.conf as NCCL reads them: blanks are not trimmed; comments (#) and lines that are
 * no assignment are skipped.
 */
int fabric_conf_parse(struct fabric_givens *givens, const char *text, const char *source, struct error *err);

/*
 * Reads the files that NCCL will read: `conf_file` (NCCL_CONF_FILE; NULL or "" if not set), or else
 * `home`/.nccl.conf, then /etc/nccl.conf. Skips files that cannot be read, as NCCL does. Never call it as root: the
 * paths are the user's.
 */
int fabric_conf_read(struct fabric_givens *givens, const char *conf_file, const char *home, struct error *err);

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

enum fabric_origin { FABRIC_FROM_USER, FABRIC_FROM_JOB, FABRIC_FROM_CONF, FABRIC_FROM_SITE, FABRIC_FROM_SHIPPED };

struct fabric_variable {
    char *name, *value;
    enum fabric_origin origin;
    char *source; /* "user", "nccl.conf", or "FILE:LINE" of the job file or profile */
    char *why;    /* a profile's reason; for other origins the value that muster would have set, or "" */
};

struct fabric_plan {
    char *profile; /* names of the profiles that matched: "infiniband" or "infiniband, our-site"; "" for none */
    struct fabric_variable *variables; /* sorted by name, each once */
    size_t count;
    char **notes; /* lines for the user: warnings of profiles, and settings that were left out */
    size_t note_count;
};

#define FABRIC_VALUE_SIZE 4096 /* longer values of the user's are cut in the report */

/* Copies the value of a variable, cut to size; false if it is not set. */
typedef bool fabric_lookup(const char *name, char *value, size_t size, void *arg);

/* Inputs that take precedence over profiles. Pointers may be NULL. */
struct fabric_inputs {
    fabric_lookup *user; /* variables that the user set, without those of an outer `srun --muster` */
    void *user_arg;
    const struct fabric_givens *job, *conf;
};

/* If no profile matches, the plan has the job file's variables alone. NULL and *err only when out of memory. */
struct fabric_plan *fabric_plan_create(const struct fabric *fabric, const struct fabric_facts *facts,
                                       const struct fabric_inputs *inputs, struct error *err);
void fabric_plan_destroy(struct fabric_plan *plan);

/* True if the variable is to be set, overwriting; false if the user or nccl.conf has set it already. */
bool fabric_sets(const struct fabric_variable *variable);

#endif
