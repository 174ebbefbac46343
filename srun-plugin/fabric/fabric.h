/*
 * fabric.h - fabric profiles: which variables NCCL, libfabric and Gloo need on this network. Data decides, not code
 * (muster-fabric(5)). A profile is a libconfig file: `match` is its condition, `set` the variables it sets, each with
 * its reason and its source. muster ships profiles in etc/fabric; a site adds its own.
 *
 * Precedence, for each variable by itself: the user's environment, the job file, NCCL's own nccl.conf, the site's
 * profiles, the one shipped profile for this network. Variables that the user or nccl.conf has set are in the list for
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
#include "srun-plugin/node/env_list.h"
#include "srun-plugin/node/node.h"

/* ---- facts ------------------------------------------------------------------------------------------------------- */

/* True if the file exists. A name without a slash is a library, searched for where the dynamic linker would. */
typedef bool fabric_has_file(const char *name, void *arg);

/* All that a profile's conditions can test. Strings and arrays are borrowed, except for `live`. */
struct fabric_facts {
    unsigned nodes;         /* of the step */
    unsigned job_nodes;     /* of the job; of a heterogeneous job, only more than this component has */
    unsigned gpus;          /* of the step on this node; 0 for none */
    const char *vendor;     /* of the GPUs: "nvidia", "amd", "intel"; NULL without GPUs */
    const char *cluster;    /* SLURM_CLUSTER_NAME; NULL if not known */
    const char *interface;  /* that routes to the other nodes of the step (route.h); NULL if not known, or lo */
    unsigned local_rank;    /* of the rank on its node */
    unsigned cores;         /* that the rank may run on */
    fabric_has_file *files; /* NULL: no file exists */
    void *files_arg;
    const struct node_nic *nics;
    bool *live; /* [nic_count] the ports that profiles see; NULL: those that are up */
    size_t nic_count;
};

/*
 * Fills in gpus, vendor, nics and live of a node on which `local_ranks` ranks (at least 1) see `gpu_count` GPUs,
 * indices into node->gpus (visible.h). -1 and *err: CODE_USAGE for 0 ranks, CODE_IO without memory. The caller frees
 * live.
 *
 * A port of the fabric's kind (node_fabric) is live if a GPU of the step would use it (bind.h): a storage port beside
 * no GPU is not. GPUs count and not ranks, since one rank may start a process for each GPU (torchrun). A port of
 * another kind is live if it can be used at all.
 */
int fabric_facts_fill(struct fabric_facts *facts, const struct node *node, unsigned local_ranks, const size_t *gpus,
                      size_t gpu_count, struct error *err);

/* The interface that carries a port's traffic: its bond's if it is part of one; "" for none. */
const char *fabric_interface(const struct node_nic *nic);

/* A fabric_has_file for this machine. arg is LD_LIBRARY_PATH, or NULL. */
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
 * `absent`: what this node or job does not have, such as a kind of NIC; NULL behind the last, NULL for none. Files
 * whose name begins with one ("slingshot-cscs.cfg") are not read: to read all that muster ships takes 0.35 ms of each
 * step.
 */
int fabric_add_directory(struct fabric *fabric, enum fabric_layer layer, const char *path, const char *const *absent,
                         fabric_complain *complain, void *arg);

/* ---- variables set by files -------------------------------------------------------------------------------------- */

#define FILE_VARIABLES_MOST 1000 /* variables of one file */

/* Variables that a file sets: the job file, or nccl.conf. The strings are owned. Zeroed, it is empty. */
struct file_variable {
    char *name, *value;
    int line; /* of the job file; 0 in nccl.conf */
};

struct file_variables {
    struct file_variable *items;
    size_t count;
};

/* The first of several with one name counts. -1 and *err: CODE_CONFIG for too many, CODE_IO without memory. */
int file_variables_add(struct file_variables *variables, const char *name, const char *value, int line,
                       struct error *err);
void file_variables_clear(struct file_variables *variables);

/*
 * Adds the lines NAME=VALUE of an nccl.conf as NCCL reads them: blanks are not trimmed; comments (#) and lines that are
 * no assignment are skipped.
 */
int fabric_conf_parse(struct file_variables *variables, const char *text, struct error *err);

/*
 * Reads the files that NCCL will read: `conf_file` (NCCL_CONF_FILE; NULL or "" if not set), or else
 * `home`/.nccl.conf, then /etc/nccl.conf. Skips files that cannot be read, as NCCL does, and files of more than 64 KiB.
 * Never call it as root: the paths are the user's.
 */
int fabric_conf_read(struct file_variables *variables, const char *conf_file, const char *home, struct error *err);

/* ---- the list of variables --------------------------------------------------------------------------------------- */

#define FABRIC_VALUE_SIZE 4096 /* longer values of the user's are cut in the report */

/* Inputs that take precedence over profiles. Pointers may be NULL. */
struct fabric_inputs {
    env_lookup *user; /* variables that the user set, without those of an outer `srun --muster` */
    void *user_arg;
    const char *job_file; /* its name, to be shown as the source */
    const struct file_variables *job, *conf;
};

/*
 * Appends what job file, nccl.conf and profiles decide, sorted by name, each once. If no profile matches, these are the
 * job file's variables alone. -1 and *err (CODE_IO) only when out of memory.
 */
int fabric_fill_env(struct env_list *list, const struct fabric *fabric, const struct fabric_facts *facts,
                    const struct fabric_inputs *inputs, struct error *err);

#endif
