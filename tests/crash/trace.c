#include "tests/crash/trace.h"
#include "tests/cmocka_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_THREADS 256

enum { NOT_ALLOWED = 97, NO_PROGRAM = 98 };

struct thread {
    pid_t tid;
    int process;
};

struct tracer {
    const char *root;
    struct trace_kill kill;
    struct trace *trace;
    pid_t pids[TRACE_MAX_PROCESSES];
    bool ended[TRACE_MAX_PROCESSES], armed[TRACE_MAX_PROCESSES];
    struct thread threads[MAX_THREADS];
    int nthreads;
};

static struct thread *find(struct tracer *tracer, pid_t tid)
{
    for (int t = 0; t < tracer->nthreads; t++)
        if (tracer->threads[t].tid == tid)
            return &tracer->threads[t];
    return NULL;
}

static void add(struct tracer *tracer, pid_t tid, int process)
{
    assert_true(tracer->nthreads < MAX_THREADS);
    tracer->threads[tracer->nthreads++] = (struct thread){tid, process};
}

/* The process that a stopped thread belongs to. */
static pid_t owner_of(pid_t tid)
{
    char path[40], line[128];
    int owner = 0;
    FILE *status;

    snprintf(path, sizeof path, "/proc/%d/status", (int)tid);
    status = fopen(path, "r");
    while (status && fgets(line, sizeof line, status) && sscanf(line, "Tgid: %d", &owner) != 1)
        ;
    if (status)
        fclose(status);
    assert_true(owner > 0);
    return owner;
}

/* Its number; it is given one if it has none. */
static int process_number(struct tracer *tracer, pid_t pid)
{
    for (int p = 0; p < tracer->trace->processes; p++)
        if (tracer->pids[p] == pid)
            return p;
    assert_true(tracer->trace->processes < TRACE_MAX_PROCESSES);
    tracer->pids[tracer->trace->processes] = pid;
    return tracer->trace->processes++;
}

/* Whether the call's path begins with the root. */
static bool names_root(const struct tracer *tracer, pid_t tid, const struct __ptrace_syscall_info *info)
{
    char path[512] = "";
    uint64_t address = 0;
    struct iovec local = {path, sizeof path - 1}, remote;
    size_t length = strlen(tracer->root);

    switch (info->entry.nr) {
    case SYS_openat:
    case SYS_mkdirat:
    case SYS_unlinkat:
    case SYS_newfstatat:
        address = info->entry.args[1];
        break;
#ifdef SYS_open
    case SYS_open:
    case SYS_mkdir:
    case SYS_stat:
        address = info->entry.args[0];
        break;
#endif
    default:
        return false;
    }
    remote = (struct iovec){(void *)(uintptr_t)address, sizeof path - 1};
    while (process_vm_readv(tid, &local, 1, &remote, 1, 0) < 0 && errno == EFAULT && remote.iov_len > 1)
        remote.iov_len /= 2; /* the string may lie at the end of what is mapped */
    return strncmp(path, tracer->root, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

static void kill_now(struct tracer *tracer, int process)
{
    tracer->trace->killed = true;
    tracer->trace->victim = process;
    for (int p = 0; p < tracer->trace->processes; p++)
        if ((p == process || tracer->kill.all) && !tracer->ended[p])
            kill(tracer->pids[p], SIGKILL);
}

/* A call is about to be made. Returns whether the caller was killed. */
static bool at_call(struct tracer *tracer, const struct thread *thread)
{
    struct __ptrace_syscall_info info = {0};
    int process = thread->process;

    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread->tid, sizeof info, &info) <= 0 || info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return false;
    tracer->armed[process] = tracer->armed[process] || names_root(tracer, thread->tid, &info);
    if (!tracer->armed[process] || ++tracer->trace->calls[process] != tracer->kill.call || tracer->trace->killed ||
        (process != tracer->kill.process && process != tracer->kill.twin))
        return false;
    kill_now(tracer, process);
    return true;
}

static void resume(pid_t tid, int deliver)
{
    ptrace(PTRACE_SYSCALL, tid, NULL, deliver); /* fails if it was killed meanwhile: its end will be reported */
}

/*
 * A new thread or process has stopped for the first time. It is asked whose it is: its parent may have been killed
 * before it told of the birth, and whoever waited for that would wait for ever.
 */
static void at_birth(struct tracer *tracer, pid_t who)
{
    add(tracer, who, process_number(tracer, owner_of(who)));
    if (tracer->trace->killed && tracer->kill.all)
        kill(who, SIGKILL);
    else
        resume(who, 0);
}

/* A parent tells of a child that may not have stopped yet; so processes are numbered as they were forked. */
static void at_fork(struct tracer *tracer, pid_t parent)
{
    unsigned long child = 0;

    if (ptrace(PTRACE_GETEVENTMSG, parent, NULL, &child) == 0)
        process_number(tracer, (pid_t)child);
    resume(parent, 0);
}

static void at_end(struct tracer *tracer, pid_t who, int status)
{
    struct thread *thread = find(tracer, who);

    for (int p = 0; p < tracer->trace->processes; p++)
        if (tracer->pids[p] == who)
            tracer->ended[p] = true;
    if (who == tracer->pids[0])
        tracer->trace->status = status;
    if (thread)
        *thread = tracer->threads[--tracer->nthreads];
}

static void at_stop(struct tracer *tracer, pid_t who, int status)
{
    struct thread *thread = find(tracer, who);
    int signal = WSTOPSIG(status), event = status >> 16;

    if (!thread) {
        at_birth(tracer, who);
    } else if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK) {
        at_fork(tracer, who);
    } else if (signal == (SIGTRAP | 0x80)) {
        if (!at_call(tracer, thread))
            resume(who, 0);
    } else {
        resume(who, signal == SIGTRAP || signal == SIGSTOP ? 0 : signal);
    }
}

static pid_t start(const char *const *argv, int out)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        int nowhere = open("/dev/null", O_RDWR);

        dup2(out, 1);
        dup2(nowhere, 2);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            _exit(NOT_ALLOWED);
        raise(SIGSTOP);
        execv(argv[0], (char **)(uintptr_t)argv);
        _exit(NO_PROGRAM);
    }
    return child;
}

static void read_said(int fd, struct trace *trace)
{
    ssize_t got;
    size_t length = 0;

    while (length + 1 < sizeof trace->said &&
           (got = read(fd, trace->said + length, sizeof trace->said - 1 - length)) > 0)
        length += (size_t)got;
    trace->said[length] = '\0';
    close(fd);
}

void trace_run(const char *const *argv, const char *root, struct trace_kill kill, struct trace *trace)
{
    const long wanted =
        PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
    struct tracer tracer = {.root = root, .kill = kill, .trace = trace};
    int out[2], status;
    pid_t child, who;

    memset(trace, 0, sizeof *trace);
    trace->victim = kill.process;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    child = start(argv, out[1]);
    close(out[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status)) {
        trace->refused = WIFEXITED(status) && WEXITSTATUS(status) == NOT_ALLOWED;
        close(out[0]);
        return;
    }
    assert_int_equal(ptrace(PTRACE_SETOPTIONS, child, NULL, wanted), 0);
    add(&tracer, child, process_number(&tracer, child));
    resume(child, 0);
    while ((who = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
        if (who < 0)
            continue;
        if (WIFSTOPPED(status))
            at_stop(&tracer, who, status);
        else
            at_end(&tracer, who, status);
    }
    assert_false(WIFEXITED(trace->status) && WEXITSTATUS(trace->status) == NO_PROGRAM);
    read_said(out[0], trace); /* it is far less than a pipe holds */
}
