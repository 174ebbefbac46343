/* watchdog_judge.c - after an alarm: publishes the node's records, and finds the cause of the hang. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "trainer/watch/recorder.h"
#include "trainer/watch/watchdog.h"

/* Seconds. */
#define POLL_INTERVAL   0.1
#define PUBLISH_TIMEOUT 3.0 /* for other nodes to publish */
#define JUDGE_TIMEOUT   3.0 /* for the publisher whose turn it is to judge; then others try */

enum { LINES_ON_STDERR = 32 };

/* A publisher's work. */
struct search {
    int64_t began;
    int dead;    /* ranks that were dead when it published; -1 before */
    bool judged; /* since then */
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
        search->judged = false;
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

/*
 * Finds the cause from all published records, or from this node's if `published` is NULL. Returns 1 if this rank's
 * report is the one that is used. Returns 0 if another rank has written one first, or if this is not `final` and the
 * verdict names no dead or stopped rank. Returns -1 with *err.
 */
static int judge_records(const struct watchdog_config *config, const bool *published, bool final,
                         struct record_cause *cause, struct error *err)
{
    struct hang_rank *ranks = take_snapshot(config, err); /* also the names of all nodes */
    struct hang_verdict verdict = {0};
    char *text;
    int result;

    if (!ranks)
        return -1;
    if (published)
        hang_collect(config->output.directory, published, ranks, config->world);
    /* patience: half of hang_seconds */
    result = hang_judge(&verdict, ranks, config->world, config->hang_seconds / 2, err) == 0 ? 1 : -1;
    if (result > 0 && !final && !hang_blames(&verdict, ranks, 1u << HANG_DEAD | 1u << HANG_STOPPED))
        result = 0;
    if (result > 0 && published) {
        text = compose_report(config, &verdict, ranks, 0);
        result = text ? hang_report_publish(config->output.directory, config->rank, text, err) : -1;
        free(text);
    }
    if (result > 0)
        hang_cause(cause, &verdict, ranks, config->world);
    if (result > 0 && (published || local_ranks_publisher(config->local_ranks)))
        print_to_stderr(config, &verdict, ranks, cause, published);
    free(verdict.named);
    free(ranks);
    return result;
}

/* The lowest publisher judges as soon as every node has published, and after PUBLISH_TIMEOUT. The other publishers
 * judge if there is no report JUDGE_TIMEOUT after that. */
static bool my_turn(const struct watchdog_config *config, const struct search *search, const bool *published,
                    double seconds)
{
    int lowest = 0;

    while (lowest < config->rank && !published[lowest])
        lowest++;
    if (lowest < config->rank)
        return seconds > PUBLISH_TIMEOUT + JUDGE_TIMEOUT;
    return seconds > PUBLISH_TIMEOUT || (!search->judged && local_ranks_complete(config->local_ranks, published));
}

/* One poll of the directory by a publisher that has published its records. */
static int poll_directory(const struct watchdog_config *config, struct search *search, struct record_cause *cause,
                          struct error *err)
{
    double seconds = 1e-9 * (double)(recorder_now() - search->began);
    bool *published;
    int result;

    if (hang_cause_read(config->output.directory, cause))
        return 1;
    published = error_calloc((size_t)config->world, sizeof *published, err);
    if (!published)
        return -1;
    result = hang_published(config->output.directory, published, config->world, err);
    if (result == 0 && my_turn(config, search, published, seconds)) {
        result = judge_records(config, published, seconds > PUBLISH_TIMEOUT, cause, err);
        search->judged = true;
    }
    free(published);
    return result;
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
    if (judge_records(config, NULL, false, cause, &err) != 0)
        return;
    clock_sleep(PUBLISH_TIMEOUT);
    judge_records(config, NULL, true, cause, &err);
}
