#include "config.h"

#include "common/process/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MOST_ARGUMENTS = 8, ANSWER_SECONDS = 2 };

/* A program's open files: the directory that it runs in, its input, and its output. -1: this process's; /dev/null. */
enum { DIRECTORY, INPUT, OUTPUT, FILES };

/* ---- starting a program ------------------------------------------------------------------------------------------ */

static void pass_file(posix_spawn_file_actions_t *files, int from, int to)
{
    if (from < 0)
        posix_spawn_file_actions_addopen(files, to, "/dev/null", O_RDWR, 0);
    else
        posix_spawn_file_actions_adddup2(files, from, to);
}

static int spawn_with(pid_t *pid, const char *const *words, const int own[FILES], struct error *err)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, ended;
    int code;

    sigemptyset(&none);
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD); /* which a launcher ignores */
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    pass_file(&files, own[INPUT], STDIN_FILENO);
    pass_file(&files, own[OUTPUT], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    if (own[DIRECTORY] >= 0)
        posix_spawn_file_actions_addfchdir_np(&files, own[DIRECTORY]);
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &ended);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    code = posix_spawnp(pid, words[0], &files, &attributes, (char *const *)(uintptr_t)words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (code == 0)
        return 0;
    *pid = 0;
    return error_set(err, CODE_IO, "%s cannot be started: %s", words[0], strerror(code));
}

int program_spawn(pid_t *pid, const char *const *words, int output, struct error *err)
{
    return spawn_with(pid, words, (const int[]){-1, -1, output}, err);
}

/* The program of that name beside this one, as in a build tree or an installation under any prefix; else its name. */
static const char *find_beside(char *path, size_t size, const char *name)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);

    while (length > 0 && path[length - 1] != '/')
        length--;
    if (length <= 0 || (size_t)length + strlen(name) >= size)
        return name;
    strcpy(path + length, name);
    return access(path, X_OK) == 0 ? path : name;
}

static int spawn_beside(pid_t *pid, const char *name, const char *const *arguments, const int files[FILES],
                        struct error *err)
{
    char path[4096];
    const char *words[MOST_ARGUMENTS + 2] = {find_beside(path, sizeof path, name)};

    for (int i = 0; i < MOST_ARGUMENTS && arguments[i]; i++)
        words[i + 1] = arguments[i];
    return spawn_with(pid, words, files, err);
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

/* Both sides are of one release: `release` comes first, and the size is compared. The program's files come along as
 * descriptors. */
struct launch_request {
    char release[32];
    ino_t mounts, processes; /* the caller's namespaces: in others, paths and pids have other meanings */
    mode_t umask;
    char text[8192]; /* the name and the arguments, each with a 0; an empty one ends them */
};

/* A message with the room for its descriptors. */
struct launch_message {
    struct iovec part;
    union {
        struct cmsghdr head;                              /* for its alignment */
        char room[CMSG_SPACE((FILES + 1) * sizeof(int))]; /* a socket gives as many as fit */
    } control;
    struct msghdr header;
};

static struct msghdr *describe_message(struct launch_message *message, struct launch_request *request)
{
    message->part = (struct iovec){request, sizeof *request};
    message->header = (struct msghdr){.msg_iov = &message->part,
                                      .msg_iovlen = 1,
                                      .msg_control = message->control.room,
                                      .msg_controllen = sizeof message->control.room};
    return &message->header;
}

#define MOUNTS    "/proc/self/ns/mnt"
#define PROCESSES "/proc/self/ns/pid"

/* The number of one of this process's namespaces; 0 if it is unknown. */
static ino_t find_namespace(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 ? info.st_ino : 0;
}

static bool is_user(int fd, bool or_root)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || (or_root && peer.uid == 0));
}

static void limit_waits(int fd)
{
    const struct timeval limit = {.tv_sec = ANSWER_SECONDS};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* ---- the caller -------------------------------------------------------------------------------------------------- */

/* Connected to a launcher that is ready: one that was stopped would keep the descriptors of a request open. -1: none. */
static int connect_launcher(void)
{
    const char *name = getenv(LAUNCHER_VARIABLE);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = name ? strlen(name) : 0;
    char ready;
    int fd;

    if (length == 0 || length >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path + 1, name, length);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    limit_waits(fd);
    if (connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) ==
            0 &&
        is_user(fd, true) && recv(fd, &ready, sizeof ready, 0) == sizeof ready)
        return fd;
    close(fd);
    return -1;
}

static bool fill_request(struct launch_request *request, const char *name, const char *const *arguments)
{
    size_t used = 0;

    request->mounts = find_namespace(MOUNTS);
    request->processes = find_namespace(PROCESSES);
    request->umask = umask(0);
    umask(request->umask);
    snprintf(request->release, sizeof request->release, "%s", PACKAGE_VERSION);
    for (const char *word = name; word; word = *arguments++) {
        size_t length = strlen(word) + 1;

        if (used + length >= sizeof request->text)
            return false;
        memcpy(request->text + used, word, length);
        used += length;
    }
    return true;
}

/* The process, or 0. */
static pid_t ask_launcher(const char *name, const char *const *arguments, const int files[FILES])
{
    struct launch_request request = {0};
    struct launch_message message;
    struct msghdr *header = describe_message(&message, &request);
    struct cmsghdr *control = CMSG_FIRSTHDR(header);
    int fd = fill_request(&request, name, arguments) ? connect_launcher() : -1;
    pid_t pid = 0;

    if (fd < 0)
        return 0;
    *control =
        (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(FILES * sizeof(int))};
    memcpy(CMSG_DATA(control), files, FILES * sizeof(int));
    if (sendmsg(fd, header, MSG_NOSIGNAL) < 0 || recv(fd, &pid, sizeof pid, 0) != (ssize_t)sizeof pid)
        pid = 0;
    close(fd);
    return pid;
}

int program_start(pid_t *pid, const char *name, const char *const *arguments, int output, struct error *err)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int ends[2] = {-1, -1}, result = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
    const int files[FILES] = {directory, ends[1], output < 0 ? null : output};

    *pid = result < 0 ? 0 : ask_launcher(name, arguments, files);
    if (result < 0)
        error_errno(err, CODE_IO, "no socket for %s", name);
    else if (*pid <= 0)
        result = spawn_beside(pid, name, arguments, files, err);
    close(directory);
    close(null);
    close(ends[1]);
    if (result == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0)
        return ends[0];
    close(ends[0]);
    return -1;
}

bool program_is_running(pid_t *pid)
{
    int status;
    pid_t ended = *pid > 0 ? waitpid(*pid, &status, WNOHANG) : *pid;

    if (ended > 0 || (ended < 0 && kill(*pid, 0) < 0 && errno == ESRCH))
        *pid = 0;
    return *pid != 0;
}

void program_ignore_signals(void)
{
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGPIPE, SIGXFSZ};

    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
}

bool program_is_child(pid_t pid)
{
    siginfo_t info;

    return pid > 0 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* ---- the launcher ------------------------------------------------------------------------------------------------ */

/* Whether the request is of this release. In any case, those of `files` that came along are open, and to be closed. */
static bool receive_request(int fd, struct launch_request *request, int files[FILES + 1])
{
    struct launch_message message;
    struct msghdr *header = describe_message(&message, request);
    ssize_t got = recvmsg(fd, header, MSG_CMSG_CLOEXEC);
    struct cmsghdr *control = got < 0 ? NULL : CMSG_FIRSTHDR(header);

    if (control && control->cmsg_type == SCM_RIGHTS)
        memcpy(files, CMSG_DATA(control), control->cmsg_len - CMSG_LEN(0));
    return got == (ssize_t)sizeof *request && strcmp(request->release, PACKAGE_VERSION) == 0 && files[OUTPUT] >= 0 &&
           memcmp(request->text + sizeof request->text - 2, "\0", 2) == 0;
}

static bool is_served(const struct launch_request *request)
{
    return (strcmp(request->text, "muster-ckptd") == 0 || strcmp(request->text, "muster-report") == 0) &&
           request->mounts > 0 && request->mounts == find_namespace(MOUNTS) && request->processes > 0 &&
           request->processes == find_namespace(PROCESSES);
}

/* The process, or 0. */
static pid_t start_for(const struct launch_request *request, const int files[FILES])
{
    const char *words[MOST_ARGUMENTS + 2] = {0}, *at = request->text;
    pid_t pid;

    for (int i = 0; i <= MOST_ARGUMENTS && *at; i++) {
        words[i] = at;
        at += strlen(at) + 1;
    }
    umask(request->umask & 0777);
    spawn_beside(&pid, words[0], words + 1, files, NULL);
    return pid;
}

static void serve_request(int fd)
{
    struct pollfd caller = {.fd = fd, .events = POLLRDHUP};
    struct launch_request request;
    int files[FILES + 1] = {-1, -1, -1, -1};
    pid_t pid = 0;

    limit_waits(fd);
    /* A caller that waits no longer has started the program itself. */
    if (is_user(fd, false) && send(fd, "", 1, MSG_NOSIGNAL) == 1 && receive_request(fd, &request, files) &&
        is_served(&request) && poll(&caller, 1, 0) == 0)
        pid = start_for(&request, files);
    for (int i = 0; i <= FILES; i++)
        if (files[i] >= 0)
            close(files[i]);
    send(fd, &pid, sizeof pid, MSG_NOSIGNAL);
}

void launcher_serve(int listener, int life)
{
    struct pollfd events[2] = {{.fd = listener, .events = POLLIN}, {.fd = life, .events = POLLIN}};

    signal(SIGCHLD, SIG_IGN); /* nobody waits for what it starts */
    while (events[1].revents == 0 && (poll(events, 2, -1) >= 0 || errno == EINTR)) {
        int fd = events[0].revents ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;

        if (fd < 0)
            continue;
        serve_request(fd);
        close(fd);
    }
}
