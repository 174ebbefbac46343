/*
 * indexed_writer.h - writes a data set of bytes, one token a byte, in the format of indexed.h.
 *
 * Everything goes to PREFIX.bin.tmp and PREFIX.idx.tmp; only indexed_writer_commit gives them their names, the index
 * last, after both have reached the disk. So an index that exists belongs to a whole data set, and one is never
 * overwritten. Memory does not grow with the data.
 */
#ifndef MUSTER_TRAINER_DATA_INDEXED_WRITER_H
#define MUSTER_TRAINER_DATA_INDEXED_WRITER_H

#include <stddef.h>

#include "common/error.h"
#include "trainer/data/indexed.h"

/* Lengths are int32 in the index: a longer one becomes several sequences. */
#define INDEXED_SEQUENCE_MAX (1 << 30)

struct indexed_writer;

/* Fails with CODE_USAGE if PREFIX.idx exists or another process is writing this prefix. */
struct indexed_writer *indexed_writer_create(const char *prefix, struct error *err);

/* Without a commit before it, removes what was written. */
void indexed_writer_destroy(struct indexed_writer *writer);

/* Adds tokens to the sequence under way. */
int indexed_writer_append(struct indexed_writer *writer, const void *bytes, size_t count, struct error *err);

/* Ends the sequence under way, but not its document; harmless if it has no tokens. */
int indexed_writer_end_sequence(struct indexed_writer *writer, struct error *err);

/* Ends the document under way and its last sequence; harmless if it has no tokens. */
int indexed_writer_end_document(struct indexed_writer *writer, struct error *err);

/* All documents are ended; at least one there must be. After this, only facts and destroy. */
int indexed_writer_commit(struct indexed_writer *writer, struct error *err);

struct indexed_facts indexed_writer_facts(const struct indexed_writer *writer);

#endif
