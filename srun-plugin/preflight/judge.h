/*
 * judge.h - decides from the answers of a step's nodes which are bad, and why. Pure.
 *
 * A node is bad if it
 *   - did not answer or finish in time, or srun could not start a task there. Then srun ends the other nodes too, and
 *     they are not bad for an answer that is missing;
 *   - has a problem of its own;
 *   - has more oddities than at least half of the others: a dead port on one node is an error, on all it is the site's
 *     choice;
 *   - has another version of something, or other GPUs, than more than half of those that answered. Without such a
 *     majority no node is bad, and a note names the difference;
 *   - has a clock more than JUDGE_CLOCK_SECONDS from the median;
 *   - reaches neither neighbour of the ring, in a ring of three nodes or more. If only one pair of neighbours fails, and
 *     neither is bad already, both are bad, as a pair.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_JUDGE_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_JUDGE_H

#include "srun-plugin/preflight/answer.h"

#define JUDGE_CLOCK_SECONDS 2.0

struct verdict {
    char **reasons; /* [count], of each node: "one; another", or NULL for a good one */
    size_t count, bad;
    bool everywhere; /* two nodes or more, all bad for the same reason: the nodes are not the cause */
    char **notes;    /* differences that make no node bad */
    size_t note_count;
};

/* `seconds`: the time that the nodes had, for the text. NULL without memory. */
struct verdict *verdict_create(const struct answer *answers, size_t count, double seconds);
void verdict_destroy(struct verdict *verdict);

#endif
