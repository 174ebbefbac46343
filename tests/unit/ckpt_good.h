/*
 * ckpt_good.h - a small good checkpoint on files, for tests that break copies of it. Two tensors, "w" [6,4] and "b"
 * [10], of two kinds, in two shards: "w" cut at row 3, "b" at element 5. Small enough to read with the eye.
 *
 * Whatever else goes wrong here fails the test that called.
 */
#ifndef MUSTER_TESTS_CKPT_GOOD_H
#define MUSTER_TESTS_CKPT_GOOD_H

#include "tests/unit/test_ckpt_world.h"

#include <stddef.h>

#define SHARD0 "shard-00000-of-00002.safetensors"
#define SHARD1 "shard-00001-of-00002.safetensors"

/* The directory of a test program's checkpoints, and the good one in it, while there is one. */
extern char good_base[256], good_path[512];

/* For cmocka's setup and teardown of a group. */
int good_create(void **state);
int good_destroy(void **state);

/* Make the directory `to`, a copy of the good checkpoint. */
void good_copy(const char *to);

/*
 * Open, verify and read all of it into `out`: for each kind the 24 elements of "w", then the 10 of "b". Returns 0, or
 * -1 and fills *err; then a reader that does not verify first was refused it as well.
 */
int good_load(const char *path, float out[2][34], struct error *err);

/* Write the manifest `text` of `bytes` to `path`, with a checksum that is right for what it says now. */
void good_seal(const char *path, char *text, size_t bytes);

/* Replace the first `old` in the file with `new`, which must be there; and seal it, or not. */
void good_edit(const char *path, const char *old, const char *new, bool seal);

#endif
