/* json_text.h - text of any origin as JSON, which must be UTF-8: a path, an error, a job file's comment. */
#ifndef MUSTER_CKPT_JSON_TEXT_H
#define MUSTER_CKPT_JSON_TEXT_H

#include <jansson.h>

/* A new JSON string, with '?' for every byte that is not ASCII where the text is not UTF-8. NULL without memory. */
json_t *json_text(const char *text);

#endif
