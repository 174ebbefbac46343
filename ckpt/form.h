/*
 * form.h - files in a form that this release of muster does not know.
 *
 * target.json, the parts and manifest.json each name their format, its number ("version") and the release that wrote
 * them ("muster"). A file with another number, or with other members than this format has, was written by another
 * release: its form is *unknown*, which is CODE_CONFIG, where damage is CODE_DATA. What holds such a file is left alone:
 * nothing in it is drained, renamed or removed.
 */
#ifndef MUSTER_CKPT_FORM_H
#define MUSTER_CKPT_FORM_H

#include <jansson.h>

#include "common/error.h"

/* Check that "format" and "version" are these. */
int form_check(json_t *object, const char *format, int version, struct error *err);

/* Check that the object has these members, separated by blanks, and no others. */
int form_check_members(json_t *object, const char *members, struct error *err);

/* Add to an unknown form's error which release wrote the file, in which format, and which one this release knows. */
int form_explain(json_t *object, int version, struct error *err);

#endif
