/*
 * last_word.h - samples of the LAMBADA form (Paperno et al., arXiv 1606.06031): lines of JSON objects whose "text" ends
 * with a word that is to be guessed from the text before it.
 *
 * As lm-evaluation-harness does for lambada_openai: the last word begins at the text's last blank; the tokens asked for
 * are those of the text behind as many as the text before that blank has alone. A text longer than the context loses
 * its beginning.
 */
#ifndef MUSTER_TRAINER_INFER_LAST_WORD_H
#define MUSTER_TRAINER_INFER_LAST_WORD_H

#include "trainer/infer/score.h"

struct last_words {
    struct span *spans; /* [count] */
    struct token_list *texts;
    size_t count;
};

/* CODE_DATA, with file and line, for a line that is no JSON object with a string "text" of at least two words, and for
 * an empty file. On failure there is nothing to free. */
int last_words_read(struct last_words *words, struct inference *inference, const char *path, struct error *err);
void last_words_free(struct last_words *words);

#endif
