#include "trainer/ckptd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"

#define NAME "muster-ckptd"

extern char **environ;

/* Beside this program, as in a build tree or an installation under any prefix. */
static const char *find(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - sizeof NAME - 1);
    char *slash;

    if (length <= 0)
        return NAME;
    path[length] = '\0';
    slash = strrchr(path, '/');
    strcpy(slash + 1, NAME);
    return access(path, X_OK) == 0 ? path : NAME;
}

/* Nothing of ours stays open in it: a launcher that waits for its socket's end would wait for the drain. */
static int spawn(pid_t *pid, char **arguments)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    int code;

    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    code = posix_spawnp(pid, arguments[0], &files, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return code;
}

int ckptd_start(struct ckptd *ckptd, const char *stage, int mib, struct error *err)
{
    char path[4096], cap[32], cap_option[] = "--cap";
    char *arguments[8];
    int n = 0, code;

    snprintf(cap, sizeof cap, "%d", mib);
    arguments[n++] = (char *)(uintptr_t)find(path, sizeof path);
    arguments[n++] = (char[]){"--quiet"};
    arguments[n++] = (char[]){"--child"};
    if (mib > 0) {
        arguments[n++] = cap_option;
        arguments[n++] = cap;
    }
    arguments[n++] = (char *)(uintptr_t)stage;
    arguments[n] = NULL;
    code = spawn(&ckptd->pid, arguments);
    if (code == 0)
        return 0;
    ckptd->pid = 0;
    return error_set(err, CODE_IO, "%s cannot be started: %s", arguments[0], strerror(code));
}

bool ckptd_ended(struct ckptd *ckptd)
{
    int status;

    if (ckptd->pid == 0 || waitpid(ckptd->pid, &status, WNOHANG) == 0)
        return false;
    ckptd->pid = 0;
    return true;
}

void ckptd_join(struct ckptd *ckptd, double seconds)
{
    for (double waited = 0; waited < seconds && ckptd->pid != 0 && !ckptd_ended(ckptd); waited += 0.01)
        clock_sleep(0.01);
}
