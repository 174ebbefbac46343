/*
 * prediction.h - the bytes that a rank will hold, by kind. The engine allocates by the same arithmetic, so a prediction
 * is exact. Pure.
 */
#ifndef MUSTER_TRAINER_PREDICTION_H
#define MUSTER_TRAINER_PREDICTION_H

#include <stdbool.h>
#include <stddef.h>

#include "common/job.h"
#include "common/mesh.h"
#include "kernels/kernels.h"
#include "plan/footprint.h"

/* What rank `rank` of this mesh will hold on such a device. -1 with CODE_CONFIG where the job does not fit the mesh. */
int predict_footprint(const struct job *job, const struct mesh *mesh, int rank, const struct device_traits *device,
                      struct footprint *bytes, struct error *err);

/* Of `workspace`, what the kernels hold for themselves: the most that any operation of the model asks for. */
struct rank_config;
size_t predict_workspace(const struct job *job, const struct rank_config *config, const struct device_traits *device);

/*
 * The table for people, "memory a rank, in MiB": a row a kind, a column a pipeline stage; tp and dp ranks of a stage
 * hold the same. Where there are many stages, the first ones, the heaviest and the last are shown. Returns the length,
 * or -1.
 */
enum { PREDICT_TABLE_SIZE = 2048 };

int predict_table(char text[static PREDICT_TABLE_SIZE], const struct job *job, const struct mesh *mesh,
                  const struct device_traits *device, struct error *err);

#endif
