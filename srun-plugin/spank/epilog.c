/* epilog.c - root starts a muster-ckptd, as the job's user (as_user.h), for each stage that a job left. */
#include "srun-plugin/spank/epilog.h"

#include <ctype.h>
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
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "srun-plugin/spank/as_user.h"

enum {
    STAGES_MOST = 64,  /* of the job that ends, which has one on a node, or a few; and as many of earlier jobs */
    LEAST_MS = 500,    /* for a stage to be begun */
    SPARE_SECONDS = 5, /* at most, for muster-ckptd to end by itself, and again to be killed */
    LOOK_MS = 20,
    LINES_MOST = 50,
    OUTPUT_MOST = 32 * 1024, /* bytes that are kept of what a muster-ckptd prints */
    FILES_MOST = 65536,
};

/* Results of run_program, besides exit statuses. */
enum {
    KILLED = -1,      /* it went on for too long */
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
    const char *keep; /* --reclaim's AGE, of an earlier job; NULL: of the job that ends */
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
    const char *argv[] = {epilog->ckptd, "--once", "--partner", "--idle=0",
                          "--seconds",   limit,    stage->path, stage->keep ? reclaim : NULL,
                          NULL};

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

/* True when the child has ended before `deadline`. It is still to be reaped. */
static bool wait_until(pid_t child, double deadline)
{
    while (clock_monotonic() < deadline) {
        siginfo_t info = {.si_pid = 0};

        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == child)
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
    if (wait_until(child, end - spare))
        return reap_child(child);
    kill(-child, SIGKILL);
    if (!wait_until(child, end))
        return LEFT_BEHIND;
    reap_child(child);
    return KILLED;
}

/*
 * Run `ckptd --once --partner --idle=0 --seconds N stage` as the user, with --reclaim for an earlier job's stage, and
 * wait for it until the deadline, even if it cannot be killed. N is smaller than what is left. Returns its exit status,
 * or one of the above. What it prints goes to the log when it has ended, line by line, with '?' for what is not
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

/* Owned by the user in its name, and no link. What muster-ckptd then opens, it opens as that user. */
static bool is_stage(DIR *directory, const char *root, const char *name, struct stage *stage)
{
    struct stat status;

    return read_name(name, stage) && fstatat(dirfd(directory), name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(status.st_mode) && status.st_uid == stage->uid &&
           snprintf(stage->path, sizeof stage->path, "%s/%s", root, name) < (int)sizeof stage->path;
}

struct stages {
    struct stage stage[STAGES_MOST];
    int count;
};

/* Into own and others; those that are too many are left, and other users' if slurmd is not root. */
static void find_stages(const struct epilog *epilog, const char *root, struct stages *own, struct stages *others)
{
    DIR *directory = root[0] == '/' ? opendir(root) : NULL;
    struct dirent *entry;
    struct stage stage;

    while (directory && (entry = readdir(directory))) {
        struct stages *into;

        if (!is_stage(directory, root, entry->d_name, &stage))
            continue;
        into = stage.uid == epilog->uid && stage.job != 0 &&
                       (stage.job == epilog->job_id || stage.job == epilog->het_job_id)
                   ? own
                   : others;
        stage.keep = into == own ? NULL : epilog->keep;
        if (into == others && (!stage.keep || (geteuid() != 0 && geteuid() != stage.uid)))
            continue;
        if (into->count < STAGES_MOST)
            into->stage[into->count++] = stage;
    }
    if (directory)
        closedir(directory);
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

/* How many were drained, or tried, until `deadline`. One that hangs leaves some time for other users' stages. */
static int drain_stages(struct epilog_pass *run, const struct stages *stages, double deadline)
{
    struct error err;

    for (int i = 0; i < stages->count; i++) {
        const struct stage *stage = &stages->stage[i];

        run->deadline = deadline;
        if (stage->keep && i + 1 < stages->count)
            run->deadline -= seconds_left(run) / 2;
        if (seconds_left(run) * 1000 < LEAST_MS) {
            log_line(run, "%s: no time is left to drain it and the stages after it", stage->path);
            return i;
        }
        if (run->epilog->trust && run->epilog->trust(run->epilog->ckptd, &err) < 0)
            log_line(run, "%s: not drained: %s", stage->path, err.text);
        else
            log_result(run, stage, run_program(run, stage));
    }
    return stages->count;
}

/*
 * The job's own stages come first: theirs are the newest saves. They leave some time for those of earlier jobs, so that
 * their memory comes back even if the target of the own ones fails in every epilog.
 */
int epilog_drain(const struct epilog *epilog, void (*log)(const char *line))
{
    struct epilog_pass run = {.epilog = epilog, .log = log};
    double end = clock_monotonic() + epilog->seconds;
    struct stages *found = calloc(2, sizeof *found);
    char roots[PATH_MAX], *rest = roots, *root;
    int count = 0;

    if (found && epilog->seconds > 0 && strlen(epilog->roots) < sizeof roots) {
        strcpy(roots, epilog->roots);
        while ((root = strsep(&rest, ":")))
            find_stages(epilog, root, &found[0], &found[1]);
        count = drain_stages(&run, &found[0], found[1].count > 0 ? end - spare_of(epilog->seconds) : end);
        if (found[0].count == STAGES_MOST)
            log_line(&run, "job %" PRIu32 " has %d stages or more; only these are drained", epilog->job_id,
                     STAGES_MOST);
        count += drain_stages(&run, &found[1], end);
    }
    free(found);
    return count;
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

/* ---- the timeout ------------------------------------------------------------------------------------------------- */

/*
 * slurmd kills an epilog that runs past the timeout in slurm.conf, and drains the node: the epilog has to end before.
 *
 * The timeout comes from the file. slurmstepd, in which the epilog runs, has in memory only the settings that slurmd
 * sends it; the timeout is not among them in Slurm 24.05 to 26.05. slurm_load_ctl_conf would ask slurmctld, from all
 * nodes of a job at the same moment.
 */
enum {
    SLURM_SECONDS = 3,   /* of the timeout, for slurmstepd to start and end, and for other plugins */
    INCLUDES_MOST = 4,   /* one in the other */
    SLURM_NONE = 0xfffe, /* NO_VAL16, by which `scontrol show config` shows that there is no timeout */
};

static const char blanks[] = " \t\r\n";

struct timeouts {
    int epilog, both; /* EpilogTimeout, PrologEpilogTimeout */
};

/* "KEY=N" anywhere in a line, in any case, with blanks and quotes as Slurm allows them. */
static void read_line(const char *line, struct timeouts *timeouts)
{
    static const char key[] = "EpilogTimeout", prefix[] = "Prolog";
    const size_t prefix_length = sizeof prefix - 1;

    for (const char *at = line; (at = strcasestr(at, key)); at += sizeof key - 1) {
        bool prefixed =
            (size_t)(at - line) >= prefix_length && strncasecmp(at - prefix_length, prefix, prefix_length) == 0;
        const char *start = prefixed ? at - prefix_length : at, *value = at + sizeof key - 1;
        char *end;
        long seconds;

        value += strspn(value, blanks);
        if ((start > line && !isspace((unsigned char)start[-1])) || *value != '=')
            continue;
        value += 1 + strspn(value + 1, " \t\"");
        seconds = strtol(value, &end, 10);
        if (end > value && seconds >= 0 && seconds < SLURM_NONE)
            *(prefixed ? &timeouts->both : &timeouts->epilog) = (int)seconds;
    }
}

/* Where the file of a line "Include FILE" is: a relative path is relative to the file that includes it. */
static bool find_include(const char *line, const char *includer, char path[PATH_MAX])
{
    const char *name = line + strspn(line, blanks), *slash = strrchr(includer, '/');
    int length;

    if (strncasecmp(name, "include", 7) != 0 || !isspace((unsigned char)name[7]))
        return false;
    name += 7 + strspn(name + 7, blanks);
    length = (int)strcspn(name, blanks);
    if (name[0] == '/' || !slash)
        return snprintf(path, PATH_MAX, "%.*s", length, name) < PATH_MAX;
    return snprintf(path, PATH_MAX, "%.*s/%.*s", (int)(slash - includer), includer, length, name) < PATH_MAX;
}

static void read_file(const char *path, int depth, struct timeouts *timeouts)
{
    FILE *file = fopen(path, "re");
    char *line = NULL, include[PATH_MAX];
    size_t size = 0;

    while (file && getline(&line, &size, file) > 0) {
        line[strcspn(line, "#")] = '\0';
        if (!find_include(line, path, include))
            read_line(line, timeouts);
        else if (depth < INCLUDES_MOST)
            read_file(include, depth + 1, timeouts);
    }
    free(line);
    if (file)
        fclose(file);
}

int epilog_timeout_read(const char *slurm_conf)
{
    struct timeouts timeouts = {EPILOG_NO_TIMEOUT, EPILOG_NO_TIMEOUT};

    if (slurm_conf)
        read_file(slurm_conf, 0, &timeouts);
    return timeouts.epilog != EPILOG_NO_TIMEOUT ? timeouts.epilog : timeouts.both;
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
