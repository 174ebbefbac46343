/*
 * plan_machine.h - what a machine can do, and what a stack of software makes of it: etc/machines/NAME.cfg and
 * etc/machines/stacks.cfg (libconfig). Those files give each number with its source. Rates are in bytes or FLOPs a
 * second, times in seconds.
 */
#ifndef MUSTER_PLAN_PLAN_MACHINE_H
#define MUSTER_PLAN_PLAN_MACHINE_H

#include <stdbool.h>

#include "common/error.h"

enum { MACHINE_LEVELS = 4, STACK_SETTINGS = 12 };

/* Links of one level: of a node's GPUs, then of nodes under one switch, ... The last level reaches everywhere. */
struct machine_level {
    int ranks;        /* that are joined at this level; the last one's is not read */
    double bandwidth; /* of one rank, each way, as a large collective measures it ("bus bandwidth") */
    double latency;   /* of one message */
};

/* A rank is a GPU, or a CPU node's rank. */
struct plan_machine {
    char name[64];
    bool gpu;
    double peak_fp32, peak_bf16, peak_fp16; /* by the data sheet: the denominators of MFU */
    double product;                         /* fraction of the peak that the largest products reach */
    double units;     /* multiprocessors, among which a product's tiles are divided; 0: no loss by a product's shape */
    double attention; /* fraction of the peak that fused attention reaches, causal FLOPs counted, forward */
    double memory;    /* bytes of a rank */
    double bandwidth; /* of that memory, as a large copy measures it */
    double
        row_bandwidth; /* what operations by row reach of it; 0: all. A CPU computes them slower than it moves them */
    double host_link;  /* between host and device memory, each way, of one rank */
    double host_rate;  /* of a node's memory in an optimizer step on the host, all ranks together */
    struct machine_level level[MACHINE_LEVELS];
    int levels;
};

/*
 * A stack of software. The first eight are fitted (bench/fit-stacks; muster's by hand); the others are facts
 * about what it does.
 */
struct stack {
    char name[64];
    double product; /* of the machine's rate of products */
    double rows; /* bytes moved by all other kernels: of a token, hidden element and layer, forward and backward, with
                         16-bit types; the forward pass moves a third of them */
    double attention; /* of the machine's rate of fused attention; without fused attention, bytes moved a score */
    double launch;    /* seconds of a layer's pass in which the device waits for the host */
    double links;     /* of the machine's bandwidths, what collectives reach */
    double overlap;   /* of computing time, what can hide exchanges between data-parallel ranks */
    double context;   /* bytes of a device beside the buffers: context, libraries, communicators */
    double cache;     /* of activations and workspace: what the allocator holds beyond what is in use */

    bool fused_attention;
    bool splits_rows;                  /* sequence parallelism: outside of products a tp rank has 1 / tp of the rows */
    bool fp16_gradients;               /* gradients are kept in the type of the forward pass */
    bool exact_memory;                 /* muster's own footprint, without the terms above */
    double error;                      /* median of predicted times against measured ones; 0: not measured */
    double logit_bytes;                /* held a logit, all rows at once; 0: muster's few rows */
    double optimizer;                  /* bytes moved a parameter by the optimizer's step */
    char settings[STACK_SETTINGS][64]; /* "path=value": keys of a job that the stack's published tables leave out */
    int nsettings;
};

/* `name` is a file, or NAME of etc/machines. Both search $MUSTER_MACHINES, then the build's and the installed place. */
int plan_machine_read(struct plan_machine *machine, const char *name, struct error *err);

/* The name of the machine that has this device, by its driver's name ("NVIDIA H100 80GB HBM3"). False: none is known. */
bool plan_machine_of_device(const char *device, char *name, size_t size);

/* The name of muster's stack on that machine. */
const char *plan_machine_stack(const struct plan_machine *machine);

/* `name` is of stacks.cfg, or "FILE:NAME". */
int stack_read(struct stack *stack, const char *name, struct error *err);

#endif
