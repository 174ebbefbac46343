#include "trainer/report/segments.h"

#include <math.h>
#include <stdlib.h>

bool segments_same_mesh(const struct metrics_step *a, const struct metrics_step *b)
{
    return a->world == b->world && a->dp == b->dp && a->tp == b->tp && a->pp == b->pp;
}

static struct segment start(const struct metrics_step *s)
{
    return (struct segment){
        .first_step = s->step, .world = s->world, .dp = s->dp, .tp = s->tp, .pp = s->pp, .mfu = NAN};
}

/* One segment from steps[0] on; returns how many steps it has. */
static size_t cut(struct segment *segment, const struct metrics_step *steps, size_t count)
{
    double mfu = 0.0, mfu_seconds = 0.0;
    size_t i;

    *segment = start(&steps[0]);
    for (i = 0; i < count && segments_same_mesh(&steps[0], &steps[i]); i++) {
        const struct metrics_step *s = &steps[i];

        segment->last_step = s->step;
        if (isfinite(s->step_seconds) && isfinite(s->tokens_per_second)) {
            segment->seconds += s->step_seconds;
            segment->tokens += s->step_seconds * s->tokens_per_second;
        }
        if (isfinite(s->mfu) && isfinite(s->step_seconds)) {
            mfu += s->mfu * s->step_seconds;
            mfu_seconds += s->step_seconds;
        }
    }
    segment->steps = i;
    if (mfu_seconds > 0.0)
        segment->mfu = mfu / mfu_seconds;
    return i;
}

int segments_make(const struct metrics_step *steps, size_t count, struct segment **segments, size_t *nsegments,
                  struct error *err)
{
    size_t changes = 0;

    *segments = NULL;
    *nsegments = 0;
    if (!count)
        return 0;
    for (size_t i = 1; i < count; i++)
        changes += !segments_same_mesh(&steps[i - 1], &steps[i]);
    *segments = calloc(changes + 1, sizeof **segments);
    if (!*segments)
        return error_errno(err, CODE_IO, "no memory for %zu segments of a run", changes + 1);
    for (size_t i = 0; i < count; (*nsegments)++)
        i += cut(&(*segments)[*nsegments], steps + i, count - i);
    return 0;
}
