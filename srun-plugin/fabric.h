/*
 * fabric.h - fabric profiles: which variables NCCL, libfabric and Gloo need on this network, decided by data and not by
 * code (muster-fabric(5)). A profile is a libconfig file that says what it recognises (`match`) and what it then sets
 * (`set`, each with why and a source). Those that muster ships, etc/fabric, are compiled in; a site's are read.
 *
 *     struct fabric *fabric = fabric_create(&err);
 *     fabric_add_shipped(fabric, &err);
 *     fabric_add_directory(fabric, FABRIC_SITE, "/etc/muster/fabric", complain, NULL);
 *     struct fabric_plan *plan = fabric_plan_create(fabric, &facts, &inputs, &err);
 *     for (size_t i = 0; i < plan->count; i++)
 *         if (fabric_sets(&plan->variables[i]))
 *             setenv(plan->variables[i].name, plan->variables[i].value, 1);
 *
 * Who wins, for each variable by itself: the user's environment, then the job file, then NCCL's own nccl.conf, then the
 * site's directory, then the one profile that muster ships for this network. What the user or nccl.conf has set is in
 * the plan for the report only.
 *
 * Everything but fabric_add_directory, fabric_conf_read and fabric_find_file is pure: the environment and the facts
 * come in as arguments.
 */
#ifndef MUSTER_SRUN_PLUGIN_FABRIC_H
#define MUSTER_SRUN_PLUGIN_FABRIC_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"
#include "srun-plugin/spank/env.h"

/* ---- facts ------------------------------------------------------------------------------------------------------- */

/* One port of a network card. Strings are borrowed. A `kind` of another name (a bridge's) is no profile's. */
struct fabric_nic {
    const char *kind;      /* "infiniband", "roce", "slingshot", "efa" or "ethernet" */
    const char *driver;    /* "mlx5_core", "cxi_ss1", "efa", "ena", ...; NULL if not known */
    const char *hca;       /* of RDMA, as NCCL_IB_HCA wants it: "mlx5_0:1"; NULL or "" for none */
    const char *interface; /* "ib0", "hsn0", "eth0"; NULL or "" for none */
    int gid_index;         /* of its RoCE v2 GID that holds an IPv4 address (gid.h); -1 for none, or not known */
    double gbps;           /* 0 if not known */
    bool live;             /* the link is up; profiles see no others */
};

/* True where the file is there. A name without a slash is a library's, to be looked for where the loader would. */
typedef bool fabric_has_file(const char *name, void *arg);

/* What profiles can recognise. Strings are borrowed. */
struct fabric_facts {
    unsigned nodes;         /* of the step */
    unsigned job_nodes;     /* of the job, in all its components */
    unsigned gpus;          /* of the step on this node; 0 for none */
    const char *vendor;     /* of the GPUs: "nvidia", "amd", "intel"; NULL without */
    const char *cluster;    /* SLURM_CLUSTER_NAME; NULL if not known */
    const char *interface;  /* that routes to the other nodes of the step (route.h); NULL if not known */
    unsigned local_rank;    /* of the rank on its node */
    unsigned cores;         /* that the rank may run on */
    fabric_has_file *files; /* NULL: there are none */
    void *files_arg;
    const struct fabric_nic *nics;
    size_t nic_count;
};

/* A fabric_has_file of this machine. arg is LD_LIBRARY_PATH, or NULL. The loader's cache is not asked. */
bool fabric_find_file(const char *name, void *arg);

/* ---- profiles ---------------------------------------------------------------------------------------------------- */

enum fabric_layer { FABRIC_SHIPPED, FABRIC_SITE };

struct fabric;

struct fabric *fabric_create(struct error *err);
void fabric_destroy(struct fabric *fabric);

/* Adds those that muster ships, which are in the program. -1 with CODE_IO for want of memory. */
int fabric_add_shipped(struct fabric *fabric, struct error *err);

/*
 * Adds a profile. -1 with CODE_CONFIG and "FILE:LINE: what is wrong; what would be right": nothing was added, the
 * others stay. `file` stands for the text in errors and in the report.
 */
int fabric_add_text(struct fabric *fabric, enum fabric_layer layer, const char *text, const char *file,
                    struct error *err);

typedef void fabric_complain(const struct error *err, void *arg);

/*
 * Adds every *.cfg of a directory, by name. A broken profile is skipped and told to `complain`, one call each, and so
 * is a directory of shipped ones that is not there: a site need not have one. Returns how many were added.
 */
int fabric_add_directory(struct fabric *fabric, enum fabric_layer layer, const char *path, fabric_complain *complain,
                         void *arg);

/* ---- what others have set ---------------------------------------------------------------------------------------- */

/* Variables that a file sets: the job file, or nccl.conf. The strings are owned. Zeroed, it is empty. */
struct fabric_given {
    char *name, *value;
    char *source; /* "gpt.cfg:7", "nccl.conf" */
};

struct fabric_givens {
    struct fabric_given *items;
    size_t count;
};

/* Of several with one name the first counts. */
int fabric_givens_add(struct fabric_givens *givens, const char *name, const char *value, const char *source,
                      struct error *err);
void fabric_givens_clear(struct fabric_givens *givens);

/*
 * Adds the lines NAME=VALUE of an nccl.conf as NCCL reads them: blanks are not trimmed, a line that is no assignment
 * and one with # at its beginning are passed over.
 */
int fabric_conf_parse(struct fabric_givens *givens, const char *text, const char *source, struct error *err);

/*
 * What NCCL will read: `conf_file` (NCCL_CONF_FILE; NULL or "" if not set), or else `home`/.nccl.conf, and after it
 * /etc/nccl.conf. Files that cannot be read are passed over, as NCCL does. Never to be called as root: the paths are
 * the user's.
 */
int fabric_conf_read(struct fabric_givens *givens, const char *conf_file, const char *home, struct error *err);

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

enum fabric_origin { FABRIC_FROM_USER, FABRIC_FROM_JOB, FABRIC_FROM_CONF, FABRIC_FROM_SITE, FABRIC_FROM_SHIPPED };

struct fabric_variable {
    char *name, *value;
    enum fabric_origin origin;
    char *source; /* "user", "nccl.conf", or "FILE:LINE" of the job file or profile */
    char *why;    /* of a profile's, its reason; else what muster would have set, or "" */
};

struct fabric_plan {
    char *profile; /* names of the profiles that matched, as "infiniband" or "infiniband, our-site"; "" for none */
    struct fabric_variable *variables; /* sorted by name, each once */
    size_t count;
    char **notes; /* lines for the user: a profile's warnings, and what had to be left out */
    size_t note_count;
};

/* What wins over profiles. Pointers may be NULL. */
struct fabric_inputs {
    env_lookup *user; /* what the user set; not what an outer `srun --muster` did */
    void *user_arg;
    const struct fabric_givens *job, *conf;
};

/* NULL and *err for want of memory only: where no profile matches, the plan has the job file's variables alone. */
struct fabric_plan *fabric_plan_create(const struct fabric *fabric, const struct fabric_facts *facts,
                                       const struct fabric_inputs *inputs, struct error *err);
void fabric_plan_destroy(struct fabric_plan *plan);

/* True for what is to be set, overwriting; false for what is there already. */
bool fabric_sets(const struct fabric_variable *variable);

#endif
