/*
 * test_report.h - what the tests of trainer/report share: a directory of their own, files, and a run to look at.
 */
#ifndef MUSTER_TESTS_UNIT_TEST_REPORT_H
#define MUSTER_TESTS_UNIT_TEST_REPORT_H

#include <limits.h>
#include <math.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/test_files.h"
#include "trainer/report/metrics.h"

static char test_dir[64];
static char test_file[96]; /* metrics.jsonl in it */

static inline int make_dir(void **state)
{
    snprintf(test_dir, sizeof test_dir, "/tmp/muster-report-XXXXXX");
    if (!mkdtemp(test_dir))
        return -1;
    snprintf(test_file, sizeof test_file, "%s/metrics.jsonl", test_dir);
    return 0;
}

static inline int remove_dir(void **state)
{
    unlink(test_file);
    return rmdir(test_dir); /* fails, and the test with it, where something was left behind */
}

static inline struct metrics_step make_step(long step, int world)
{
    return (struct metrics_step){
        .step = step,
        .consumed_samples = 256 * step,
        .loss = 3.0 + 8.0 / (double)step,
        .lr = 1.5e-4,
        .grad_norm = 1.0 / 3.0,
        .loss_scale = 1.0,
        .step_seconds = 0.5,
        .tokens_per_second = 3000.0 * world,
        .tflops = 1.25,
        .mfu = 0.5,
        .hfu = 0.5,
        .world = world,
        .dp = world,
        .tp = 1,
        .pp = 1,
        .order_loss = NAN,
        .validated = step % 50 == 0,
        .valid_loss = step % 50 == 0 ? 3.5 : NAN,
        .valid_order_loss = NAN,
    };
}

/* Steps 1 to `count`, by `world` ranks up to step `until` and by half of them after it. The caller frees it. */
static inline struct metrics_step *make_run(size_t count, long until, int world)
{
    struct metrics_step *steps = calloc(count + 1, sizeof *steps);

    assert_non_null(steps);
    for (size_t i = 0; i < count; i++)
        steps[i] = make_step((long)i + 1, (long)i + 1 > until ? world / 2 : world);
    return steps;
}

/* As text, into buf; returns its length. */
static inline size_t format_run(char *buf, const struct metrics_step *steps, size_t count)
{
    size_t used = 0;

    for (size_t i = 0; i < count; i++)
        used += metrics_format(buf + used, &steps[i]);
    return used;
}

/* ---- a process that writes metrics, as muster-report --write does, and rank 0's end of its socket ---- */

struct test_writer {
    pid_t pid;
    int socket;
    char answer[METRICS_ANSWER_SIZE]; /* the last one */
    char said[8192];                  /* all its lines for the log */
};

static inline struct test_writer serve_run(const struct metrics_run *run, uid_t user)
{
    struct test_writer w = {0};
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    w.pid = fork();
    assert_true(w.pid >= 0);
    if (w.pid == 0) {
        dup2(ends[1], 3); /* as in a program that was started, no other file is open */
        closefrom(4);
        if (user && setuid(user) < 0)
            _exit(1);
        metrics_serve(run, 3);
        _exit(0);
    }
    close(ends[1]);
    w.socket = ends[0];
    return w;
}

/* The next answer that is not for the log; "" at the end. */
static inline const char *next_answer(struct test_writer *w)
{
    while (metrics_receive(w->socket, w->answer, sizeof w->answer) > 0 && w->answer[0] == ' ')
        sprintf(w->said + strlen(w->said), "%s\n", w->answer + 1);
    return w->answer;
}

static inline void send_text(struct test_writer *w, const char *text)
{
    assert_int_equal(send(w->socket, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static inline void send_step(struct test_writer *w, const struct metrics_step *step)
{
    char line[METRICS_LINE_SIZE];

    metrics_format(line, step);
    send_text(w, line);
}

static inline void write_step(struct test_writer *w, const struct metrics_step *step)
{
    send_step(w, step);
    assert_string_equal(next_answer(w), "+");
}

/* The run has ended; it gets the remaining answers. */
static inline void end_writer(struct test_writer *w)
{
    int status;

    shutdown(w->socket, SHUT_WR);
    while (*next_answer(w))
        ;
    close(w->socket);
    assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
    assert_int_equal(status, 0);
}

/* A run that resumes after that step (-1: a new one), when it has opened `path`. */
static inline struct test_writer open_writer(const char *path, long after)
{
    struct test_writer w = serve_run(&(struct metrics_run){path, "77", after, NULL, NULL}, 0);

    assert_int_equal(*next_answer(&w), 'o');
    return w;
}

/* Resumes, writes nothing and ends. */
static inline struct test_writer cut_steps(const char *path, long after)
{
    struct test_writer w = open_writer(path, after);

    end_writer(&w);
    return w;
}

#endif
