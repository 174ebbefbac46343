#include "trainer/report/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* State letter and start time of a process; false, with errno, when it cannot be read. */
static bool read_stat(int64_t pid, char *state, uint64_t *started)
{
    char path[64], text[1024], *at;
    ssize_t length;
    int fd, reason;

    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    length = read(fd, text, sizeof text - 1);
    reason = length < 0 ? errno : EIO;
    close(fd);
    errno = reason;
    if (length <= 0)
        return false;
    text[length] = '\0';
    at = strrchr(text, ')'); /* the name before it may hold anything */
    if (!at || at[1] != ' ')
        return false;
    *state = at[2];
    at += 2;
    for (int field = 3; field < 22 && at; field++) /* proc(5): state is field 3, starttime field 22 */
        at = strchr(at + 1, ' ');
    if (!at)
        return false;
    *started = strtoull(at, NULL, 10);
    return true;
}

static uint64_t own_numbering(void)
{
    struct stat status;

    return stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}

struct process process_self(void)
{
    struct process self = {.pid = getpid(), .numbering = own_numbering()};
    char state;

    if (!self.numbering || !read_stat(self.pid, &state, &self.started))
        return (struct process){0};
    return self;
}

enum process_state process_look(const struct process *process)
{
    uint64_t started, numbering = own_numbering();
    char state;

    if (process->pid == 0 || process->numbering != numbering)
        return PROCESS_UNKNOWN;
    if (!read_stat(process->pid, &state, &started))
        return errno == ENOENT || errno == ESRCH ? PROCESS_GONE : PROCESS_UNKNOWN;
    if (started != process->started || state == 'Z' || state == 'X' || state == 'x')
        return PROCESS_GONE;
    return state == 'T' || state == 't' ? PROCESS_STOPPED : PROCESS_RUNNING;
}
