/*
 * A process that saves, commits and prunes is killed before its first system call that changes a file, before its
 * second, and so on until it gets through. Whatever it leaves behind: what was committed is whole, and the next try
 * succeeds.
 *
 * The parent traces the child and all its threads (ptrace), so nothing is mocked and nothing is missed.
 */
#include "tests/cmocka_test.h"
#include "tests/unit/test_ckpt_world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_ALLOWED = 77 }; /* the child's exit code when it cannot be traced */

/* The system calls that count. (Older ones are not there on every architecture.) */
static bool changes_files(uint64_t number)
{
    static const long calls[] = {
        SYS_openat,   SYS_write,     SYS_pwrite64, SYS_fsync,    SYS_fallocate, SYS_ftruncate,
        SYS_renameat, SYS_renameat2, SYS_mkdirat,  SYS_unlinkat, SYS_close,
#ifdef SYS_open
        SYS_open,     SYS_mkdir,     SYS_rename,   SYS_unlink,   SYS_rmdir,
#endif
    };

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if ((long)number == calls[i])
            return true;
    return false;
}

/* Let the child run until it is about to do its n-th such call, and kill it there. Returns whether it came to an end
 * before. */
static bool run_until(pid_t child, int n)
{
    int status, seen = 0;
    pid_t who;

    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_ALLOWED) {
        print_message("# this machine does not allow one process to trace another\n");
        skip();
    }
    assert_true(WIFSTOPPED(status));
    assert_int_equal(
        ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL), 0);
    ptrace(PTRACE_SYSCALL, child, NULL, NULL);
    while ((who = waitpid(-1, &status, __WALL)) > 0) {
        struct __ptrace_syscall_info info = {0};
        long deliver = 0;

        if (!WIFSTOPPED(status)) {
            if (who == child)
                return WIFEXITED(status) && WEXITSTATUS(status) == 0;
            continue; /* a thread that ended */
        }
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            if (ptrace(PTRACE_GET_SYSCALL_INFO, who, sizeof info, &info) > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY &&
                changes_files(info.entry.nr) && ++seen == n) {
                kill(child, SIGKILL); /* stopped before the call: it is never made */
                while (waitpid(-1, &status, __WALL) > 0)
                    ;
                return false;
            }
        } else if (WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP) {
            deliver = WSTOPSIG(status);
        }
        ptrace(PTRACE_SYSCALL, who, NULL, deliver);
    }
    fail_msg("lost the child: %s", strerror(errno));
    return false;
}

/* What the child does, after it has asked to be traced. */
static void save(const struct world *world, const struct topology *topology, const char *dir)
{
    struct error err = {0};

    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
        _exit(NOT_ALLOWED);
    raise(SIGSTOP);
    for (int s = 0; s < topology->shards; s++) {
        struct ckpt_save part = world_save(world, topology, s, dir, 30, "killed");

        if (ckpt_write_shard(&part, &err) < 0)
            _exit(1);
    }
    if (ckpt_commit(dir, 30, "killed", &err) != 1 || ckpt_prune(dir, 2, 0, &err) < 0)
        _exit(1);
    _exit(0);
}

/* Every checkpoint that is listed is whole; those in `must` are listed. Returns whether `step` is. */
static bool check(const struct world *world, struct topology *reader, const char *dir, uint64_t must, uint64_t step)
{
    struct error err;
    uint64_t *steps;
    size_t count;
    bool have_must = false, have_step = false;

    assert_int_equal(ckpt_list(dir, &steps, &count, &err), 0);
    for (size_t i = 0; i < count; i++) {
        world_expect(world, reader, dir, steps[i]);
        have_must = have_must || steps[i] == must;
        have_step = have_step || steps[i] == step;
    }
    assert_true(have_must);
    free(steps);
    return have_step;
}

static void killed_before_every_call(void **state)
{
    uint64_t random = 21;
    struct world world;
    struct topology *writer, *reader;
    bool through = false;
    int n, whole = 0, recovered = 0;

    world_create(&world, &random, false);
    writer = topology_create(&world, 2, &random);
    reader = topology_create(&world, 3, &random);
    for (n = 1; !through; n++) {
        struct error err;
        pid_t child;
        char dir[256];

        scratch_create(dir, scratch_fast());
        world_write(&world, writer, dir, 10, "1");
        world_write(&world, writer, dir, 20, "1");
        child = fork();
        assert_true(child >= 0);
        if (child == 0)
            save(&world, writer, dir);
        through = run_until(child, n);
        assert_true(n < 1000);

        whole += check(&world, reader, dir, 20, 30);
        if (n % 2) { /* half the time whoever comes next first looks what can be finished */
            int done = ckpt_recover(dir, &err);

            assert_true(done >= 0);
            recovered += done;
        }
        for (int s = 0; s < writer->shards; s++) {
            struct ckpt_save part = world_save(&world, writer, s, dir, 30, "again");

            if (ckpt_write_shard(&part, &err) < 0)
                fail_msg("killed at call %d, then: %s", n, err.text);
        }
        if (ckpt_commit(dir, 30, "again", &err) != 1 || ckpt_prune(dir, 2, 0, &err) < 0)
            fail_msg("killed at call %d, then: %s", n, err.text);
        assert_true(check(&world, reader, dir, 20, 30));
        scratch_destroy(dir);
    }
    print_message("# %d kills: in %d the new checkpoint was there already, in %d it could be recovered\n", n - 2,
                  whole - 1, recovered);
    assert_true(n - 2 > 50);    /* that many calls there are at least, or nothing was counted */
    assert_true(whole > 1);     /* some kills came after the rename */
    assert_true(recovered > 0); /* and some between the last part and the rename */
    topology_destroy(writer, &world);
    topology_destroy(reader, &world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_before_every_call),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
