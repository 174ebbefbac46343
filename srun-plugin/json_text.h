/*
 * json_text.h - JSON into a stream, for the plugin alone: srun and slurmd have json-c in them, whose functions
 * jansson's share their names with.
 */
#ifndef MUSTER_SRUN_PLUGIN_JSON_TEXT_H
#define MUSTER_SRUN_PLUGIN_JSON_TEXT_H

#include <stdio.h>

/* A string with its quotes; NULL is null. Bytes that are no UTF-8 become U+FFFD. */
void json_quote(FILE *out, const char *text);

/* ,"key":"value" and ,"key":3 - the first key of an object is the caller's. */
void json_string_member(FILE *out, const char *key, const char *value);
void json_number_member(FILE *out, const char *key, long value);

#endif
