/*
 * json_get.h - typed members of a JSON object that may hold anything.
 *
 * Each returns 0, or -1 with CODE_DATA and "key must be ...". A missing member is one of the wrong type, and so is any
 * member of what is no object.
 */
#ifndef MUSTER_CKPT_JSON_GET_H
#define MUSTER_CKPT_JSON_GET_H

#include <jansson.h>
#include <stdint.h>

#include "common/error.h"

/* An integer of 0 to `most`. */
int json_get_integer(json_t *object, const char *key, uint64_t most, uint64_t *out, struct error *err);
int json_get_int(json_t *object, const char *key, int *out, struct error *err);

/* An integer or a real number. */
int json_get_number(json_t *object, const char *key, double *out, struct error *err);

/* A string shorter than `size`, copied out. */
int json_get_string(json_t *object, const char *key, char *out, size_t size, struct error *err);

/* A borrowed reference. */
int json_get_array(json_t *object, const char *key, json_t **out, struct error *err);

/* A string of exactly that many lower-case hexadecimal digits, at most 16. */
int json_get_hex(json_t *object, const char *key, int digits, uint64_t *out, struct error *err);

/* The digits alone; -1 if they are not. */
int json_parse_hex(const char *text, int digits, uint64_t *out);

#endif
