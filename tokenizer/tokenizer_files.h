/*
 * tokenizer_files.h - which files a tokenizer has, and copies of them.
 *
 * tokenizer.h lists the files of vocabularies. A file of a pair may have a prefix, as Megatron-LM's gpt2-vocab.json and
 * gpt2-merges.txt. tokenizer_copy.c lists the files beside them that belong to a tokenizer.
 */
#ifndef MUSTER_TOKENIZER_TOKENIZER_FILES_H
#define MUSTER_TOKENIZER_TOKENIZER_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

#define TOKENIZER_FILE_MOST ((size_t)1 << 30) /* bytes in one file */
#define TOKENIZER_MAP       "special_tokens_map.json"
#define TOKENIZER_CONFIG    "tokenizer_config.json"

#define TOKENIZER_PATH (PATH_MAX + NAME_MAX + 64) /* of any file in any directory: opening one too long fails */

enum layout {
    LAYOUT_BYTES, /* no files */
    LAYOUT_JSON,  /* tokenizer.json */
    LAYOUT_MODEL, /* SentencePiece's *.model */
    LAYOUT_RANKS, /* tiktoken's *.model: Llama 3's */
    LAYOUT_PAIR,  /* vocab.json and merges.txt of byte-level BPE, or encoder.json and vocab.bpe */
    LAYOUT_LINES, /* WordPiece's vocab.txt */
};

struct tokenizer_files {
    enum layout layout;
    char paths[2][TOKENIZER_PATH]; /* the second is empty but for LAYOUT_PAIR */
};

/*
 * The files of one vocabulary: of a directory, of its vocabulary number `index`, from 0 in the order above. -1 if there
 * are not so many; for index 0: CODE_DATA when there is no tokenizer, CODE_IO when the path cannot be looked up. The
 * files of index 0 need not exist.
 */
int tokenizer_find_files(const char *path, int index, struct tokenizer_files *files, struct error *err);

/* Writes the path of the file `name` beside the file `path`. 0 if there is such a file. */
int tokenizer_neighbour(const char *path, const char *name, char file[PATH_MAX]);

/*
 * Copies the files of the tokenizer `path` to the folder `dir`, so that the folder names the same tokenizer, with the
 * same fingerprint. A data set and a checkpoint keep such a copy. Of a directory, all vocabularies are copied.
 *
 * The names in the folder are Hugging Face's: tokenizer.json, tokenizer.model (or spiece.model and others, if it is
 * named so), vocab.json and merges.txt, vocab.txt, and the other files that belong to it. "bytes" has no files and no
 * folder. So a reader takes a missing folder for "bytes".
 *
 * The folder appears when it is complete and on disk: it is written as dir.tmp, which a later call replaces if a crash
 * leaves it. A folder with the same files is left as it is; CODE_USAGE for any other that is not empty. The folder's
 * parent must exist. No two processes may save to one folder at a time. CODE_IO if the disk is full.
 */
int tokenizer_save(const char *path, const char *dir, struct error *err);

/* The same of the bytes of a SentencePiece model. */
int tokenizer_save_model(char *model, size_t bytes, const char *dir, struct error *err);

/* Removes such a folder, if it exists; CODE_IO if it has other files, too, which stay. */
int tokenizer_remove(const char *dir, struct error *err);

/* Copies the files, under these names, into a folder that exists and has none of them. Each is on disk; the folder is
 * not synced. Nothing for "bytes". */
int tokenizer_copy(const char *path, const char *dir, struct error *err);

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

#define BYTES_END 256 /* of "bytes": the id of the end of a document; bytes are those below */

enum special_token { SPECIAL_END, SPECIAL_BEGIN, SPECIAL_PAD, SPECIAL_UNKNOWN, SPECIAL_MASK, SPECIAL_CLS, SPECIAL_SEP };
#define SPECIAL_TOKENS 7

#endif
