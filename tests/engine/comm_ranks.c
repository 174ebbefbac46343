/*
 * comm_ranks.c - started on several ranks by comm.bats: every operation of comm.h against what arithmetic says. When
 * all is well rank 0 prints how many agree; otherwise a rank says what it saw, and all exit 70. With
 * SAY_CONNECTED in the environment, each rank says when it is.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/philox.h"
#include "trainer/comm/comm.h"
#include "trainer/parallel/tp_group.h"
#include "trainer/watch/recorder.h"

static struct comm *world;
static int rank, size;
static struct error err;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d of %d: %s:%d: %s\n", rank, size, __FILE__, __LINE__, #condition);                 \
            error_set(&err, CODE_INTERNAL, "a check failed");                                                          \
            comm_world_fail(world, &err);                                                                              \
            exit(CODE_INTERNAL);                                                                                       \
        }                                                                                                              \
    } while (0)

/* Element i of the buffer that `owner` sends in round `round`: values whose sums depend on the order of adding. */
static float element(int owner, int round, size_t i)
{
    struct philox_stream stream = {.seed = 7, .site = (uint32_t)owner, .step = (uint32_t)round};

    return (float)((philox_uniform(stream, i) - 0.5) * exp2(20.0 * philox_uniform(stream, i + 1000000)));
}

static float tree(int first, int ranks, int round, size_t i)
{
    int half = 1;

    if (ranks == 1)
        return element(first, round, i);
    while (half * 2 < ranks)
        half *= 2;
    return tree(first, half, round, i) + tree(first + half, ranks - half, round, i);
}

static void fill(float *buffer, size_t count, int round)
{
    for (size_t i = 0; i < count; i++)
        buffer[i] = element(rank, round, i);
}

static int reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send, size_t count)
{
    struct comm_request *request = comm_start_reduce_scatter(comm, dtype, recv, send, count, count, NULL, &err);

    return request ? comm_wait(request, &err) : -1;
}

static void test_reduce_scatter(size_t count, int round)
{
    size_t total = count * (size_t)size, mine = count * (size_t)rank;
    float *send = calloc(total, sizeof *send), *recv = calloc(count, sizeof *recv);

    fill(send, total, round);
    CHECK(reduce_scatter(world, DTYPE_F32, recv, send, count) == 0);
    for (size_t i = 0; i < count; i++)
        CHECK(recv[i] == tree(0, size, round, mine + i));
    for (size_t i = 0; i < total; i++)
        CHECK(send[i] == element(rank, round, i));
    /* in place, and then gathered: an all-reduce */
    CHECK(reduce_scatter(world, DTYPE_F32, send + mine, send, count) == 0);
    CHECK(memcmp(send + mine, recv, count * sizeof *recv) == 0);
    CHECK(comm_all_gather(world, DTYPE_F32, send, count, &err) == 0);
    for (size_t i = 0; i < total; i++)
        CHECK(send[i] == tree(0, size, round, i));
    free(send);
    free(recv);
}

/* Several under way at once, waited for in another order than they were started. */
static void test_overlap(void)
{
    enum { ROUNDS = 4, COUNT = 3000 };
    float *send[ROUNDS], *recv[ROUNDS];
    struct comm_request *requests[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        send[r] = calloc((size_t)COUNT * (size_t)size, sizeof **send);
        recv[r] = calloc(COUNT, sizeof **recv);
        fill(send[r], (size_t)COUNT * (size_t)size, r);
        requests[r] = comm_start_reduce_scatter(world, DTYPE_F32, recv[r], send[r], COUNT, COUNT, NULL, &err);
        CHECK(requests[r] != NULL);
    }
    for (int r = ROUNDS - 1; r >= 0; r--) {
        CHECK(comm_wait(requests[r], &err) == 0);
        for (size_t i = 0; i < COUNT; i++)
            CHECK(recv[r][i] == tree(0, size, r, (size_t)rank * COUNT + i));
        free(send[r]);
        free(recv[r]);
    }
}

/* In buckets of `bucket` elements: nothing is written beyond scratch, and each element is the tree's sum. */
static void test_bucketed_sum(struct device *dev, size_t count, size_t bucket, int round)
{
    size_t bytes = bucket * (size_t)size * sizeof(float);
    float *gradients = calloc(count + 1, sizeof *gradients), *whole = calloc(count, sizeof *whole);
    struct tp_group tp;

    CHECK(tp_create(&tp, dev, world, DTYPE_F32, tp_scratch_bytes(size, DTYPE_F32, 0, 0, count), &err) == 0);
    CHECK(size == 1 || tp.scratch_bytes == count * (size_t)size * sizeof(float));
    if (size > 1) {
        tp.scratch_bytes = bytes;
        memset((char *)tp.scratch + bytes, 0x5a, (count - bucket) * (size_t)size * sizeof(float));
    }
    fill(gradients, count, round);
    fill(whole, count, round);
    gradients[count] = 42;
    tp_all_reduce_f32(&tp, gradients, count, "test");
    CHECK(error_take(&tp.error, &err) == 0);
    CHECK(comm_all_reduce(world, DTYPE_F32, whole, count, NULL, &err) == 0);
    CHECK(memcmp(gradients, whole, count * sizeof *whole) == 0 && gradients[count] == 42);
    for (size_t i = 0; i < count; i++)
        CHECK(gradients[i] == tree(0, size, round, i));
    for (size_t i = bytes; size > 1 && i < count * (size_t)size * sizeof(float); i++)
        CHECK(((char *)tp.scratch)[i] == 0x5a);
    tp_destroy(&tp);
    free(gradients);
    free(whole);
}

/* One that fills its buckets, one that does not, one element at a time, and one bucket. */
static void test_bucketed_sums(void)
{
    struct device *dev = device_create("cpu", 1, &err);

    CHECK(dev != NULL);
    test_bucketed_sum(dev, 1000, 250, 0);
    test_bucketed_sum(dev, 1000, 64, 1);
    test_bucketed_sum(dev, 33, 1, 2);
    test_bucketed_sum(dev, 100, 100, 3);
    device_destroy(dev);
}

static void test_scalars(void)
{
    double sum[2] = {rank + 0.5, 1}, max[3] = {-rank, rank == size - 1 ? NAN : 0, rank};
    char text[16] = "";

    CHECK(comm_sum_f64(world, sum, 2, &err) == 0);
    CHECK(sum[0] == size * (size - 1) / 2.0 + 0.5 * size && sum[1] == size);
    CHECK(comm_max_f64(world, max, 3, &err) == 0);
    CHECK(max[0] == 0 && isnan(max[1]) && max[2] == size - 1);
    snprintf(text, sizeof text, "from %d", rank);
    CHECK(comm_broadcast(world, text, sizeof text, size - 1, &err) == 0);
    CHECK(atoi(text + 5) == size - 1);
    CHECK(comm_barrier(world, &err) == 0);
}

static void test_split(void)
{
    struct comm *half = comm_split(world, rank % 2, -rank, &err);
    double sum = rank;
    int members = (size + (rank % 2 == 0)) / 2;

    CHECK(half != NULL && comm_size(half) == members);
    CHECK(comm_rank(half) == members - 1 - rank / 2); /* the key turns the order round */
    CHECK(comm_sum_f64(half, &sum, 1, &err) == 0);
    CHECK(sum == (double)members * (members - 1) + (rank % 2 ? members : 0));
    comm_destroy(half);
}

static void test_ring(void)
{
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    long out = rank, in = -1;
    struct comm_request *send, *recv;

    if (size == 1)
        return;
    recv = comm_start_recv(world, &in, sizeof in, previous, &err);
    send = comm_start_send(world, &out, sizeof out, next, &err);
    CHECK(recv && send && comm_wait(recv, &err) == 0 && comm_wait(send, &err) == 0);
    CHECK(in == previous);
}

static const struct record_comm *find_comm(const struct flight_record *r, const char *name, int *slot)
{
    for (int i = 0; i < RECORD_COMMS; i++)
        if (r->comms[i].id && strcmp(r->comms[i].name, name) == 0) {
            *slot = i;
            return &r->comms[i];
        }
    return NULL;
}

/* What the flight recorder hears of all this: names, members, counts, what operations are for, and for whom. */
static void test_record(void)
{
    int fd;
    struct record_file *file = recorder_start(&fd, &err);
    struct comm *group = comm_split(world, 0, -rank, &err); /* backwards */
    int slot, next = (rank + 1) % size, previous = (rank + size - 1) % size;
    const struct record_comm *c;
    double value = 1;
    struct flight_record r;

    CHECK(file && group);
    comm_label(group, "turned");
    comm_purpose(group, "block 7", "gradients");
    CHECK(comm_sum_f64(group, &value, 1, &err) == 0 && comm_barrier(group, &err) == 0);
    test_ring();
    CHECK(record_copy(&r, file) && r.waiting_since == 0);
    if (size == 1) {
        CHECK(r.operations == 0);
    } else {
        CHECK(r.operations == 5); /* split, sum, barrier, receive, send */
        CHECK(r.ring[1].kind == RECORD_SPLIT && r.ring[2].kind == RECORD_SUM && r.ring[3].kind == RECORD_BARRIER);
        CHECK(strcmp(r.ring[2].purpose, "block 7 gradients") == 0 && r.ring[3].purpose[0] == '\0');
        CHECK(r.ring[4].kind == RECORD_RECEIVE && r.ring[4].peer == previous && r.ring[4].finished > 0);
        CHECK(r.ring[5].kind == RECORD_SEND && r.ring[5].peer == next && r.ring[5].sequence == 1);
        c = find_comm(&r, "world", &slot);
        CHECK(c && c->size == size && c->collectives_entered == 1 && c->collectives_finished == 1);
        c = find_comm(&r, "turned", &slot);
        CHECK(c && c->size == size && c->collectives_entered == 2 && c->collectives_finished == 2);
        for (int i = 0; i < size; i++)
            CHECK(record_member(c, i) == size - 1 - i);
    }
    comm_destroy(group);
    CHECK(record_copy(&r, file) && !find_comm(&r, "turned", &slot));
    recorder_stop();
}

/* From then on no wait succeeds, and failing takes no time. The last test. */
static void test_interruption(void)
{
    struct error why = {.code = CODE_PEER, .text = "rank 9 is late"}, other = {.code = CODE_IO, .text = "another"};
    double value = 1;

    CHECK(comm_barrier(world, &err) == 0);
    comm_interrupt(&why);
    comm_interrupt(&other);
    CHECK(size == 1 || comm_sum_f64(world, &value, 1, &err) < 0);
    CHECK(size == 1 || (err.code == CODE_PEER && strcmp(err.text, "rank 9 is late") == 0));
    CHECK(comm_world_fail(world, &err));
}

/* Some ranks fail at once, each for a reason of its own; the others wait for them. */
static int fail_apart(int failing)
{
    static const enum exit_code codes[] = {CODE_IO, CODE_DATA, CODE_INTERNAL, CODE_CONFIG};

    if (rank < failing)
        error_set(&err, codes[rank % 4], "a reason of rank %d's", rank);
    else
        CHECK(comm_barrier(world, &err) < 0);
    CHECK(comm_world_fail(world, &err) && comm_world_fail(world, &err));
    comm_destroy(world);
    return (int)err.code;
}

/* comm_ranks [N]: all tests; or N ranks fail */
int main(int argc, char **argv)
{
    static const size_t counts[] = {1, 16, 1000, 100003};

    world = comm_world_create(&err);
    if (!world)
        return error_report(&err);
    rank = comm_rank(world);
    size = comm_size(world);
    if (getenv("SAY_CONNECTED"))
        fprintf(stderr, "rank %d is connected\n", rank);
    if (argc > 1)
        return fail_apart(atoi(argv[1]));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        test_reduce_scatter(counts[i], (int)i);
    test_overlap();
    test_bucketed_sums();
    test_scalars();
    test_split();
    test_ring();
    test_record();
    test_interruption();
    if (rank == 0)
        printf("%d ranks agree\n", size);
    comm_destroy(world);
    return 0;
}
