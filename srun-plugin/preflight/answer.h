/*
 * answer.h - what muster-preflight found on a node, and the lines that it says it in. Pure.
 *
 * A line is "preflight NODE KEY VALUE", in any order but for the first and the last of a node:
 *
 *     preflight n3 clock 1732212345.123456        the node's clock, as the line is written
 *     preflight n3 gpus 8                         that ranks can use; "8 4": and that Slurm gave to the step
 *     preflight n3 version NCCL 2.21.5            or "none"
 *     preflight n3 note machine DGX H100          to be compared, but no ground to call a node bad
 *     preflight n3 problem TEXT                   bad whatever other nodes say
 *     preflight n3 oddity TEXT                    bad unless most nodes have as many
 *     preflight n3 to n4 ok 9.4 0.03              1 MiB each way with the next node of the ring: Gbit/s, milliseconds
 *     preflight n3 to n4 connect TEXT             or why not: "listen", "connect" or "data" is where it failed
 *     preflight n3 from n2 listen TEXT            the same of the node before
 *     preflight n3 to - untried TEXT              nobody to ask
 *     preflight n3 end 0.7                        all is said; the seconds that it took
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_ANSWER_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#define ANSWER_NAME_SIZE 256
#define ANSWER_LINE_SIZE 1024
#define ANSWER_FACTS     24 /* versions and notes of a node; more are dropped */
#define ANSWER_TEXTS     32 /* problems and oddities of a node; more are counted, not kept */

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
    bool interrupted; /* it was ended before it had said all, for no fault of its own */
    bool has_clock;
    double ahead;         /* seconds that its clock is ahead of the reader's */
    int gpus, given_gpus; /* -1 where it did not say */
    struct fact facts[ANSWER_FACTS];
    size_t fact_count;
    char *problems[ANSWER_TEXTS], *oddities[ANSWER_TEXTS];
    size_t problem_count, oddity_count; /* at most ANSWER_TEXTS of each */
    struct talk to, from;
};

/* Nothing is known but the name. */
void answer_start(struct answer *answer, const char *name);
void answer_clear(struct answer *answer);

/*
 * srun's own word for a node that it cannot start a task on: "srun: error: Task launch for StepId=7.0 failed on node
 * n3: Communication connection failure". srun then gives the others up too: those that have not ended are interrupted.
 * False for another line.
 */
bool answer_take_srun(struct answer *answers, size_t count, const char *line);

/*
 * Takes one line, without newline, that was read when the reader's clock showed `now` (seconds). False for a line that
 * is none of ours, or of a node that is not among the `count` answers.
 */
bool answer_take(struct answer *answers, size_t count, const char *line, double now);

const char *talk_state_name(enum talk_state state);

#endif
