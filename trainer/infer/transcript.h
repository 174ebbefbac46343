/*
 * transcript.h - generated text that grows token by token: which of it may be printed already, and where a stop text
 * ends it.
 */
#ifndef MUSTER_TRAINER_INFER_TRANSCRIPT_H
#define MUSTER_TRAINER_INFER_TRANSCRIPT_H

#include "trainer/tokenizer/tokenizer.h"

struct transcript {
    struct text_list text; /* whole characters only; free(text.text) */
    struct decode_state state;
    size_t certain; /* bytes that will stay: not the beginning of a stop text */
    bool stopped;   /* the text ends where a stop text began */
};

/*
 * Appends a token's text; without a tokenizer a blank and the id. *transcript begins as {.state.begun = true}: the text
 * continues a prompt. stops: texts that end it, none of them empty.
 */
int transcript_add(struct transcript *transcript, const struct tokenizer *tokenizer, int32_t id,
                   const char *const *stops, size_t nstops, struct error *err);

/* No more tokens follow: all of the text is certain. */
int transcript_finish(struct transcript *transcript, const struct tokenizer *tokenizer, struct error *err);

/* Appends text to *to; what is not UTF-8 as U+FFFD. */
int text_append_utf8(struct text_list *to, const char *text, size_t bytes, struct error *err);

#endif
