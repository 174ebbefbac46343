/*
 * spank_launcher.c - in slurmstepd, before the tasks: starts the node's launcher (common/process/launcher.h) as the
 * job's user.
 *
 * A process that slurmstepd forks before it makes the step's cgroup stays in the cgroup of the job. When the step ends,
 * Slurm does not wait for that process, and so drains no node if it hangs in a file system. Slurm does not end it
 * either: the launcher ends with slurmstepd, and the programs that it has started end by themselves (muster-ckptd(8)).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "srun-plugin/spank/as_user.h"
#include "srun-plugin/spank/plugin.h"
#include "srun-plugin/spank/trust.h"

enum { WAITING_MOST = 256 }; /* requests: each rank of a node may have one or two */

/* Slurm's variables in it show an administrator whose process it is. */
static char **make_environment(uint32_t job)
{
    static char text[4][PATH_MAX], *environment[5];
    const char *conf = getenv("SLURM_CONF"), *node = getenv("SLURMD_NODENAME");

    snprintf(text[0], sizeof text[0], "PATH=/usr/bin:/bin");
    snprintf(text[1], sizeof text[1], "SLURM_JOB_ID=%" PRIu32, job);
    snprintf(text[2], sizeof text[2], "SLURM_CONF=%s", conf ? conf : "");
    snprintf(text[3], sizeof text[3], "SLURMD_NODENAME=%s", node ? node : "");
    for (int i = 0; i < 4; i++)
        environment[i] = text[i];
    return environment;
}

/* The kernel chooses the socket's name: nobody can have taken it before. -1 and errno. */
static int create_listener(char name[LAUNCHER_NAME_SIZE])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t head = offsetof(struct sockaddr_un, sun_path) + 1;
    socklen_t unnamed = sizeof(sa_family_t), size = sizeof address;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, unnamed) == 0 && listen(fd, WAITING_MOST) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &size) == 0 && size > head && size - head < LAUNCHER_NAME_SIZE) {
        memcpy(name, address.sun_path + 1, size - head);
        name[size - head] = '\0';
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* The launcher is a child of a child, so that slurmstepd need not wait for it. */
static int start_launcher(const struct user_ids *user, uint32_t job, char *program, int listener)
{
    char serve[] = "--serve", *argv[] = {program, serve, NULL};
    char **environment = make_environment(job);
    int life[2];
    pid_t child;

    if (pipe2(life, O_CLOEXEC) < 0)
        return -1;
    child = fork();
    if (child == 0) {
        if (setsid() < 0 || fork() != 0)
            _exit(0);
        as_user_run(user, (const int[]){listener, life[0], -1}, argv, environment);
    }
    close(life[0]); /* this process keeps the other end until it ends */
    return child > 0 && waitpid(child, NULL, 0) == child ? 0 : -1;
}

void step_launch(struct plugin *plugin, spank_t spank)
{
    const struct site *site = &plugin->site;
    char program[PATH_MAX];
    struct user_ids user = {0};
    gid_t *groups = NULL;
    uint32_t job = 0;
    struct error err;
    int listener;

    if (!step_has_ranks(spank) || spank_get_item(spank, S_JOB_UID, &user.uid) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_GID, &user.gid) != ESPANK_SUCCESS)
        return;
    spank_get_item(spank, S_JOB_ID, &job);
    if (spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &user.group_count) != ESPANK_SUCCESS)
        user.group_count = 0;
    user.groups = groups;
    snprintf(program, sizeof program, "%s", site->ckptd ? site->ckptd : CKPTD_PATH);
    if (!site->ckptd && trust_program(program, &err) < 0) {
        slurm_info("muster: no launcher: %s", err.text);
        return;
    }
    listener = create_listener(plugin->node.launcher);
    if (listener < 0 || start_launcher(&user, job, program, listener) < 0) {
        slurm_info("muster: no launcher: %s", strerror(errno));
        plugin->node.launcher[0] = '\0';
    }
    if (listener >= 0)
        close(listener);
}
