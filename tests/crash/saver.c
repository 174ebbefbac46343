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
 *     --claim N         first N processes claim DIR at once; the saves are made under the claim that is then there
 *     --stage ROOT      through the stage beneath ROOT (ckpt/stage/stage.h): each rank stages, two muster-ckptd are
 *                       started, one of which drains, or none with --no-drain; --drain: muster-ckptd drains what is
 *                       there, as the epilog does
 *     --nodes           with --stage: each rank is a node, whose stage is beneath ROOT/node-RANK, and keeps a copy of
 *                       the staged shard of the rank before it
 *
 * Each rank writes its shard and tries to commit; then the first process does once more, and prunes. Says "committed N"
 * on standard output, in one write, whenever ckpt_commit has returned or muster-ckptd has ended well, and "staged N"
 * when every rank has staged its shard, and "owner N" when a process has claimed DIR. Ends like every program of ours: one line on standard error and the error's
 * code; and with 1 if a rank was lost.
 */
#include "tests/crash/plan.h"

#include "ckpt/stage/stage.h"

#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct options {
    struct plan plan;
    const char *attempt, *stage;
    int serial, absent, recover, no_commit, large, drain, no_drain, nodes, claim;
    int copies[WORLD_MAX_SHARDS + 1][2]; /* of --nodes: pipes [r] from rank r - 1 to rank r */
};

static int say(const char *what, uint64_t step, struct error *err)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %llu\n", what, (unsigned long long)step);

    return write(1, line, (size_t)length) == length ? 0 : error_errno(err, CODE_IO, "standard output");
}

static int commit(const struct options *options, const char *dir, uint64_t step, struct error *err)
{
    int result = options->no_commit ? 0 : ckpt_commit(dir, step, options->attempt, err);

    return result > 0 && say("committed", step, err) < 0 ? -1 : result;
}

static const char *stage_root(const struct options *options, int rank)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/node-%d", options->stage, rank);
    return options->nodes ? path : options->stage;
}

static struct ckpt_stage *open_stage(const struct options *options, int rank, struct error *err)
{
    struct ckpt_stage_config config = {.root = stage_root(options, rank),
                                       .job = "crash",
                                       .run = "a",
                                       .local = options->nodes ? 1 : options->plan.shards,
                                       .threads = 1,
                                       .keep = options->plan.keep};

    if (options->nodes)
        mkdir(config.root, 0700);
    return ckpt_stage_open(&config, err);
}

static bool read_all(int fd, void *to, size_t bytes)
{
    ssize_t got = 1;

    for (; bytes > 0 && got > 0; bytes -= (size_t)got)
        if ((got = read(fd, to, bytes)) > 0)
            to = (char *)to + got;
    return got > 0;
}

/* Keeps the copy of the rank before this one, and then sends its own: nobody waits for a full pipe in a circle. */
static int exchange_copies(const struct options *options, struct ckpt_stage *stage, const struct ckpt_save *save,
                           struct error *err)
{
    int from = options->copies[save->shard][0], to = options->copies[save->shard + 1][1];
    struct ckpt_staged_shard mine;
    struct ckpt_save theirs = *save;
    size_t sizes[2];
    char part[65536], *room;

    theirs.shard--;
    if (save->shard > 0 &&
        (!read_all(from, sizes, sizeof sizes) || sizes[1] > sizeof part || !read_all(from, part, sizes[1]) ||
         !(room = ckpt_stage_borrow(stage, &theirs, sizes[0], err)) || !read_all(from, room, sizes[0]) ||
         ckpt_stage_keep(stage, part, sizes[1], err) < 0))
        return error_set(err, CODE_PEER, "no copy of rank %d", theirs.shard);
    if (save->shard == save->shards - 1)
        return 0;
    if (ckpt_stage_lend(stage, &mine, err) < 0)
        return -1;
    sizes[0] = mine.bytes;
    sizes[1] = mine.part_bytes;
    if (write(to, sizes, sizeof sizes) < 0 || write(to, mine.part, mine.part_bytes) < 0 ||
        write(to, mine.data, mine.bytes) != (ssize_t)mine.bytes)
        return error_errno(err, CODE_IO, "a copy");
    return 0;
}

static int stage_shard(const struct options *options, const struct ckpt_save *save, struct error *err)
{
    struct ckpt_stage *stage = open_stage(options, save->shard, err);
    int result = stage ? ckpt_stage_shard(stage, save, err) : -1;

    if (result == 0 && options->nodes)
        result = exchange_copies(options, stage, save, err);
    if (result == 0 && options->nodes && save->shard == save->shards - 1) /* all the others had, before */
        result = say("staged", save->state.step, err);
    ckpt_stage_destroy(stage);
    return result == 0 ? 0 : -1;
}

/* muster-ckptd, which was built two directories above this program. */
static pid_t start_drainer(const struct options *options, const char *stage)
{
    char self[PATH_MAX] = "", program[PATH_MAX + 16];
    pid_t child;

    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return -1;
    snprintf(program, sizeof program, "%s/muster-ckptd", dirname(dirname(dirname(self))));
    child = fork();
    if (child == 0) {
        execl(program, program, "--once", "--quiet", "--threads", "1", "--partner", stage, NULL);
        _exit(CODE_INTERNAL);
    }
    return child;
}

/* The nodes that are left, one after the other; and once more, since the first could not know that the last commits. */
static int drain_nodes(const struct options *options, struct error *err)
{
    char stage[PATH_MAX];
    int status, code = 0;

    for (int turn = 0; turn < 2 * options->plan.shards; turn++) {
        const char *root = stage_root(options, turn % options->plan.shards);

        if (access(root, F_OK) != 0)
            continue;
        if (ckpt_stage_path(stage, sizeof stage, root, "crash", "a", err) < 0)
            return -1;
        if (access(stage, F_OK) != 0)
            continue;
        if (start_drainer(options, stage) < 0)
            return error_errno(err, CODE_IO, "cannot start muster-ckptd");
        if (wait(&status) > 0 && status != 0 && turn >= options->plan.shards)
            code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    return code;
}

/* Two at once: one finds the other's lock and ends well. 0 if none of them failed, -1 or a code. */
static int drain(const struct options *options, int drainers, struct error *err)
{
    char stage[PATH_MAX];
    int status, code = 0;

    if (options->nodes)
        return drain_nodes(options, err);
    if (ckpt_stage_path(stage, sizeof stage, options->stage, "crash", "a", err) < 0)
        return -1;
    for (int d = 0; d < drainers; d++)
        if (start_drainer(options, stage) < 0)
            return error_errno(err, CODE_IO, "cannot start muster-ckptd");
    while (wait(&status) > 0)
        if (status != 0 && code == 0)
            code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return code;
}

static int save_shard(const struct options *options, const struct world *world, const struct topology *topology,
                      int shard, const char *dir, uint64_t step, struct error *err)
{
    struct ckpt_save save = world_save(world, topology, shard, dir, step, options->attempt);

    if (options->stage)
        return stage_shard(options, &save, err);
    if (ckpt_write_shard(&save, err) < 0)
        return -1;
    return commit(options, dir, step, err) < 0 ? -1 : 0;
}

/* 0, -1 with an error, or 1 for a rank that ended without a word. */
/* Before the forks: [0] and [ranks] are nobody's. */
static void open_pipes(struct options *options, int ranks)
{
    for (int r = 0; r <= ranks; r++)
        options->copies[r][0] = options->copies[r][1] = -1;
    for (int r = 1; r < ranks; r++)
        if (pipe(options->copies[r]) < 0)
            abort();
}

/* All but a rank's own ends; rank -1 has none. A reader whose writer was killed must find the end of the file. */
static void close_pipes(const struct options *options, int ranks, int rank)
{
    for (int r = 1; r < ranks; r++) {
        if (r != rank)
            close(options->copies[r][0]);
        if (r != rank + 1 || rank < 0)
            close(options->copies[r][1]);
    }
}

static int save_forked(struct options *options, const struct world *world, const struct topology *topology, int ranks,
                       const char *dir, uint64_t step, struct error *err)
{
    int status, result = 0;

    open_pipes(options, ranks);
    for (int s = 0; s < ranks; s++) {
        pid_t rank = fork();

        if (rank < 0)
            return error_errno(err, CODE_IO, "cannot fork");
        if (rank == 0)
            close_pipes(options, ranks, s);
        if (rank == 0)
            _exit(save_shard(options, world, topology, s, dir, step, err) < 0 ? error_report(err) : 0);
    }
    close_pipes(options, ranks, -1);
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
            ckpt_remove_attempt(dir, step, options->attempt, NULL); /* as all ranks do who have agreed to give up */
            return -1;
        }
    return 0;
}

static int save_step(struct options *options, struct world *world, struct topology *topology, const char *dir,
                     uint64_t step, struct error *err)
{
    int ranks = options->plan.shards - options->absent, result;

    if (options->stage) /* a drainer does not make it */
        mkdir(dir, 0777);
    plan_step(world, &options->plan, step);
    topology_fill(topology, world);
    result = options->serial ? save_serial(options, world, topology, ranks, dir, step, err)
                             : save_forked(options, world, topology, ranks, dir, step, err);
    if (result != 0)
        return result;
    if (options->no_drain)
        return 0;
    if (options->stage && (say("staged", step, err) < 0 || (result = drain(options, 2, err)) != 0))
        return result ? result : -1;
    result = commit(options, dir, step, err);
    if (result == 0 && !options->absent && !options->no_commit)
        return error_set(err, CODE_INTERNAL, "step %llu is complete and was not committed", (unsigned long long)step);
    if (result < 0)
        return -1;
    return options->no_commit ? 0 : ckpt_prune(dir, options->plan.keep, 0, err);
}

static int claim_once(const char *dir, const struct ckpt_claim *claim, struct error *err)
{
    int result = ckpt_claim_take(dir, claim, err);

    return result > 0 ? say("owner", claim->number, err) : result;
}

/* Whoever owns DIR is taken for dead, by all at once. Who is killed does not claim. */
static int claim_directory(const struct options *options, const char *dir, char attempt[static CKPT_ATTEMPT_SIZE],
                           struct error *err)
{
    struct ckpt_claim claim;

    if (options->claim == 0)
        return 0;
    mkdir(dir, 0777);
    if (ckpt_recover(dir, err) < 0 || ckpt_claim_read(dir, &claim, err) < 0)
        return -1;
    claim.accepts = ++claim.number;
    for (int c = 0; c < options->claim; c++)
        if (fork() == 0)
            _exit(claim_once(dir, &claim, err) < 0 ? error_report(err) : 0);
    while (wait(NULL) > 0)
        ;
    ckpt_claim_clear(&claim);
    if (ckpt_claim_read(dir, &claim, err) < 0)
        return -1;
    ckpt_claim_attempt(attempt, claim.number);
    ckpt_claim_clear(&claim);
    return 0;
}

static int run(struct options *options, const char *dir, char *const *steps, struct error *err)
{
    struct world world;
    struct topology *topology = plan_create(&options->plan, 0, &world);
    char attempt[CKPT_ATTEMPT_SIZE];
    int result;

    snprintf(attempt, sizeof attempt, "%s", options->attempt);
    options->attempt = attempt;
    result = claim_directory(options, dir, attempt, err);
    if (result == 0 && options->recover && ckpt_recover(dir, err) < 0)
        result = -1;
    if (options->drain && result == 0)
        result = drain(options, 1, err);
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
        {"stage", required_argument, NULL, 'g'},
        {"drain", no_argument, &options.drain, 1},
        {"claim", required_argument, NULL, 'c'},
        {"no-drain", no_argument, &options.no_drain, 1},
        {"nodes", no_argument, &options.nodes, 1},
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
        else if (option == 'c')
            options.claim = atoi(optarg);
        else if (option == 'g')
            options.stage = optarg;
        else if (option != 0)
            return CODE_USAGE;
    if (optind >= argc)
        return CODE_USAGE;
    options.plan.large = options.large;
    result = run(&options, argv[optind], argv + optind + 1, &err);
    return result < 0 ? error_report(&err) : result;
}
