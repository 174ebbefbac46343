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
 *   - reaches neither neighbour of the ring, in a ring of three nodes or more. If only one pair of neighbours fails,
 *     and neither is bad already, both are bad, as a pair.
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
 *     preflight n3 gpus 8                         that ranks can use; "8 4": of which Slurm gave 4
 *     preflight n3 version NCCL 2.21.5            or "none"
 *     preflight n3 note machine DGX H100          compared, but a difference is not an error
 *     preflight n3 problem TEXT                   the node is bad
 *     preflight n3 oddity TEXT                    the node is bad unless most have as many
 *     preflight n3 to n4 ok 9.4 0.03              1 MiB each way with the next node of the ring: Gbit/s, milliseconds
 *     preflight n3 to n4 connect TEXT             or where it failed: "listen", "connect" or "data"
 *     preflight n3 from n2 listen TEXT            the same for the node before
 *     preflight n3 to - untried TEXT              no test, and why
 *     preflight n3 end 0.7                        the end, and the seconds since the start
 */
#define ANSWER_NAME_SIZE 256
#define ANSWER_LINE_SIZE 1024
#define ANSWER_FACTS     24 /* versions and notes of a node; more are dropped */
#define ANSWER_TEXTS     32 /* problems and oddities of a node; more are dropped */

enum talk_state { TALK_UNTRIED, TALK_OK, TALK_LISTEN, TALK_CONNECT, TALK_DATA };

struct talk {
    enum talk_state state;
    char peer[ANSWER_NAME_SIZE]; /* "" for nobody */
    char *text;                  /* figures, or what failed; NULL for none */
};

struct fact {
    char name[32], value[96];
    bool note;
};

struct answer {
    char name[ANSWER_NAME_SIZE];
    bool begun, ended;
    bool unstarted;   /* srun could not start muster-preflight there; its problem says why */
    bool interrupted; /* it was ended early, for no fault of its own */
    bool has_clock;
    double ahead;                    /* its clock minus the reader's, seconds */
    struct fact facts[ANSWER_FACTS]; /* the number of GPUs is one */
    size_t fact_count;
    char **problems, **oddities;
    size_t problem_count, oddity_count; /* at most ANSWER_TEXTS of each */
    struct talk to, from;
};

/* An answer with only the name known. */
void answer_start(struct answer *answer, const char *name);
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
    char **notes;    /* differences that make no node bad */
    size_t note_count;
};

/* `seconds`: the time that the nodes had, for the text. NULL without memory. */
struct verdict *verdict_create(const struct answer *answers, size_t count, double seconds);
void verdict_destroy(struct verdict *verdict);

#endif
