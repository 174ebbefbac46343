#include "srun-plugin/spank/as_user.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { NOBODY = 65534 };

#define MEMORY_MOST (4ul << 30) /* bytes; mapped files do not count */

static int set_groups(const struct user_ids *user, gid_t *group)
{
    struct passwd *entry = user->group_count > 0 ? NULL : getpwuid(user->uid);

    *group = entry ? entry->pw_gid : user->gid;
    if (user->group_count > 0)
        return setgroups((size_t)user->group_count, user->groups);
    return entry ? initgroups(entry->pw_name, *group) : -1;
}

static int become_user(const struct user_ids *user)
{
    gid_t group;

    if (geteuid() != 0)
        return geteuid() == user->uid ? 0 : -1;
    if (set_groups(user, &group) < 0 || setresgid(group == NOBODY ? NOBODY - 1 : NOBODY, group, group) < 0 ||
        setresuid(user->uid, user->uid, user->uid) < 0)
        return -1;
    return user->uid != 0 && geteuid() == 0 ? -1 : 0;
}

/* slurmd is often exempt from being killed where memory is out; what a user can make as large as he likes is not. */
static void be_killable(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0 && write(fd, "0", 1) == 1)
        close(fd);
}

/* slurmstepd has closed its standard input: a descriptor may have one of the numbers that are to be given. */
static int give_files(const int files[3])
{
    int null = open("/dev/null", O_RDWR), own[3];

    for (int i = 0; i < 3; i++)
        if ((own[i] = fcntl(files[i] < 0 ? null : files[i], F_DUPFD, STDERR_FILENO + 1)) < 0)
            return -1;
    for (int i = 0; i < 3; i++)
        if (dup2(own[i], i) < 0)
            return -1;
    return 0;
}

void as_user_run(const struct user_ids *user, const int files[3], char *const argv[], char *const environment[])
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    be_killable();
    if (give_files(files) < 0 || become_user(user) < 0 || chdir("/") < 0)
        _exit(AS_NO_USER);
    close_range(STDERR_FILENO + 1, ~0u, 0);
    setrlimit(RLIMIT_DATA, &(struct rlimit){MEMORY_MOST, MEMORY_MOST}); /* not before: this process may have more */
    execve(argv[0], argv, environment);
    _exit(AS_NO_PROGRAM);
}
