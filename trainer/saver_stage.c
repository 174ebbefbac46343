#include "trainer/saver_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/thread.h"

#define PROGRAM "muster-ckptd"

enum { LONG_LIVED = 10 }; /* seconds; a muster-ckptd that runs for longer sets `restarts` to 0 */

extern char **environ;

/* ---- muster-ckptd ---- */

/* Beside this program, as in a build tree or an installation under any prefix. */
static const char *find_program(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - sizeof PROGRAM - 1);
    char *slash;

    if (length <= 0)
        return PROGRAM;
    path[length] = '\0';
    slash = strrchr(path, '/');
    strcpy(slash + 1, PROGRAM);
    return access(path, X_OK) == 0 ? path : PROGRAM;
}

/* It inherits no open files: a launcher that waits for the end of its socket would wait for the drain. */
static int spawn_program(pid_t *pid, char **arguments)
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

static int start_ckptd(struct saver_stage *s, struct error *err)
{
    char path[4096], cap[32], child[32];
    char *stage = (char *)(uintptr_t)ckpt_stage_directory(s->handle);
    char *arguments[] = {(char *)(uintptr_t)find_program(path, sizeof path),
                         (char[]){"--quiet"},
                         child,
                         s->cap > 0 ? cap : stage,
                         s->cap > 0 ? stage : NULL,
                         NULL};
    int code;

    snprintf(cap, sizeof cap, "--cap=%d", s->cap);
    snprintf(child, sizeof child, "--child=%d", (int)getpid());
    code = spawn_program(&s->pid, arguments);
    if (code == 0)
        return 0;
    s->pid = 0;
    return error_set(err, CODE_IO, "%s cannot be started: %s", arguments[0], strerror(code));
}

static bool is_running(struct saver_stage *s)
{
    int status;

    if (s->pid != 0 && waitpid(s->pid, &status, WNOHANG) != 0)
        s->pid = 0;
    return s->pid != 0;
}

bool saver_stage_has_drainer(struct saver_stage *s)
{
    return is_running(s) || ckpt_stage_has_drainer(s->handle);
}

void saver_stage_kill_drainer(struct saver_stage *s)
{
    if (is_running(s))
        kill(s->pid, SIGKILL);
}

int saver_stage_supervise(struct saver_stage *s, struct error *err)
{
    if (!s->first || saver_stage_has_drainer(s))
        return 0;
    if (clock_monotonic() - s->restarted > LONG_LIVED)
        s->restarts = 0;
    if (s->restarts == SAVER_MOST_RESTARTS)
        return 0;
    s->restarts++;
    s->restarted = clock_monotonic();
    return start_ckptd(s, err) < 0 ? -1 : 1;
}

/* ---- the stage ---- */

struct saver_stage *saver_stage_open(const struct ckpt_stage_config *config, int cap, struct error *err)
{
    struct saver_stage *s = calloc(1, sizeof *s);

    if (!s) {
        error_set(err, CODE_IO, "out of memory for the stage");
        return NULL;
    }
    s->first = config->adopt;
    s->cap = cap;
    s->handle = ckpt_stage_open(config, err);
    if (s->handle && (!s->first || start_ckptd(s, err) == 0))
        return s;
    if (s->handle)
        saver_stage_close(s, 0);
    else
        free(s);
    return NULL;
}

void saver_stage_close(struct saver_stage *s, double seconds)
{
    double end = clock_monotonic() + seconds;
    struct error ignored;

    if (s->first)
        ckpt_stage_mark_closed(s->handle, &ignored);
    ckpt_stage_destroy(s->handle);
    s->handle = NULL;
    while (is_running(s) && clock_monotonic() < end)
        clock_sleep(0.01);
    free(s);
}

void saver_stage_destroy(struct saver_stage *s)
{
    struct error ignored;

    if (!s)
        return;
    if (s->save)
        saver_stage_wait(s, &ignored);
    ckpt_stage_destroy(s->handle);
    free(s);
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

static bool is_same(const struct attempt_id *a, const struct attempt_id *b)
{
    return a->step == b->step && strcmp(a->attempt, b->attempt) == 0;
}

int saver_stage_replace(struct saver_stage *s, const struct ckpt_stage_trouble *oldest, struct error *err)
{
    struct attempt_id named = {.step = oldest->step};
    bool again, first;

    memcpy(named.attempt, oldest->attempt, sizeof named.attempt);
    again = is_same(&s->suspect, &named);
    first = !is_same(&s->replaced, &named);
    s->suspect = named;
    if (!again || oldest->draining)
        return 0;
    s->replaced = named;
    if (s->first && ckpt_stage_replace(s->handle, named.step, named.attempt, err) < 0)
        return -1;
    return first;
}

bool saver_stage_is_replacing(const struct saver_stage *s)
{
    return s->replaced.attempt[0] && ckpt_stage_has(s->handle, s->replaced.step, s->replaced.attempt);
}

/* ---- the copy ---- */

static void *copy_shard(void *arg)
{
    struct saver_stage *s = arg;

    s->result = ckpt_stage_shard(s->handle, s->save, &s->error);
    atomic_store(&s->done, true);
    return NULL;
}

void saver_stage_copy(struct saver_stage *s, const struct ckpt_save *save, bool in_thread)
{
    s->save = save;
    atomic_store(&s->done, false);
    s->threaded = in_thread && thread_start(&s->thread, copy_shard, s) == 0;
    if (!s->threaded)
        copy_shard(s);
}

bool saver_stage_is_copying(const struct saver_stage *s)
{
    return s && s->save;
}

bool saver_stage_copy_done(const struct saver_stage *s)
{
    return atomic_load(&s->done);
}

int saver_stage_wait(struct saver_stage *s, struct error *err)
{
    if (s->threaded)
        pthread_join(s->thread, NULL);
    s->threaded = false;
    s->save = NULL;
    if (s->result != 0)
        *err = s->error;
    return s->result;
}
