/* watchdog_report.c - after an alarm: publishes this host's records, and gets a verdict. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "trainer/watch/recorder.h"
#include "trainer/watch/watchdog_impl.h"

#define POLL_SECONDS  0.1
#define GRACE_SECONDS 3.0 /* for other hosts to publish */
#define JUDGE_SECONDS 3.0 /* for the rank whose turn it is to judge; then others try */

enum { LINES_ON_STDERR = 32 };

/* The known records of all ranks. */
struct knowledge {
    struct hang_rank *ranks;
    bool *chosen;
    int world;
};

static int knowledge_create(struct knowledge *k, int world, struct error *err)
{
    k->world = world;
    k->chosen = calloc((size_t)world, sizeof *k->chosen);
    k->ranks = k->chosen ? hang_ranks_create(world, err) : NULL;
    if (k->ranks)
        return 0;
    free(k->chosen);
    return error_set(err, CODE_IO, "out of memory");
}

static void knowledge_free(struct knowledge *k)
{
    hang_ranks_destroy(k->ranks, k->world);
    free(k->chosen);
}

/* The report as malloc'ed text, with at most `lines` ranks; 0: all. */
static char *compose_report(const struct watchdog *w, const struct knowledge *k, const struct hang_verdict *verdict,
                            int lines, size_t *length)
{
    char *text = NULL, title[512], date[64];
    time_t now = time(NULL);
    struct tm tm;
    FILE *out = open_memstream(&text, length);

    if (!out)
        return NULL;
    strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S %Z", localtime_r(&now, &tm));
    snprintf(title, sizeof title, "%s, %s, report.hang_seconds = %g", w->title, date, w->config.hang_seconds);
    hang_print(out, title, verdict, k->ranks, k->world, lines);
    return fclose(out) == 0 ? text : (free(text), NULL);
}

/* In one write, so that other ranks' lines do not interleave. */
static void print_report(const struct watchdog *w, const struct knowledge *k, const struct hang_verdict *verdict,
                         const char *where)
{
    char *text = NULL;
    size_t length = 0, body_length;
    char *body = compose_report(w, k, verdict, LINES_ON_STDERR, &body_length);
    FILE *out = body ? open_memstream(&text, &length) : NULL;

    if (out) {
        fprintf(out, "---- this run hangs; %s ----\n", where);
        fwrite(body, 1, body_length, out);
        fputs("----\n", out);
        if (fclose(out) == 0 && write(STDERR_FILENO, text, length) < 0)
            length = 0; /* nothing can be done about it */
    }
    free(text);
    free(body);
}

/* Judges by all published records. 1 if this rank's report counts, 0 if another's does. */
static int judge_hang(struct watchdog *w, const bool *spoken, struct error *err)
{
    struct knowledge k;
    struct hang_verdict verdict = {0};
    char where[1200], sentence[RECORD_VERDICT_SIZE], *text = NULL;
    size_t length;
    int result = -1;

    if (knowledge_create(&k, w->config.world, err) < 0)
        return -1;
    neighbours_take(w->config.neighbours, k.ranks, k.chosen); /* sets the names of all hosts */
    hang_collect(w->directory, spoken, k.ranks, k.world);
    if (hang_judge(&verdict, k.ranks, k.world, w->config.hang_seconds / 2, err) == 0)
        text = compose_report(w, &k, &verdict, 0, &length);
    if (text)
        result = hang_report_publish(w->directory, w->config.rank, text, length, err);
    if (result > 0) {
        snprintf(where, sizeof where, "the whole report is %.1000s/hang-report.txt", w->directory);
        print_report(w, &k, &verdict, where);
        hang_sentence(sentence, sizeof sentence, &verdict, k.ranks, k.world);
        watchdog_set_verdict(w, sentence);
    }
    free(text);
    hang_verdict_free(&verdict);
    knowledge_free(&k);
    return result;
}

static int publish_records(struct watchdog *w, struct error *err)
{
    struct knowledge k;
    int result;

    if (knowledge_create(&k, w->config.world, err) < 0)
        return -1;
    neighbours_take(w->config.neighbours, k.ranks, k.chosen);
    result = hang_publish(w->directory, w->config.rank, k.ranks, k.chosen, k.world, err);
    knowledge_free(&k);
    return result;
}

/* The lowest rank that has published judges, when all have or the time is over; if it does not, the others do. */
static bool my_turn(const struct watchdog *w, const bool *spoken, double seconds)
{
    int lowest = 0;

    while (lowest < w->config.rank && !spoken[lowest])
        lowest++;
    if (lowest < w->config.rank)
        return seconds > GRACE_SECONDS + JUDGE_SECONDS;
    return seconds > GRACE_SECONDS || neighbours_complete(w->config.neighbours, spoken);
}

static bool is_judged(struct watchdog *w)
{
    bool judged;

    pthread_mutex_lock(&w->lock);
    judged = w->judged;
    pthread_mutex_unlock(&w->lock);
    return judged;
}

/* One poll of a speaker. */
static int speak_for_host(struct watchdog *w, bool *published, double seconds, struct error *err)
{
    char sentence[RECORD_VERDICT_SIZE];
    bool *spoken;
    int result;

    if (!*published && publish_records(w, err) < 0)
        return -1;
    *published = true;
    if (hang_report_sentence(w->directory, sentence, sizeof sentence)) {
        watchdog_set_verdict(w, sentence);
        return 0;
    }
    spoken = calloc((size_t)w->config.world, sizeof *spoken);
    if (!spoken)
        return error_set(err, CODE_IO, "out of memory");
    result = hang_spoken(w->directory, spoken, w->config.world, err);
    if (result == 0 && my_turn(w, spoken, seconds))
        result = judge_hang(w, spoken, err) < 0 ? -1 : 0;
    free(spoken);
    return result;
}

void *watchdog_report(void *arg)
{
    struct watchdog *w = arg;
    int64_t began = recorder_now();
    bool published = false;
    struct error err;
    int result = hang_raise(w->directory, &err);

    while (result == 0 && !is_judged(w)) {
        if (neighbours_speaker(w->config.neighbours))
            result = speak_for_host(w, &published, 1e-9 * (double)(recorder_now() - began), &err);
        clock_sleep(POLL_SECONDS);
    }
    if (result < 0) {
        pthread_mutex_lock(&w->lock);
        w->gave_up = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
    }
    return NULL;
}

void watchdog_judge_alone(struct watchdog *w)
{
    struct hang_verdict verdict = {0};
    struct knowledge k;
    struct error err;
    char text[RECORD_VERDICT_SIZE] = "an operation takes longer than report.hang_seconds, or a rank was lost";
    char where[1200];

    if (knowledge_create(&k, w->config.world, &err) == 0) {
        neighbours_take(w->config.neighbours, k.ranks, k.chosen);
        if (hang_judge(&verdict, k.ranks, k.world, w->config.hang_seconds / 2, &err) == 0)
            hang_sentence(text, sizeof text, &verdict, k.ranks, k.world);
        if (neighbours_speaker(w->config.neighbours)) {
            snprintf(where, sizeof where, "the state of other hosts is unknown: %.1000s cannot be used", w->directory);
            print_report(w, &k, &verdict, where);
        }
        hang_verdict_free(&verdict);
        knowledge_free(&k);
    }
    watchdog_set_verdict(w, text);
}
