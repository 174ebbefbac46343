/*
 * indexed.h - reads a data set of tokens: PREFIX.bin and PREFIX.idx, as Megatron-LM and muster-data write them.
 *
 *   PREFIX.bin   the tokens of all sequences, one after the other, little-endian
 *   PREFIX.idx   offset  0  "MMIDIDX\0\0"
 *                        9  u64 version, 1
 *                       17  u8 type of a token: 1 uint8, 4 int32, 8 uint16
 *                       18  u64 S, the number of sequences
 *                       26  u64 D, the number of document boundaries (documents + 1)
 *                       34  int32 length of each sequence, in tokens      (S of them)
 *                           int64 where each begins in PREFIX.bin, in bytes (S)
 *                           int64 the sequence each document begins with, and at last S (D)
 *
 * What a sequence is, is the writer's choice. For a GPT it is a document. For a BERT it is a sentence, and a document
 * is the run of sequences up to the next boundary; Megatron-LM writes this with --split-sentences and muster-data with
 * --sentences. A GPT reads both, since it does not tell sequences apart.
 *
 * Opening reads all of the index once and refuses whatever is not so, with CODE_DATA and the offset: sequences must lie
 * in order and without gaps, and both files must have exactly the size that follows. Then the tokens are one long row,
 * and a token's position says where it is: the index is not kept, so memory does not grow with the data.
 *
 * Files are read with pread and not mapped: a file that shrinks or a file system that fails is an error, not a SIGBUS.
 */
#ifndef MUSTER_TRAINER_DATA_INDEXED_H
#define MUSTER_TRAINER_DATA_INDEXED_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define INDEXED_MAGIC       "MMIDIDX\0" /* and the terminator: 9 bytes */
#define INDEXED_VERSION     1
#define INDEXED_HEADER_SIZE 34

enum indexed_type { INDEXED_U8 = 1, INDEXED_I32 = 4, INDEXED_U16 = 8 };

struct indexed_facts {
    enum indexed_type type;
    uint64_t tokens, sequences, documents;
    uint64_t longest;          /* sequence, in tokens */
    uint64_t longest_document; /* in sequences; more than 1 where they are sentences */
};

struct indexed;

struct indexed *indexed_open(const char *prefix, struct error *err);
void indexed_close(struct indexed *indexed);

struct indexed_facts indexed_facts(const struct indexed *indexed);

/* "uint8", "int32", "uint16". */
const char *indexed_type_name(enum indexed_type type);

/*
 * Tokens [first, first + count) of the row, which must be below `vocab`: one at or above it, or below 0, is CODE_DATA
 * with its position and offset. Safe to call from several threads at once.
 */
int indexed_read(const struct indexed *indexed, uint64_t first, size_t count, int vocab, int32_t *tokens,
                 struct error *err);

/* CODE_DATA: the file and offset of the token at `position` of the row, its value, and after that `why`. Returns -1. */
int indexed_refuse(const struct indexed *indexed, uint64_t position, int32_t token, const char *why, struct error *err);

/* Tokens of the sequences [first, first + count): a look into the file, as the next. Both are safe to call from several
 * threads at once. */
int indexed_lengths(const struct indexed *indexed, uint64_t first, size_t count, int32_t *lengths, struct error *err);

/* The sequences that the documents [first, first + count) begin with; the one after the last begins with S. */
int indexed_boundaries(const struct indexed *indexed, uint64_t first, size_t count, uint64_t *boundaries,
                       struct error *err);

#endif
