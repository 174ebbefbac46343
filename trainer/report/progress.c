#include "trainer/report/progress.h"

#include <langinfo.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The fields, in the order of the line. */
enum field { STEP, BAR, LOSS, RATE, RANKS, MFU, ETA, FIELDS };

/* The order in which fields are left out; the step never is. */
static const enum field DROPPED_FIRST[] = {MFU, RANKS, RATE, BAR, ETA, LOSS};

enum { GAP = 2, BAR_LEAST = 8, BAR_MOST = 48 };

struct progress_fields {
    char text[FIELDS][64]; /* "" is not shown. The bar's is "=": it is drawn at the end, when its width is known */
    int bar;               /* columns */
};

static void fill_fields(struct progress_fields *line, const struct metrics_step *s, long steps, double eta, bool bar)
{
    char number[UNITS_SIZE];
    int width = steps > 0 ? snprintf(NULL, 0, "%ld", steps) : 0;

    memset(line, 0, sizeof *line);
    if (steps > 0)
        snprintf(line->text[STEP], sizeof line->text[STEP], "%*ld/%ld", width, s->step, steps);
    else
        snprintf(line->text[STEP], sizeof line->text[STEP], "step %ld", s->step);
    snprintf(line->text[LOSS], sizeof line->text[LOSS], fabs(s->loss) < 1e4 ? "loss %.4f" : "loss %.3e", s->loss);
    if (!isnan(s->tokens_per_second))
        snprintf(line->text[RATE], sizeof line->text[RATE], "%5s tok/s", units_count(number, s->tokens_per_second));
    if (s->world > 0)
        snprintf(line->text[RANKS], sizeof line->text[RANKS], "%d rank%s", s->world, s->world == 1 ? "" : "s");
    if (!isnan(s->mfu))
        snprintf(line->text[MFU], sizeof line->text[MFU], "MFU %.1f%%", 100.0 * s->mfu);
    if (steps > 0 && !isnan(eta))
        snprintf(line->text[ETA], sizeof line->text[ETA], "ETA %s", units_duration(number, eta));
    strcpy(line->text[BAR], steps > 0 && bar ? "=" : "");
    line->bar = BAR_LEAST;
}

/* All text is ASCII: a byte is a column. */
static int text_width(const struct progress_fields *line)
{
    int columns = -GAP;

    for (int i = 0; i < FIELDS; i++)
        if (line->text[i][0])
            columns += GAP + (i == BAR ? line->bar : (int)strlen(line->text[i]));
    return columns;
}

static void fit_parts(struct progress_fields *line, int columns)
{
    for (size_t i = 0; i < sizeof DROPPED_FIRST / sizeof DROPPED_FIRST[0] && text_width(line) > columns; i++)
        line->text[DROPPED_FIRST[i]][0] = '\0';
    if (line->text[BAR][0]) {
        line->bar += columns - text_width(line);
        if (line->bar > BAR_MOST)
            line->bar = BAR_MOST;
    }
    if (columns < (int)strlen(line->text[STEP]))
        line->text[STEP][columns > 0 ? columns : 0] = '\0';
}

static void append_text(char line[PROGRESS_SIZE], const char *text)
{
    strncat(line, text, PROGRESS_SIZE - strlen(line) - 1);
}

static void append_bar(char line[PROGRESS_SIZE], int columns, const struct terminal *terminal, long step, long steps)
{
    const char *full = terminal->utf8 ? "\u2501" : "=", *rest = terminal->utf8 ? "\u2500" : ".";
    double part = step >= steps ? 1.0 : step > 0 ? (double)step / (double)steps : 0.0;
    int filled = (int)(part * columns);

    if (terminal->colour)
        append_text(line, "\033[32m");
    for (int i = 0; i < columns; i++) {
        if (i == filled && terminal->colour)
            append_text(line, "\033[0;2m");
        append_text(line, i < filled ? full : rest);
    }
    if (terminal->colour)
        append_text(line, "\033[0m");
}

void progress_line(char line[PROGRESS_SIZE], int columns, const struct terminal *terminal,
                   const struct metrics_step *step, long steps, double eta)
{
    struct progress_fields fields;

    line[0] = '\0';
    fill_fields(&fields, step, steps, eta, terminal->live);
    fit_parts(&fields, columns);
    for (int i = 0; i < FIELDS; i++) {
        if (!fields.text[i][0])
            continue;
        if (line[0])
            append_text(line, "  ");
        if (i == BAR)
            append_bar(line, fields.bar, terminal, step->step, steps);
        else
            append_text(line, fields.text[i]);
    }
}

struct terminal terminal_inspect(int fd)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    struct terminal terminal = {.columns = 80};
    struct winsize size;

    terminal.live = isatty(fd) && term && strcmp(term, "dumb") != 0;
    terminal.colour = terminal.live && (!no_colour || !*no_colour);
    terminal.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        terminal.columns = size.ws_col;
    return terminal;
}

void progress_show(FILE *out, const struct metrics_step *step, long steps, double eta)
{
    struct terminal terminal = terminal_inspect(fileno(out)); /* each time: windows are resized */
    char line[PROGRESS_SIZE] = "";

    if (!terminal.live)
        return;
    if (step) /* one column is left free: some terminals wrap after a full line, and then \r misses it */
        progress_line(line, terminal.columns - 1, &terminal, step, steps, eta);
    fprintf(out, "\r\033[K%s", line);
    fflush(out);
}

double unsigned_nan(double x)
{
    return isnan(x) ? fabs(x) : x;
}

void log_line_format(char text[LOG_LINE_SIZE], const struct log_line *line)
{
    const struct metrics_step *m = &line->mean;
    char order[40] = "", mfu[40] = "", hfu[40] = "";

    if (line->bert)
        snprintf(order, sizeof order, " sop loss: %.6E |", unsigned_nan(m->order_loss));
    if (!isnan(m->mfu))
        snprintf(mfu, sizeof mfu, " MFU: %.2f%% |", 100.0 * m->mfu);
    if (!isnan(m->hfu))
        snprintf(hfu, sizeof hfu, " HFU: %.2f%% |", 100.0 * m->hfu);
    snprintf(text, LOG_LINE_SIZE,
             " iteration %8ld/%8ld | consumed samples: %12ld | consumed tokens: %12ld |"
             " elapsed time per iteration (s): %.2f | learning rate: %.3E | global batch size: %5d |"
             " lm loss: %.6E |%s loss scale: %.1f | grad norm: %.3f | num zeros: 0.0 |"
             " number of skipped iterations: %3d | number of nan iterations: %3d |"
             " samples per second: %.3f | TFLOPs: %.2f |%s%s",
             m->step, line->steps, m->consumed_samples, line->consumed_tokens, m->step_seconds, m->lr,
             line->global_batch, unsigned_nan(m->loss), order, m->loss_scale, unsigned_nan(m->grad_norm), line->skipped,
             line->nans, line->global_batch / m->step_seconds, m->tflops, mfu, hfu);
}

const char *units_count(char buf[UNITS_SIZE], double value)
{
    static const char *const suffix[] = {"", "k", "M", "G", "T", "P"};
    const size_t last = sizeof suffix / sizeof suffix[0] - 1;
    size_t i = 0;

    while (fabs(value) >= 999.5 && i < last) { /* 999.5 would print as 1000 */
        value /= 1000.0;
        i++;
    }
    if (!isfinite(value))
        snprintf(buf, UNITS_SIZE, "-");
    else if (fabs(value) >= 1e6) /* beyond the last suffix */
        snprintf(buf, UNITS_SIZE, "%.2e%s", value, suffix[i]);
    else if (i == 0 && value == floor(value))
        snprintf(buf, UNITS_SIZE, "%.0f", value);
    else
        snprintf(buf, UNITS_SIZE, "%.*f%s", fabs(value) < 9.995 ? 2 : fabs(value) < 99.95 ? 1 : 0, value, suffix[i]);
    return buf;
}

const char *units_duration(char buf[UNITS_SIZE], double seconds)
{
    long s = seconds >= 0.0 && seconds < 1e12 ? lround(seconds) : -1;

    if (s < 0)
        snprintf(buf, UNITS_SIZE, "-");
    else if (s < 3600)
        snprintf(buf, UNITS_SIZE, "%ld:%02ld", s / 60, s % 60);
    else if (s < 86400)
        snprintf(buf, UNITS_SIZE, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, UNITS_SIZE, "%ldd%02ld:%02ld", s / 86400, s / 3600 % 24, s / 60 % 60);
    return buf;
}

const char *units_grouped(char buf[UNITS_SIZE], long value)
{
    char digits[UNITS_SIZE];
    size_t count = (size_t)snprintf(digits, sizeof digits, "%ld", value), used = 0;

    for (size_t i = 0; i < count; i++) {
        size_t left = count - i;

        if (i > 0 && left % 3 == 0 && digits[i - 1] != '-')
            buf[used++] = ',';
        buf[used++] = digits[i];
    }
    buf[used] = '\0';
    return buf;
}
