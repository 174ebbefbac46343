/*
 * sentences.h - where the sentences of a text end, by a rule that knows no language.
 *
 * A sentence ends after one of . ! ? and the quotes and brackets " ' ) ] that close it, if white space follows, and at
 * a blank line. The white space after it belongs to it: the next begins with the next byte that is none. So every byte
 * of a text is in exactly one sentence. White space is ASCII's, and a blank line may hold some. The rule divides after
 * "Dr." and knows nothing of full stops outside ASCII; text that a better tool has divided, with a blank line after
 * each sentence, is divided there too.
 */
#ifndef MUSTER_TRAINER_DATA_SENTENCES_H
#define MUSTER_TRAINER_DATA_SENTENCES_H

#include <stdbool.h>
#include <stddef.h>

/* What is known of the sentence under way: {0} at the beginning of a text. */
struct sentences {
    enum { SENTENCE_EMPTY, SENTENCE_TEXT, SENTENCE_STOP, SENTENCE_LINE_END, SENTENCE_OVER } state;
};

/*
 * Of the next `count` bytes of the text, in chunks of any size: how many still belong to the sentence under way. If
 * *ended, it ends after them, and the next begins with what is left, which is not nothing.
 */
size_t sentences_next(struct sentences *sentences, const char *bytes, size_t count, bool *ended);

#endif
