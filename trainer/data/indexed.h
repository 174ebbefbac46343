/*
 * indexed.h - reads and writes data sets of tokens: PREFIX.bin and PREFIX.idx, in Megatron-LM's format.
 *
 *   PREFIX.bin   the tokens of all sequences, one after the other, little-endian
 *   PREFIX.idx   offset  0  "MMIDIDX\0\0"
 *                        9  u64 version, 1
 *                       17  u8 type of a token: 1 uint8, 4 int32, 8 uint16
 *                       18  u64 S, the number of sequences
 *                       26  u64 D, the number of document boundaries (documents + 1)
 *                       34  int32 length of each sequence, in tokens      (S of them)
 *                           int64 offset of each in PREFIX.bin, in bytes (S)
 *                           int64 the first sequence of each document, and finally S (D)
 *
 * For a GPT a sequence is a document. For a BERT it is a sentence, and a document is the run of sequences up to the
 * next boundary; Megatron-LM writes this with --split-sentences and muster-data with --sentences. A GPT reads both,
 * since it does not separate sequences.
 *
 * Opening reads the whole index once and refuses any error in it with CODE_DATA and the offset: sequences must lie in
 * order and without gaps, and both files must have exactly the size that S, D and the lengths give. So the tokens of
 * PREFIX.bin can be addressed by their position alone: token p has the offset p * (bytes of a token). The index is not
 * kept, so memory does not grow with the data.
 *
 * Files are read with pread and not mapped: a file that shrinks or a failing file system is an error, not a SIGBUS.
 */
#ifndef MUSTER_TRAINER_DATA_INDEXED_H
#define MUSTER_TRAINER_DATA_INDEXED_H

#include <limits.h>
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
    uint64_t longest_document; /* in sequences; more than 1 if they are sentences */
    uint32_t checksum; /* of an open set: crc32c of its index but for the offsets, which follow from the lengths */
};

struct indexed;

struct indexed *indexed_open(const char *prefix, struct error *err);
void indexed_close(struct indexed *indexed);

struct indexed_facts indexed_facts(const struct indexed *indexed);

/* Bytes of a token: 1, 4, 2. */
size_t indexed_width(enum indexed_type type);

/* Writes ids as tokens of this type, little-endian: count * indexed_width(type) bytes. The ids must fit. */
void indexed_pack(enum indexed_type type, const int32_t *ids, size_t count, void *tokens);

/*
 * Reads tokens [first, first + count). A token below 0, or not below `vocab`, is CODE_DATA, with its position and
 * offset. `vocab` is the model's, or INDEXED_ANY. May be called by several threads at once.
 */
#define INDEXED_ANY INT_MAX
int indexed_read(const struct indexed *indexed, uint64_t first, size_t count, int vocab, int32_t *tokens,
                 struct error *err);

/* *checksum: crc32c of 64 blocks that are spread over PREFIX.bin, or of the whole file if that has at most 256 KiB. */
int indexed_blocks(const struct indexed *indexed, uint32_t *checksum, struct error *err);

/* CODE_DATA with the file and offset of the token at `position`, its value, and `why`, as printf has it. Returns -1. */
int indexed_refuse(const struct indexed *indexed, uint64_t position, int32_t token, struct error *err, const char *why,
                   ...) __attribute__((format(printf, 5, 6)));

/* Reads the lengths of the sequences [first, first + count) from the file. Thread-safe, as are the functions after it. */
int indexed_lengths(const struct indexed *indexed, uint64_t first, size_t count, int32_t *lengths, struct error *err);

/* Reads entries [first, first + count) of the D document boundaries: the first sequence of each document. The last
 * boundary, D - 1, is S. */
int indexed_boundaries(const struct indexed *indexed, uint64_t first, size_t count, uint64_t *boundaries,
                       struct error *err);

/* Reads the position of the first token of a document. For the number of documents it is the number of tokens. */
int indexed_document_begin(const struct indexed *indexed, uint64_t document, uint64_t *token, struct error *err);

/*
 * begins[i] = 1 if token first + i is the first of a document, else 0. Finds the first of these documents
 * by bisection in the index file.
 */
int indexed_document_flags(const struct indexed *indexed, uint64_t first, size_t count, int32_t *begins,
                           struct error *err);

/*
 * ---- writing (indexed_writer.c) -------------------------------------------------------------------------------------
 *
 * Everything goes to PREFIX.bin.tmp and PREFIX.idx.tmp; indexed_writer_commit renames them, the index last, after both
 * have reached the disk. So an existing index belongs to a complete data set. None is ever overwritten. The .tmp files
 * that a killed writer left are replaced by the next one. Memory does not grow with the data.
 *
 * PREFIX.tokenizer is a copy of the tokenizer's files (tokenizer_save), so that a set can be moved by itself. It is
 * there before the index. A set without it is of bytes, or another program's.
 */

/* The tokenizer of a set, for tokenizer_open: `folder` if the set has one, else "bytes". */
const char *indexed_tokenizer(const char *prefix, char folder[PATH_MAX]);

/* Lengths are int32 in the index: a longer one becomes several sequences. */
#define INDEXED_SEQUENCE_MAX (1 << 30)

struct indexed_writer;

/*
 * `tokenizer`: a path, as tokenizer_open takes it; NULL for bytes. Fails with CODE_USAGE if PREFIX.idx or PREFIX.bin
 * exists, if another process is writing this prefix, or if PREFIX.tokenizer is not a copy of this tokenizer. (A
 * PREFIX.bin with PREFIX.idx.tmp beside it is of a killed writer, and is removed.)
 */
struct indexed_writer *indexed_writer_create(const char *prefix, enum indexed_type type, const char *tokenizer,
                                             struct error *err);

/* Without a commit, removes the files, and the folder if this writer made it. */
void indexed_writer_destroy(struct indexed_writer *writer);

/* Adds `count` tokens of the set's type, as indexed_pack writes them, to the current sequence. */
int indexed_writer_append(struct indexed_writer *writer, const void *tokens, size_t count, struct error *err);

/* Ends the current sequence, but not its document. Does nothing if it has no tokens. */
int indexed_writer_end_sequence(struct indexed_writer *writer, struct error *err);

/* Ends the current document and its last sequence. Does nothing if it has no tokens. */
int indexed_writer_end_document(struct indexed_writer *writer, struct error *err);

/*
 * Keeps the first `documents` documents, and of these the first `tokens` tokens; moves the rest to an empty writer of the
 * same type. A sequence that is cut ends its document in this set and continues in the other. All documents must be
 * ended.
 */
int indexed_writer_move(struct indexed_writer *writer, uint64_t documents, uint64_t tokens, struct indexed_writer *rest,
                        struct error *err);

/* All documents must be ended, and there must be at least one. After this, only facts and destroy may be called. */
int indexed_writer_commit(struct indexed_writer *writer, struct error *err);

struct indexed_facts indexed_writer_facts(const struct indexed_writer *writer);

#endif
