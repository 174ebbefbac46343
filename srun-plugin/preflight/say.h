/* say.h - a line of record.h, written whole: nodes share one pipe in the end. */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_SAY_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_SAY_H

/* Before the first say. */
void say_as(const char *node);

/* "preflight NODE KEY TEXT"; newlines within become blanks. May be called by several threads. */
void say(const char *key, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
