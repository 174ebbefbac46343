/*
 * In the plugin, in the place of common/job.c and fabric_read.c: libconfig is loaded for who has a job file, or
 * profiles in a directory.
 */
#include <string.h>

#include "common/job.h"
#include "srun-plugin/config_form.h"
#include "srun-plugin/module.h"

/* `function` is a pointer to one: C knows no other way there from a data pointer. */
static int find(const char *name, void *function, struct error *err)
{
    const struct config_form *form = module_symbol(MODULE_CONFIG, "config_form", err), own = CONFIG_FORM;
    void *symbol = form ? module_symbol(MODULE_CONFIG, name, err) : NULL;

    if (!symbol)
        return -1;
    if (memcmp(form, &own, sizeof own) != 0)
        return error_set(err, CODE_INTERNAL, "%s is of another muster than the plugin; install both of one",
                         MODULE_CONFIG);
    memcpy(function, &symbol, sizeof symbol);
    return 0;
}

int job_load(struct job *job, const char *path, char *const *set, int nset, struct error *err)
{
    int (*load)(struct job *, const char *, char *const *, int, struct error *);

    if (find("job_load", (void *)&load, err) < 0)
        return error_prefix(err, "cannot read the job file %s", path);
    return load(job, path, set, nset, err);
}

int job_each_variable(const struct job *job, void (*visit)(const char *name, const char *value, int line, void *arg),
                      void *arg, struct error *err)
{
    int (*each)(const struct job *, void (*)(const char *, const char *, int, void *), void *, struct error *);

    return find("job_each_variable", (void *)&each, err) < 0 ? -1 : each(job, visit, arg, err);
}

void job_destroy(struct job *job)
{
    void (*destroy)(struct job *);

    if (find("job_destroy", (void *)&destroy, NULL) == 0)
        destroy(job);
}

const struct fabric_profile *fabric_read(const char *text, const char *file, struct error *err)
{
    const struct fabric_profile *(*read)(const char *, const char *, struct error *);

    return find("fabric_read", (void *)&read, err) < 0 ? NULL : read(text, file, err);
}

void fabric_forget(const struct fabric_profile *profile)
{
    void (*forget)(const struct fabric_profile *);

    if (find("fabric_forget", (void *)&forget, NULL) == 0)
        forget(profile);
}
