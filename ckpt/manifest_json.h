/* manifest_json.h - what the writer and the reader of a manifest's JSON have in common. */
#ifndef MUSTER_CKPT_MANIFEST_JSON_H
#define MUSTER_CKPT_MANIFEST_JSON_H

#include "ckpt/manifest.h"

#define MANIFEST_FORMAT      "muster-checkpoint"
#define MANIFEST_PART_FORMAT "muster-checkpoint-part"
#define MANIFEST_VERSION     1

/* The file begins with this, then come eight digits. */
#define MANIFEST_START  "{\"crc32c\":\""
#define MANIFEST_CRC_AT (sizeof MANIFEST_START - 1)

/* The crc32c of a manifest's text with its own checksum's digits as zeros. bytes is at least MANIFEST_CRC_AT + 8. */
uint32_t manifest_crc(const char *text, size_t bytes);

#endif
