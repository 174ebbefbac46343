/*
 * Any text as a job file: refused with one line, or it makes a job whose text makes the same job again. What follows a
 * byte 1 is an override, as of --set.
 */
#include "common/job.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__lsan_default_suppressions(void);

/*
 * libconfig 1.5 loses a string that stands where its grammar has no place for one. Whoever reads such a file ends with
 * 78 right after. A struct config_t that we forget is a finding of the unit tests, under the same
 * sanitizer.
 */
const char *__lsan_default_suppressions(void)
{
    return "leak:libconfig.so\n";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *set;
    struct job job, again;
    struct error err = {0};

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    set = strchr(text, 1);
    if (set)
        *set++ = '\0';
    if (job_parse(&job, text, "fuzz", &set, set ? 1 : 0, &err) == 0) {
        if (job_parse(&again, job.text, "again", NULL, 0, &err) < 0 || strcmp(job.text, again.text) != 0)
            abort();
        job_destroy(&again);
        job_destroy(&job);
    } else if (err.text[0] == '\0' || strchr(err.text, '\n')) {
        abort();
    }
    free(text);
    return 0;
}
