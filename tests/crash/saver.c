/*
 * saver.c - the program that the crash tests run: saves checkpoints as a job does, every rank a process of its own.
 *
 *   saver [OPTION]... DIR STEP...
 *     --shards N --seed N --keep N --large   a plan (plan.h); of --keep, 0 keeps all
 *     --attempt NAME    of these saves; "1" if not given
 *     --serial          all ranks in one process, one after the other: the same calls in the same order every time
 *     --absent          the last rank never comes: the attempt stays incomplete
 *     --recover         first what a trainer does that starts: ckpt_recover
 *     --no-commit       leave it to others
 *
 * Each rank writes its shard and tries to commit; then the first process does once more, and prunes. Says "committed N"
 * on standard output, in one write, whenever ckpt_commit has returned. Ends like every program of ours: one line on
 * standard error and the error's code; and with 1 if a rank was lost.
 */
#include "tests/crash/plan.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct options {
    struct plan plan;
    const char *attempt;
    int serial, absent, recover, no_commit, large;
};

static int commit(const struct options *options, const char *dir, uint64_t step, struct error *err)
{
    int result = options->no_commit ? 0 : ckpt_commit(dir, step, options->attempt, err);
    char line[64];

    if (result > 0) {
        int length = snprintf(line, sizeof line, "committed %llu\n", (unsigned long long)step);

        if (write(1, line, (size_t)length) != length)
            return error_errno(err, CODE_IO, "standard output");
    }
    return result;
}

static int save_shard(const struct options *options, const struct world *world, const struct topology *topology,
                      int shard, const char *dir, uint64_t step, struct error *err)
{
    struct ckpt_save save = world_save(world, topology, shard, dir, step, options->attempt);

    if (ckpt_write_shard(&save, err) < 0)
        return -1;
    return commit(options, dir, step, err) < 0 ? -1 : 0;
}

/* 0, -1 with an error, or 1 for a rank that ended without a word. */
static int save_forked(const struct options *options, const struct world *world, const struct topology *topology,
                       int ranks, const char *dir, uint64_t step, struct error *err)
{
    int status, result = 0;

    for (int s = 0; s < ranks; s++) {
        pid_t rank = fork();

        if (rank < 0)
            return error_errno(err, CODE_IO, "cannot fork");
        if (rank == 0)
            _exit(save_shard(options, world, topology, s, dir, step, err) < 0 ? error_report(err) : 0);
    }
    while (wait(&status) > 0)
        if (status != 0)
            result = 1;
    return result;
}

static int save_serial(const struct options *options, const struct world *world, const struct topology *topology,
                       int ranks, const char *dir, uint64_t step, struct error *err)
{
    for (int s = 0; s < ranks; s++)
        if (save_shard(options, world, topology, s, dir, step, err) < 0) {
            ckpt_abandon(dir, step, options->attempt, NULL); /* as all ranks do who have agreed to give up */
            return -1;
        }
    return 0;
}

static int save_step(const struct options *options, struct world *world, struct topology *topology, const char *dir,
                     uint64_t step, struct error *err)
{
    int ranks = options->plan.shards - options->absent, result;

    plan_step(world, &options->plan, step);
    topology_fill(topology, world);
    result = options->serial ? save_serial(options, world, topology, ranks, dir, step, err)
                             : save_forked(options, world, topology, ranks, dir, step, err);
    if (result != 0)
        return result;
    if (commit(options, dir, step, err) < 0)
        return -1;
    return options->no_commit ? 0 : ckpt_prune(dir, options->plan.keep, 0, err);
}

static int run(struct options *options, const char *dir, char *const *steps, struct error *err)
{
    struct world world;
    struct topology *topology = plan_create(&options->plan, 0, &world);
    int result = 0;

    if (options->recover && ckpt_recover(dir, err) < 0)
        result = -1;
    for (; *steps && result == 0; steps++)
        result = save_step(options, &world, topology, dir, strtoull(*steps, NULL, 10), err);
    topology_destroy(topology, &world);
    return result;
}

int main(int argc, char **argv)
{
    struct options options = {.plan = {.shards = 2, .seed = 1}, .attempt = "1"};
    const struct option table[] = {
        {"shards", required_argument, NULL, 's'},
        {"seed", required_argument, NULL, 'r'},
        {"keep", required_argument, NULL, 'k'},
        {"attempt", required_argument, NULL, 'a'},
        {"large", no_argument, &options.large, 1},
        {"serial", no_argument, &options.serial, 1},
        {"absent", no_argument, &options.absent, 1},
        {"recover", no_argument, &options.recover, 1},
        {"no-commit", no_argument, &options.no_commit, 1},
        {NULL, 0, NULL, 0},
    };
    struct error err = {0};
    int option, result;

    while ((option = getopt_long(argc, argv, "", table, NULL)) != -1)
        if (option == 's')
            options.plan.shards = atoi(optarg);
        else if (option == 'r')
            options.plan.seed = strtoull(optarg, NULL, 10);
        else if (option == 'k')
            options.plan.keep = atoi(optarg);
        else if (option == 'a')
            options.attempt = optarg;
        else if (option != 0)
            return CODE_USAGE;
    if (optind >= argc)
        return CODE_USAGE;
    options.plan.large = options.large;
    result = run(&options, argv[optind], argv + optind + 1, &err);
    return result < 0 ? error_report(&err) : result;
}
