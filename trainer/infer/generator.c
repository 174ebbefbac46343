#include "trainer/infer/generator.h"

#include <stdlib.h>

#include "common/philox.h"

enum { PASS_ROWS = 512 }; /* of a prompt, at once */

/* A slot of the cache. */
struct sequence {
    struct continuation *text; /* NULL: free */
    size_t start;              /* the first token of the context */
    size_t cached;             /* tokens from there on that the cache has */
    float *logits;             /* of its next token, in this step */
};

struct generator {
    struct inference *f;
    const struct generator_options *how;
    int slots, rows;
    struct sequence sequence[GENERATOR_MOST];
    int32_t *tokens, *slot, *position; /* [rows], of a pass */
    float *logits;                     /* [slots, vocab] */
    int32_t *order;                    /* [vocab], for sampling */
};

struct decoder_sizes generator_sizes(const struct inference *f, const struct generator_options *how,
                                     const struct continuation *prompts, size_t count, int batch)
{
    int seq = f->job.model.seq_length;
    size_t longest = 0;
    struct decoder_sizes sizes = {.slots = count < (size_t)batch ? (int)count : batch};

    for (size_t i = 0; i < count; i++)
        longest = prompts[i].prompt > longest ? prompts[i].prompt : longest;
    sizes.room = longest >= (size_t)seq || how->tokens >= seq - (long)longest ? seq : (int)longest + (int)how->tokens;
    sizes.rows = sizes.room < PASS_ROWS ? sizes.room : PASS_ROWS;
    sizes.rows = sizes.rows < sizes.slots ? sizes.slots : sizes.rows;
    sizes.outputs = sizes.slots;
    return sizes;
}

void continuation_free(struct continuation *c)
{
    free(c->ids.ids);
    free(c->transcript.text.text);
}

/* ---- passes ---- */

/* The first token of the context of `count` tokens: each time it is full, its older half is dropped. */
static size_t context_start(size_t count, size_t seq)
{
    size_t dropped = seq - seq / 2;

    return count <= seq ? 0 : (count - seq + dropped - 1) / dropped * dropped;
}

static void fill_row(struct generator *g, int row, int slot, size_t at)
{
    const struct sequence *s = &g->sequence[slot];

    g->tokens[row] = s->text->ids.ids[s->start + at];
    g->slot[row] = slot;
    g->position[row] = (int32_t)at;
}

static void run_rows(struct generator *g, int count)
{
    decoder_run(g->f->decoder, &(struct decoder_rows){
                                   .count = count, .tokens = g->tokens, .slots = g->slot, .positions = g->position});
}

/* Row number `row` of the step's logits. */
static float *logits_row(const struct generator *g, int row)
{
    return g->logits + (size_t)row * (size_t)g->f->job.model.vocab;
}

/* Tokens that the cache lacks, once the context begins where it should. */
static size_t count_missing(struct generator *g, int slot)
{
    struct sequence *s = &g->sequence[slot];
    size_t start;

    if (!s->text)
        return 0;
    start = context_start(s->text->ids.count, (size_t)g->f->job.model.seq_length);
    if (start != s->start)
        s->cached = 0;
    s->start = start;
    return s->text->ids.count - start - s->cached;
}

/* A sequence that lacks several tokens, alone. `row`: of the step's logits. */
static int run_prompt(struct generator *g, int slot, size_t missing, int row, struct error *err)
{
    struct sequence *s = &g->sequence[slot];
    int32_t last = 0;

    while (missing > 0) {
        int n = missing < (size_t)g->rows ? (int)missing : g->rows;

        for (int i = 0; i < n; i++)
            fill_row(g, i, slot, s->cached + (size_t)i);
        run_rows(g, n);
        s->cached += (size_t)n;
        missing -= (size_t)n;
        last = n - 1;
    }
    s->logits = logits_row(g, row);
    return decoder_logits(g->f->decoder, &last, 1, s->logits, err);
}

/* All sequences that lack one token, together. Theirs are the first rows of the step's logits. */
static int run_step(struct generator *g, const bool *steps, struct error *err)
{
    int32_t rows[GENERATOR_MOST];
    int n = 0;

    for (int slot = 0; slot < g->slots; slot++)
        if (steps[slot]) {
            rows[n] = n;
            g->sequence[slot].logits = logits_row(g, n);
            fill_row(g, n++, slot, g->sequence[slot].cached++);
        }
    if (n == 0)
        return 0;
    run_rows(g, n);
    return decoder_logits(g->f->decoder, rows, n, g->logits, err);
}

/* ---- tokens ---- */

static bool ends_text(const struct generator *g, int32_t id, enum ending *ending)
{
    if (id == g->f->end) {
        *ending = ENDED_DOCUMENT;
        return true;
    }
    for (size_t i = 0; i < g->how->nstop_ids; i++)
        if (g->how->stop_ids[i] == id) {
            *ending = ENDED_STOP;
            return true;
        }
    return false;
}

static int finish_text(struct generator *g, int slot, enum ending ending, struct error *err)
{
    struct continuation *c = g->sequence[slot].text;

    c->ending = ending;
    g->sequence[slot] = (struct sequence){0};
    if (transcript_finish(&c->transcript, g->f->tokenizer, err) < 0)
        return -1;
    return g->how->grown ? g->how->grown(c, g->how->arg, err) : 0;
}

static int append_token(struct generator *g, int slot, int32_t id, struct error *err)
{
    struct continuation *c = g->sequence[slot].text;
    enum ending ending;

    if (ends_text(g, id, &ending))
        return finish_text(g, slot, ending, err);
    if (inference_append(&c->ids, id, err) < 0 ||
        transcript_add(&c->transcript, g->f->tokenizer, id, g->how->stops, g->how->nstops, err) < 0)
        return -1;
    if (c->transcript.stopped || c->ids.count - c->prompt == (size_t)g->how->tokens)
        return finish_text(g, slot, c->transcript.stopped ? ENDED_STOP : ENDED_LENGTH, err);
    return g->how->grown ? g->how->grown(c, g->how->arg, err) : 0;
}

static int sample_token(struct generator *g, int slot, struct error *err)
{
    struct philox_stream stream = {.seed = g->how->seed, .site = philox_site("generate")};
    const struct continuation *c = g->sequence[slot].text;
    double uniform = philox_uniform(stream, c->ids.count - c->prompt);
    int32_t id =
        sample_next(&g->how->sampling, g->sequence[slot].logits, g->f->is_token, g->f->tokens, uniform, g->order);

    if (id < 0)
        return error_set(err, CODE_DATA, "%s: no logit is a finite number after %zu tokens: the model has NaN weights",
                         ckpt_path(g->f->ckpt), c->ids.count);
    return append_token(g, slot, id, err);
}

/* One token for every sequence that runs. */
static int step_all(struct generator *g, struct error *err)
{
    bool steps[GENERATOR_MOST] = {false};
    int row = g->slots; /* of logits: prompts take them from the end */

    for (int slot = 0; slot < g->slots; slot++) {
        size_t missing = count_missing(g, slot);

        steps[slot] = missing == 1;
        if (missing > 1 && run_prompt(g, slot, missing, --row, err) < 0)
            return -1;
    }
    if (run_step(g, steps, err) < 0)
        return -1;
    for (int slot = 0; slot < g->slots; slot++)
        if (g->sequence[slot].text && sample_token(g, slot, err) < 0)
            return -1;
    return 0;
}

/* ---- all prompts ---- */

static int create_lists(struct generator *g, struct error *err)
{
    size_t rows = (size_t)g->rows, vocab = (size_t)g->f->job.model.vocab;

    g->tokens = error_calloc(3 * rows, sizeof *g->tokens, err);
    g->logits = error_calloc((size_t)g->slots * vocab, sizeof *g->logits, err);
    g->order = error_calloc(vocab, sizeof *g->order, err);
    if (!g->tokens || !g->logits || !g->order)
        return -1;
    g->slot = g->tokens + rows;
    g->position = g->slot + rows;
    return 0;
}

/* The next prompt goes to each free slot. Returns how many sequences run. */
static int fill_slots(struct generator *g, struct continuation *prompts, size_t count, size_t *next)
{
    int running = 0;

    for (int slot = 0; slot < g->slots; slot++) {
        if (!g->sequence[slot].text && *next < count) {
            prompts[*next].transcript = (struct transcript){.state.begun = true};
            g->sequence[slot] = (struct sequence){.text = &prompts[(*next)++]};
        }
        running += g->sequence[slot].text != NULL;
    }
    return running;
}

int generator_run(struct inference *f, const struct generator_options *how, const struct decoder_sizes *sizes,
                  struct continuation *prompts, size_t count, struct error *err)
{
    struct generator g = {.f = f, .how = how, .slots = sizes->slots, .rows = sizes->rows};
    size_t next = 0;
    int running = create_lists(&g, err);

    if (running == 0 && how->tokens > 0)
        while ((running = fill_slots(&g, prompts, count, &next)) > 0)
            if (step_all(&g, err) < 0) {
                running = -1;
                break;
            }
    free(g.tokens);
    free(g.logits);
    free(g.order);
    return running;
}
