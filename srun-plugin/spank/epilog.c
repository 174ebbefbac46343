/* epilog.c - context epilog: root starts a muster-ckptd, as the job's user (as_user.h), for each stage that a job left. */
#include "srun-plugin/spank/epilog.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "srun-plugin/spank/as_user.h"

enum {
    STAGES_MOST = 64,   /* of the job that ends, which has one on a node, or a few; and of each user's earlier jobs */
    OTHERS_SECONDS = 2, /* at most, for the stages of all earlier jobs: the node's next job waits for these */
    LEAST_MS = 500,     /* for a stage to be begun */
    SPARE_SECONDS = 5,  /* at most, for muster-ckptd to end by itself, and again to be killed */
    LOOK_MS = 20,
    LINES_MOST = 50,
    OUTPUT_MOST = 32 * 1024, /* bytes that are kept of what a muster-ckptd prints */
    FILES_MOST = 65536,
    SLURM_SECONDS = 3, /* of Slurm's timeout, for slurmstepd to start and end, and for other plugins */
};

/* Results of run_program, besides exit statuses. */
enum {
    KILLED = -1,      /* it went on for too long, or the user stopped it (SIGSTOP) */
    LEFT_BEHIND = -2, /* and could not be killed: it hangs in the kernel, or a debugger has it */
    NO_PROCESS = -3   /* errno says why */
};

struct epilog_pass {
    const struct epilog *epilog;
    void (*log)(const char *line);
    double deadline;
};

struct stage {
    char path[PATH_MAX];
    uint32_t uid, job;
    const char *keep;  /* --reclaim's AGE, of an earlier job; NULL: of the job that ends */
    uint32_t order[3]; /* see order_stages */
};

static void __attribute__((format(printf, 2, 3))) log_line(const struct epilog_pass *run, const char *format, ...)
{
    char line[PATH_MAX + 256];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    run->log(line);
}

static double seconds_left(const struct epilog_pass *run)
{
    return run->deadline - clock_monotonic();
}

/* ---- the child --------------------------------------------------------------------------------------------------- */

/* What is left of `seconds` is for the program to end by itself, and then to be killed. */
static double spare_of(double seconds)
{
    return fmin(seconds / 6, SPARE_SECONDS);
}

static _Noreturn void become_program(const struct epilog *epilog, const struct stage *stage, double seconds, int out)
{
    const struct user_ids user = {.uid = stage->uid};
    char limit[32], reclaim[64], path[] = "PATH=/usr/bin:/bin", *environment[] = {path, NULL};
    const char *argv[] = {
        epilog->ckptd, "--once", "--partner", "--seconds", limit, stage->path, stage->keep ? reclaim : NULL, NULL};

    snprintf(limit, sizeof limit, "%.1f", seconds - 2 * spare_of(seconds));
    snprintf(reclaim, sizeof reclaim, "--reclaim=%s", stage->keep ? stage->keep : "");
    setpgid(0, 0);
    as_user_run(&user, (const int[]){-1, out, out}, (char *const *)(uintptr_t)argv, environment);
}

/* ---- what it prints ---------------------------------------------------------------------------------------------- */

/* A file in memory that cannot grow, of zeros: whatever the child prints, the beginning is kept. -1 and errno. */
static int create_output(void)
{
    int lowest = memfd_create("muster-ckptd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int fd;

    if (lowest < 0)
        return -1;
    fd = fcntl(lowest, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); /* slurmstepd has closed its standard input */
    close(lowest);
    if (fd >= 0 && (ftruncate(fd, OUTPUT_MOST) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) < 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void log_output(const struct epilog_pass *run, int fd)
{
    char text[OUTPUT_MOST + 1], *rest = text, *line;
    ssize_t got = pread(fd, text, OUTPUT_MOST, 0);
    int lines = 0;

    text[got > 0 ? got : 0] = '\0';
    for (char *at = text; *at; at++)
        if (*at != '\n' && (*at < ' ' || *at > '~'))
            *at = '?';
    while ((line = strsep(&rest, "\n")) && lines <= LINES_MOST)
        if (line[0])
            log_line(run, "%s", lines++ < LINES_MOST ? line : "muster-ckptd says more, which is left out");
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* True when the child has ended before `deadline`, or, with `options` WSTOPPED, was stopped. It is still to be reaped. */
static bool wait_until(pid_t child, int options, double deadline)
{
    while (clock_monotonic() < deadline) {
        siginfo_t info = {.si_pid = 0};

        if (waitid(P_PID, (id_t)child, &info, WEXITED | options | WNOHANG | WNOWAIT) < 0 || info.si_pid == child)
            return true;
        clock_sleep(LOOK_MS / 1000.0);
    }
    return false;
}

/* Its group too goes, while its number is still taken. */
static int reap_child(pid_t child)
{
    int status = 0;

    kill(-child, SIGKILL);
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return KILLED;
    return WEXITSTATUS(status);
}

static int wait_for(pid_t child, double end, double spare)
{
    if (wait_until(child, WSTOPPED, end - spare) && wait_until(child, 0, clock_monotonic() + LOOK_MS / 1000.0))
        return reap_child(child);
    kill(-child, SIGKILL);
    if (!wait_until(child, 0, end))
        return LEFT_BEHIND;
    reap_child(child);
    return KILLED;
}

/*
 * Runs muster-ckptd on the stage, and waits for it until the deadline, even if it cannot be killed. Returns its exit
 * status, or one of the above. What it prints goes to the log when it has ended, line by line, with '?' for what is not
 * printable ASCII, since names of the user's making are in it.
 */
static int run_program(const struct epilog_pass *run, const struct stage *stage)
{
    double seconds = seconds_left(run);
    int out = create_output(), status = NO_PROCESS, why;
    pid_t child = out < 0 ? -1 : fork();

    if (child == 0)
        become_program(run->epilog, stage, seconds, out);
    why = errno;
    if (child > 0) {
        setpgid(child, child);
        status = wait_for(child, run->deadline, spare_of(seconds));
        log_output(run, out);
    }
    if (out >= 0)
        close(out);
    errno = why;
    return status;
}

/* ---- the stages -------------------------------------------------------------------------------------------------- */

/*
 * "muster-<uid>-<job>", and after it nothing or ".NODE.CHECKSUM" (trainer/saver.c), in the characters that a stage's
 * name has (ckpt_stage_path). The directory is everybody's: what else a name may hold would forge lines of slurmd's
 * log.
 */
static bool read_name(const char *name, struct stage *stage)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    char normal[64];
    size_t length;

    if (sscanf(name, "muster-%" SCNu32 "-%" SCNu32, &stage->uid, &stage->job) != 2)
        return false;
    length = (size_t)snprintf(normal, sizeof normal, "muster-%" PRIu32 "-%" PRIu32, stage->uid, stage->job);
    return strncmp(name, normal, length) == 0 && (name[length] == '\0' || name[length] == '.') &&
           name[strspn(name, letters)] == '\0';
}

/* Differs from job to job: so another user's stage comes first in another epilog. */
static uint32_t draw_lot(uint32_t of, uint32_t job)
{
    uint64_t mixed = ((uint64_t)of << 32 | job) * 0x9e3779b97f4a7c15;

    return (uint32_t)((mixed ^ mixed >> 32) * 0xd6e8feb86659fd93 >> 32);
}

/* Owned by the user in its name, and no link. What muster-ckptd then opens, it opens as that user. */
static bool is_stage(const struct epilog *epilog, DIR *directory, const char *root, const char *name,
                     struct stage *stage)
{
    struct stat status;
    bool own;

    if (!read_name(name, stage) || fstatat(dirfd(directory), name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(status.st_mode) || status.st_uid != stage->uid ||
        snprintf(stage->path, sizeof stage->path, "%s/%s", root, name) >= (int)sizeof stage->path)
        return false;
    own = stage->uid == epilog->uid && stage->job != 0 &&
          (stage->job == epilog->job_id || stage->job == epilog->het_job_id);
    stage->keep = own ? NULL : epilog->keep;
    stage->order[0] = !own;
    stage->order[1] = stage->uid;
    stage->order[2] = draw_lot((uint32_t)status.st_ino, epilog->job_id);
    return own || (stage->keep && (geteuid() == 0 || geteuid() == stage->uid));
}

struct stages {
    struct stage *stage;
    size_t room, count, own; /* own: of the job that ends; they come first */
    size_t left;             /* stages that are not looked at */
};

/* Bounds the memory that a user's directories cost root. */
static bool has_room(struct stages *found, const struct stage *stage)
{
    struct error ignored;
    size_t same = 0;

    for (size_t i = 0; i < found->count; i++)
        same += found->stage[i].uid == stage->uid && found->stage[i].order[0] == stage->order[0];
    return same < STAGES_MOST &&
           error_reserve(&found->stage, &found->room, found->count, 1, sizeof *found->stage, &ignored) == 0;
}

static void find_stages(const struct epilog *epilog, const char *root, struct stages *found)
{
    DIR *directory = root[0] == '/' ? opendir(root) : NULL;
    struct dirent *entry;
    struct stage stage;

    while (directory && (entry = readdir(directory))) {
        if (!is_stage(epilog, directory, root, entry->d_name, &stage))
            continue;
        if (has_room(found, &stage))
            found->stage[found->count++] = stage;
        else
            found->left++;
    }
    if (directory)
        closedir(directory);
}

static int compare_order(const void *a, const void *b)
{
    const struct stage *left = a, *right = b;
    int i = 0;

    while (i < 2 && left->order[i] == right->order[i])
        i++;
    return (left->order[i] > right->order[i]) - (left->order[i] < right->order[i]);
}

/*
 * The job's own stages come first: they have the newest saves. Then comes one stage of each user, then a second one of
 * each, and so on: no user's directories delay another's first stage. The order of users, and of each user's stages, is
 * drawn by lot.
 */
static void order_stages(struct stages *found, uint32_t job)
{
    struct stage *stage = found->stage;

    if (found->count == 0)
        return;
    qsort(stage, found->count, sizeof *stage, compare_order); /* by user */
    for (size_t i = 0; i < found->count; i++) {
        bool next = i > 0 && stage[i].uid == stage[i - 1].uid && stage[i].order[0] == stage[i - 1].order[0];

        found->own += stage[i].order[0] == 0;
        stage[i].order[1] = next ? stage[i - 1].order[1] + 1 : 0;
        stage[i].order[2] = draw_lot(stage[i].uid, job);
    }
    qsort(stage, found->count, sizeof *stage, compare_order); /* by turn */
}

static void log_result(const struct epilog_pass *run, const struct stage *stage, int status)
{
    const char *path = stage->path;

    if (status == NO_PROCESS)
        log_line(run, "%s: not drained: %s", path, strerror(errno));
    else if (status == AS_NO_PROGRAM)
        log_line(run, "%s: not drained: %s does not start", path, run->epilog->ckptd);
    else if (status == AS_NO_USER)
        log_line(run, "%s: not drained: cannot become user %" PRIu32, path, stage->uid);
    else if (status == LEFT_BEHIND || status == KILLED)
        log_line(run, "%s: not fully drained: muster-ckptd %s; a requeued job continues", path,
                 status == KILLED ? "was killed" : "hangs and cannot be killed");
    else if (status == CODE_STOPPED) /* muster-ckptd has logged what is left, and why */
        log_line(run, "%s: not fully drained; the rest is kept. muster-ckptd --once continues", path);
    else if (status == CODE_PEER)
        log_line(run, "%s: drained; other shards are missing. The last node to finish commits", path);
    else if (status != 0)
        log_line(run, "%s: not fully drained: muster-ckptd ended with %d", path, status);
    else if (!stage->keep) /* of an earlier job: drained, which muster-ckptd has logged, or in use by a job that runs */
        log_line(run, "%s: drained after job %" PRIu32, path, run->epilog->job_id);
}

/* Drains the stages from `first` up to `end`, until `deadline`. One of an earlier job leaves half of the time to those
 * after it. Returns the first that was not looked at. */
static size_t drain_stages(struct epilog_pass *run, const struct stages *found, size_t first, size_t end,
                           double deadline)
{
    struct error err;

    for (; first < end; first++) {
        const struct stage *stage = &found->stage[first];

        run->deadline = deadline;
        if (stage->keep && first + 1 < end)
            run->deadline -= seconds_left(run) / 2;
        if (seconds_left(run) * 1000 < LEAST_MS)
            break;
        if (run->epilog->trust && run->epilog->trust(run->epilog->ckptd, &err) < 0)
            log_line(run, "%s: not drained: %s", stage->path, err.text);
        else
            log_result(run, stage, run_program(run, stage));
    }
    return first;
}

/* As that user: in the directory, which all may write to, it is then able to remove the user's own files only. */
static void remove_prometheus(const struct epilog_pass *run, uint32_t job)
{
    const struct epilog *epilog = run->epilog;
    char path[PATH_MAX], begun[PATH_MAX + 8];
    struct stat status;

    snprintf(path, sizeof path, "%s/muster-%u-%" PRIu32 ".prom", epilog->prometheus, (unsigned)epilog->uid, job);
    snprintf(begun, sizeof begun, "%s.tmp", path);
    if (job == 0)
        return;
    setfsuid(epilog->uid);
    unlink(begun);
    errno = 0;
    if (lstat(path, &status) < 0)
        errno = 0;
    else if (status.st_uid != epilog->uid || !S_ISREG(status.st_mode) || unlink(path) < 0)
        log_line(run, "%s: left: %s", path, errno ? strerror(errno) : "not a regular file of the job's user");
    setfsuid(geteuid());
}

/* At slurmd's start, nobody waits for it. */
static double others_seconds(const struct epilog *epilog)
{
    return epilog->job_id == 0 ? epilog->seconds : fmin(epilog->seconds / 3.0, OTHERS_SECONDS);
}

/*
 * The job's own stages leave some time for those of earlier jobs, so that their memory comes back even if the target of
 * the own ones fails in every epilog.
 */
int epilog_drain(const struct epilog *epilog, void (*log)(const char *line))
{
    struct epilog_pass run = {.epilog = epilog, .log = log};
    double end = clock_monotonic() + epilog->seconds, others = others_seconds(epilog);
    char roots[PATH_MAX], *rest = roots, *root;
    struct stages found = {0};
    size_t own, last;

    if (epilog->prometheus) {
        remove_prometheus(&run, epilog->job_id);
        remove_prometheus(&run, epilog->het_job_id);
    }
    if (epilog->seconds <= 0 || strlen(epilog->roots) >= sizeof roots)
        return 0;
    strcpy(roots, epilog->roots);
    while ((root = strsep(&rest, ":")))
        find_stages(epilog, root, &found);
    order_stages(&found, epilog->job_id);
    own = drain_stages(&run, &found, 0, found.own, found.count > found.own ? end - others : end);
    last = drain_stages(&run, &found, found.own, found.count, fmin(end, clock_monotonic() + others));
    found.left += found.own - own + found.count - last;
    if (found.left > 0)
        log_line(&run, "%zu stages are not looked at: no time is left, or one user has more than %d", found.left,
                 STAGES_MOST);
    free(found.stage);
    return (int)(own + last - found.own);
}

int epilog_start(const struct epilog *epilog, void (*log)(const char *line))
{
    struct rlimit files;
    struct stat status;
    sigset_t none;
    pid_t child = fork();

    if (child != 0)
        return child > 0 && waitpid(child, NULL, 0) == child ? 0 : -1;
    if (setsid() < 0 || fork() != 0) /* nobody waits for a child of the child */
        _exit(0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGALRM, SIG_DFL);
    alarm((unsigned)epilog->seconds + SPARE_SECONDS);
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur > FILES_MOST)
        files.rlim_cur = FILES_MOST;
    for (int fd = STDERR_FILENO + 1; fd < (int)files.rlim_cur; fd++)
        if (fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) /* slurmd's port: a new slurmd needs it */
            close(fd);
    epilog_drain(epilog, log);
    _exit(0);
}

int epilog_timeout_fit(int seconds, int timeout, void (*warn)(const char *line))
{
    int granted = timeout < SLURM_SECONDS ? 0 : timeout - SLURM_SECONDS;
    char line[512];

    if (timeout == EPILOG_NO_TIMEOUT || seconds <= granted)
        return seconds;
    snprintf(line, sizeof line,
             "muster: warning: slurm.conf's PrologEpilogTimeout (EpilogTimeout) of %d s is too short for "
             "epilog_seconds=%d in plugstack.conf: the epilog drains checkpoints for %d s only; make the timeout %d s "
             "or longer",
             timeout, seconds, granted, seconds + SLURM_SECONDS);
    if (warn)
        warn(line);
    return granted;
}
