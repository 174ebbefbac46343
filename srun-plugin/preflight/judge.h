/*
 * judge.h - of what the nodes of a step said, which of them are bad, and why. Pure.
 *
 * Bad is a node that
 *   - did not answer, or did not finish, in time, or srun could not start a task there. Then srun ends the others too,
 *     and they are not blamed for what they could not say;
 *   - has a problem of its own;
 *   - has more oddities than at least half of the others: a dead port is odd on one node, and the site's way on all;
 *   - has another version of something, or other GPUs, than more than half of those that answered. Without such a
 *     majority nobody is bad, and a note tells of the difference;
 *   - has a clock more than JUDGE_CLOCK_SECONDS from the median;
 *   - cannot talk to either neighbour of the ring, when there are three nodes or more. Where only one pair of
 *     neighbours cannot talk, and neither is bad already, both are named, as a pair.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_JUDGE_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_JUDGE_H

#include "srun-plugin/preflight/answer.h"

#define JUDGE_CLOCK_SECONDS 2.0

struct verdict {
    char **reasons; /* [count], of each node: "one; another", or NULL for a good one */
    size_t count, bad;
    bool everywhere; /* two nodes or more, all bad for the same reason: it is not the nodes */
    char **notes;    /* lines worth knowing that make nobody bad */
    size_t note_count;
};

/* `seconds`: how long they had, for the text. NULL for want of memory. */
struct verdict *verdict_create(const struct answer *answers, size_t count, double seconds);
void verdict_destroy(struct verdict *verdict);

#endif
