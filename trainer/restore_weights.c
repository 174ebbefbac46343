/* restore_weights.c - the weights alone, to start a run from or to evaluate; see engine.h. */
#include <stdio.h>
#include <stdlib.h>

#include "trainer/restore_impl.h"

struct key_difference {
    char path[64], theirs[64], ours[64]; /* of the first */
};

static void note_difference(const char *path, const char *theirs, const char *ours, void *arg)
{
    struct key_difference *first = arg;

    if (first->path[0])
        return;
    snprintf(first->path, sizeof first->path, "%s", path);
    snprintf(first->theirs, sizeof first->theirs, "%s", theirs);
    snprintf(first->ours, sizeof first->ours, "%s", ours);
}

/* A run that goes on may have another rope_theta, say; here all keys are compared. */
static int compare_models(const struct engine *e, const char *path, struct model_shape theirs, struct error *err)
{
    const struct model_shape *ours = &e->job->model;
    struct key_difference first = {.path = ""};

    theirs.max_positions = ours->max_positions;
    if (ours->positions != POSITIONS_LEARNED)
        theirs.seq_length = ours->seq_length;
    if (ours->vocab > theirs.vocab)
        return error_set(err, CODE_CONFIG, "%s has model.vocab = %d, the job file %d: a vocabulary cannot grow", path,
                         theirs.vocab, ours->vocab);
    job_each_model_difference(&theirs, ours, note_difference, &first);
    if (first.path[0])
        return error_set(err, CODE_CONFIG, "%s is of another model: it has %s = %s, the job file %s", path, first.path,
                         first.theirs, first.ours);
    return 0;
}

int restore_check_weights(const struct engine *e, const struct ckpt *ckpt, struct error *err)
{
    struct job theirs;
    int result;

    if (units_read_job(ckpt, &theirs, err) < 0)
        return -1;
    result = compare_models(e, ckpt_path(ckpt), theirs.model, err);
    job_destroy(&theirs);
    return result;
}

/* Every rank reads its own pieces of the files. */
static int read_folder(struct engine *e, struct hf_model *model, struct error *err)
{
    struct ckpt_piece *pieces;
    void **addresses;
    size_t npieces;
    int result = -1;

    if (comm_agree(e->world, zero_pieces(e->zero, ZERO_LOAD, &pieces, &addresses, &npieces, err), err) == 0) {
        zero_clear(e->zero);
        device_wait(e->dev);
        result = 0;
        for (size_t p = 0; p < npieces && result == 0; p++)
            result = hf_model_read(model, &pieces[p], 1, addresses[p * ZERO_KINDS], err);
        result = comm_agree(e->world, result, err);
    }
    free(pieces);
    free(addresses);
    return result;
}

int restore_folder(struct engine *e, const char *path, struct error *err)
{
    struct hf_model *model = hf_model_open(path, 0, err);
    int result = model ? compare_models(e, path, *hf_model_shape(model), err) : -1;

    result = comm_agree(e->world, result, err);
    if (result == 0 && e->zero)
        result = read_folder(e, model, err);
    hf_model_close(model);
    if (result < 0 || !e->zero)
        return result < 0 ? -1 : 1;
    e->loss_scale = loss_scale_init(e->job);
    return zero_finish_load(e->zero, err) < 0 ? -1 : 1;
}
