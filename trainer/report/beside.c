/* beside.c - what is written beside the metrics: TensorBoard's event files, and the file for Prometheus. */
#include <stdio.h>
#include <unistd.h>

#include "common/clock.h"
#include "trainer/report/metrics_writer.h"
#include "trainer/report/prometheus.h"

/* Says a first failure, and that it is over. */
static void note_result(struct metrics_file *f, double *failed, const char *what, int result, const struct error *err)
{
    if (result == 0 && *failed > 0)
        writer_tell(f, ' ', "%s can be written again", what);
    if (result < 0 && *failed == 0)
        writer_tell(f, ' ', "%s cannot be written, which is tried again; training goes on: %s", what, err->text);
    *failed = result == 0 ? 0 : clock_monotonic();
}

/* ---- TensorBoard ------------------------------------------------------------------------------------------------- */

/* Steps are written again from the last validation on: only a validation at an earlier step makes TensorBoard's fast
 * loader, which does not look at marks of a start, forget one that was cut off. */
static void open_board(struct metrics_file *f)
{
    const char *dir = f->run->tensorboard;

    if (!dir)
        return;
    f->board = (struct tensorboard){.last = f->run->after < 0 ? 0 : f->run->after, .offset = f->length, .fd = -1};
    if (f->valid_step > 0) {
        f->board.last = f->valid_step - 1;
        f->board.validated = true;
        f->board.offset = f->valid_at;
    }
    if (f->is_file)
        snprintf(f->board.dir, sizeof f->board.dir, "%s%s", dir, f->suffix);
    else
        writer_tell(f, ' ', "there are no event files for TensorBoard: the metrics %s are no regular file", f->path);
}

/* The lines stay in the metrics, so that the next call that does not fail writes all of them. */
static void follow_metrics(struct metrics_file *f)
{
    struct error err;

    note_result(f, &f->board_failed, "TensorBoard's events", tensorboard_follow(&f->board, f->path, &err), &err);
}

/* ---- Prometheus -------------------------------------------------------------------------------------------------- */

/* The starts are read once: this one is among them, since its event came first. */
void beside_prometheus(struct metrics_file *f, const char *text)
{
    struct error err;

    if (f->is_file && f->starts.nstarts == 0)
        metrics_read_starts(f->path, &f->starts, &err);
    note_result(f, &f->prometheus_failed, "the file for Prometheus",
                prometheus_write(f->prometheus, text, f->run->id, &f->starts, &err), &err);
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

void beside_open(struct metrics_file *f)
{
    open_board(f);
    if (f->run->prometheus)
        snprintf(f->prometheus, sizeof f->prometheus, "%s/muster-%u-%s.prom", f->run->prometheus, (unsigned)geteuid(),
                 f->run->id);
    beside_follow(f);
}

void beside_follow(struct metrics_file *f)
{
    if (f->board.dir[0] && (f->board_failed == 0 || clock_monotonic() - f->board_failed >= RETRY_SECONDS))
        follow_metrics(f);
}

void beside_close(struct metrics_file *f)
{
    if (f->board.dir[0])
        follow_metrics(f);
    prometheus_remove(f->prometheus);
    metrics_free(&f->starts);
}
