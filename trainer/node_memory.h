/*
 * node_memory.h - the ranks of a node, and memory that they share while they load a checkpoint (ckpt_read_together).
 *
 * The memory has no name in any file system: the node's lowest rank makes it with memfd_create(2), and the others open
 * it as /proc/PID/fd/N. So a rank that is killed leaves nothing behind. Where ranks of a node cannot see each other's
 * processes (containers), each reads alone, which is slower.
 */
#ifndef MUSTER_TRAINER_NODE_MEMORY_H
#define MUSTER_TRAINER_NODE_MEMORY_H

#include "ckpt/ckpt.h"
#include "trainer/comm/comm.h"

struct node_memory;

/* Collective over the world. */
struct node_memory *node_memory_create(struct comm *world, struct error *err);

/* Call it before comm_world_finish. Not collective. */
void node_memory_destroy(struct node_memory *memory);

/*
 * For ckpt_read_together: all ranks of the node, with memory for this checkpoint; or this rank alone. Borrowed, until
 * the next call or node_memory_destroy. NULL only when a rank was lost. Collective over the ranks of the node.
 */
const struct ckpt_node *node_memory_for(struct node_memory *memory, const struct ckpt *ckpt, struct error *err);

/* True if ckpt_read_together has failed since node_memory_for, and not on this rank but on another one of the node. */
bool node_memory_failed_elsewhere(const struct node_memory *memory);

#endif
