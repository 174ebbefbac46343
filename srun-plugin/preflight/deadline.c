#include "srun-plugin/preflight/deadline.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/clock.h"

int deadline_wait(int fd, short events, double deadline)
{
    for (;;) {
        double left = deadline - clock_monotonic();
        struct pollfd poll_fd = {.fd = fd, .events = events};
        int rc = poll(&poll_fd, 1, left > 0 ? (int)(left * 1000) + 1 : 0);

        if (rc > 0)
            return 0;
        if (rc < 0 && errno != EINTR)
            return -1;
        if (left <= 0) {
            errno = ETIMEDOUT;
            return -1;
        }
    }
}

int deadline_read(int fd, void *data, size_t size, double deadline)
{
    char *next = data;

    while (size) {
        ssize_t got;

        if (deadline_wait(fd, POLLIN, deadline) < 0)
            return -1;
        got = recv(fd, next, size, MSG_DONTWAIT);
        if (got == 0)
            errno = ECONNRESET;
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            return -1;
        if (got > 0) {
            next += got;
            size -= (size_t)got;
        }
    }
    return 0;
}

int deadline_write(int fd, const void *data, size_t size, double deadline)
{
    const char *next = data;

    while (size) {
        ssize_t put;

        if (deadline_wait(fd, POLLOUT, deadline) < 0)
            return -1;
        put = send(fd, next, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        if (put > 0) {
            next += put;
            size -= (size_t)put;
        }
    }
    return 0;
}
