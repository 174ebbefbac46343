/*
 * units.h - numbers as people read them. Pure functions; each returns buf.
 */
#ifndef MUSTER_TRAINER_REPORT_UNITS_H
#define MUSTER_TRAINER_REPORT_UNITS_H

#include <stddef.h>

#define UNITS_SIZE 32

/* Three digits and a suffix: 0, 7.25, 12.3k, 131M, 1.05G, 2.00T. "-" when not finite. */
const char *units_count(char buf[UNITS_SIZE], double value);

/* 0:07, 12:34, 1:02:03, 3d04:05 (days, hours, minutes). "-" when not finite or negative. */
const char *units_duration(char buf[UNITS_SIZE], double seconds);

/* 1234567 as 1,234,567. */
const char *units_grouped(char buf[UNITS_SIZE], long value);

#endif
