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

/* ---- starting a program ------------------------------------------------------------------------------------------ */

static void pass_file(posix_spawn_file_actions_t *files, int from, int to)
{
    if (from < 0)
        posix_spawn_file_actions_addopen(files, to, "/dev/null", O_RDWR, 0);
    else
        posix_spawn_file_actions_adddup2(files, from, to);
}

/* `directory`: open, for the program to run in; -1: this process's own. */
static int spawn_in(pid_t *pid, const char *const *words, int directory, int input, int output, struct error *err)
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
    pass_file(&files, input, STDIN_FILENO);
    pass_file(&files, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    if (directory >= 0)
        posix_spawn_file_actions_addfchdir_np(&files, directory);
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

int program_spawn(pid_t *pid, const char *const *words, int input, int output, struct error *err)
{
    return spawn_in(pid, words, -1, input, output, err);
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

static int spawn_beside(pid_t *pid, const char *name, const char *const *arguments, int directory, int input,
                        int output, struct error *err)
{
    char path[4096];
    const char *words[MOST_ARGUMENTS + 2] = {find_beside(path, sizeof path, name)};

    for (int i = 0; i < MOST_ARGUMENTS && arguments[i]; i++)
        words[i + 1] = arguments[i];
    return spawn_in(pid, words, directory, input, output, err);
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

/* Both sides are of one release: `release` comes first, and the size is compared. */
struct launch_request {
    char release[32];
    char mounts[48], processes[48]; /* the caller's namespaces: in others, paths and pids have other meanings */
    mode_t umask;
    bool has_input, has_output; /* the descriptors that come along, in this order, after the working directory */
    int arguments;
    char text[8192]; /* the name and the arguments, each with a 0 */
};

enum { FILES_MOST = 3 };

/* A message with the room for its descriptors. */
struct launch_message {
    struct iovec part;
    union {
        struct cmsghdr head;                                   /* for its alignment */
        char room[CMSG_SPACE((FILES_MOST + 1) * sizeof(int))]; /* a socket gives as many as fit */
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

static void read_namespaces(struct launch_request *request)
{
    memset(request->mounts, 0, sizeof request->mounts);
    memset(request->processes, 0, sizeof request->processes);
    if (readlink("/proc/self/ns/mnt", request->mounts, sizeof request->mounts - 1) < 0 ||
        readlink("/proc/self/ns/pid", request->processes, sizeof request->processes - 1) < 0)
        request->mounts[0] = '\0';
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
    size_t used = strlen(name) + 1;
    mode_t mask = umask(0);

    umask(mask);
    request->umask = mask;
    snprintf(request->release, sizeof request->release, "%s", PACKAGE_VERSION);
    read_namespaces(request);
    memcpy(request->text, name, used);
    for (; request->arguments < MOST_ARGUMENTS && arguments[request->arguments]; request->arguments++) {
        const char *argument = arguments[request->arguments];
        size_t length = strlen(argument) + 1;

        if (used + length > sizeof request->text)
            return false;
        memcpy(request->text + used, argument, length);
        used += length;
    }
    return true;
}

/* The process, or 0. */
static pid_t ask_launcher(const char *name, const char *const *arguments, int input, int output)
{
    struct launch_request request = {.has_input = input >= 0, .has_output = output >= 0};
    struct launch_message message;
    struct msghdr *header = describe_message(&message, &request);
    int files[FILES_MOST] = {open(".", O_PATH | O_DIRECTORY | O_CLOEXEC), input >= 0 ? input : output, output};
    int count = 1 + request.has_input + request.has_output;
    int fd = files[0] >= 0 && fill_request(&request, name, arguments) ? connect_launcher() : -1;
    pid_t pid = 0;

    if (fd >= 0) {
        struct cmsghdr *control = CMSG_FIRSTHDR(header);

        header->msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        *control = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN((size_t)count * sizeof(int))};
        memcpy(CMSG_DATA(control), files, (size_t)count * sizeof(int));
        if (sendmsg(fd, header, MSG_NOSIGNAL) < 0 || recv(fd, &pid, sizeof pid, 0) != (ssize_t)sizeof pid)
            pid = 0;
        close(fd);
    }
    if (files[0] >= 0)
        close(files[0]);
    return pid;
}

int program_start(pid_t *pid, const char *name, const char *const *arguments, int input, int output, struct error *err)
{
    *pid = ask_launcher(name, arguments, input, output);
    return *pid > 0 ? 0 : spawn_beside(pid, name, arguments, -1, input, output, err);
}

bool program_is_running(pid_t *pid)
{
    int status;
    pid_t ended = *pid > 0 ? waitpid(*pid, &status, WNOHANG) : *pid;

    if (ended > 0 || (ended < 0 && kill(*pid, 0) < 0 && errno == ESRCH))
        *pid = 0;
    return *pid != 0;
}

bool program_is_child(pid_t pid)
{
    siginfo_t info;

    return pid > 0 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* ---- the launcher ------------------------------------------------------------------------------------------------ */

/* How many descriptors came along; each is open and to be closed. -1: the request is not of this release. */
static int receive_request(int fd, struct launch_request *request, int files[FILES_MOST + 1])
{
    struct launch_message message;
    struct msghdr *header = describe_message(&message, request);
    ssize_t got = recvmsg(fd, header, MSG_CMSG_CLOEXEC);
    struct cmsghdr *control = got < 0 ? NULL : CMSG_FIRSTHDR(header);
    int count = 0;

    if (control && control->cmsg_type == SCM_RIGHTS) {
        count = (int)((control->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(files, CMSG_DATA(control), (size_t)count * sizeof(int));
    }
    if (got == (ssize_t)sizeof *request && strcmp(request->release, PACKAGE_VERSION) == 0 &&
        count == 1 + request->has_input + request->has_output && request->arguments >= 0 &&
        request->arguments <= MOST_ARGUMENTS && request->text[sizeof request->text - 1] == '\0')
        return count;
    while (count > 0)
        close(files[--count]);
    return -1;
}

static bool is_served(const char *name)
{
    return strcmp(name, "muster-ckptd") == 0 || strcmp(name, "muster-report") == 0;
}

/* The process, or 0. A caller that waits no longer has started the program itself. */
static pid_t start_for(int fd, const struct launch_request *request, const int files[FILES_MOST + 1])
{
    const char *arguments[MOST_ARGUMENTS + 1] = {0}, *at = request->text, *end = at + sizeof request->text;
    struct launch_request own;
    struct pollfd caller = {.fd = fd, .events = POLLRDHUP};
    pid_t pid = 0;

    read_namespaces(&own);
    if (!own.mounts[0] || strcmp(request->mounts, own.mounts) != 0 || strcmp(request->processes, own.processes) != 0 ||
        !is_served(request->text) || poll(&caller, 1, 0) != 0)
        return 0;
    for (int i = 0; i < request->arguments; i++) {
        at += strlen(at) + 1;
        if (at >= end)
            return 0;
        arguments[i] = at;
    }
    umask(request->umask & 0777);
    spawn_beside(&pid, request->text, arguments, files[0], request->has_input ? files[1] : -1,
                 request->has_output ? files[1 + request->has_input] : -1, NULL);
    return pid;
}

static void serve_request(int fd)
{
    struct launch_request request;
    int files[FILES_MOST + 1], count;
    pid_t pid = 0;

    limit_waits(fd);
    count = is_user(fd, false) && send(fd, "", 1, MSG_NOSIGNAL) == 1 ? receive_request(fd, &request, files) : -1;
    if (count >= 0)
        pid = start_for(fd, &request, files);
    while (count > 0)
        close(files[--count]);
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
