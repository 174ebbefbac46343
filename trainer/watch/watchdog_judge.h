/* watchdog_judge.h - for watchdog.c: finds the cause after an alarm. */
#ifndef MUSTER_TRAINER_WATCH_WATCHDOG_JUDGE_H
#define MUSTER_TRAINER_WATCH_WATCHDOG_JUDGE_H

#include <stdatomic.h>

#include "trainer/watch/watchdog.h"

/*
 * Raises the alarm on other nodes. The publisher publishes its node's records, and judges, or reads another's report.
 * Other ranks wait until they become the publisher. 1 with the cause; 0 when *stop is set, because watchdog.c has the
 * cause from a rank of this node; -1 with CODE_IO if the directory cannot be used.
 */
int watchdog_find_cause(const struct watchdog_config *config, const atomic_bool *stop, struct record_cause *cause,
                        struct error *err);

/* Judges by this node's records, without files. */
void watchdog_find_cause_alone(const struct watchdog_config *config, struct record_cause *cause);

#endif
