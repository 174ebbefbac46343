/* hang_words.h - the words that the sentence and the report of hang_report.h are made of; private to these. */
#ifndef MUSTER_TRAINER_REPORT_HANG_WORDS_H
#define MUSTER_TRAINER_REPORT_HANG_WORDS_H

#include "trainer/report/hang_report.h"

/* Text that grows to the end of its buffer and no further. */
struct line {
    char *text;
    size_t size, used;
};

void hang_say(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
void hang_say_seconds(struct line *line, double seconds);

/* "reduce-scatter of block 7 gradients (dp)", "receive from rank 3 (pp forward)" */
void hang_say_op(struct line *line, const struct hang_rank *rank, const struct record_op *op);

/* "rank 5", "ranks 8-11, 14" of those that `chosen` marks. */
void hang_say_ranks(struct line *line, const bool *chosen, int world);

#endif
