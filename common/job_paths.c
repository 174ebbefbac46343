#include "common/job_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/job_data.h"
#include "common/text.h"

/* sbatch(1), "filename pattern" */
static const struct pattern {
    char letter;
    const char *variable, *meaning;
} patterns[] = {
    {'j', "SLURM_JOB_ID", "the job's number"},
    {'A', "SLURM_ARRAY_JOB_ID", "the number of a job array"},
    {'a', "SLURM_ARRAY_TASK_ID", "the index of an array task"},
    {'x', "SLURM_JOB_NAME", "the job's name"},
    {0, NULL, NULL},
};

/* The pattern at a '%': its length, its zero-padded width, and its row; NULL for "%%". -1 if it is none. */
static int read_pattern(const char *text, int *width, const struct pattern **pattern)
{
    const char *at = text + 1;

    *width = 0;
    *pattern = NULL;
    if (*at == '%')
        return 2;
    if (isdigit((unsigned char)*at))
        *width = *at++ - '0';
    for (const struct pattern *p = patterns; p->letter; p++)
        if (p->letter == *at) {
            *pattern = p;
            return (int)(at + 1 - text);
        }
    return -1;
}

const char *job_bad_pattern(const struct job *job)
{
    const struct pattern *pattern;
    int width, length = 0;

    for (int k = 0; k < job_key_count; k++)
        if (job_keys[k].files == JOB_FILES_PATTERNS)
            for (const char *at = strchr((const char *)job + job_keys[k].offset, '%'); at;
                 at = strchr(at + length, '%'))
                if ((length = read_pattern(at, &width, &pattern)) < 0)
                    return job_keys[k].path;
    return NULL;
}

/* Appends the value of a pattern, which may not add a directory. */
static int append_value(char *into, const struct pattern *pattern, int width, const char *key, struct error *err)
{
    const char *value = getenv(pattern->variable);
    size_t used = strlen(into), length = value ? strlen(value) : 0;

    if (!length)
        return error_set(err, CODE_CONFIG, "%s: %%%c is %s, but %s is not set", key, pattern->letter, pattern->meaning,
                         pattern->variable);
    if (strchr(value, '/'))
        return error_set(err, CODE_CONFIG, "%s: %%%c is \"%.100s\", which has a /; give the job another name", key,
                         pattern->letter, value);
    for (; length < (size_t)width && used + 1 < JOB_PATH_SIZE && isdigit((unsigned char)*value); length++)
        into[used++] = '0';
    if (used + strlen(value) >= JOB_PATH_SIZE)
        return error_set(err, CODE_CONFIG, "%s: longer than %d bytes with the value of %%%c", key, JOB_PATH_SIZE - 1,
                         pattern->letter);
    strcpy(into + used, value);
    return 0;
}

static int expand_path(char *path, const char *key, struct error *err)
{
    char result[JOB_PATH_SIZE] = "";
    const struct pattern *pattern;
    int width, length;

    for (const char *at = path; *at; at += length) {
        size_t used = strlen(result);

        length = *at == '%' ? read_pattern(at, &width, &pattern) : 1;
        if (*at == '%' && pattern && append_value(result, pattern, width, key, err) < 0)
            return -1;
        if (*at == '%' && pattern)
            continue;
        if (used + 1 >= sizeof result)
            return error_set(err, CODE_CONFIG, "%s: longer than %d bytes", key, JOB_PATH_SIZE - 1);
        result[used] = *at; /* a '%' stands for "%%" */
        result[used + 1] = '\0';
    }
    strcpy(path, result);
    return 0;
}

int job_expand_paths(struct job *job, struct error *err)
{
    for (int k = 0; k < job_key_count; k++)
        if (job_keys[k].files == JOB_FILES_PATTERNS &&
            expand_path((char *)job + job_keys[k].offset, job_keys[k].path, err) < 0)
            return -1;
    return 0;
}

/* ---- what a shell would expand ---------------------------------------------------------------------------------- */

static bool is_for_shell(const char *path)
{
    if (path[0] == '~')
        return true;
    for (const char *at = path; (at = strchr(at, '$')); at++)
        if (at[1] == '{' || text_name_length(at + 1) > 0)
            return true;
    return false;
}

bool job_needs_shell(const struct job *job, const struct job_key *key, char *message, size_t size)
{
    const char *text = (const char *)job + key->offset, *path;
    struct job_data data = {.count = 1, .sets[0].prefix = text};
    struct error ignored;
    bool home;
    int i = 0;

    if (key->files == JOB_FILES_NONE || (key->type == JOB_KEY_DATA && job_data_parse(&data, text, &ignored) < 0))
        return false;
    while (i < data.count && !is_for_shell(data.sets[i].prefix))
        i++;
    if (i == data.count)
        return false;
    path = data.sets[i].prefix;
    home = path[0] == '~' && (path[1] == '/' || !path[1]);
    snprintf(message, size,
             "%s: \"%.300s\" is not expanded: write the path in full, or have the shell expand it: --set "
             "%s=\"%s%s%.300s%s\"%s",
             key->path, path, key->path, data.count > 1 ? "... " : "", home ? "$HOME" : "", path + home,
             data.count > 1 ? " ..." : "", path[0] == '~' ? "; a name that begins with ~ is ./~..." : "");
    return true;
}

/* ---- checkpoint.stage ------------------------------------------------------------------------------------------- */

/* "DIR=DEVICE.INODE", as in the text; false if there is no such directory. */
static bool describe_directory(const char *dir, char *entry, size_t size)
{
    struct stat info;

    return dir[0] == '/' && stat(dir, &info) == 0 && S_ISDIR(info.st_mode) &&
           snprintf(entry, size, "%s=%jx.%ju", dir, (uintmax_t)info.st_dev, (uintmax_t)info.st_ino) < (int)size;
}

bool job_stage_describe(const char *dirs, char *text, size_t size)
{
    char copy[JOB_PATH_SIZE], entry[JOB_PATH_SIZE + 64], *rest = copy, *dir;
    size_t used = 0;

    if (size == 0 || strlen(dirs) >= sizeof copy)
        return false;
    text[0] = '\0';
    strcpy(copy, dirs);
    while ((dir = strsep(&rest, ":"))) {
        if (!describe_directory(dir, entry, sizeof entry))
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ":" : "", entry);
        if (used >= size)
            return false;
    }
    return true;
}

/* Whether `dir` is that of an entry, by its device and inode if the entry has them. */
static bool is_entry(const char *dir, const char *entry)
{
    const char *id = strrchr(entry, '=');
    char own[JOB_PATH_SIZE + 64];

    if (!id)
        return strcmp(dir, entry) == 0;
    return describe_directory(dir, own, sizeof own) && strcmp(strrchr(own, '='), id) == 0;
}

bool job_stage_choose(const char *stage, const char *text, char root[JOB_PATH_SIZE])
{
    bool chosen = strcmp(stage, JOB_STAGE_AUTO) != 0, found = false;
    char *copy = strdup(text ? text : ""), *rest = copy, *entry, dir[JOB_PATH_SIZE];

    snprintf(root, JOB_PATH_SIZE, "%s", chosen ? stage : "/dev/shm");
    while (copy && !found && (entry = strsep(&rest, ":"))) {
        snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(entry, '=') ? strrchr(entry, '=') - entry : JOB_PATH_SIZE),
                 entry);
        found = is_entry(chosen ? stage : dir, entry) && (chosen || access(dir, W_OK | X_OK) == 0);
        if (found && !chosen)
            strcpy(root, dir);
    }
    free(copy);
    return found || !text || !text[0];
}
