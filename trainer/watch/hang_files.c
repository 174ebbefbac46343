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

#define MAGIC   "mustrec"
#define VERSION 2 /* to change with what follows, struct flight_record included */

/* The file: a head, then for each rank an entry and its runs of members. */
struct file_head {
    char magic[8];
    uint32_t checksum; /* of what follows it */
    uint32_t version;
    uint64_t ranks;
};

#define CHECKED offsetof(struct file_head, version)

struct entry {
    int32_t rank, state, signal, unused;
    int64_t taken;
    char host[HANG_HOST_SIZE];
    int32_t runs[RECORD_COMMS];
    struct flight_record record;
};

/* Each group of a mesh is one run, however many ranks it has. */
struct member_run {
    int32_t first, stride, count;
};

static int32_t write_members(FILE *out, const int *members, int size)
{
    int32_t runs = 0;

    for (int i = 0; members && i < size; runs++) {
        struct member_run run = {members[i], i + 1 < size ? members[i + 1] - members[i] : 1, 1};

        while (i + run.count < size && members[i + run.count] - members[i + run.count - 1] == run.stride)
            run.count++;
        i += run.count;
        if (out)
            fwrite(&run, sizeof run, 1, out);
    }
    return runs;
}

static void write_rank(FILE *out, const struct hang_rank *rank, int number)
{
    struct entry entry = {.rank = number, .state = rank->state, .signal = rank->signal, .taken = rank->taken};

    memcpy(entry.host, rank->host, sizeof entry.host);
    entry.record = rank->record;
    for (int i = 0; i < RECORD_COMMS; i++)
        entry.runs[i] = write_members(NULL, rank->members[i], rank->record.comms[i].size);
    fwrite(&entry, sizeof entry, 1, out);
    for (int i = 0; i < RECORD_COMMS; i++)
        write_members(out, rank->members[i], rank->record.comms[i].size);
}

/* The whole file, malloc'ed; NULL when out of memory. */
static char *encode_ranks(const struct hang_rank *ranks, int world, size_t *bytes)
{
    struct file_head head = {.magic = MAGIC, .version = VERSION};
    char *data = NULL;
    FILE *out = open_memstream(&data, bytes);

    if (!out)
        return NULL;
    fwrite(&head, sizeof head, 1, out);
    for (int rank = 0; rank < world; rank++)
        if (ranks[rank].state != HANG_SILENT) {
            write_rank(out, &ranks[rank], rank);
            head.ranks++;
        }
    if (fclose(out) != 0) {
        free(data);
        return NULL;
    }
    memcpy(data, &head, sizeof head);
    head.checksum = crc32c(0, data + CHECKED, *bytes - CHECKED);
    memcpy(data, &head, sizeof head);
    return data;
}

/* What is left of a file. */
struct unread {
    const char *at;
    size_t bytes;
};

static bool take_bytes(struct unread *unread, void *to, size_t bytes)
{
    if (bytes > unread->bytes)
        return false;
    memcpy(to, unread->at, bytes);
    unread->at += bytes;
    unread->bytes -= bytes;
    return true;
}

/* The members of a communicator of `size`. NULL without them, or if one is outside the world. */
static int *take_members(struct unread *unread, int runs, int size, int world)
{
    int *members = calloc((size_t)world, sizeof *members), count = 0;
    struct member_run run;

    for (int i = 0; i < runs && members && take_bytes(unread, &run, sizeof run); i++)
        for (int k = 0; k < run.count && count < world; k++)
            members[count++] = run.first + k * run.stride;
    for (int i = 0; i < count && members; i++)
        if (members[i] < 0 || members[i] >= world)
            count = -1;
    if (members && count == size && size > 0)
        return members;
    free(members);
    return NULL;
}

static bool take_rank(struct unread *unread, struct hang_rank *ranks, int world)
{
    struct hang_rank *rank, taken = {0};
    struct entry entry;
    bool is_dead;

    if (!take_bytes(unread, &entry, sizeof entry) || entry.rank < 0 || entry.rank >= world)
        return false;
    rank = &ranks[entry.rank];
    is_dead = entry.state == HANG_DEAD || rank->state == HANG_DEAD;
    taken.record = entry.record;
    for (int i = 0; i < RECORD_COMMS; i++)
        if (entry.record.comms[i].id)
            taken.members[i] = take_members(unread, entry.runs[i], entry.record.comms[i].size, world);
    if (entry.state == HANG_DEAD && entry.taken == 0) { /* seen from another node: there may be a record from its own */
        rank->state = rank->state == HANG_ENDING ? HANG_ENDING : HANG_DEAD;
        return true;
    }
    taken.taken = entry.taken;
    taken.signal = entry.signal;
    taken.state = is_dead && entry.state != HANG_ENDING ? HANG_DEAD : (enum hang_state)entry.state;
    memcpy(taken.host, entry.host, sizeof taken.host);
    hang_rank_clear(rank);
    *rank = taken;
    return true;
}

static void read_ranks(const char *path, struct hang_rank *ranks, int world)
{
    struct unread unread = {0};
    struct file_head head;
    char *data = text_read_file(path, UINT32_MAX, &unread.bytes, NULL);

    unread.at = data;
    if (data && take_bytes(&unread, &head, sizeof head) && memcmp(head.magic, MAGIC, sizeof head.magic) == 0 &&
        head.version == VERSION && head.checksum == crc32c(0, data + CHECKED, sizeof head - CHECKED + unread.bytes))
        for (uint64_t i = 0; i < head.ranks && take_rank(&unread, ranks, world); i++) {
        }
    free(data);
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

static int write_file(const char *path, const char *text, size_t bytes, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    bool written = fd >= 0 && io_write_all(fd, text, bytes) == 0;

    if (fd >= 0 && close(fd) < 0)
        written = false;
    return written ? 0 : error_errno(err, CODE_IO, "%s", path);
}

int hang_records_publish(const char *dir, int publisher, const struct hang_rank *ranks, int world, struct error *err)
{
    char path[PATH_SIZE], part[PATH_SIZE];
    size_t bytes;
    char *data = encode_ranks(ranks, world, &bytes);
    int result;

    if (!data)
        return error_set(err, CODE_IO, "out of memory for the records of this node");
    snprintf(path, sizeof path, "%s/records-%05d", dir, publisher);
    snprintf(part, sizeof part, "%s/.records-%05d.part", dir, publisher);
    result = write_file(part, data, bytes, err);
    if (result == 0 && rename(part, path) < 0)
        result = error_errno(err, CODE_IO, "%s", path);
    free(data);
    return result;
}

int hang_published(const char *dir, bool *published, int world, struct error *err)
{
    DIR *list = opendir(dir);
    struct dirent *entry;

    memset(published, 0, (size_t)world * sizeof *published);
    if (!list)
        return error_errno(err, CODE_IO, "%s", dir);
    while ((entry = readdir(list))) {
        int publisher, length = 0;

        if (sscanf(entry->d_name, "records-%d%n", &publisher, &length) == 1 && !entry->d_name[length] &&
            publisher >= 0 && publisher < world)
            published[publisher] = true;
    }
    closedir(list);
    return 0;
}

void hang_collect(const char *dir, const bool *published, struct hang_rank *ranks, int world)
{
    char path[PATH_SIZE];

    for (int publisher = 0; publisher < world; publisher++)
        if (published[publisher]) {
            snprintf(path, sizeof path, "%s/records-%05d", dir, publisher);
            read_ranks(path, ranks, world);
        }
}

int hang_report_publish(const char *dir, int rank, const char *text, struct error *err)
{
    char path[PATH_SIZE], part[PATH_SIZE];
    int result;

    snprintf(path, sizeof path, "%s/" REPORT, dir);
    snprintf(part, sizeof part, "%s/.report-%05d.part", dir, rank);
    if (write_file(part, text, strlen(text), err) < 0)
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
