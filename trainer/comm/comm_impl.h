/* comm_impl.h - what an implementation of comm.h provides; only files in this folder include it. */
#ifndef MUSTER_TRAINER_COMM_COMM_IMPL_H
#define MUSTER_TRAINER_COMM_COMM_IMPL_H

#include "trainer/comm/comm.h"
#include "trainer/comm/launch.h"
#include "trainer/watch/recorder.h"

/* Communicators for device memory leave split, start_broadcast, fail and check_failure to comm->host. */
struct comm_ops {
    struct comm *(*split)(struct comm *, int color, int key, struct error *err);
    void (*destroy)(struct comm *); /* of the world: ends the library too */
    struct comm_request *(*start_reduce_scatter)(struct comm *, enum dtype, void *recv, const void *send, size_t count,
                                                 size_t stride, void *scratch, struct error *err);
    struct comm_request *(*start_all_gather)(struct comm *, void *buffer, size_t bytes, struct error *err);
    struct comm_request *(*start_broadcast)(struct comm *, void *buffer, size_t bytes, int root, struct error *err);
    /* a send or a receive; NULL: the group is for collectives only */
    struct comm_request *(*start_message)(struct comm *, bool sending, void *buffer, size_t bytes, int peer,
                                          struct error *err);
    /* comm_all_reduce; NULL: an all-gather, and every rank adds */
    int (*all_reduce)(struct comm *, enum dtype, void *buffer, size_t count, void *scratch, struct error *err);
    int (*wait)(struct comm_request *, struct error *err);
    bool (*fail)(struct comm *, struct error *); /* NULL without other ranks */
    /* polled while waiting: a rank has failed, or comm_interrupt was called; NULL without other ranks */
    bool (*check_failure)(struct error *);
};

struct comm {
    const struct comm_ops *ops;
    struct comm *host; /* owned, for a communicator for device memory; else NULL */
    int rank, size;
    char text[96];

    /* for the flight recorder */
    char label[RECORD_NAME_SIZE];
    int *members; /* [size] ranks of the world; NULL for the world, for a group of one, which is not recorded, and where
                     host has them */
    const char *purpose_unit, *purpose_data; /* of the next operation */
    int recorded;                            /* recorder_add_comm */
};

struct comm_request {
    struct comm *comm;
    struct record_op op;
};

/* MUSTER_RANK_MAP (common/mesh.h) for `size` ranks into map[size]: 1; 0 if it is not set; -1 with CODE_USAGE. */
int comm_read_rank_map(int size, int *map, struct error *err);

/* NULL and CODE_USAGE if the MPI library does not find the ranks that the launcher started. */
struct comm *comm_mpi_create(const struct launch *launch, struct error *err);

/* comm_all_reduce of host memory, whatever comm is for; recorded as comm's. */
int comm_all_reduce_on_host(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch,
                            struct error *err);

/* ---- comm.c, tree_sum.c, comm_device.c ---- */

/*
 * For the flight recorder. Call comm_record_enter before starting the operation, because the start itself may hang, and
 * comm_record_started with the request that the start returned. peer is a rank of the group, -1 for a collective.
 */
struct record_op comm_record_enter(struct comm *comm, enum record_kind kind, int peer);
struct comm_request *comm_record_started(struct comm_request *request, const struct record_op *op);
int comm_world_rank(const struct comm *comm, int rank);

/* Whether comm_interrupt was called; then *err is its error. Cheap enough to ask while waiting. */
bool comm_interrupted(struct error *err);

/* An operation that was complete when it began; comm_wait returns at once and frees nothing. */
extern struct comm_request comm_done;

/*
 * out[i] = the tree sum over ranks of parts[rank][i]. With n ranks the tree's left half has the greatest power of two
 * below n. out may be one of the parts. 16-bit types are widened first, and the sum is rounded once.
 */
void comm_tree_sum(enum dtype dtype, void *out, const void *const *parts, int ranks, size_t count);
double comm_tree_sum_f64(const double *values, int ranks, size_t stride);

/*
 * A communicator for device memory of the same ranks as `host`, which is for host memory: takes ownership of it, also
 * when it fails. `bytes`: the size of the implementation's struct, which begins with struct comm.
 */
void *comm_device_create(size_t bytes, const struct comm_ops *ops, struct comm *host, struct error *err);

/* True when all `count` names, of `bytes` bytes each, are different. */
bool comm_names_differ(const unsigned char *names, size_t bytes, int count);

#endif
