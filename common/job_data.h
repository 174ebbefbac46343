/*
 * job_data.h - the value of data.train and data.valid: one data set, or a blend of several with weights.
 *
 * A blend is written as a list, or as Megatron-LM's --data-path: one string of weights and prefixes in turn, which is
 * also the form of --set. job_load stores both as that string, with the shortest weights that read back the same.
 *
 *     train = ( { data = "web"; weight = 0.7; }, { data = "code"; weight = 0.3; } );
 *     train = "0.7 web 0.3 code";
 *
 * A string is a blend if its first word is a number and not the only word. Any other string is one prefix, with its
 * blanks. The order of the sets counts: other parts of a run number them.
 */
#ifndef MUSTER_COMMON_JOB_DATA_H
#define MUSTER_COMMON_JOB_DATA_H

#include "common/error.h"
#include "common/job.h"

struct config_setting_t; /* of libconfig */

#define JOB_SETS_MOST  128
#define JOB_PART_LEAST 1e-7 /* of a weight in the sum of the blend's weights */

/* Must not be copied: prefixes point into `text`. */
struct job_data {
    int count; /* 0 for "" */
    struct job_set {
        const char *prefix;
        double weight; /* as given, positive and finite; 1 for a single set */
        double part;   /* of the sum of the weights */
    } sets[JOB_SETS_MOST];
    char text[JOB_DATA_SIZE];
};

/*
 * CODE_CONFIG, without a place, for what is not a blend: no number where a weight should be, a weight without a prefix,
 * a prefix twice, too many sets, a weight below JOB_PART_LEAST of the sum.
 */
int job_data_parse(struct job_data *data, const char *text, struct error *err);

/* The string that job_load stores, in text[JOB_DATA_SIZE]. CODE_CONFIG if it is too long. */
int job_data_format(const struct job_data *data, char *text, struct error *err);

/* The string of a list, in text[JOB_DATA_SIZE], not yet parsed. On failure *lines is the distance of the wrong element
 * from the beginning of the list. */
int job_data_from_list(const struct config_setting_t *list, char *text, int *lines, struct error *err);

#endif
