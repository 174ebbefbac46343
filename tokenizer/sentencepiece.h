/* sentencepiece.h - libsentencepiece behind functions of C. */
#ifndef MUSTER_TOKENIZER_SENTENCEPIECE_H
#define MUSTER_TOKENIZER_SENTENCEPIECE_H

#include "common/error.h"
#include "tokenizer/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct piece_model;

/* Takes the bytes of a .model. CODE_DATA with the library's words. */
struct piece_model *piece_model_create(const char *model, size_t bytes, struct error *err);
void piece_model_destroy(struct piece_model *pieces);

/* May be called by several threads at once. */
int piece_model_encode(const struct piece_model *pieces, const char *text, size_t bytes, struct token_list *ids,
                       struct error *err);

/* -1 for none: the beginning, the end, the unknown, the padding. */
void piece_model_special(const struct piece_model *pieces, int32_t special[SPECIAL_TOKENS]);

/* For the file above only: room in a list that C++ fills. */
int token_list_reserve(struct token_list *list, size_t more, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
