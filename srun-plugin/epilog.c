#include "srun-plugin/epilog.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SPARE_SECONDS = 5 }; /* that muster-ckptd may take to end by itself */

struct run {
    const struct epilog *epilog;
    void (*log)(const char *line);
    struct timespec deadline;
};

static void say(const struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(const struct run *run, const char *format, ...)
{
    char line[PATH_MAX + 256];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    run->log(line);
}

static int seconds_left(const struct run *run)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int)(run->deadline.tv_sec - now.tv_sec);
}

/* "muster-<uid>-<job>", and after it nothing or ".NODE.CHECKSUM" (trainer/saver.c). */
static bool is_of_job(const struct epilog *epilog, const char *name)
{
    char wanted[64];
    int length = snprintf(wanted, sizeof wanted, "muster-%u-%" PRIu32, (unsigned)epilog->uid, epilog->job_id);

    return strncmp(name, wanted, (size_t)length) == 0 && (name[length] == '\0' || name[length] == '.');
}

static int become(uid_t uid)
{
    struct passwd *user;

    if (geteuid() != 0)
        return geteuid() == uid ? 0 : -1;
    user = getpwuid(uid);
    if (!user || initgroups(user->pw_name, user->pw_gid) < 0 || setgid(user->pw_gid) < 0 || setuid(uid) < 0)
        return -1;
    return uid != 0 && geteuid() == 0 ? -1 : 0;
}

/* In the child. Nothing of slurmd's goes along but its log. */
static void become_ckptd(const struct epilog *epilog, const char *stage, int seconds)
{
    char limit[16], path[] = "PATH=/usr/bin:/bin";
    char *environment[] = {path, NULL};

    snprintf(limit, sizeof limit, "%d", seconds);
    setpgid(0, 0);
    if (become(epilog->uid) < 0 || chdir("/") < 0)
        _exit(126);
    close_range(STDERR_FILENO + 1, ~0u, 0);
    execle(epilog->ckptd, epilog->ckptd, "--once", "--partner", "--seconds", limit, stage, (char *)NULL, environment);
    _exit(127);
}

/* Its exit status, or -1 when it had to be killed. */
static int wait_for(const struct run *run, pid_t child)
{
    int status = 0;

    while (waitpid(child, &status, WNOHANG) == 0) {
        if (seconds_left(run) < -SPARE_SECONDS) {
            kill(-child, SIGKILL);
            waitpid(child, &status, 0);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void drain(const struct run *run, const char *stage)
{
    int seconds = seconds_left(run), status;
    pid_t child;

    if (seconds <= 0) {
        say(run, "%s: no time is left to drain it", stage);
        return;
    }
    child = fork();
    if (child == 0)
        become_ckptd(run->epilog, stage, seconds);
    if (child < 0) {
        say(run, "%s: not drained: %s", stage, strerror(errno));
        return;
    }
    setpgid(child, child);
    status = wait_for(run, child);
    if (status == 127)
        say(run, "%s: not drained: %s does not start", stage, run->epilog->ckptd);
    else if (status == 126)
        say(run, "%s: not drained: cannot become user %u", stage, (unsigned)run->epilog->uid);
    else if (status != 0)
        say(run, "%s: not all of it was drained (%d); a requeued job goes on with it", stage, status);
    else
        say(run, "%s: drained after job %" PRIu32, stage, run->epilog->job_id);
}

static int drain_root(const struct run *run, const char *root)
{
    DIR *directory = root[0] == '/' ? opendir(root) : NULL;
    char stage[PATH_MAX];
    struct dirent *entry;
    struct stat status;
    int count = 0;

    if (!directory)
        return 0;
    while ((entry = readdir(directory))) {
        if (!is_of_job(run->epilog, entry->d_name) ||
            fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(status.st_mode) ||
            status.st_uid != run->epilog->uid ||
            snprintf(stage, sizeof stage, "%s/%s", root, entry->d_name) >= (int)sizeof stage)
            continue;
        drain(run, stage);
        count++;
    }
    closedir(directory);
    return count;
}

int epilog_drain(const struct epilog *epilog, void (*log)(const char *line))
{
    struct run run = {.epilog = epilog, .log = log};
    char roots[PATH_MAX], *rest = roots, *root;
    int count = 0;

    if (epilog->seconds <= 0 || strlen(epilog->roots) >= sizeof roots)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &run.deadline);
    run.deadline.tv_sec += epilog->seconds;
    strcpy(roots, epilog->roots);
    while ((root = strsep(&rest, ":")))
        count += drain_root(&run, root);
    return count;
}
