/* Pipeline schedules: each stage's array by itself, and all stages run together. */
#include <math.h>

#include "plan/schedule.h"
#include "tests/cmocka_test.h"

#define STAGES  8
#define CHUNKS  4
#define BATCHES 17
#define MOST    (BATCHES + STAGES - 1) /* what BATCHES are rounded up to */
#define ENTRIES (2 * CHUNKS * MOST)

/* What one forward and one backward of one chunk take. */
#define FORWARD_TIME  1
#define BACKWARD_TIME 2

static void one_stage_alternates(void **state)
{
    struct schedule_entry entries[10];

    assert_int_equal(schedule_build(entries, 0, 1, 5, 1), 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(entries[i].kind, i % 2 ? SCHEDULE_BACKWARD : SCHEDULE_FORWARD);
        assert_int_equal(entries[i].micro_batch, i / 2);
        assert_int_equal(entries[i].chunk, 0);
    }
}

/* Figure 4 of arXiv 2104.04473, lower half: 4 stages of 2 chunks, 8 micro-batches; the first device's row. */
static void interleaved_as_in_the_paper(void **state)
{
    static const char expected[] = "F00 F10 F20 F30 F01 F11 F21 F31 F40 F50 "
                                   "F60 B01 F70 B11 F41 B21 F51 B31 F61 B00 F71 B10 "
                                   "B20 B30 B41 B51 B61 B71 B40 B50 B60 B70 ";
    struct schedule_entry entries[32];
    char text[200] = "";

    assert_int_equal(schedule_build(entries, 0, 4, 8, 2), 32);
    for (int i = 0; i < 32; i++)
        sprintf(text + strlen(text), "%c%d%d ", entries[i].kind == SCHEDULE_FORWARD ? 'F' : 'B', entries[i].micro_batch,
                entries[i].chunk);
    assert_string_equal(text, expected);
}

/* ---- one stage's array ------------------------------------------------------------------------------------------- */

struct shape {
    int stages, micro_batches, chunks;
};

static void each_shape(void (*visit)(const struct shape *shape))
{
    for (int stages = 1; stages <= STAGES; stages++)
        for (int chunks = 1; chunks <= CHUNKS; chunks++)
            for (int m = 1; m <= BATCHES; m++)
                visit(&(struct shape){stages, m, chunks});
}

static void check_order(const struct shape *shape, int stage)
{
    struct schedule_entry entries[ENTRIES];
    int forward[CHUNKS] = {0}, backward[CHUNKS] = {0}, last = shape->chunks - 1;
    size_t n = schedule_build(entries, stage, shape->stages, shape->micro_batches, shape->chunks);

    assert_int_equal(n, 2 * shape->micro_batches * shape->chunks);
    for (size_t i = 0; i < n; i++) {
        int chunk = entries[i].chunk;

        assert_in_range(chunk, 0, last);
        if (entries[i].kind == SCHEDULE_FORWARD) {
            assert_int_equal(entries[i].micro_batch, forward[chunk]++);
            continue;
        }
        assert_int_equal(entries[i].micro_batch, backward[chunk]++);
        assert_true(backward[chunk] <= forward[chunk]);
        if (stage == shape->stages - 1 && chunk == last) {
            assert_int_equal(entries[i - 1].kind, SCHEDULE_FORWARD);
            assert_int_equal(entries[i - 1].chunk, last);
            assert_int_equal(entries[i - 1].micro_batch, entries[i].micro_batch);
        }
    }
    for (int chunk = 0; chunk < shape->chunks; chunk++) {
        assert_int_equal(forward[chunk], shape->micro_batches);
        assert_int_equal(backward[chunk], shape->micro_batches);
    }
}

static void visit_order(const struct shape *shape)
{
    for (int stage = 0; stage < shape->stages; stage++)
        check_order(shape, stage);
}

static void every_entry_once_and_in_order(void **state)
{
    each_shape(visit_order);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The most micro-batches of a chunk that are held at once, from forward to backward. */
static int count_in_flight(const struct schedule_entry *entries, size_t n, int chunk)
{
    int held = 0, most = 0;

    for (size_t i = 0; i < n; i++) {
        if (entries[i].chunk != chunk)
            continue;
        held += entries[i].kind == SCHEDULE_FORWARD ? 1 : -1;
        most = held > most ? held : most;
    }
    return most;
}

static void visit_in_flight(const struct shape *shape)
{
    for (int stage = 0; stage < shape->stages; stage++) {
        struct schedule_entry entries[ENTRIES];
        size_t n = schedule_build(entries, stage, shape->stages, shape->micro_batches, shape->chunks);
        int after = shape->stages - stage - 1, sum = 0;

        for (int chunk = 0; chunk < shape->chunks; chunk++) {
            int most = count_in_flight(entries, n, chunk);

            assert_in_range(most, 1, shape->micro_batches);
            sum += most;
        }
        if (shape->chunks == 1)
            assert_int_equal(sum, least(after + 1, shape->micro_batches));
        else /* no more than the warm-up and one; the chunks need not have their most at the same time */
            assert_true(count_in_flight(entries, n, 0) <= 2 * after + (shape->chunks - 1) * shape->stages + 1);
    }
}

static void activations_held(void **state)
{
    struct schedule_entry entries[ENTRIES];
    size_t n;

    each_shape(visit_in_flight);
    n = schedule_build(entries, 0, 4, 8, 2);
    assert_int_equal(count_in_flight(entries, n, 0), 8); /* figure 4 again, counted by hand */
    assert_int_equal(count_in_flight(entries, n, 1), 4);
    assert_int_equal(count_in_flight(entries, n, 2), 0);
}

/* ---- all stages together ----------------------------------------------------------------------------------------- */

struct message {
    int micro_batch, part; /* that the receiver will run */
    int time;
};

struct channel {
    struct message messages[CHUNKS * MOST];
    int sent, received;
};

struct pipeline {
    const struct shape *shape;
    struct schedule_entry entries[STAGES][ENTRIES];
    size_t n, at[STAGES];
    int clock[STAGES];
    int parts;
    struct channel channels[2][STAGES]; /* of a kind, into a stage: it has one sender only */
};

/*
 * The first or last part has no input. Else the message must be the oldest of its channel: a receive without a tag
 * would get no other. Returns whether there is one, and makes the stage wait until it has come.
 */
static int receive(struct pipeline *p, int stage, const struct schedule_entry *entry, int part)
{
    struct channel *channel = &p->channels[entry->kind][stage];
    const struct message *message = &channel->messages[channel->received];

    if (part == (entry->kind == SCHEDULE_FORWARD ? 0 : p->parts - 1))
        return 1;
    if (channel->received == channel->sent)
        return 0;
    assert_int_equal(message->micro_batch, entry->micro_batch);
    assert_int_equal(message->part, part);
    p->clock[stage] = message->time > p->clock[stage] ? message->time : p->clock[stage];
    channel->received++;
    return 1;
}

static void send(struct pipeline *p, int stage, const struct schedule_entry *entry, int part)
{
    int next = entry->kind == SCHEDULE_FORWARD ? part + 1 : part - 1;
    struct channel *channel;

    if (next < 0 || next == p->parts)
        return;
    channel = &p->channels[entry->kind][next % p->shape->stages];
    channel->messages[channel->sent++] =
        (struct message){.micro_batch = entry->micro_batch, .part = next, .time = p->clock[stage]};
}

/* Runs the stage until it has to wait. Returns how many entries it did. */
static int advance(struct pipeline *p, int stage)
{
    int done = 0;

    for (; p->at[stage] < p->n; p->at[stage]++, done++) {
        const struct schedule_entry *entry = &p->entries[stage][p->at[stage]];
        int part = entry->chunk * p->shape->stages + stage;

        if (!receive(p, stage, entry, part))
            break;
        p->clock[stage] += entry->kind == SCHEDULE_FORWARD ? FORWARD_TIME : BACKWARD_TIME;
        send(p, stage, entry, part);
    }
    return done;
}

/* The time at which the last stage has ended. Fails when all wait. */
static int simulate(const struct shape *shape)
{
    struct pipeline *p = calloc(1, sizeof *p);
    int end = 0, moved;

    assert_non_null(p);
    p->shape = shape;
    p->parts = shape->stages * shape->chunks;
    for (int s = 0; s < shape->stages; s++)
        p->n = schedule_build(p->entries[s], s, shape->stages, shape->micro_batches, shape->chunks);
    do {
        moved = 0;
        for (int s = 0; s < shape->stages; s++)
            moved += advance(p, s);
    } while (moved);
    for (int s = 0; s < shape->stages; s++) {
        if (p->at[s] != p->n)
            fail_msg("stage %d of %d waits for ever at entry %zu; %d micro-batches, %d chunks", s, shape->stages,
                     p->at[s], shape->micro_batches, shape->chunks);
        for (int kind = 0; kind < 2; kind++)
            assert_int_equal(p->channels[kind][s].received, p->channels[kind][s].sent);
        end = p->clock[s] > end ? p->clock[s] : end;
    }
    free(p);
    return end;
}

static void visit_simulation(const struct shape *shape)
{
    int p = shape->stages, m = shape->micro_batches, v = shape->chunks;
    int work = m * v * (FORWARD_TIME + BACKWARD_TIME), end = simulate(shape);
    double bubble = (double)(end - work) / work;

    if (v == 1 || m % p == 0) {
        if (fabs(bubble - (p - 1.0) / (m * v)) > 1e-12)
            fail_msg("%d stages, %d micro-batches, %d chunks: a bubble of %g", p, m, v, bubble);
    } else { /* no later than with a full last group */
        assert_true(end <= simulate(&(struct shape){p, m + p - m % p, v}));
    }
}

static void no_deadlock_and_no_needless_idleness(void **state)
{
    each_shape(visit_simulation);
}

/* A chunk's slots do not need the whole step's schedule. */
static void slots_repeat_after_some_groups(void **state)
{
    static struct schedule_entry entries[2 * CHUNKS * 10 * STAGES];

    for (int stages = 1; stages <= STAGES; stages++)
        for (int chunks = 1; chunks <= (stages > 1 ? CHUNKS : 1); chunks++)
            for (int micro_batches = 1; micro_batches <= 9 * stages; micro_batches++)
                for (int stage = 0; stage < stages; stage++) {
                    size_t n = schedule_build(entries, stage, stages, micro_batches, chunks);
                    int slots[CHUNKS];

                    schedule_slots(stage, stages, chunks, micro_batches, slots);
                    for (int chunk = 0; chunk < chunks; chunk++)
                        assert_int_equal(slots[chunk], count_in_flight(entries, n, chunk));
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stage_alternates),           cmocka_unit_test(interleaved_as_in_the_paper),
        cmocka_unit_test(every_entry_once_and_in_order),  cmocka_unit_test(activations_held),
        cmocka_unit_test(slots_repeat_after_some_groups), cmocka_unit_test(no_deadlock_and_no_needless_idleness),
    };

    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
