/* data_tool.h - the commands of muster-data. Each gets its arguments, argv[0] its name, and returns the exit code. */
#ifndef MUSTER_TRAINER_DATA_DATA_TOOL_H
#define MUSTER_TRAINER_DATA_DATA_TOOL_H

#include "common/option.h"
#include "trainer/data/text_reader.h"

int data_convert(int argc, char **argv); /* without a command: TEXT... --out PREFIX */
int data_show(int argc, char **argv);    /* show and verify */
int data_decode(int argc, char **argv);
int data_train_tokenizer(int argc, char **argv);

/* ---- data_sets.c ------------------------------------------------------------------------------------------------- */

/* "PREFIX: 9 tokens, 5 sentences, 2 documents; wrote ..."; only the documents where sequences are documents. */
void data_print_written(const char *prefix, const struct indexed_facts *facts, bool sentences);

/* ---- muster_data.c: what the commands share ---------------------------------------------------------------------- */

extern const char data_usage[];

extern struct bar data_bar;

/* "" for 1, or else "s". */
const char *data_plural(uint64_t count);

/* The processors that this process may use. */
int data_processors(void);

/*
 * Makes *texts those of the command line, of which there are `count`, and then those in the file `list`, one a line,
 * without empty lines; "-" is standard input; list may be NULL. Sets progress, too. Free them with
 * data_free_texts, also after a failure. Returns the exit code.
 */
int data_read_texts(struct text_inputs *texts, char *const *given, int count, const char *list);
void data_free_texts(struct text_inputs *texts);

#endif
