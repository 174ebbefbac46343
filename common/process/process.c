#include "common/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* State letter and start time of a process; false when it cannot be read: it has ended, or is hidden from this user. */
static bool read_stat(int64_t pid, char *state, uint64_t *started)
{
    char path[64], text[1024], *name_end;
    ssize_t length;
    int fd;

    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    name_end = strrchr(text, ')'); /* the name may contain any character */
    /* proc(5): state is field 3, starttime field 22 */
    return name_end &&
           sscanf(name_end, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
                  state, started) == 2;
}

static uint64_t own_pid_namespace(void)
{
    struct stat status;

    return stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}

struct process process_self(void)
{
    struct process self = {.pid = getpid(), .pid_namespace = own_pid_namespace()};
    char state;

    if (!self.pid_namespace || !read_stat(self.pid, &state, &self.started))
        return (struct process){0};
    return self;
}

enum process_state process_inspect(const struct process *process)
{
    uint64_t started, pid_namespace = own_pid_namespace();
    char state;

    if (process->pid == 0 || process->pid_namespace != pid_namespace)
        return PROCESS_UNKNOWN;
    if (!read_stat(process->pid, &state, &started))
        return kill((pid_t)process->pid, 0) < 0 && errno == ESRCH ? PROCESS_GONE : PROCESS_UNKNOWN;
    if (started != process->started || state == 'Z' || state == 'X' || state == 'x')
        return PROCESS_GONE;
    return state == 'T' || state == 't' ? PROCESS_STOPPED : PROCESS_RUNNING;
}

void *process_share(size_t bytes, int *fd)
{
    struct process *memory = MAP_FAILED;

    *fd = memfd_create("muster", MFD_CLOEXEC);
    if (*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (memory != MAP_FAILED) {
        *memory = process_self();
        return memory;
    }
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return NULL;
}

void *process_map(const struct process *owner, int fd, size_t bytes, bool writable)
{
    struct process *memory = MAP_FAILED;
    char path[64];

    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%d", owner->pid, fd);
    fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (lseek(fd, 0, SEEK_END) == (off_t)bytes)
        memory = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (memory != MAP_FAILED && memcmp(memory, owner, sizeof *owner) == 0)
        return memory;
    if (memory != MAP_FAILED)
        munmap(memory, bytes);
    errno = ESRCH;
    return NULL;
}
