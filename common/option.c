#include "config.h"

#include "common/option.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/error.h"
#include "common/text.h"

enum { ROWS_MOST = 32, FIRST_ROW = 256 /* what getopt returns for row 0 */ };

/* The argument that getopt has just refused. It moves to the next argument only after the last letter of "-xyz". */
static const char *refused_argument(char **argv)
{
    const char *next = argv[optind];

    return next && next[0] == '-' && next[1] == (char)optopt && next[1] && next[2] ? next : argv[optind - 1];
}

int option_fail(const char *format, ...)
{
    char what[512];
    struct error err;
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    error_set(&err, CODE_USAGE, "%s; %s --help lists the options", what, program_invocation_short_name);
    return error_report(&err);
}

static int take_standard(int option, char **argv, const char *usage)
{
    switch (option) {
    case 'V':
        printf("%s %s\n", program_invocation_short_name, VERSION);
        return CODE_OK;
    case 'h':
        fputs(usage, stdout);
        return CODE_OK;
    case ':':
        return option_fail("a value is missing after %s", refused_argument(argv));
    default:
        return option_fail("unknown option %s", refused_argument(argv));
    }
}

/* "--batch needs a whole number from 1 to 16, not 17" */
static int refuse_number(const struct option_row *row, const char *text)
{
    const char *kind = row->kind == OPTION_WHOLE ? "whole number" : "number";

    if (row->most == 0)
        return option_fail("--%s needs a %s of at least %.10g, not %s", row->name, kind, row->least, text);
    return option_fail("--%s needs a %s from %.10g to %.10g, not %s", row->name, kind, row->least, row->most, text);
}

static int take_value(const struct option_row *row, const char *text)
{
    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)row->to = true;
        return -1;
    case OPTION_TEXT:
        *(const char **)row->to = text;
        return -1;
    case OPTION_WHOLE:
        return text_to_long(text, (long)row->least, row->most == 0 ? LONG_MAX : (long)row->most, row->to)
                   ? -1
                   : refuse_number(row, text);
    case OPTION_REAL:
        return text_to_double(text, row->least, row->most == 0 ? HUGE_VAL : row->most, row->to)
                   ? -1
                   : refuse_number(row, text);
    case OPTION_TIME:
        return text_to_seconds(text, row->to)
                   ? -1
                   : option_fail("--%s must be like 30m, 24h or 7d, not %s", row->name, text);
    case OPTION_TAKE:
        return row->take(text, row->to);
    }
    return CODE_INTERNAL;
}

/* The row of what getopt returned, an index or a letter; NULL for none. */
static const struct option_row *find_row(const struct option_row *rows, int option)
{
    for (int i = 0; rows[i].name; i++)
        if (option == FIRST_ROW + i || (option && option == rows[i].letter))
            return &rows[i];
    return NULL;
}

static void print_notice(const char *line)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, line);
}

int options_read(const struct option_row *rows, int argc, char **argv, const char *usage)
{
    struct option known[ROWS_MOST + 3] = {{0}};
    char letters[2 * ROWS_MOST + 4] = ":hV", *letter = letters + 3;
    int option, code = -1, count = 0;

    for (; rows[count].name && count < ROWS_MOST; count++) {
        int argument = rows[count].kind == OPTION_FLAG ? no_argument : required_argument;

        known[count] = (struct option){rows[count].name, argument, NULL, FIRST_ROW + count};
        if (rows[count].letter) {
            *letter++ = rows[count].letter;
            if (argument)
                *letter++ = ':';
        }
    }
    known[count] = (struct option){"help", no_argument, NULL, 'h'};
    known[count + 1] = (struct option){"version", no_argument, NULL, 'V'};
    text_notice = print_notice;
    opterr = 0;
    while (code < 0 && (option = getopt_long(argc, argv, letters, known, NULL)) != -1) {
        const struct option_row *row = find_row(rows, option);

        code = row ? take_value(row, optarg) : take_standard(option, argv, usage);
    }
    return code;
}

/* ---- progress ---- */

#define BAR_WIDTH 40

struct bar bar_begin(bool quiet)
{
    return (struct bar){.off = quiet || !isatty(STDERR_FILENO), .begun = clock_monotonic()};
}

void bar_draw(uint64_t done, uint64_t total, void *arg)
{
    static const char full[] = "########################################";
    struct bar *bar = arg;
    double now = clock_monotonic(), rate = (double)done / (now - bar->begun + 1e-9);
    char text[TEXT_BYTES_SIZE];

    if (bar->off || now - bar->last < 0.2)
        return;
    bar->last = now;
    bar->drawn = true;
    fputc('\r', stderr);
    if (total)
        fprintf(stderr, "[%-*.*s] %5.1f%%  ", BAR_WIDTH, (int)((double)done / (double)total * BAR_WIDTH), full,
                100 * (double)done / (double)total);
    fputs(text_bytes(text, done), stderr);
    if (total)
        fprintf(stderr, " of %s", text_bytes(text, total));
    fprintf(stderr, ", %s/s", text_bytes(text, (uint64_t)rate));
    if (total > done && rate > 0) {
        int left = (int)((double)(total - done) / rate);

        fprintf(stderr, ", %d:%02d:%02d left", left / 3600, left / 60 % 60, left % 60);
    }
    fputs("\033[K", stderr);
}

double bar_erase(struct bar *bar)
{
    if (bar->drawn)
        fputs("\r\033[K", stderr);
    bar->drawn = false;
    return clock_monotonic() - bar->begun;
}
