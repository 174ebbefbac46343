/* part.h - what a save's arguments become: the part of the manifest that describes one shard, and its file's header. */
#ifndef MUSTER_CKPT_PART_H
#define MUSTER_CKPT_PART_H

#include "ckpt/manifest.h"

/* A part with everything but the checksums and data_offset, checked. Empty pieces are left out. NULL on failure. */
struct manifest *part_create(const struct ckpt_save *save, struct error *err);

/* The shard's safetensors header, malloc'ed: a 1-D tensor a kind, where the layout has them. */
int part_header(const struct manifest *part, void **header, size_t *bytes, struct error *err);

#endif
