#include "srun-plugin/preflight/checks.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/clock.h"

/* ---- deadlines --------------------------------------------------------------------------------------------------- */

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

static int move_bytes(int fd, char *data, size_t size, bool in, double deadline)
{
    while (size) {
        ssize_t moved;

        if (deadline_wait(fd, in ? POLLIN : POLLOUT, deadline) < 0)
            return -1;
        moved = in ? recv(fd, data, size, MSG_DONTWAIT) : send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (moved == 0)
            errno = ECONNRESET;
        if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR))
            return -1;
        if (moved > 0) {
            data += moved;
            size -= (size_t)moved;
        }
    }
    return 0;
}

int deadline_read(int fd, void *data, size_t size, double deadline)
{
    return move_bytes(fd, data, size, true, deadline);
}

int deadline_write(int fd, const void *data, size_t size, double deadline)
{
    return move_bytes(fd, (char *)(uintptr_t)data, size, false, deadline);
}

/* ---- PMI2 -------------------------------------------------------------------------------------------------------- */

enum { LENGTH = 6, MESSAGE = 2048 }; /* a message begins with its length in six characters */

static int __attribute__((format(printf, 4, 5)))
ask_server(struct pmi2 *pmi, char answer[MESSAGE], struct error *err, const char *format, ...)
{
    char command[MESSAGE], length[16];
    va_list args;
    int size;

    va_start(args, format);
    size = vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (size >= (int)sizeof command)
        return error_set(err, CODE_INTERNAL, "PMI2: a message of %d bytes", size);
    snprintf(length, sizeof length, "%-*d", LENGTH, size);
    if (deadline_write(pmi->fd, length, LENGTH, pmi->deadline) < 0 ||
        deadline_write(pmi->fd, command, (size_t)size, pmi->deadline) < 0 ||
        deadline_read(pmi->fd, length, LENGTH, pmi->deadline) < 0)
        return error_errno(err, CODE_IO, "PMI2");
    length[LENGTH] = '\0';
    size = atoi(length);
    if (size < 0 || size >= MESSAGE)
        return error_set(err, CODE_IO, "PMI2: an answer of %d bytes", size);
    if (deadline_read(pmi->fd, answer, (size_t)size, pmi->deadline) < 0)
        return error_errno(err, CODE_IO, "PMI2");
    answer[size] = '\0';
    return strstr(answer, "rc=0;") ? 0 : error_set(err, CODE_IO, "PMI2 refused: %s", answer);
}

/* The first line is of PMI 1's form, so that both ends can agree on a version. */
static int greet_server(struct pmi2 *pmi, struct error *err)
{
    static const char hello[] = "cmd=init pmi_version=2 pmi_subversion=0\n";
    char answer[256] = "";
    size_t size = 0;

    if (deadline_write(pmi->fd, hello, sizeof hello - 1, pmi->deadline) < 0)
        return error_errno(err, CODE_IO, "PMI2");
    while (size < sizeof answer - 1 && !memchr(answer, '\n', size))
        if (deadline_read(pmi->fd, &answer[size++], 1, pmi->deadline) < 0)
            return error_errno(err, CODE_IO, "PMI2");
    return strstr(answer, "rc=0") ? 0 : error_set(err, CODE_IO, "PMI2 refused: %.200s", answer);
}

static const char *job_name(void)
{
    const char *job = getenv("PMI_JOBID");

    return job ? job : "";
}

int pmi2_init(struct pmi2 *pmi, double deadline, struct error *err)
{
    const char *fd = getenv("PMI_FD"), *rank = getenv("PMI_RANK"), *size = getenv("PMI_SIZE");
    char answer[MESSAGE];

    if (!fd || !rank || !size)
        return error_set(err, CODE_IO, "PMI2 is not there: start it by srun --mpi=pmi2");
    *pmi = (struct pmi2){.fd = atoi(fd), .rank = atoi(rank), .size = atoi(size), .deadline = deadline};
    if (greet_server(pmi, err) < 0)
        return -1;
    return ask_server(pmi, answer, err, "cmd=fullinit;pmijobid=%s;pmirank=%d;threaded=FALSE;", job_name(), pmi->rank);
}

int pmi2_put(struct pmi2 *pmi, const char *key, const char *value, struct error *err)
{
    char answer[MESSAGE];

    return ask_server(pmi, answer, err, "cmd=kvs-put;key=%s;value=%s;", key, value);
}

int pmi2_fence(struct pmi2 *pmi, struct error *err)
{
    char answer[MESSAGE];

    return ask_server(pmi, answer, err, "cmd=kvs-fence;");
}

int pmi2_get(struct pmi2 *pmi, const char *key, char *value, size_t size, struct error *err)
{
    char answer[MESSAGE], *found;

    if (ask_server(pmi, answer, err, "cmd=kvs-get;jobid=%s;srcid=-1;key=%s;", job_name(), key) < 0)
        return -1;
    found = strstr(answer, "value=");
    if (!found || !strstr(answer, "found=TRUE"))
        return error_set(err, CODE_IO, "PMI2 has no %s", key);
    found += strlen("value=");
    snprintf(value, size, "%.*s", (int)strcspn(found, ";"), found);
    return 0;
}

void pmi2_finalize(struct pmi2 *pmi)
{
    char answer[MESSAGE];

    ask_server(pmi, answer, NULL, "cmd=finalize;");
}
