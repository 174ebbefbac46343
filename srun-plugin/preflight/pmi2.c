#include "srun-plugin/preflight/pmi2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/preflight/deadline.h"

enum { LENGTH = 6, MESSAGE = 2048 }; /* a message begins with its length in six characters */

static int ask_server(struct pmi2 *pmi, const char *command, char answer[MESSAGE], double deadline, struct error *err)
{
    char text[MESSAGE], length[LENGTH + 1] = "";
    int size = snprintf(text, sizeof text, "%-*zu%s", LENGTH, strlen(command), command);

    if (size >= (int)sizeof text)
        return error_set(err, CODE_INTERNAL, "PMI2: a message of %d bytes", size);
    if (deadline_write(pmi->fd, text, (size_t)size, deadline) < 0 ||
        deadline_read(pmi->fd, length, LENGTH, deadline) < 0)
        return error_errno(err, CODE_IO, "PMI2");
    size = atoi(length);
    if (size < 0 || size >= MESSAGE)
        return error_set(err, CODE_IO, "PMI2: an answer of %d bytes", size);
    if (deadline_read(pmi->fd, answer, (size_t)size, deadline) < 0)
        return error_errno(err, CODE_IO, "PMI2");
    answer[size] = '\0';
    if (!strstr(answer, "rc=0;"))
        return error_set(err, CODE_IO, "PMI2 refused: %s", answer);
    return 0;
}

/* The first line is of PMI 1's form, so that both ends can agree on a version. */
static int greet_server(struct pmi2 *pmi, double deadline, struct error *err)
{
    static const char hello[] = "cmd=init pmi_version=2 pmi_subversion=0\n";
    char answer[256] = "";
    size_t size = 0;

    if (deadline_write(pmi->fd, hello, sizeof hello - 1, deadline) < 0)
        return error_errno(err, CODE_IO, "PMI2");
    while (size < sizeof answer - 1 && !memchr(answer, '\n', size))
        if (deadline_read(pmi->fd, &answer[size++], 1, deadline) < 0)
            return error_errno(err, CODE_IO, "PMI2");
    if (!strstr(answer, "rc=0"))
        return error_set(err, CODE_IO, "PMI2 refused: %.200s", answer);
    return 0;
}

int pmi2_init(struct pmi2 *pmi, double deadline, struct error *err)
{
    const char *fd = getenv("PMI_FD"), *rank = getenv("PMI_RANK"), *size = getenv("PMI_SIZE");
    const char *job = getenv("PMI_JOBID");
    char command[512], answer[MESSAGE];

    if (!fd || !rank || !size)
        return error_set(err, CODE_IO, "PMI2 is not there: start it by srun --mpi=pmi2");
    *pmi = (struct pmi2){.fd = atoi(fd), .rank = atoi(rank), .size = atoi(size)};
    snprintf(command, sizeof command, "cmd=fullinit;pmijobid=%s;pmirank=%d;threaded=FALSE;", job ? job : "", pmi->rank);
    return greet_server(pmi, deadline, err) < 0 ? -1 : ask_server(pmi, command, answer, deadline, err);
}

int pmi2_put(struct pmi2 *pmi, const char *key, const char *value, double deadline, struct error *err)
{
    char command[MESSAGE], answer[MESSAGE];

    snprintf(command, sizeof command, "cmd=kvs-put;key=%s;value=%s;", key, value);
    return ask_server(pmi, command, answer, deadline, err);
}

int pmi2_fence(struct pmi2 *pmi, double deadline, struct error *err)
{
    char answer[MESSAGE];

    return ask_server(pmi, "cmd=kvs-fence;", answer, deadline, err);
}

int pmi2_get(struct pmi2 *pmi, const char *key, char *value, size_t size, double deadline, struct error *err)
{
    const char *job = getenv("PMI_JOBID");
    char command[MESSAGE], answer[MESSAGE], *found;

    snprintf(command, sizeof command, "cmd=kvs-get;jobid=%s;srcid=-1;key=%s;", job ? job : "", key);
    if (ask_server(pmi, command, answer, deadline, err) < 0)
        return -1;
    found = strstr(answer, "value=");
    if (!found || !strstr(answer, "found=TRUE"))
        return error_set(err, CODE_IO, "PMI2 has no %s", key);
    found += strlen("value=");
    snprintf(value, size, "%.*s", (int)strcspn(found, ";"), found);
    return 0;
}

void pmi2_finalize(struct pmi2 *pmi, double deadline)
{
    char answer[MESSAGE];

    ask_server(pmi, "cmd=finalize;", answer, deadline, NULL);
}
