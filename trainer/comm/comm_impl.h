/* comm_impl.h - what an implementation of comm.h provides; only files in this folder include it. */
#ifndef MUSTER_TRAINER_COMM_COMM_IMPL_H
#define MUSTER_TRAINER_COMM_COMM_IMPL_H

#include "trainer/comm/comm.h"
#include "trainer/watch/recorder.h"

struct comm_ops {
    struct comm *(*split)(struct comm *, int color, int key, struct error *err);
    void (*destroy)(struct comm *);
    struct comm_request *(*start_reduce_scatter)(struct comm *, enum dtype, void *recv, const void *send, size_t count,
                                                 size_t stride, void *scratch, struct error *err);
    struct comm_request *(*start_all_gather)(struct comm *, void *buffer, size_t bytes, struct error *err);
    struct comm_request *(*start_broadcast)(struct comm *, void *buffer, size_t bytes, int root, struct error *err);
    struct comm_request *(*start_send)(struct comm *, const void *buffer, size_t bytes, int peer, struct error *err);
    struct comm_request *(*start_recv)(struct comm *, void *buffer, size_t bytes, int peer, struct error *err);
    /* comm_all_reduce; NULL: an all-gather, and every rank adds */
    int (*all_reduce)(struct comm *, enum dtype, void *buffer, size_t count, void *scratch, struct error *err);
    int (*wait)(struct comm_request *, struct error *err);
    void (*finish)(struct comm *);               /* of the world: end the library */
    bool (*fail)(struct comm *, struct error *); /* NULL where there is nobody to tell */
    bool (*told)(struct error *);                /* whether a rank has failed, while waiting; NULL likewise */
};

struct comm {
    const struct comm_ops *ops;
    struct comm *host; /* owned, for a communicator for device memory; else NULL */
    int rank, size;
    char text[96];

    /* comm.c's, for the flight recorder */
    char label[RECORD_NAME_SIZE];
    int *members; /* [size] ranks of the world; NULL for the world, and for a group of one, which is not recorded */
    const char *what, *of;
    struct recorder_comm recorded;
};

struct comm_request {
    struct comm *comm;
    struct record_op op; /* comm.c's */
};

struct comm *comm_mpi_create(struct error *err);

/* comm_all_reduce of host memory, whatever comm is for; recorded as comm's. */
int comm_all_reduce_on_host(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch,
                            struct error *err);

/* ---- comm_record.c ----
 * comm_enter before an operation, for it may be the library's start that never ends; comm_entered when that has
 * returned, with what it returned. peer is a rank of the group, -1 for a collective.
 */
struct record_op comm_enter(struct comm *comm, enum record_kind kind, int peer);
struct comm_request *comm_entered(struct comm_request *request, const struct record_op *op);
int comm_world_rank(const struct comm *comm, int rank);

/* A wait has failed with CODE_PEER: what comm_explain_with has set. */
void comm_explain(struct error *err);

/* Whether comm_interrupt was called; then *err is its error. Cheap enough to ask while waiting. */
bool comm_interrupted(struct error *err);

/* A request that was over when it began; comm_wait knows it and frees nothing. */
extern struct comm_request comm_done;

/*
 * out[i] = the tree sum over ranks of parts[rank][i]. With n ranks the tree's left half has the greatest power of two
 * below n. out may be one of the parts. 16-bit types are widened first, and the sum is rounded once.
 */
void comm_tree_sum(enum dtype dtype, void *out, const void *const *parts, int ranks, size_t count);
double comm_tree_sum_f64(const double *values, int ranks, size_t stride);

/* ---- comm_device.c and comm_staged.c ----
 * What the communicators for device memory share. Each has a communicator of the same ranks for host memory, which does
 * everything that has no buffer on the device.
 *
 * comm gets the rank, size, members and label of `host`, which it owns if this succeeds.
 */
int comm_device_init(struct comm *comm, const struct comm_ops *ops, struct comm *host, struct error *err);

/* For comm_ops: the host communicator's. */
struct comm *comm_device_split(struct comm *comm, int color, int key, struct error *err);
struct comm_request *comm_device_broadcast(struct comm *comm, void *buffer, size_t bytes, int root, struct error *err);

/* True when all `count` names, of `bytes` bytes each, are different. */
bool comm_names_differ(const unsigned char *names, size_t bytes, int count);

struct comm *comm_staged_create(struct comm *host, struct device *dev, struct error *err);

#endif
