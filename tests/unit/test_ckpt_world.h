/*
 * test_ckpt_world.h - toy models, and ranks that split them in all manner of ways, for the tests of ckpt/.
 *
 * The value of every element follows from its place in its logical tensor alone, so that what any rank reads can be
 * checked without asking the library where anything lies.
 */
#ifndef MUSTER_TESTS_CKPT_WORLD_H
#define MUSTER_TESTS_CKPT_WORLD_H

#include "ckpt/ckpt.h"
#include "tests/unit/test_files.h"

#define WORLD_MAX_TENSORS 8
#define WORLD_MAX_SHARDS  16
#define WORLD_MAX_PIECES  1024

struct world {
    struct ckpt_tensor tensors[WORLD_MAX_TENSORS];
    size_t ntensors;
    const char *const *kinds;
    size_t nkinds;
    uint32_t salt; /* two worlds of one shape and different salts differ in every value */
};

struct rank {
    struct ckpt_piece pieces[WORLD_MAX_PIECES];
    void *data[WORLD_MAX_PIECES * 3];
    size_t npieces;
};

struct topology {
    int shards;
    struct rank ranks[WORLD_MAX_SHARDS];
};

/* A generator of the tests' own (splitmix64): 0 to below - 1. */
uint64_t world_random(uint64_t *state, uint64_t below);

/* A model of 1 to 8 tensors of 1 to 4 dimensions; `large` makes one of them span several blocks of a shard. */
void world_create(struct world *world, uint64_t *random, bool large);

/*
 * Split each tensor into boxes, as tensor parallelism does, and each box into runs, as ZeRO does, unevenly and some of
 * them empty; and deal them out to ranks at random. malloc'ed, with room for the values of every piece.
 */
struct topology *topology_create(const struct world *world, int shards, uint64_t *random);
void topology_destroy(struct topology *topology, const struct world *world);

/* Put the right values into every piece; or something else. Whether all values are right. */
void topology_fill(struct topology *topology, const struct world *world);
void topology_clear(struct topology *topology, const struct world *world);
bool topology_is_right(const struct topology *topology, const struct world *world);

/* Element i of the piece's run, as its place in the row-major order of the tensor. */
uint64_t world_place(const struct ckpt_tensor *tensor, const struct ckpt_piece *piece, uint64_t i);

/* The save that rank `shard` makes. */
struct ckpt_save world_save(const struct world *world, const struct topology *topology, int shard, const char *dir,
                            uint64_t step, const char *attempt);

/* Write all shards and commit. Fails the test if that fails. */
void world_write(const struct world *world, struct topology *topology, const char *dir, uint64_t step,
                 const char *attempt);

/* Every rank reads its pieces. 0, or -1 with the first rank's error. Does not look at the values. */
int world_read(const struct world *world, struct topology *topology, struct ckpt *ckpt, struct error *err);

/* Open step N of dir, verify it, read it into `topology` and check every value. Fails the test if anything is wrong. */
void world_expect(const struct world *world, struct topology *topology, const char *dir, uint64_t step);

/* A new directory beneath `base` (NULL: $TMPDIR or /tmp), and its removal with all that is in it. */
void scratch_create(char path[256], const char *base);
void scratch_destroy(const char *path);

/* A base on a RAM disk, where fsync costs nothing (tests/run-cmocka empties it); NULL if there is none. */
const char *scratch_fast(void);

/* Of a directory, without those whose names begin with a dot. */
int count_entries(const char *path);

/* A command line of sh that must succeed. */
void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "a/b" in a buffer of the caller's. */
const char *join(char path[512], const char *a, const char *b);

#endif
