#include "trainer/watch/watchdog.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "trainer/watch/recorder.h"

/* Seconds. */
#define POLL_INTERVAL   0.1
#define PUBLISH_TIMEOUT 3.0 /* for other nodes to publish */
#define JUDGE_TIMEOUT   3.0 /* for the publisher whose turn it is to judge; then others try */

enum { LINES_ON_STDERR = 32 };

/* A publisher's work. */
struct search {
    int64_t began;
    int dead;   /* ranks that were dead when it published; -1 before */
    int judged; /* files of records when it judged last; 0: not since it published */
};

/* This node's ranks, and what it knows of others. */
static struct hang_rank *take_snapshot(const struct watchdog_config *config, struct error *err)
{
    struct hang_rank *ranks = local_ranks_snapshot(config->local_ranks, err);

    if (ranks)
        links_poll(config->links, ranks);
    return ranks;
}

/* Publishes again when another rank has died: the first alarm may come while a process is ending. */
static int publish_records(const struct watchdog_config *config, struct search *search, struct error *err)
{
    struct hang_rank *ranks = take_snapshot(config, err);
    int dead = 0, result = ranks ? 0 : -1;

    for (int rank = 0; ranks && rank < config->world; rank++)
        dead += ranks[rank].state == HANG_DEAD;
    if (ranks && dead != search->dead) {
        result = hang_records_publish(config->output.directory, config->rank, ranks, config->world, err);
        search->judged = 0;
        search->dead = dead;
    }
    free(ranks);
    return result;
}

/* The report as malloc'ed text, with at most `lines` ranks; 0: all. */
static char *compose_report(const struct watchdog_config *config, const struct hang_verdict *verdict,
                            const struct hang_rank *ranks, int lines)
{
    char title[512], date[64];
    time_t now = time(NULL);
    struct tm tm;

    strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S %Z", localtime_r(&now, &tm));
    snprintf(title, sizeof title, "%s, %s, report.hang_seconds = %g", config->output.title, date, config->hang_seconds);
    return hang_compose(title, verdict, ranks, config->world, lines);
}

/* Prints the report in one write, so that other ranks' lines do not interleave. Its last line is the cause, which the
 * main thread of rank 0 prints if that is the judge. */
static void print_to_stderr(const struct watchdog_config *config, const struct hang_verdict *verdict,
                            const struct hang_rank *ranks, const struct record_cause *cause, bool to_directory)
{
    char *body = compose_report(config, verdict, ranks, LINES_ON_STDERR), *text;
    const char *last = config->rank == 0 ? "" : cause->text, *name = program_invocation_short_name;
    int length = body ? asprintf(&text, "---- this run hangs; %s%s%s ----\n%s----\n%s%s%s%s",
                                 to_directory ? "the whole report is " : "the state of other nodes is unknown: ",
                                 config->output.directory, to_directory ? "/hang-report.txt" : " cannot be used", body,
                                 *last ? name : "", *last ? ": " : "", last, *last ? "\n" : "")
                      : -1;

    if (length >= 0) {
        (void)!write(STDERR_FILENO, text, (size_t)length); /* nothing can be done about a failure */
        free(text);
    }
    free(body);
}

/* True if all is known that the verdict needs: it names a rank that is lost, and no rank may be missing in `ranks`. */
static bool is_clear(const struct hang_verdict *verdict, const struct hang_rank *ranks, int world, bool alone)
{
    for (int rank = 0; rank < world && !alone; rank++)
        if (ranks[rank].state == HANG_SILENT)
            return false;
    return hang_blames(verdict, ranks, 1u << HANG_DEAD | 1u << HANG_STOPPED);
}

/*
 * Finds the cause from all published records, or from this node's if `alone`. Returns 1 if this rank's report is the one
 * that is used. Returns 0 if another rank has written one first, or if this is not `final` and a later verdict may be
 * another one. Returns -1 with *err.
 */
static int judge_records(const struct watchdog_config *config, bool alone, bool final, struct record_cause *cause,
                         struct error *err)
{
    struct hang_rank *ranks = take_snapshot(config, err); /* also the names of all nodes */
    struct hang_verdict verdict = {0};
    int result, lowest;
    char *text;

    if (!ranks)
        return -1;
    if (!alone)
        hang_collect(config->output.directory, &lowest, ranks, config->world, err);
    /* patience: half of hang_seconds */
    result = hang_judge(&verdict, ranks, config->world, config->hang_seconds / 2, err) == 0 ? 1 : -1;
    if (result > 0 && !final && !is_clear(&verdict, ranks, config->world, alone))
        result = 0;
    if (result > 0 && !alone) {
        text = compose_report(config, &verdict, ranks, 0);
        result = text ? hang_report_publish(config->output.directory, config->rank, text, err) : -1;
        free(text);
    }
    if (result > 0)
        hang_cause(cause, &verdict, ranks, config->world);
    if (result > 0 && (!alone || local_ranks_publisher(config->local_ranks)))
        print_to_stderr(config, &verdict, ranks, cause, !alone);
    free(verdict.named);
    free(ranks);
    return result;
}

/* One poll of the directory by a publisher that has published its records. The lowest publisher judges whenever another
 * one has published, and after PUBLISH_TIMEOUT; the others if there is no report JUDGE_TIMEOUT after that. */
static int poll_directory(const struct watchdog_config *config, struct search *search, struct record_cause *cause,
                          struct error *err)
{
    double seconds = 1e-9 * (double)(recorder_now() - search->began);
    bool final = seconds > PUBLISH_TIMEOUT;
    int lowest, count;

    if (hang_cause_read(config->output.directory, cause))
        return 1;
    count = hang_collect(config->output.directory, &lowest, NULL, config->world, err);
    if (count < 0)
        return -1;
    if (lowest < config->rank ? seconds < PUBLISH_TIMEOUT + JUDGE_TIMEOUT : !final && count == search->judged)
        return 0;
    search->judged = count;
    return judge_records(config, false, final, cause, err);
}

int watchdog_find_cause(const struct watchdog_config *config, const atomic_bool *stop, struct record_cause *cause,
                        struct error *err)
{
    struct search search = {.began = recorder_now(), .dead = -1};
    int result = hang_raise_alarm(config->output.directory, err);

    while (result == 0 && !*stop) {
        if (local_ranks_publisher(config->local_ranks)) {
            result = publish_records(config, &search, err);
            if (result == 0)
                result = poll_directory(config, &search, cause, err);
        }
        if (result == 0)
            clock_sleep(POLL_INTERVAL);
    }
    return result;
}

void watchdog_find_cause_alone(const struct watchdog_config *config, struct record_cause *cause)
{
    struct error err;

    *cause = (struct record_cause){"an operation takes longer than report.hang_seconds, or a rank was lost", false};
    if (judge_records(config, true, false, cause, &err) != 0)
        return;
    clock_sleep(PUBLISH_TIMEOUT);
    judge_records(config, true, true, cause, &err);
}
