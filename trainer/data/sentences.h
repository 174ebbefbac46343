/*
 * sentences.h - divides a text into sentences, by a rule without knowledge of languages.
 *
 * A sentence ends after one of . ! ? and the quotes and brackets " ' ) ] that close it, if white space follows, and at
 * a blank line. The white space after it belongs to it, so every byte of a text is in exactly one sentence. White space
 * is ASCII's, and a blank line may contain some. The rule divides after "Dr." and does not know full stops outside
 * ASCII. A better tool can divide the text by a blank line after each sentence.
 */
#ifndef MUSTER_TRAINER_DATA_SENTENCES_H
#define MUSTER_TRAINER_DATA_SENTENCES_H

#include <stdbool.h>
#include <stddef.h>

/* The state of the current sentence: {0} at the beginning of a text. */
struct sentences {
    enum { SENTENCE_EMPTY, SENTENCE_TEXT, SENTENCE_STOP, SENTENCE_LINE_END, SENTENCE_OVER } state;
};

/*
 * Returns how many of the next `count` bytes of the text, in chunks of any size, belong to the current sentence. If
 * *ended, it ends after them, and the next sentence begins with the rest, which is not empty.
 */
size_t sentences_next(struct sentences *sentences, const char *bytes, size_t count, bool *ended);

#endif
