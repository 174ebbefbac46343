/*
 * json_write.h - writes JSON to a stream without jansson, for the plugin: json-c, which Slurm's daemons load, has
 * functions of the same names.
 */
#ifndef MUSTER_COMMON_JSON_WRITE_H
#define MUSTER_COMMON_JSON_WRITE_H

#include <stdio.h>

/* A string with its quotes; NULL is null. Bytes that are not UTF-8 become U+FFFD. */
void json_quote(FILE *out, const char *text);

/* ,"key":"value" and ,"key":3 - the caller writes the first key of an object. */
void json_string_member(FILE *out, const char *key, const char *value);
void json_number_member(FILE *out, const char *key, long value);

#endif
