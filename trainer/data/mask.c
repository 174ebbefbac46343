#include "trainer/data/mask.h"

#include <string.h>

int mask_count(double probability, int tokens)
{
    int count = (int)(probability * tokens + 0.5);

    return count < 1 ? 1 : count;
}

static int draw_length(struct draws *draws)
{
    uint32_t ticket = draws_below(draws, 11);

    return ticket < 6 ? 1 : ticket < 9 ? 2 : 3;
}

/* Tokens in a row from `first` that are free, up to `most`. */
static int room_at(const bool *chosen, int first, int end, int most)
{
    int room = 0;

    while (room < most && first + room < end && !chosen[first + room])
        room++;
    return room;
}

int mask_choose(struct draws *draws, int a, int b, int count, int *order, bool *chosen, struct mask_span *spans)
{
    int tokens = a + b, nspans = 0;

    memset(chosen, 0, (size_t)tokens * sizeof *chosen);
    for (int i = 0; i < tokens; i++)
        order[i] = i;
    for (int i = 0; i < tokens && count > 0; i++) { /* a shuffle (Fisher and Yates), only as far as it is needed */
        int other = i + (int)draws_below(draws, (uint32_t)(tokens - i));
        int first = order[other], length, room;

        order[other] = order[i];
        if (chosen[first])
            continue;
        length = draw_length(draws);
        room = room_at(chosen, first, first < a ? a : tokens, length < count ? length : count);
        memset(chosen + first, 1, (size_t)room * sizeof *chosen);
        spans[nspans++] = (struct mask_span){first, room};
        count -= room;
    }
    return nspans;
}
