/* run.h - starting the program under test. */
#ifndef MUSTER_TESTS_CRASH_RUN_H
#define MUSTER_TESTS_CRASH_RUN_H

#include <stdbool.h>
#include <stddef.h>

/* "<build>/name", for programs that were built beside the tests; in a buffer of the caller's. */
const char *built(char path[512], const char *name);

/* Whether the tests are to run the whole of what they else sample. */
bool full(void);

/*
 * Run argv[0], found beneath the build directory, with the shim preloaded and NAME=VALUE strings of `environment`
 * (ended by NULL). Its standard error is put into `said`. Returns what waitpid reports.
 */
int run_shimmed(const char *const *argv, const char *const *environment, char *said, size_t size);

#endif
