/*
 * ckpt_stage_world.h - the toy models of test_ckpt_world.h, staged and drained. One process plays all ranks of a node.
 */
#ifndef MUSTER_TESTS_CKPT_STAGE_WORLD_H
#define MUSTER_TESTS_CKPT_STAGE_WORLD_H

#include "ckpt/drain/drain.h"
#include "ckpt/stage/stage.h"
#include "tests/unit/test_ckpt_world.h"

#include <sys/types.h>

/* A node: a stage of its own beneath `root`, for the shards first, first + stride, ... of a topology. */
struct node {
    char root[256], target[256];
    struct ckpt_stage *stage;
    const struct world *world;
    struct topology *topology;
    int first, stride;
};

/*
 * A toy model, a topology of so many shards, all of which are the node's, and empty directories; *seed moves on. To be
 * opened, and destroyed, by the caller.
 */
void node_create(struct node *node, struct world *world, uint64_t *seed, int shards, bool large);
void node_destroy(struct node *node);

/* Opens the stage of a run of `job` in node->root. */
void node_open(struct node *node, const char *job, int staged, const char *run);

/* Whether some process drains its stage. */
bool node_has_drainer(const struct node *node);

/* node_create, and node_open of job "1" with room for two saves. */
void node_begin(struct node *node, struct world *world, uint64_t *seed, int shards, bool large);

/* Two nodes with a shard each, opened as jobs "1" and "2"; node_destroy(node) is for both, but for other->stage. */
void node_begin_pair(struct node *node, struct node *other, struct world *world, uint64_t *seed, bool large);

/* Stage all of the node's shards. Fails the test unless that succeeds. */
void node_stage(struct node *node, uint64_t step, const char *attempt);

/* Drain in this process until nothing is left. Returns ckpt_drain's result. */
int node_drain(struct node *node);

/* Wait until nothing is left in the stage, or so many seconds: whether nothing is. */
bool node_wait(struct node *node, double seconds);

/* A child process that drains until it is killed or the stage is not used any more. */
pid_t node_start_drain(const struct node *node, const struct ckpt_drain_options *options);

/* Kill the child, or wait for its end; returns waitpid's status. */
int child_kill(pid_t child);
int child_wait(pid_t child);

/* The next news, which must come within 20 seconds. */
struct ckpt_save_status node_news(struct node *node);

/* Bytes of all files in the stage. */
uint64_t node_bytes(const struct node *node);

#endif
