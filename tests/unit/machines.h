/*
 * machines.h - the replayed machines of tests/fixtures/machines, made into snapshots in a directory of the test's own.
 */
#ifndef MUSTER_TESTS_UNIT_MACHINES_H
#define MUSTER_TESTS_UNIT_MACHINES_H

#include <stddef.h>

/* Makes them all; to be called once. Fails the test program when one cannot be made. */
void machines_make(void);
void machines_remove(void);

/* Names, ended by NULL, and the directory of one's snapshot (static until the next call). */
char **machines_names(void);
const char *machines_snapshot(const char *name);

/* The whole of a file of tests/fixtures/machines/NAME; the caller frees it. NULL if there is none. */
char *machines_file(const char *name, const char *file);

/* A directory beside the snapshots, for what a test makes itself (static until the next call). */
const char *machines_scratch(const char *name);

#endif
