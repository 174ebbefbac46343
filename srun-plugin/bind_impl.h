/*
 * bind_impl.h - the two halves of bind_plan_create, for bind*.c only. Each returns -1 when memory is short.
 */
#ifndef MUSTER_SRUN_PLUGIN_BIND_IMPL_H
#define MUSTER_SRUN_PLUGIN_BIND_IMPL_H

#include "srun-plugin/bind.h"

/* Adds a line to notes; lost when memory is short. */
void bind_note(struct bind_plan *plan, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* cpus and shares_cores of every rank, whose GPU is chosen. */
int bind_cores(const struct node *node, struct bind_plan *plan);

/* nics and path of every rank, whose GPU, and whose cpus where it has none, are chosen. */
int bind_nics(const struct node *node, struct bind_plan *plan);

#endif
