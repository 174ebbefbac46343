#include "trainer/report/marks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/report/segments.h"

#define ARROW "\u2192"

enum { BRIEF_ABOVE = 3 }; /* more changes than this, and their labels are short */

/* What happened between two segments, as far as the metrics tell. */
static void describe(struct mark *mark, const struct segment *before, const struct segment *after, bool brief)
{
    const char *why = after->world < before->world ? "preempted: " : "grown: ";
    char where[32];

    mark->step = before->last_step;
    snprintf(where, sizeof where, " at step %ld", mark->step);
    if (after->world != before->world)
        snprintf(mark->label, sizeof mark->label, "%s%d " ARROW " %d ranks%s", brief ? "" : why, before->world,
                 after->world, brief ? "" : where);
    else
        snprintf(mark->label, sizeof mark->label, "dp %d tp %d pp %d " ARROW " dp %d tp %d pp %d%s", before->dp,
                 before->tp, before->pp, after->dp, after->tp, after->pp, brief ? "" : where);
}

static int by_step(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;

    return (x->step > y->step) - (x->step < y->step);
}

static struct mark *at_step(struct mark *marks, size_t nmarks, long step)
{
    for (size_t i = 0; i < nmarks; i++)
        if (marks[i].step == step)
            return &marks[i];
    return NULL;
}

int marks_make(const struct plot *plot, struct mark **marks, size_t *nmarks, struct error *err)
{
    struct segment *segments;
    size_t nsegments;

    *marks = NULL;
    *nmarks = 0;
    if (segments_make(plot->steps, plot->nsteps, &segments, &nsegments, err) < 0)
        return -1;
    if (nsegments + plot->nmarks < 2 && !plot->nmarks) {
        free(segments);
        return 0;
    }
    *marks = calloc(nsegments + plot->nmarks, sizeof **marks);
    if (!*marks) {
        free(segments);
        return error_errno(err, CODE_IO, "no memory for %zu marks", nsegments + plot->nmarks);
    }
    for (size_t i = 1; i < nsegments; i++)
        describe(&(*marks)[(*nmarks)++], &segments[i - 1], &segments[i], nsegments - 1 > BRIEF_ABOVE);
    free(segments);
    for (size_t i = 0; i < plot->nmarks; i++) {
        struct mark *mark = at_step(*marks, *nmarks, plot->marks[i].step);

        if (!mark)
            mark = &(*marks)[(*nmarks)++];
        mark->step = plot->marks[i].step;
        snprintf(mark->label, sizeof mark->label, "%s", plot->marks[i].label);
    }
    qsort(*marks, *nmarks, sizeof **marks, by_step);
    return 0;
}

/* The label goes right of its line, else left of it, else nowhere. */
static bool choose_side(struct mark *mark, double left, double right)
{
    const double space = 6.0, width = svg_text_width(mark->label, MARKS_FONT);

    mark->anchor = mark->x + space + width <= right ? SVG_START : SVG_END;
    mark->from = mark->anchor == SVG_START ? mark->x + space : mark->x - space - width;
    mark->to = mark->from + width;
    return mark->from >= left && mark->to <= right;
}

/* A mark's line rises from the plot through all rows up to its label's, and would strike through a label there. */
static bool strikes(const struct mark *line, const struct mark *label)
{
    return label->row <= line->row && line->x > label->from - 4.0 && line->x < label->to + 4.0;
}

static bool overlap(const struct mark *a, const struct mark *b)
{
    return a->row == b->row && a->from < b->to + 10.0 && b->from < a->to + 10.0;
}

/* Is there room for the mark's label in its row beside these? If not `strict`, lines may pass behind labels. */
static bool fits(const struct mark *mark, const struct mark *others, size_t count, bool strict)
{
    for (size_t i = 0; i < count; i++) {
        if (others[i].row < 0)
            continue;
        if (overlap(mark, &others[i]) || (strict && (strikes(mark, &others[i]) || strikes(&others[i], mark))))
            return false;
    }
    return true;
}

static void place(struct mark *mark, const struct mark *others, size_t count)
{
    for (int strict = 1; strict >= 0; strict--)
        for (mark->row = 0; mark->row < MARKS_ROWS; mark->row++)
            if (fits(mark, others, count, strict))
                return;
    mark->row = -1;
}

int marks_place(struct mark *marks, size_t nmarks, double left, double right)
{
    int used = 0;

    /* From the right: then an earlier mark's label passes above the lines of the later ones, like stairs. */
    for (size_t i = nmarks; i-- > 0;) {
        marks[i].row = -1;
        if (choose_side(&marks[i], left, right))
            place(&marks[i], &marks[i + 1], nmarks - 1 - i);
        used = marks[i].row + 1 > used ? marks[i].row + 1 : used;
    }
    for (size_t i = 0; i < nmarks; i++)
        for (size_t k = 0; k < nmarks; k++)
            marks[i].struck |= k != i && marks[i].row >= 0 && strikes(&marks[k], &marks[i]);
    return used;
}
