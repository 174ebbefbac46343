#include "trainer/model/embedding.h"

static struct positions positions_of(const struct context *c, const struct micro_batch *mb, void *x)
{
    int local = context_local_rows(c, mb->samples), first = c->tp->rank * local;

    return (struct positions){
        .rows = local,
        .cols = c->shape->hidden,
        .seq = c->shape->seq_length,
        .first_row = first,
        .dtype = c->dtype,
        .types = mb->types ? mb->types + first : NULL,
        .dropout = context_dropout(c, mb, philox_site("embedding.dropout")),
        .x = x,
    };
}

static struct embedding embedding_of(const struct context *c, const struct units *units, const struct micro_batch *mb)
{
    return (struct embedding){
        .rows = context_rows(c, mb->samples),
        .cols = c->shape->hidden,
        .vocab_first = units->vocab_first,
        .vocab = units->vocab,
        .dtype = c->dtype,
        .tokens = mb->tokens,
    };
}

void embedding_forward(const struct context *c, const struct units *units, const void *wte, const void *positions,
                       const struct micro_batch *mb, void *part, void *x)
{
    const struct unit *unit = &units->units[UNIT_POSITION];
    struct embedding tokens = embedding_of(c, units, mb);
    struct positions at = positions_of(c, mb, x);

    tokens.wte = wte;
    tokens.x = c->tp->size > 1 ? part : x;
    c->k->embedding_forward(c->dev, &tokens);
    tensor_reduce(c->tp, x, part, tokens.rows, tokens.cols, "token embedding");
    tensor_reduced(c->tp, x, part);
    at.wpe = context_weight(c, unit, positions, POSITION_WPE);
    at.wtt = unit->ntensors > POSITION_WTT ? context_weight(c, unit, positions, POSITION_WTT) : NULL;
    c->k->positions_forward(c->dev, &at);
}

void embedding_backward(const struct context *c, const struct units *units, const struct micro_batch *mb, void *dx,
                        void *full, float *wte_grad, float *position_grad)
{
    const struct unit *unit = &units->units[UNIT_POSITION];
    struct embedding tokens = embedding_of(c, units, mb);
    struct positions at = positions_of(c, mb, dx);

    at.dwpe = context_gradient(unit, position_grad, POSITION_WPE);
    at.dwtt = unit->ntensors > POSITION_WTT ? context_gradient(unit, position_grad, POSITION_WTT) : NULL;
    c->k->positions_backward(c->dev, &at);
    tensor_gather(c->tp, dx, full, tokens.rows, tokens.cols, "token embedding");
    tokens.x = (void *)tensor_gathered(c->tp, dx, full);
    tokens.dwte = wte_grad;
    c->k->embedding_backward(c->dev, &tokens);
    tensor_sum(c->tp, position_grad, unit->replicated, "positions");
}
