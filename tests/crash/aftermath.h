/*
 * aftermath.h - what is looked at after a crash, and in which words it is wrong. Nothing here fails a test: a control
 * expects findings.
 */
#ifndef MUSTER_TESTS_CRASH_AFTERMATH_H
#define MUSTER_TESTS_CRASH_AFTERMATH_H

#include "tests/crash/plan.h"

enum finding {
    ALL_WELL,
    LOST,   /* the newest checkpoint whose commit had returned is not there whole */
    BROKEN, /* something is listed that does not open or verify */
    TORN,   /* something opens and verifies, and holds values that nobody saved: the worst */
    STUCK,  /* recovery or the next save fails, or the tool does: a human is needed */
    LITTER, /* the next saves leave things lying that nobody will remove */
};

struct aftermath {
    const struct plan *plan;
    struct world world;
    struct topology *writer, *reader; /* the reader has another number of ranks */
    const char *tool;                 /* path of muster-ckpt, run on every directory; NULL: not run */
    char text[1200];                  /* of the last finding */
};

void aftermath_create(struct aftermath *aftermath, const struct plan *plan);
void aftermath_destroy(struct aftermath *aftermath);

/* Everything that is listed is whole, and `promised` (0: nothing) is among it. */
enum finding aftermath_look(struct aftermath *aftermath, const char *dir, uint64_t promised);

/*
 * aftermath_look; ckpt_recover, and look again; save as the requeued job does, 10 steps after the newest there is, and
 * 10 steps later once more; after that all is well and nothing lies about. `recover` false: the next save comes
 * without.
 */
enum finding aftermath_go_on(struct aftermath *aftermath, const char *dir, uint64_t promised, bool recover);

#endif
