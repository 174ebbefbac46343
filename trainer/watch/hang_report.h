/* hang_report.h - the verdict on a run that hangs, in words, for somebody who is woken by it. Pure but for the FILE. */
#ifndef MUSTER_TRAINER_WATCH_HANG_REPORT_H
#define MUSTER_TRAINER_WATCH_HANG_REPORT_H

#include <stdio.h>

#include "trainer/watch/hang.h"

/*
 * One line, without a newline, cut where it does not fit:
 *
 *     rank 5 on n3 is 2 collectives behind, last entered reduce-scatter of block 7 gradients (dp); it has been
 * computing for 603 s rank 5 on n3 is dead (its process is gone), last entered ... ranks 8-15 on n3 gave no sign
 */
void hang_sentence(char *text, size_t size, const struct hang_verdict *verdict, const struct hang_rank *ranks,
                   int world);

/* Whether such a sentence says that this one rank has aborted, and so that nobody else is to blame. */
bool hang_blames_abort(const char *sentence, int rank);

/*
 * The whole: the sentence, `title` (may be NULL), who waits in what, a line for each rank, and the last operations of
 * those who are late. At most so many ranks get a line; 0 is all.
 */
void hang_print(FILE *out, const char *title, const struct hang_verdict *verdict, const struct hang_rank *ranks,
                int world, int most_lines);

#endif
