#include "trainer/infer/score.h"

#include <stdlib.h>
#include <string.h>

enum {
    PASS_ROWS = 1024, /* enough for products to run at their full rate */
    MOST_SLOTS = 64,
    MOST_OUTPUTS = 256, /* whose logits exist at once */
};

/* ---- passes ---- */

struct decoder_sizes score_sizes(const struct span *spans, size_t count)
{
    struct decoder_sizes sizes = {.room = 1};
    size_t slots;

    for (size_t i = 0; i < count; i++)
        sizes.room = spans[i].length - 1 > sizes.room ? spans[i].length - 1 : sizes.room;
    slots = sizes.room < PASS_ROWS ? (size_t)(PASS_ROWS / sizes.room) : 1;
    slots = slots < MOST_SLOTS ? slots : MOST_SLOTS;
    sizes.slots = (int)(slots < count ? slots : count);
    sizes.rows = sizes.slots * sizes.room;
    sizes.outputs = sizes.rows < MOST_OUTPUTS ? sizes.rows : MOST_OUTPUTS;
    return sizes;
}

/* A pass's rows, and those whose next token is asked for. */
struct score_pass {
    int32_t *tokens, *slots, *positions; /* [rows] */
    int32_t *asked, *targets;            /* [rows] */
    struct token_score *scores;
    int rows, count;
};

static int create_pass(struct score_pass *p, const struct decoder_sizes *sizes, struct error *err)
{
    size_t rows = (size_t)sizes->rows;

    p->tokens = error_calloc(5 * rows, sizeof *p->tokens, err);
    p->scores = error_calloc(rows, sizeof *p->scores, err);
    if (!p->tokens || !p->scores)
        return -1;
    p->slots = p->tokens + rows;
    p->positions = p->slots + rows;
    p->asked = p->positions + rows;
    p->targets = p->asked + rows;
    return 0;
}

static void add_span(struct score_pass *p, const struct span *span, int slot)
{
    for (int i = 0; i + 1 < span->length; i++) {
        if (i + 1 >= span->first) {
            p->asked[p->count] = p->rows;
            p->targets[p->count++] = span->tokens[i + 1];
        }
        p->tokens[p->rows] = span->tokens[i];
        p->slots[p->rows] = slot;
        p->positions[p->rows++] = i;
    }
}

/* The scores are in the order of the spans' tokens. */
static void take_scores(const struct token_score *scores, struct span *span)
{
    span->loss = 0;
    span->greedy = true;
    for (int i = 0; i < span->length - span->first; i++) {
        span->loss += scores[i].loss;
        span->greedy = span->greedy && scores[i].greedy;
    }
}

static int score_batch(struct inference *f, struct score_pass *p, struct span *spans, int count, struct error *err)
{
    const struct token_score *scores = p->scores;

    p->rows = p->count = 0;
    for (int slot = 0; slot < count; slot++)
        add_span(p, &spans[slot], slot);
    decoder_run(f->decoder, &(struct decoder_rows){
                                .count = p->rows, .tokens = p->tokens, .slots = p->slots, .positions = p->positions});
    if (decoder_scores(f->decoder, p->asked, p->targets, p->count, p->scores, err) < 0)
        return -1;
    for (int slot = 0; slot < count; slot++) {
        take_scores(scores, &spans[slot]);
        scores += spans[slot].length - spans[slot].first;
    }
    return 0;
}

int score_spans(struct inference *f, const struct decoder_sizes *sizes, struct span *spans, size_t count,
                void (*progress)(size_t done, void *arg), void *arg, struct error *err)
{
    struct score_pass pass = {0};
    int result = create_pass(&pass, sizes, err);

    for (size_t i = 0; i < count && result == 0; i += (size_t)sizes->slots) {
        size_t n = count - i < (size_t)sizes->slots ? count - i : (size_t)sizes->slots;

        result = score_batch(f, &pass, spans + i, (int)n, err);
        if (progress && result == 0)
            progress(i + n, arg);
    }
    free(pass.tokens);
    free(pass.scores);
    return result;
}

/* ---- windows ---- */

/* The window that asks for tokens [asked, end), where `end` is behind the last token asked for. */
static struct span place_window(const int32_t *tokens, size_t begin, size_t asked, size_t end)
{
    return (struct span){.tokens = tokens + begin, .length = (int)(end - begin), .first = (int)(asked - begin)};
}

size_t score_windows(const int32_t *tokens, size_t count, int seq_length, int stride, struct span **spans,
                     struct error *err)
{
    size_t seq = (size_t)seq_length, step = stride ? (size_t)stride : seq, n = 0;
    /* Tokens of a window, the one that is only read included: the model has room for one token less to read. */
    size_t window = step < seq ? seq : seq + 1;
    size_t end = 1;

    *spans = error_calloc(count / step + 2, sizeof **spans, err);
    if (!*spans)
        return 0;
    while (end < count) {
        size_t asked = end, begin;

        end = n == 0 ? window : end + step;
        begin = end > window ? end - window : 0;
        if (end > count) {
            end = count;
            begin = stride && step < seq ? begin : end > window ? end - window : 0;
        }
        (*spans)[n++] = place_window(tokens, begin, asked, end);
    }
    return n;
}

/* ---- words ---- */

/* Bytes of a white space character of Python's str, which is Unicode's and U+001C to U+001F; 0 where there is none. */
static size_t space_length(const unsigned char *at, size_t left)
{
    if ((at[0] >= 0x09 && at[0] <= 0x0d) || (at[0] >= 0x1c && at[0] <= 0x20))
        return 1;
    if (left >= 2 && at[0] == 0xc2 && (at[1] == 0x85 || at[1] == 0xa0))
        return 2;
    if (left < 3)
        return 0;
    if (at[0] == 0xe1)
        return at[1] == 0x9a && at[2] == 0x80 ? 3 : 0; /* U+1680 */
    if (at[0] == 0xe2 && at[1] == 0x80)                /* U+2000 to U+200A, U+2028, U+2029, U+202F */
        return (at[2] >= 0x80 && at[2] <= 0x8a) || at[2] == 0xa8 || at[2] == 0xa9 || at[2] == 0xaf ? 3 : 0;
    if (at[0] == 0xe2 && at[1] == 0x81)
        return at[2] == 0x9f ? 3 : 0;                               /* U+205F */
    return at[0] == 0xe3 && at[1] == 0x80 && at[2] == 0x80 ? 3 : 0; /* U+3000 */
}

size_t score_words(const char *text, size_t bytes)
{
    size_t words = 1;
    bool inside = false;

    for (size_t i = 0; i < bytes;) {
        size_t length = space_length((const unsigned char *)text + i, bytes - i);

        words += length > 0 && !inside;
        inside = length > 0;
        i += length ? length : 1;
    }
    return words;
}
