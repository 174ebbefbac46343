#include "trainer/data/sentences.h"

#include <string.h>

static bool is_one_of(char byte, const char *set)
{
    return byte && strchr(set, byte);
}

static int after_space(int state, char space)
{
    switch (state) {
    case SENTENCE_STOP:
        return SENTENCE_OVER;
    case SENTENCE_TEXT:
        return space == '\n' ? SENTENCE_LINE_END : SENTENCE_TEXT;
    case SENTENCE_LINE_END:
        return space == '\n' ? SENTENCE_OVER : SENTENCE_LINE_END;
    default:
        return state;
    }
}

static int after_text(int state, char byte)
{
    if (is_one_of(byte, ".!?") || (state == SENTENCE_STOP && is_one_of(byte, "\"')]")))
        return SENTENCE_STOP;
    return SENTENCE_TEXT;
}

size_t sentences_next(struct sentences *s, const char *bytes, size_t count, bool *ended)
{
    *ended = false;
    for (size_t i = 0; i < count; i++) {
        bool space = is_one_of(bytes[i], " \t\n\v\f\r");

        if (s->state == SENTENCE_OVER && !space) {
            s->state = SENTENCE_EMPTY;
            *ended = true;
            return i;
        }
        s->state = space ? after_space(s->state, bytes[i]) : after_text(s->state, bytes[i]);
    }
    return count;
}
