/*
 * predict.h - muster-plan predict: adds columns to a published table (CSV), each row predicted from its own columns.
 *
 * Columns are found by name: model or size, layers, hidden, heads, seq, vocab, nodes, gpus, dp, tp, pp, chunks,
 * zero, offload, recompute, micro_batch, global_batch, grad_accum, ranks, precision, gradients. What a row lacks comes
 * from the stack's settings, or follows from the others: ranks from dp x tp x pp, gpus or nodes; the micro-batch is
 * the global batch / dp, the global batch dp x micro_batch x grad_accum; layers, hidden and heads from the model's
 * name. Unknown columns are kept as they are. A row that cannot be predicted gets empty columns and a line on stderr;
 * the others are still predicted, and the end is CODE_DATA.
 */
#ifndef MUSTER_PLAN_PREDICT_H
#define MUSTER_PLAN_PREDICT_H

#include <stdio.h>

#include "plan/plan_machine.h"

/* `name` is the table's, for messages. */
int predict_table(FILE *in, FILE *out, const char *name, const struct plan_machine *machine, const struct stack *stack,
                  struct error *err);

#endif
