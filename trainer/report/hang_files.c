#include "trainer/report/hang_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/report/hang_json.h"

#define REPORT "hang-report.txt"

enum { PATH_SIZE = 2048 };

int hang_raise(const char *dir, struct error *err)
{
    char parent[PATH_SIZE], *slash;

    snprintf(parent, sizeof parent, "%s", dir);
    slash = strrchr(parent, '/');
    if (slash && slash > parent) { /* checkpoint.dir, before the first checkpoint */
        *slash = '\0';
        mkdir(parent, 0777);
    }
    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        return error_errno(err, CODE_IO, "%s", dir);
    return 0;
}

bool hang_raised(const char *dir)
{
    return access(dir, F_OK) == 0;
}

static int write_file(const char *path, const char *text, size_t length, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    size_t done = 0;

    if (fd < 0)
        return error_errno(err, CODE_IO, "%s", path);
    while (done < length) {
        ssize_t written = write(fd, text + done, length - done);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            error_errno(err, CODE_IO, "%s", path);
            close(fd);
            return -1;
        }
        done += (size_t)written;
    }
    return close(fd) < 0 ? error_errno(err, CODE_IO, "%s", path) : 0;
}

int hang_publish(const char *dir, int speaker, const struct hang_rank *ranks, const bool *chosen, int world,
                 struct error *err)
{
    char path[PATH_SIZE], part[PATH_SIZE];
    json_t *json = hang_encode(ranks, chosen, world);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    int result;

    json_decref(json);
    if (!text)
        return error_set(err, CODE_IO, "out of memory for the records of this host");
    snprintf(path, sizeof path, "%s/records-%05d.json", dir, speaker);
    snprintf(part, sizeof part, "%s/.records-%05d.part", dir, speaker);
    result = write_file(part, text, strlen(text), err);
    if (result == 0 && rename(part, path) < 0)
        result = error_errno(err, CODE_IO, "%s", path);
    free(text);
    return result;
}

int hang_spoken(const char *dir, bool *spoken, int world, struct error *err)
{
    DIR *list = opendir(dir);
    struct dirent *entry;

    memset(spoken, 0, (size_t)world * sizeof *spoken);
    if (!list)
        return error_errno(err, CODE_IO, "%s", dir);
    while ((entry = readdir(list))) {
        int speaker, length = 0;

        if (sscanf(entry->d_name, "records-%d.json%n", &speaker, &length) == 1 && length > 0 && speaker >= 0 &&
            speaker < world)
            spoken[speaker] = true;
    }
    closedir(list);
    return 0;
}

void hang_collect(const char *dir, const bool *spoken, struct hang_rank *ranks, int world)
{
    for (int speaker = 0; speaker < world; speaker++) {
        char path[PATH_SIZE];
        struct error ignored;
        json_t *json;

        if (!spoken[speaker])
            continue;
        snprintf(path, sizeof path, "%s/records-%05d.json", dir, speaker);
        json = json_load_file(path, 0, NULL);
        if (json)
            hang_decode(ranks, world, json, &ignored);
        json_decref(json);
    }
}

int hang_report_publish(const char *dir, int rank, const char *text, size_t length, struct error *err)
{
    char path[PATH_SIZE], part[PATH_SIZE];
    int result;

    snprintf(path, sizeof path, "%s/" REPORT, dir);
    snprintf(part, sizeof part, "%s/.report-%05d.part", dir, rank);
    if (write_file(part, text, length, err) < 0)
        return -1;
    if (link(part, path) == 0)
        result = 1;
    else if (errno == EEXIST)
        result = 0;
    else if (access(path, F_OK) < 0 && rename(part, path) == 0) /* file systems without links: two may win */
        return 1;
    else
        result = error_errno(err, CODE_IO, "%s", path);
    unlink(part);
    return result;
}

bool hang_report_sentence(const char *dir, char *text, size_t size)
{
    char path[PATH_SIZE];
    FILE *file;
    bool there;

    snprintf(path, sizeof path, "%s/" REPORT, dir);
    file = fopen(path, "re");
    if (!file)
        return false;
    there = fgets(text, (int)size, file) != NULL;
    fclose(file);
    if (there)
        text[strcspn(text, "\n")] = '\0';
    return there;
}
