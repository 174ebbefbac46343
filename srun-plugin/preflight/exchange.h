/*
 * exchange.h - a word with the neighbours: each node of the step sends 1 MiB to the next of a ring, which checks every
 * byte and sends its own back.
 *
 * Nodes find each other by PMI2 and talk over TCP, on the interface that the kernel routes to the other nodes through:
 * if TCP does not get through there, neither does the bootstrap of NCCL, Gloo or MPI. Not tried: RDMA, and whether
 * other interfaces get through.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_EXCHANGE_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_EXCHANGE_H

/* Says "to" and "from" (record.h), by the deadline (deadline.h). `name` is this node's. */
void exchange(const char *name, double deadline);

#endif
