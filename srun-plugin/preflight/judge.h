/*
 * judge.h - decides from the answers of a step's nodes which are bad, and why. Pure.
 *
 * A node is bad if it
 *   - did not answer or finish in time, or srun could not start a task there. Then srun ends the other nodes too, and
 *     they are not bad for an answer that is missing;
 *   - has a problem of its own;
 *   - has a clock more than JUDGE_CLOCK_SECONDS from the median.
 * What differs between nodes makes none of them bad: a note names it.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_JUDGE_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_JUDGE_H

#include <stdbool.h>
#include <stddef.h>

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/*
 * What muster-preflight found on a node. A line of its output is "preflight NODE KEY VALUE", in any order except for a
 * node's first and last:
 *
 *     preflight n3 clock 1732212345.123456        the node's clock, as the line is written
 *     preflight n3 fact plugin 0.1.0              a name without blanks and its value: should be the same on all nodes
 *     preflight n3 problem TEXT                   the node is bad
 *     preflight n3 note TEXT                      worth a line
 *     preflight n3 end 0.7                        the end, and the seconds since the start
 */
#define ANSWER_NAME_SIZE 256
#define ANSWER_LINE_SIZE 1024
#define ANSWER_FACTS     8  /* of a node; more are dropped */
#define ANSWER_TEXTS     32 /* problems, and notes, of a node; more are dropped */

struct fact {
    char name[32], value[96];
};

struct answer {
    const char *name; /* of the node, borrowed; all else begins as zeros */
    bool begun, ended;
    bool unstarted;   /* srun could not start muster-preflight there; its problem says why */
    bool interrupted; /* it was ended early, for no fault of its own */
    bool has_clock;
    double ahead; /* its clock minus the reader's, seconds */
    struct fact facts[ANSWER_FACTS];
    size_t fact_count;
    char **problems, **notes;
    size_t problem_count, note_count; /* at most ANSWER_TEXTS of each */
};

/* Frees its problems and notes. */
void answer_clear(struct answer *answer);

/*
 * Reads srun's error for a node on which it cannot start a task: "srun: error: Task launch for StepId=7.0 failed on
 * node n3: Communication connection failure". srun then ends the other nodes too: those that have not ended are
 * interrupted. False for any other line.
 */
bool answer_take_srun(struct answer *answers, size_t count, const char *line);

/*
 * Reads one line, without newline; `now` is the reader's clock (seconds). False if it has another format, or its node
 * is not among the `count` answers.
 */
bool answer_take(struct answer *answers, size_t count, const char *line, double now);

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

#define JUDGE_CLOCK_SECONDS 2.0

struct verdict {
    char **reasons; /* [count], of each node: "one; another", or NULL for a good one */
    size_t count, bad;
    bool everywhere; /* two nodes or more, all bad for the same reason: the nodes are not the cause */
    char **notes;    /* what makes no node bad */
    size_t note_count;
};

/* `seconds`: the time that the nodes had, for the text. NULL without memory. */
struct verdict *verdict_create(const struct answer *answers, size_t count, double seconds);
void verdict_destroy(struct verdict *verdict);

#endif
