#include "common/job_environment.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/job_text.h"

/* Slurm and muster say these: who a rank is must not be lied about. */
static bool is_reserved(const char *name)
{
    static const char *const names[] = {"RANK",      "WORLD_SIZE",  "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
                                        "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"};
    static const char *const prefixes[] = {"SLURM_", "SPANK_", "PMI_", "PMIX_", "MUSTER_"};

    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool is_name(const char *name)
{
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_')
            return false;
    return !isdigit((unsigned char)name[0]);
}

static bool is_line(const char *value)
{
    for (; *value; value++)
        if (iscntrl((unsigned char)*value))
            return false;
    return true;
}

int job_environment_check(const struct job_reader *r, const config_setting_t *group)
{
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
        struct job_origin at = {.line = (int)config_setting_source_line(setting)};
        const char *name = config_setting_name(setting), *value = config_setting_get_string(setting);

        if (!is_name(name))
            return job_reader_fail(r, at, "environment.%s is no variable's name; letters, digits and _", name);
        if (is_reserved(name))
            return job_reader_fail(r, at, "environment.%s is not a job file's to set; Slurm or muster says it", name);
        if (!value || !is_line(value))
            return job_reader_fail(r, at, "environment.%s must be a string of one line: %s = \"...\";", name, name);
    }
    return 0;
}

int job_each_variable(const struct job *job, void (*visit)(const char *name, const char *value, int line, void *arg),
                      void *arg, struct error *err)
{
    const config_setting_t *group;
    config_t config;
    int line, status = -1;
    char *wide = job_text_widen(job->text, &line, err);

    if (!wide)
        return -1;
    config_init(&config);
    if (config_read_string(&config, wide)) {
        group = config_lookup(&config, "environment");
        for (int i = 0; group && i < config_setting_length(group); i++) {
            const config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);

            visit(config_setting_name(setting), config_setting_get_string(setting),
                  (int)config_setting_source_line(setting), arg);
        }
        status = 0;
    } else {
        error_set(err, CODE_INTERNAL, "the job file's text cannot be read a second time");
    }
    config_destroy(&config);
    free(wide);
    return status;
}
