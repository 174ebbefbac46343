/*
 * hang.h - who holds up a run that hangs: a pure function of what is known of its ranks. Nothing here looks at files,
 * clocks or processes; hang_files.h brings the ranks together and hang_report.h says the verdict in words.
 *
 * A rank that waits, waits for whoever has not entered the same operation: for the members of the communicator that
 * have entered fewer collectives there, or for the peer that has not sent or received yet. Those that wait themselves
 * pass the question on; where it ends are the late ones. In a chain (A waits in tp for B, B in dp for C, and C
 * computes) that is C alone, however many wait.
 */
#ifndef MUSTER_TRAINER_WATCH_HANG_H
#define MUSTER_TRAINER_WATCH_HANG_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"
#include "trainer/watch/record.h"

enum { HANG_HOST_SIZE = 64 };

enum hang_state {
    HANG_SILENT,  /* nobody says anything of it: its node is dead, cut off, or has nobody left to speak */
    HANG_RUNNING, /* it waits where record.waiting_since is not 0, otherwise does what record.phase says */
    HANG_STOPPED, /* by SIGSTOP, a terminal or a debugger */
    HANG_DEAD,    /* its process is gone, and it did not say that it would end */
    HANG_ABORTED, /* it, or a library in it, has called abort, which may be for want of a lost peer */
    HANG_ENDED,   /* it ends, or is gone after saying so */
};

struct hang_rank {
    enum hang_state state;
    char host[HANG_HOST_SIZE];
    int64_t taken;              /* when the record was, on its host's clock */
    struct record record;       /* all 0 when silent */
    int *members[RECORD_COMMS]; /* owned; [record.comms[i].size] ranks of the world */
};

/* All ranks of a world, silent ones too; hosts are filled in by the caller. NULL when out of memory. */
struct hang_rank *hang_ranks_create(int world, struct error *err);
void hang_ranks_destroy(struct hang_rank *ranks, int world);

/* What ranks[rank] waits in; NULL when it does not wait, or its state says that this no longer counts. */
const struct record_op *hang_waits(const struct hang_rank *rank);

/* Seconds since it last began or ended anything. */
double hang_idle_seconds(const struct hang_rank *rank);

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

enum hang_verdict_kind {
    HANG_LATE,     /* `late` holds up the others */
    HANG_MISMATCH, /* two ranks of `late` are in different operations where they should be in the same */
    HANG_CYCLE,    /* each of `late` waits for the next, and the last for the first */
    HANG_TRANSFER, /* all have entered the operation that `late` waits in: the network, or the library */
    HANG_NOTHING,  /* nobody waits and nobody is missing */
};

struct hang_late {
    int rank;
    int waiter;      /* the lowest rank that waits for it; -1 for none */
    int comm;        /* where: index into the waiter's comms */
    uint64_t behind; /* collectives that it is behind the first of that communicator; or messages it owes the waiter */
};

struct hang_verdict {
    enum hang_verdict_kind kind;
    struct hang_late *late; /* [nlate], owned: in the order of rank, or of the cycle */
    size_t nlate;
};

/*
 * patience: seconds after which a rank that is busy on its own counts as late even if another's silence or death would
 * do as a reason. -1 when out of memory.
 */
int hang_judge(struct hang_verdict *verdict, const struct hang_rank *ranks, int world, double patience,
               struct error *err);
void hang_verdict_free(struct hang_verdict *verdict);

#endif
