#include "tests/unit/ckpt_stage_world.h"

#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/stage/stage_dir.h"
#include "common/clock.h"
#include "tests/cmocka_test.h"

void node_create(struct node *node, struct world *world, uint64_t *seed, int shards, bool large)
{
    world_create(world, seed, large);
    *node = (struct node){.world = world, .topology = topology_create(world, shards, seed), .stride = 1};
    topology_fill(node->topology, world);
    scratch_create(node->root, scratch_fast());
    scratch_create(node->target, scratch_fast());
}

void node_destroy(struct node *node)
{
    ckpt_stage_destroy(node->stage);
    topology_destroy(node->topology, node->world);
    scratch_destroy(node->root);
    scratch_destroy(node->target);
}

static int count_local(const struct node *node)
{
    int local = 0;

    for (int s = node->first; s < node->topology->shards; s += node->stride)
        local++;
    return local;
}

void node_open(struct node *node, const char *job, int staged, const char *run)
{
    struct ckpt_stage_config config = {
        .root = node->root, .job = job, .run = run, .local = count_local(node), .max_staged = staged, .keep = 3};
    struct error err;

    node->stage = ckpt_stage_open(&config, &err);
    if (!node->stage)
        fail_msg("%s", err.text);
}

void node_begin(struct node *node, struct world *world, uint64_t *seed, int shards, bool large)
{
    node_create(node, world, seed, shards, large);
    node_open(node, "1", 2, "a");
}

void node_begin_pair(struct node *node, struct node *other, struct world *world, uint64_t *seed, bool large)
{
    node_create(node, world, seed, 2, large);
    node->stride = 2;
    *other = *node;
    other->first = 1;
    node_open(node, "1", 2, "a");
    node_open(other, "2", 2, "a");
}

void node_stage(struct node *node, uint64_t step, const char *attempt)
{
    struct error err;

    for (int s = node->first; s < node->topology->shards; s += node->stride) {
        struct ckpt_save save = world_save(node->world, node->topology, s, node->target, step, attempt);

        for (int tries = 0; !ckpt_stage_has_room(node->stage, s, node->topology->shards) && tries < 30000; tries++)
            clock_sleep(0.002);
        if (ckpt_stage_shard(node->stage, &save, &err) != 0)
            fail_msg("%s", err.text);
    }
}

int node_drain(struct node *node)
{
    struct ckpt_drain_options options = {.once = true, .seconds = 60};
    struct error err;
    int result = ckpt_drain(ckpt_stage_directory(node->stage), &options, &err);

    if (result < 0)
        fail_msg("%s", err.text);
    return result;
}

bool node_wait(struct node *node, double seconds)
{
    double end = clock_monotonic() + seconds;

    while (!ckpt_stage_is_empty(node->stage) && clock_monotonic() < end)
        clock_sleep(0.01);
    return ckpt_stage_is_empty(node->stage);
}

pid_t node_start_drain(const struct node *node, const struct ckpt_drain_options *options)
{
    pid_t child = fork();
    struct error err;

    assert_true(child >= 0);
    if (child == 0) {
        char path[512];

        snprintf(path, sizeof path, "%s", ckpt_stage_directory(node->stage));
        ckpt_stage_destroy(node->stage); /* else the drainer itself would count as one who may stage */
        _exit(ckpt_drain(path, options, &err) & 0xff);
    }
    return child;
}

bool node_has_drainer(const struct node *node)
{
    return stage_is_locked(&node->stage->directory, STAGE_LOCK);
}

int child_wait(pid_t child)
{
    int status;

    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

int child_kill(pid_t child)
{
    kill(child, SIGKILL);
    return child_wait(child);
}

struct ckpt_save_status node_news(struct node *node)
{
    struct ckpt_save_status news;
    struct error err;

    for (int tries = 0; tries < 2000; tries++) {
        int result = ckpt_stage_poll(node->stage, &news, &err);

        if (result < 0)
            fail_msg("%s", err.text);
        if (result > 0)
            return news;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    fail_msg("no news for 20 seconds");
    return news;
}

/* A file that is moved while we walk is met twice. */
static struct {
    ino_t inodes[256];
    int count;
    uint64_t bytes;
} seen;

static int add(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)path;
    (void)walk;
    if (type != FTW_F || seen.count == 256)
        return 0;
    for (int i = 0; i < seen.count; i++)
        if (seen.inodes[i] == info->st_ino)
            return 0;
    seen.inodes[seen.count++] = info->st_ino;
    seen.bytes += (uint64_t)info->st_size;
    return 0;
}

uint64_t node_bytes(const struct node *node)
{
    memset(&seen, 0, sizeof seen);
    nftw(ckpt_stage_directory(node->stage), add, 16,
         FTW_PHYS); /* files come and go while it walks: that is no failure */
    assert_true(seen.count < 256);
    return seen.bytes;
}
