#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/io.h"
#include "common/text.h"
#include "trainer/watch/hang.h"

#define REPORT "hang-report.txt"

enum { PATH_SIZE = 2048 };

/* ---- the records of a node ---- */

struct records_file {
    uint64_t checksum; /* of the entries */
    struct records_entry {
        int64_t number;
        struct hang_rank rank;
    } entries[];
};

/* The whole file, malloc'ed; NULL when out of memory. */
static struct records_file *encode_ranks(const struct hang_rank *ranks, int world, size_t *bytes)
{
    struct records_file *file;
    size_t count = 0;

    for (int rank = 0; rank < world; rank++)
        count += ranks[rank].state != HANG_SILENT;
    *bytes = sizeof *file + count * sizeof *file->entries;
    file = calloc(1, *bytes);
    if (!file)
        return NULL;
    for (int rank = world - 1; rank >= 0; rank--)
        if (ranks[rank].state != HANG_SILENT)
            file->entries[--count] = (struct records_entry){rank, ranks[rank]};
    file->checksum = crc32c(0, file->entries, *bytes - sizeof *file);
    return file;
}

static void take_rank(const struct records_entry *entry, struct hang_rank *ranks, int world)
{
    struct hang_rank *rank;
    bool is_dead;

    if (entry->number < 0 || entry->number >= world)
        return;
    rank = &ranks[entry->number];
    if (entry->rank.state == HANG_DEAD && entry->rank.taken == 0) { /* seen from another node: its own may have more */
        rank->state = rank->state == HANG_ENDING ? HANG_ENDING : HANG_DEAD;
        return;
    }
    is_dead = rank->state == HANG_DEAD && entry->rank.state != HANG_ENDING;
    if (entry->rank.taken >= rank->taken) /* a node whose publisher has ended has several files */
        *rank = entry->rank;
    rank->state = is_dead ? HANG_DEAD : rank->state;
    record_make_safe(&rank->record, world);
}

static void read_ranks(const char *path, struct hang_rank *ranks, int world)
{
    size_t bytes, each = sizeof(struct records_entry);
    struct records_file *file = (struct records_file *)text_read_file(path, UINT32_MAX, &bytes, NULL);

    if (file && bytes >= sizeof *file && (bytes -= sizeof *file) % each == 0 &&
        file->checksum == crc32c(0, file->entries, bytes))
        for (size_t i = 0; i < bytes / each; i++)
            take_rank(&file->entries[i], ranks, world);
    free(file);
}

/* ---- the directory ---- */

int hang_raise_alarm(const char *dir, struct error *err)
{
    char parent[PATH_SIZE], *slash;

    snprintf(parent, sizeof parent, "%s", dir);
    slash = strrchr(parent, '/');
    if (slash && slash > parent) { /* checkpoint.dir: run_claim_start makes it after the watchdog has started */
        *slash = '\0';
        mkdir(parent, 0777);
    }
    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        return error_errno(err, CODE_IO, "%s", dir);
    return 0;
}

bool hang_alarm_raised(const char *dir)
{
    return access(dir, F_OK) == 0;
}

/* Writes a file under another name, then gives it its own. 1; with `once`, 0 if there is such a file already. */
static int publish_file(const char *dir, int rank, const char *name, const void *data, size_t bytes, bool once,
                        struct error *err)
{
    char path[PATH_SIZE], part[PATH_SIZE];
    bool linked, there;
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(part, sizeof part, "%s/.%s-%05d.part", dir, name, rank);
    fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 || io_write_all(fd, data, bytes) < 0 || close(fd) < 0)
        return error_errno(err, CODE_IO, "%s", part); /* the process ends soon, and closes it */
    linked = once && link(part, path) == 0;
    there = once && !linked && (errno == EEXIST || access(path, F_OK) == 0);
    /* file systems without links: two may win */
    if (!linked && !there && rename(part, path) < 0)
        return error_errno(err, CODE_IO, "%s", path);
    unlink(part);
    return !there;
}

int hang_records_publish(const char *dir, int publisher, const struct hang_rank *ranks, int world, struct error *err)
{
    char name[32];
    size_t bytes;
    struct records_file *data = encode_ranks(ranks, world, &bytes);
    int result;

    if (!data)
        return error_set(err, CODE_IO, "out of memory for the records of this node");
    snprintf(name, sizeof name, "records-%05d", publisher);
    result = publish_file(dir, publisher, name, data, bytes, false, err);
    free(data);
    return result < 0 ? -1 : 0;
}

int hang_report_publish(const char *dir, int rank, const char *text, struct error *err)
{
    return publish_file(dir, rank, REPORT, text, strlen(text), true, err);
}

int hang_collect(const char *dir, int *lowest, struct hang_rank *ranks, int world, struct error *err)
{
    DIR *list = opendir(dir);
    const struct dirent *entry;
    int publisher, count = 0;

    *lowest = world;
    if (!list)
        return error_errno(err, CODE_IO, "%s", dir);
    while ((entry = readdir(list))) {
        char path[PATH_SIZE];

        if (sscanf(entry->d_name, "records-%d", &publisher) != 1)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (ranks)
            read_ranks(path, ranks, world);
        *lowest = publisher < *lowest ? publisher : *lowest;
        count++;
    }
    closedir(list);
    return count;
}

bool hang_cause_read(const char *dir, struct record_cause *cause)
{
    char path[PATH_SIZE], line[sizeof cause->text];
    FILE *file;
    bool found;

    snprintf(path, sizeof path, "%s/" REPORT, dir);
    file = fopen(path, "re");
    if (!file)
        return false;
    *cause = (struct record_cause){0};
    found = fgets(cause->text, sizeof cause->text, file) != NULL;
    cause->text[strcspn(cause->text, "\n")] = '\0';
    while (fgets(line, sizeof line, file))
        cause->aborted |= strcmp(line, HANG_ABORTED_LINE) == 0;
    fclose(file);
    return found;
}
