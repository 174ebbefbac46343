#include "srun-plugin/preflight/preflight.h"

#include <stdio.h>
#include <stdlib.h>

#include "srun-plugin/preflight/replace.h"
#include "srun-plugin/preflight/run.h"

/* True when the job goes back to the queue. */
static bool requeue_job(const struct preflight *preflight, const char *bad)
{
    unsigned job_id = (unsigned)preflight->layout->job_id;
    struct error err = {0};
    bool requeued;

    if (replace_nodes(preflight->layout->job_id, bad, &requeued, &err) == 0)
        preflight_log(preflight, "job %u goes back to the queue, and will not get %s again", job_id, bad);
    else
        preflight_log(preflight, "%s: %s", requeued ? "requeued, but with the same nodes" : "not requeued", err.text);
    return requeued;
}

static void end_job(const struct preflight *preflight, int code)
{
    struct error err = {0};

    if (replace_end_job(preflight->layout->job_id, &err) < 0)
        preflight_log(preflight, "warning: %s", err.text);
    exit(code);
}

int preflight_step(const struct preflight *preflight)
{
    struct verdict *verdict = NULL;
    struct error err = {0};
    int code = 0;
    char *bad;

    if (preflight_run(preflight, &verdict, &err) < 0) {
        preflight_log(preflight, "warning: the nodes were not checked: %s", err.text);
        return 0;
    }
    if (verdict->bad)
        code = verdict->everywhere ? CODE_IO : CODE_PEER;
    bad = preflight_bad_names(preflight->layout, verdict);
    verdict_destroy(verdict);
    if (code == CODE_PEER && preflight->exclude && bad && requeue_job(preflight, bad))
        exit(code);
    free(bad);
    if (code && preflight->own_job)
        end_job(preflight, code);
    return code;
}
