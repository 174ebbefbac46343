/*
 * prediction.h - predicts the bytes that a rank will hold, by kind. The engine allocates by the same arithmetic, so the
 * prediction is exact. Pure.
 */
#ifndef MUSTER_TRAINER_PREDICTION_H
#define MUSTER_TRAINER_PREDICTION_H

#include <stdbool.h>
#include <stddef.h>

#include "common/job.h"
#include "common/mesh.h"
#include "kernels/kernels.h"
#include "plan/footprint.h"

/* The bytes of rank `rank` of this mesh on such a device. -1 with CODE_CONFIG if the job does not fit the mesh. */
int predict_footprint(const struct job *job, const struct mesh *mesh, int rank, const struct device_traits *device,
                      struct footprint *bytes, struct error *err);

/* The kernels' part of `workspace`: the most that any operation of the model needs. */
struct rank_config;
size_t predict_workspace(const struct job *job, const struct rank_config *config, const struct device_traits *device);

/*
 * The table "memory a rank, in MiB": a row for each kind, a column for each pipeline stage; all tp and dp ranks of a
 * stage hold the same. Of many stages the first ones, the largest and the last are shown. Returns the length, or -1.
 */
enum { PREDICT_TABLE_SIZE = 2048 };

int predict_table(char text[static PREDICT_TABLE_SIZE], const struct job *job, const struct mesh *mesh,
                  const struct device_traits *device, struct error *err);

#endif
