/* hang_json.h - ranks of hang.h as JSON, as they lie in the directory of a hang. What it wrote reads back the same. */
#ifndef MUSTER_TRAINER_REPORT_HANG_JSON_H
#define MUSTER_TRAINER_REPORT_HANG_JSON_H

#include <jansson.h>

#include "trainer/report/hang.h"

/*
 * {"version": 1, "ranks": [{"rank": 5, "host": "n3", "state": "stopped", "taken": NS, "phase": "computing", ...,
 *   "waiting": OP, "comms": [...], "ring": [OP, ...]}, ...]}
 *
 * of those that `chosen` marks; [world]. The members of a communicator are runs of [first, stride, count]. NULL when
 * out of memory; json_decref ends it.
 */
json_t *hang_encode(const struct hang_rank *ranks, const bool *chosen, int world);

/*
 * Takes in what is there, over what was known of those ranks; host names too. Fails with CODE_DATA, and ranks that came
 * before the fault are taken in.
 */
int hang_decode(struct hang_rank *ranks, int world, const json_t *json, struct error *err);

#endif
