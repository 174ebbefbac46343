/*
 * trial.h - what the engine's equality tests run: a small model on a mesh, in one of the ways in which the engine can
 * compute the same thing. Started on several ranks, all of which call everything here alike.
 *
 * Every trial of a variant is the same training run: the variant says what is computed, and all else how.
 */
#ifndef MUSTER_TESTS_ENGINE_TRIAL_H
#define MUSTER_TESTS_ENGINE_TRIAL_H

#include "common/philox.h"
#include "trainer/engine.h"

enum { TRIAL_NAME = 160 };

/* Index into trial_variants; their names begin with the kind of model. */
int trial_variants(void);
const char *trial_variant_name(int variant);

/* Where a rank count can be cut: tp and pp of 1, 2 and 4, and so many chunks. */
struct shape {
    int ranks, tp, pp, chunks;
};

/* All shapes of 1 to 8 ranks, chunks of 1 and 2; returns how many there are. */
enum { TRIAL_SHAPES = 64 };
int trial_shapes(struct shape shapes[TRIAL_SHAPES]);

/* Ways that give the same bits at the same mesh. */
struct way {
    int zero;
    int recompute; /* none, light, selective, full, and the latter three for the first layer of a stage alone */
    bool offload;
};

enum { TRIAL_RECOMPUTES = 7, TRIAL_WAYS = 4 * TRIAL_RECOMPUTES * 2 };
struct way trial_way(int index);

struct trial {
    int variant;
    struct shape shape;
    int micro_batch;
    struct way way;
    const char *reduce;    /* parallel.reduce */
    const char *precision; /* precision.compute */
};

/* "gpt-5-layers dp 2 x tp 2 x pp 2 x 1 chunks, micro-batches of 3, ..." */
void trial_name(char name[TRIAL_NAME], const struct trial *trial);

/* The mesh alone, for what all ways of it share. */
void trial_mesh_name(char name[TRIAL_NAME], const struct trial *trial);

/* The job of a trial: data is in `dir`, checkpoints go to `ckpt`, which may be NULL. Exits when it is refused. */
void trial_job(struct job *job, const struct trial *trial, const char *dir, const char *ckpt);

/* Whether a step of the trial takes several micro-batches, so that it matters when gradients are reduced. */
bool trial_accumulates(const struct trial *trial);

/* A draw from 0 to below - 1; the same numbers in every run. */
struct draws {
    uint32_t site;
    uint64_t used;
};
int draw(struct draws *draws, int below);

/* |a - b| over the greater of them, the greatest of n; infinite where one is no number. */
double worst_difference(const double *a, const double *b, int n);

/* Whether the trees of two checkpoints, of directories that have one each, hold the same bits; says on standard output
 * what differs. `scaler`: whether the loss scale is to be compared too. For one rank. */
bool same_checkpoint(const char *a, const char *b, bool scaler);

/* Numbers of one run, as text, and bit by bit. For one rank; exit when that fails. */
void write_numbers(const char *dir, const char *name, const double *numbers, int n);
void read_numbers(const char *dir, const char *name, double *numbers, int n);

/* Ends this process, and with it the test, when err is what a rank failed with. */
void trial_die(struct comm *world, struct error *err, const char *what) __attribute__((noreturn));

/* Removes a directory and what is in it. */
void remove_tree(const char *path);

/* A TAP line, "ok" or "not ok"; returns ok. For one rank. */
bool tap(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
