/*
 * hang_files.h - the directory of a hang, on the file system that all hosts share:
 *
 *     <where>/hang-<job>.<step>.<restart>/
 *         records-00004.json      what rank 4 knows of the ranks of its host (hang_json.h)
 *         hang-report.txt         the verdict (hang_report.h); its first line is the sentence
 *
 * That it exists is the alarm. Each file appears whole, under its name, or not at all. It stays, for people.
 */
#ifndef MUSTER_TRAINER_WATCH_HANG_FILES_H
#define MUSTER_TRAINER_WATCH_HANG_FILES_H

#include <jansson.h>

#include "trainer/watch/hang.h"

/* The alarm. It may have been raised before. CODE_IO. */
int hang_raise(const char *dir, struct error *err);
bool hang_raised(const char *dir);

/* What `speaker` knows of the ranks that `chosen` marks. CODE_IO. */
int hang_publish(const char *dir, int speaker, const struct hang_rank *ranks, const bool *chosen, int world,
                 struct error *err);

/* Which ranks have published: spoken[world]. CODE_IO when the directory cannot be read. */
int hang_spoken(const char *dir, bool *spoken, int world, struct error *err);

/* Takes in what they have published. A file that cannot be read is left out. */
void hang_collect(const char *dir, const bool *spoken, struct hang_rank *ranks, int world);

/* 1 when this is the report now, 0 when another was there before; -1 with CODE_IO. `rank` is the writer. */
int hang_report_publish(const char *dir, int rank, const char *text, size_t length, struct error *err);

/* The report's first line, without its newline; false when there is no report. */
bool hang_report_sentence(const char *dir, char *text, size_t size);

/* Ranks of hang.h as JSON, as they lie in the directory of a hang. What it wrote reads back the same. */

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
