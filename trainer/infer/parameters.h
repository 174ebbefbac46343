/*
 * parameters.h - the parameters of a whole model on one device, read from a checkpoint of any mesh: without gradients,
 * optimizer state and groups of ranks.
 */
#ifndef MUSTER_TRAINER_INFER_PARAMETERS_H
#define MUSTER_TRAINER_INFER_PARAMETERS_H

#include "ckpt/ckpt.h"
#include "ckpt/models/units.h"
#include "kernels/kernels.h"

struct parameters {
    void **unit; /* [nunits]: each unit's flat buffer, in device memory */
    struct device *dev;
    int nunits;
};

/* The bytes on the device of these units (units_create_whole) in that type. Pure. */
size_t parameters_bytes(const struct units *units, enum dtype dtype);

/*
 * Allocates them and reads them from the checkpoint, which must have exactly the tensors of `units`. fp32 in host
 * memory is read in place; else one unit at a time passes through an fp32 buffer. NULL with CODE_IO when out of memory,
 * and the errors of ckpt_read.
 */
struct parameters *parameters_read(struct device *dev, const struct units *units, enum dtype dtype, struct ckpt *ckpt,
                                   struct error *err);
void parameters_destroy(struct parameters *parameters);

#endif
