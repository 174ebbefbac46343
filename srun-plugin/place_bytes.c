#include "srun-plugin/place_bytes.h"

static uint64_t limit(double bytes)
{
    return bytes < (double)PLACE_BYTES ? (uint64_t)bytes : PLACE_BYTES;
}

void place_bytes(const struct job *job, const struct mesh *mesh, uint64_t bytes[PLACE_AXES])
{
    const struct model_shape *model = &job->model;
    double size = (double)dtype_size(job->precision.compute), reduce = (double)dtype_size(job->precision.reduce);
    double parameters = (double)model_parameters(model) / mesh->tp / mesh->pp;
    double samples = (double)job->batch.global_batch / mesh->dp; /* of all micro-batches of a rank */
    double activations = samples * model->seq_length * model->hidden * size;
    double layers = (double)model->layers / mesh->pp, passes = job->parallel.recompute == RECOMPUTE_FULL ? 3 : 2;
    double gathers = job->parallel.zero == 3 ? 2 : 1;

    bytes[PLACE_DP] = limit((mesh->dp - 1.0) / mesh->dp * parameters * (reduce + gathers * size));
    bytes[PLACE_PP] = mesh->pp > 1 ? limit(2 * activations * job->parallel.chunks / mesh->tp) : 0;
    bytes[PLACE_TP] = limit(passes * 2 * layers * 2 * (mesh->tp - 1.0) / mesh->tp * activations);
}
