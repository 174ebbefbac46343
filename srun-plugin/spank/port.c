#include "srun-plugin/spank/port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define JOB_STRIDE     7499u /* near PORT_COUNT / golden ratio squared, and the best there for up to 256 jobs */
#define ATTEMPT_STRIDE 5003u

unsigned port_of_step(uint32_t job_id, uint32_t step_id, unsigned attempt)
{
    uint64_t place = (uint64_t)job_id * JOB_STRIDE + step_id + (uint64_t)attempt * ATTEMPT_STRIDE;

    return PORT_FIRST + (unsigned)(place % PORT_COUNT);
}

unsigned port_choose(uint32_t job_id, uint32_t step_id, port_probe *is_free, void *arg)
{
    for (unsigned attempt = 0; attempt < PORT_ATTEMPTS; attempt++) {
        unsigned port = port_of_step(job_id, step_id, attempt);

        if (is_free(port, arg))
            return port;
    }
    return port_of_step(job_id, step_id, 0);
}

bool port_is_free(unsigned port, void *arg)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool free;

    (void)arg;
    if (fd < 0)
        return true; /* not known to be taken */
    /* As the program will do: a connection in TIME_WAIT does not count. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    free = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0;
    close(fd);
    return free;
}
