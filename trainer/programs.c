#include "trainer/programs.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ARGUMENTS = 4 };

extern char **environ;

/* Beside this program, as in a build tree or an installation under any prefix. */
static const char *find_ckptd(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - sizeof CKPTD - 1);
    char *slash;

    if (length <= 0)
        return CKPTD;
    path[length] = '\0';
    slash = strrchr(path, '/');
    strcpy(slash + 1, CKPTD);
    return access(path, X_OK) == 0 ? path : CKPTD;
}

static void pass_file(posix_spawn_file_actions_t *files, int from, int to)
{
    if (from < 0)
        posix_spawn_file_actions_addopen(files, to, "/dev/null", O_RDWR, 0);
    else
        posix_spawn_file_actions_adddup2(files, from, to);
}

int program_start(pid_t *pid, const char *const *words, int input, int output, struct error *err)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    int code;

    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    pass_file(&files, input, STDIN_FILENO);
    pass_file(&files, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
    code = posix_spawnp(pid, words[0], &files, &attributes, (char *const *)(uintptr_t)words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (code == 0)
        return 0;
    *pid = 0;
    return error_set(err, CODE_IO, "%s cannot be started: %s", words[0], strerror(code));
}

int ckptd_start(pid_t *pid, const char *const *arguments, int input, int output, struct error *err)
{
    char path[4096];
    const char *words[MOST_ARGUMENTS + 2] = {find_ckptd(path, sizeof path)};

    for (int i = 0; i < MOST_ARGUMENTS && arguments[i]; i++)
        words[i + 1] = arguments[i];
    return program_start(pid, words, input, output, err);
}
