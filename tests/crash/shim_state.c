#include "tests/crash/shim_state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Our own calls go past the wrappers, and past their counting. */
static int raw_open(const char *path, int flags, mode_t mode)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static void give_up(const char *what)
{
    static const char start[] = "shim: ";

    syscall(SYS_write, 2, start, sizeof start - 1);
    syscall(SYS_write, 2, what, strlen(what));
    syscall(SYS_write, 2, "\n", 1);
    _exit(99);
}

/* ---- who is watched ---------------------------------------------------------------------------------------------- */

static bool is_beneath(const char *path)
{
    const char *root = getenv("SHIM_ROOT"), *program = getenv("SHIM_PROGRAM");
    size_t length = root ? strlen(root) : 0;

    if (program && strcmp(program, program_invocation_short_name) != 0)
        return false;
    return length > 0 && strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

static bool descriptor_path(int fd, char path[PATH_MAX])
{
    char link[40];
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return false;
    path[length] = '\0';
    return true;
}

bool shim_watches(int fd)
{
    char path[PATH_MAX];
    int saved = errno;
    bool yes = fd > 2 && descriptor_path(fd, path) && is_beneath(path);

    errno = saved;
    return yes;
}

bool shim_watches_path(int directory, const char *path)
{
    if (path[0] == '/')
        return is_beneath(path);
    return directory != AT_FDCWD && shim_watches(directory);
}

uint64_t shim_inode(int fd)
{
    struct stat info;

    return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

uint64_t shim_inode_at(int directory, const char *path)
{
    struct stat info;
    int saved = errno;
    long result = syscall(SYS_newfstatat, directory, path, &info, AT_SYMLINK_NOFOLLOW); /* not by the wrapper */
    uint64_t inode = result == 0 ? info.st_ino : 0;

    errno = saved;
    return inode;
}

uint64_t shim_parent(int directory, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    char parent[PATH_MAX];

    *name = slash ? slash + 1 : path;
    if (!slash)
        return shim_inode(directory);
    snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    return shim_inode_at(directory, parent);
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static pid_t log_owner;

/* Threads by a mutex, processes by a lock on the log: one that the kernel drops if its holder is killed. */
static void lock_file(short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    const char *path = getenv("SHIM_LOG");

    if (!path)
        return;
    if (log_fd < 0 || log_owner != getpid()) { /* a lock goes when any descriptor of the file is closed: none is */
        log_fd = raw_open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        log_owner = getpid();
    }
    if (log_fd < 0 || fcntl(log_fd, F_SETLKW, &lock) < 0)
        give_up("cannot open or lock SHIM_LOG");
}

void shim_lock(void)
{
    int saved = errno;

    pthread_mutex_lock(&mutex);
    lock_file(F_WRLCK);
    errno = saved;
}

void shim_unlock(void)
{
    int saved = errno;

    lock_file(F_UNLCK);
    pthread_mutex_unlock(&mutex);
    errno = saved;
}

void shim_log(struct shim_record record, const char *name, const char *name2, const void *data)
{
    char names[2 * NAME_MAX + 4] = "";
    struct iovec parts[3];
    size_t total = 0;
    int saved = errno;

    if (!getenv("SHIM_LOG"))
        return;
    record.names = name ? (uint32_t)strlen(name) + 1 : 0;
    if (name)
        memcpy(names, name, record.names);
    if (name2) {
        memcpy(names + record.names, name2, strlen(name2) + 1);
        record.names += (uint32_t)strlen(name2) + 1;
    }
    record.bytes = data ? record.bytes : 0;
    parts[0] = (struct iovec){&record, sizeof record};
    parts[1] = (struct iovec){names, record.names};
    parts[2] = (struct iovec){(void *)(uintptr_t)data, record.bytes};
    for (int i = 0; i < 3; i++)
        total += parts[i].iov_len;
    if (syscall(SYS_writev, log_fd, parts, 3) != (long)total)
        give_up("cannot write SHIM_LOG");
    errno = saved;
}

/* ---- the calls that fail ----------------------------------------------------------------------------------------- */

static const char *const call_names[] = {"open",  "mkdir",  "symlink", "write", "fallocate", "ftruncate", "fsync",
                                         "close", "rename", "unlink",  "look",  "read",      "list",      "stat"};
#define CALLS (sizeof call_names / sizeof *call_names)

static atomic_long seen[CALLS];

static void mark_hit(void)
{
    const char *path = getenv("SHIM_HIT");
    int fd = path ? raw_open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;

    if (fd >= 0)
        syscall(SYS_close, fd);
}

/* What is no error number. */
enum { CUT = 0, KILL = -2, WAIT = -3 };

static int error_number(const char *how)
{
    static const struct {
        const char *name;
        int number;
    } known[] = {{"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT},     {"EIO", EIO},   {"EACCES", EACCES}, {"EROFS", EROFS},
                 {"ESTALE", ESTALE}, {"ENOTCONN", ENOTCONN}, {"short", CUT}, {"KILL", KILL},     {"WAIT", WAIT}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(how, known[i].name) == 0)
            return known[i].number;
    give_up("SHIM_FAIL: unknown error");
    return 0;
}

/* Counts a call if `count`. Returns -1 if it is to be left alone, else what is to happen to it. */
static int fate(const char *call, bool count)
{
    const char *plan = getenv("SHIM_FAIL");
    char name[16], how[16];
    size_t c = 0;
    int n, last = 0;
    long now;

    while (c < CALLS && strcmp(call, call_names[c]) != 0)
        c++;
    if (c == CALLS)
        give_up("no such call");
    now = count ? atomic_fetch_add(&seen[c], 1) + 1 : atomic_load(&seen[c]) + 1;
    if (!plan)
        return -1;
    if (sscanf(plan, "%15[a-z]:%d:%15[A-Za-z]%n", name, &n, how, &last) != 3)
        give_up("SHIM_FAIL must be CALL:N:HOW");
    if (strcmp(name, call) != 0 || now < n || (now > n && plan[last] != '+'))
        return -1;
    return error_number(how);
}

static void wait_to_go_on(void)
{
    const char *path = getenv("SHIM_GO");
    int fd;

    if (!path)
        give_up("SHIM_FAIL: WAIT needs SHIM_GO");
    while ((fd = raw_open(path, O_RDONLY | O_CLOEXEC, 0)) < 0)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    syscall(SYS_close, fd);
}

bool shim_fails(const char *call)
{
    int number = fate(call, true), saved = errno;

    if (number == -1 || number == CUT)
        return false;
    mark_hit();
    if (number == KILL)
        syscall(SYS_kill, getpid(), SIGKILL);
    if (number == WAIT) {
        wait_to_go_on();
        errno = saved;
        return false;
    }
    errno = number;
    return true;
}

bool shim_cuts(void)
{
    if (fate("write", false) != CUT)
        return false;
    mark_hit();
    return true;
}

static long late_ms(void)
{
    const char *text = getenv("SHIM_LATE");

    return text ? strtol(text, NULL, 10) : 0;
}

void shim_be_late(void)
{
    long ms = late_ms();

    if (ms > 0)
        nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

bool shim_is_young(int directory, const char *name)
{
    struct timespec now;
    struct stat info;
    int saved = errno;
    bool young = false;

    if (late_ms() > 0 && name[0] != '.' && syscall(SYS_newfstatat, directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
        clock_gettime(CLOCK_REALTIME, &now);
        young = (now.tv_sec - info.st_ctim.tv_sec) * 1000 + (now.tv_nsec - info.st_ctim.tv_nsec) / 1000000 < late_ms();
    }
    errno = saved;
    return young;
}

enum shim_sync shim_sync(void)
{
    const char *text = getenv("SHIM_SYNC");

    if (!text)
        return SYNC_ALL;
    return strcmp(text, "none") == 0 ? SYNC_NONE : strcmp(text, "files") == 0 ? SYNC_FILES : SYNC_DIRECTORIES;
}
