/*
 * machines.h - the replayed machines of tests/fixtures/machines, made into snapshots in a directory of the test's own.
 */
#ifndef MUSTER_TESTS_UNIT_MACHINES_H
#define MUSTER_TESTS_UNIT_MACHINES_H

#include "srun-plugin/fabric/fabric.h"
#include "srun-plugin/node/node.h"

/* cmocka's set-up and tear-down of a group of tests. Makes them all, or fails the test program. */
int machines_make(void **state);
int machines_remove(void **state);

/* Names, ended by NULL, and the directory of one's snapshot (static until the next call). */
char **machines_names(void);
const char *machines_snapshot(const char *name);

/* The node that a snapshot is of, whole; node_destroy frees it. Fails the test when it cannot be read. */
struct node *machines_read(const char *name);

/* Adds the profiles of etc/fabric. */
void machines_add_shipped(struct fabric *fabric);

/* The whole of a file of tests/fixtures/machines/NAME; the caller frees it. NULL if there is none. */
char *machines_file(const char *name, const char *file);

/* A directory beside the snapshots, for what a test makes itself (static until the next call). */
const char *machines_scratch(const char *name);

#endif
