/* zero_pieces.c - the state as a checkpoint sees it. */
#include <stdlib.h>

#include "trainer/parallel/zero_impl.h"

int zero_pieces(struct zero *zero, bool saving, struct ckpt_piece **pieces, void ***addresses, size_t *npieces,
                struct error *err)
{
    size_t most = (size_t)zero->units->nunits * UNIT_MAX_TENSORS, n = 0;
    size_t offsets[UNIT_MAX_TENSORS];

    if (zero->config.discrete && !zero->config.offload && !zero->config.mirror)
        return error_set(err, CODE_INTERNAL, "zero: no host memory was set aside for checkpoints");
    if (saving && zero->config.discrete && !zero->config.offload)
        zero_show(zero);
    *pieces = calloc(most, sizeof **pieces);
    *addresses = calloc(most * ZERO_KINDS, sizeof **addresses);
    if (!*pieces || !*addresses) {
        free(*pieces);
        free(*addresses);
        return error_set(err, CODE_IO, "out of memory for the list of %zu tensors", most);
    }
    for (int i = 0; i < zero->units->nunits; i++) {
        struct zero_unit *u = &zero->state[i];
        size_t first = saving ? u->size.shard_first : u->size.state_first;
        size_t count = saving ? u->size.shard_count : u->size.state_count;
        size_t got = units_pieces(zero->units, i, first, count, saving, *pieces + n, offsets);

        for (size_t j = 0; j < got; j++, n++) {
            size_t at = offsets[j] - u->size.state_first;
            void **address = *addresses + n * ZERO_KINDS;

            address[0] = (u->size.mirror ? u->mirror[0] : u->master) + at;
            address[1] = (u->size.mirror ? u->mirror[1] : u->exp_avg) + at;
            address[2] = (u->size.mirror ? u->mirror[2] : u->exp_avg_sq) + at;
        }
    }
    *npieces = n;
    return 0;
}

int zero_loaded(struct zero *zero, struct error *err)
{
    if (zero->config.discrete && !zero->config.offload)
        zero_take_mirror(zero);
    return zero_publish(zero, err);
}

float *zero_master(struct zero *zero, int unit)
{
    struct zero_unit *u = &zero->state[unit];

    return u->size.mirror ? u->mirror[0] : u->master;
}
