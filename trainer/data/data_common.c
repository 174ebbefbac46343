/* data_common.c - what the commands of muster-data share: signals, progress, lists of texts. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/text.h"
#include "trainer/data/data_tool.h"

volatile sig_atomic_t data_stop;

static void note_signal(int number)
{
    data_stop = number;
}

/* Ctrl-C must not leave temporary files: the command ends and cleans up, then the signal is raised again. */
void data_catch_signals(void)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESETHAND};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* then a write beyond "ulimit -f" fails like one to a full disk */
}

int data_fail(const struct error *err)
{
    int code = error_report(err);

    if (err->code == CODE_STOPPED && data_stop)
        raise(data_stop);
    return code;
}

const char *data_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

bool data_is_nameless(const char *prefix)
{
    return !*prefix || prefix[strlen(prefix) - 1] == '/';
}

int data_processors(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

/* ---- progress ---------------------------------------------------------------------------------------------------- */

#define BAR_WIDTH 20

static void show_progress(uint64_t done, uint64_t total)
{
    static double begun, shown;
    static uint64_t before;
    double now = clock_monotonic(), rate;
    int filled = total ? (int)((double)done / (double)total * BAR_WIDTH) : 0;

    if (begun == 0) {
        begun = now;
        before = done;
    }
    if (now - shown < 0.2)
        return;
    shown = now;
    rate = now > begun ? (double)(done - before) / (now - begun) : 0;
    fprintf(stderr, "\rmuster-data: ");
    if (total)
        fprintf(stderr, "[%.*s%*s] %.1f of %.1f MB", filled < BAR_WIDTH ? filled : BAR_WIDTH,
                "====================", filled < BAR_WIDTH ? BAR_WIDTH - filled : 0, "", (double)done * 1e-6,
                (double)total * 1e-6);
    else
        fprintf(stderr, "%.1f MB", (double)done * 1e-6);
    if (rate > 0)
        fprintf(stderr, ", %.1f MB/s", rate * 1e-6);
    if (total > done && rate > 0) {
        double left = (double)(total - done) / rate;

        fprintf(stderr, ", %d:%02d:%02d left", (int)(left / 3600), (int)(left / 60) % 60, (int)left % 60);
    }
    fprintf(stderr, "\033[K");
    fflush(stderr);
}

data_progress_function *data_progress(void)
{
    return isatty(STDERR_FILENO) ? show_progress : NULL;
}

void data_end_progress(void)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

void data_notice(const char *line)
{
    data_end_progress();
    fprintf(stderr, "muster-data: %s\n", line);
}

/* ---- lists of texts ---------------------------------------------------------------------------------------------- */

static int add_name(char ***names, size_t *count, const char *name, struct error *err)
{
    if (*count < INT_MAX && text_add_line(names, count, "%s", name))
        return 0;
    return error_errno(err, CODE_IO, "no memory for the names of %zu texts", *count + 1);
}

static int read_list(char ***names, size_t *count, const char *list, struct error *err)
{
    FILE *file = strcmp(list, "-") == 0 ? stdin : fopen(list, "re");
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    int result = 0;

    if (!file)
        return error_errno(err, CODE_DATA, "cannot read %s", list);
    while (result == 0 && (length = getline(&line, &size, file)) > 0) {
        bool zero = memchr(line, '\0', (size_t)length);

        line[strcspn(line, "\n")] = '\0';
        if (text_ends_with(line, "\r")) /* of a list that was written on Windows */
            line[strlen(line) - 1] = '\0';
        if (zero)
            result =
                error_set(err, CODE_DATA, "%s: a zero byte; names must be one a line (of find, without -print0)", list);
        else if (*line)
            result = add_name(names, count, line, err);
    }
    if (result == 0 && ferror(file))
        result = error_errno(err, CODE_IO, "cannot read %s", list);
    free(line);
    if (file != stdin)
        fclose(file);
    return result;
}

int data_read_names(char *const *given, int count, const char *list, char ***names, size_t *total, struct error *err)
{
    *names = NULL;
    *total = 0;
    for (int i = 0; i < count; i++)
        if (add_name(names, total, given[i], err) < 0)
            return -1;
    if (list && read_list(names, total, list, err) < 0)
        return -1;
    return *total > 0 ? 0 : error_set(err, CODE_USAGE, "%s names no text", list);
}
