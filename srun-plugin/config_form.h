/*
 * config_form.h - what the plugin and muster_config.so must agree on, since structs go from one to the other: a site
 * that copies files by hand may have them of two versions.
 */
#ifndef MUSTER_SRUN_PLUGIN_CONFIG_FORM_H
#define MUSTER_SRUN_PLUGIN_CONFIG_FORM_H

#include "common/job.h"
#include "config.h"
#include "srun-plugin/fabric_profile.h"

/* Compared byte by byte. */
struct config_form {
    size_t error, job, profile, setting, warning, part; /* sizes */
    char version[64];
};

#define CONFIG_FORM                                                                                                    \
    {                                                                                                                  \
        sizeof(struct error), sizeof(struct job), sizeof(struct fabric_profile), sizeof(struct fabric_setting),        \
            sizeof(struct fabric_warning), sizeof(struct fabric_part), PACKAGE_VERSION,                                \
    }

extern const struct config_form config_form;

#endif
