#include "trainer/report/tensorboard.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "trainer/report/event.pb-c.h"
#include "trainer/report/metrics.h"

#define FILE_PREFIX "events.out.tfevents."

/* A record: the event's length (u64), the length's checksum, the event, its checksum; all little-endian. */
enum { HEAD_SIZE = 12, TAIL_SIZE = 4, EVENT_MOST = 2048, RECORD_MOST = HEAD_SIZE + EVENT_MOST + TAIL_SIZE };

static uint32_t find_checksum(const void *data, size_t bytes)
{
    uint32_t crc = crc32c(0, data, bytes);

    return htole32((crc >> 15 | crc << 17) + 0xa282ead8u);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static int write_event(struct tensorboard *t, const Tensorboard__Event *event, struct error *err)
{
    uint8_t record[RECORD_MOST]; /* an event of 15 values of at most 40 bytes */
    size_t bytes = tensorboard__event__pack(event, record + HEAD_SIZE);
    uint64_t length = htole64(bytes);
    ssize_t done;

    memcpy(record, &length, sizeof length);
    memcpy(record + sizeof length, &(uint32_t){find_checksum(record, sizeof length)}, TAIL_SIZE);
    memcpy(record + HEAD_SIZE + bytes, &(uint32_t){find_checksum(record + HEAD_SIZE, bytes)}, TAIL_SIZE);
    bytes += HEAD_SIZE + TAIL_SIZE;
    if (t->torn && ftruncate(t->fd, t->length) < 0)
        return error_errno(err, CODE_IO, "cannot cut %s", t->path);
    done = write(t->fd, record, bytes);
    t->torn = done != (ssize_t)bytes;
    if (done < 0)
        return error_errno(err, CODE_IO, "cannot write %s", t->path);
    if (t->torn)
        return error_set(err, CODE_IO, "cannot write %s: no space for a whole event", t->path);
    t->length += (off_t)bytes;
    return 0;
}

/* Of the last step that the events have, the validation alone. Numbers that there are not (NaN) are left out. */
static int write_step(struct tensorboard *t, const struct metrics_step *s, struct error *err)
{
    const struct {
        const char *tag;
        double value;
        bool always;
    } scalars[] = {
        {"validation/loss", s->valid_loss, s->validated},
        {"validation/order_loss", s->valid_order_loss, false},
        {"train/loss", s->loss, true},
        {"train/order_loss", s->order_loss, false},
        {"train/learning_rate", s->lr, false},
        {"train/grad_norm", s->grad_norm, false},
        {"train/loss_scale", s->loss_scale, false},
        {"train/skipped", s->skipped, false},
        {"speed/step_seconds", s->step_seconds, false},
        {"speed/tokens_per_second", s->tokens_per_second, false},
        {"speed/tflops", s->tflops, false},
        {"speed/mfu", s->mfu, false},
        {"speed/hfu", s->hfu, false},
        {"mesh/ranks", s->world, false},
    };
    enum { VALIDATION = 2, SCALARS = sizeof scalars / sizeof *scalars };
    Tensorboard__Summary__Value values[SCALARS], *list[SCALARS];
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;

    for (int i = 0; i < (s->step == t->last ? VALIDATION : SCALARS); i++) {
        Tensorboard__Summary__Value *value = list[summary.n_value] = &values[summary.n_value];

        if (isnan(scalars[i].value) && !scalars[i].always)
            continue;
        tensorboard__summary__value__init(value);
        value->tag = (char *)scalars[i].tag;
        value->simple_value = (float)scalars[i].value;
        summary.n_value++;
    }
    summary.value = list;
    event.wall_time = s->time > 0 ? s->time : (double)time(NULL);
    event.step = s->step;
    event.summary = &summary;
    return write_event(t, &event, err);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* A whole record at the file's position, and the size of its event; 0 at the end, or where it is damaged. */
static size_t read_record(FILE *file, uint8_t *record)
{
    uint64_t length;
    uint32_t checksum;
    size_t bytes;

    if (fread(record, HEAD_SIZE, 1, file) != 1)
        return 0;
    memcpy(&length, record, sizeof length);
    bytes = le64toh(length);
    if (bytes > EVENT_MOST || fread(record + HEAD_SIZE, bytes + TAIL_SIZE, 1, file) != 1)
        return 0;
    memcpy(&checksum, record + HEAD_SIZE + bytes, sizeof checksum);
    return checksum == find_checksum(record + HEAD_SIZE, bytes) ? bytes : 0;
}

/* The step up to which an event file, and those before it, have events; -1 if it does not show this. */
static long find_last(const char *dir, const char *name)
{
    uint8_t record[RECORD_MOST], event[EVENT_MOST];
    char path[PATH_MAX + NAME_MAX + 2];
    size_t bytes, kept = 0;
    Tensorboard__Event *last;
    FILE *file;
    long step = -1;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "re");
    if (!file)
        return -1;
    for (; (bytes = read_record(file, record)) > 0; kept = bytes)
        memcpy(event, record + HEAD_SIZE, bytes);
    fclose(file);
    last = tensorboard__event__unpack(NULL, kept, event);
    if (last && (last->summary || last->session_log))
        step = (long)last->step - (last->session_log ? 1 : 0);
    if (last)
        tensorboard__event__free_unpacked(last, NULL);
    return step;
}

static int is_event_file(const struct dirent *entry)
{
    return strncmp(entry->d_name, FILE_PREFIX, strlen(FILE_PREFIX)) == 0;
}

/* The step up to which the directory has events. *newest: the time in the name of its newest file. */
static long look_at_files(const char *dir, long *newest, struct error *err)
{
    struct dirent **files;
    int count = scandir(dir, &files, is_event_file, alphasort);
    long last = -1;

    if (count < 0)
        return error_errno(err, CODE_IO, "cannot list %s", dir);
    if (count > 0)
        *newest = atol(files[count - 1]->d_name + strlen(FILE_PREFIX));
    while (count-- > 0) {
        if (last < 0)
            last = find_last(dir, files[count]->d_name);
        free(files[count]);
    }
    free(files);
    return last < 0 ? 0 : last;
}

/* Fills the event file with what precedes the steps. */
static int begin_file(struct tensorboard *t, struct error *err)
{
    Tensorboard__Event version = TENSORBOARD__EVENT__INIT, start = TENSORBOARD__EVENT__INIT;
    Tensorboard__SessionLog log = TENSORBOARD__SESSION_LOG__INIT;

    version.wall_time = start.wall_time = (double)time(NULL);
    version.file_version = (char[]){"brain.Event:2"};
    log.status = TENSORBOARD__SESSION_LOG__STATUS__START;
    start.session_log = &log;
    start.step = t->last + 1;
    t->length = 0;
    t->torn = false;
    return write_event(t, &version, err) < 0 ? -1 : write_event(t, &start, err);
}

/* TensorBoard reads the files in the order of their names: a new one is later than all. */
static int open_events(struct tensorboard *t, struct error *err)
{
    char host[HOST_NAME_MAX + 1] = "";
    long newest = 0, now = (long)time(NULL), last;

    if (mkdir(t->dir, 0777) < 0 && errno != EEXIST)
        return error_errno(err, CODE_IO, "cannot make %s", t->dir);
    last = look_at_files(t->dir, &newest, err);
    if (last < 0)
        return -1;
    if (last < t->last) { /* earlier steps are not in the events */
        t->last = last;
        t->validated = true;
        t->offset = 0;
    }
    gethostname(host, sizeof host);
    snprintf(t->path, sizeof t->path, "%s/" FILE_PREFIX "%010ld.%s.%d.0", t->dir, now > newest ? now : newest + 1, host,
             (int)getpid());
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (t->fd < 0)
        return error_errno(err, CODE_IO, "cannot create %s", t->path);
    if (begin_file(t, err) == 0)
        return 0;
    unlink(t->path);
    close(t->fd);
    t->fd = -1;
    return -1;
}

/* ---- following the metrics --------------------------------------------------------------------------------------- */

static int take_lines(struct tensorboard *t, FILE *file, struct error *err)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    int result = 0;

    while (result == 0 && (length = getline(&line, &size, file)) > 0 && line[length - 1] == '\n') {
        struct metrics_step s;

        if (metrics_parse(&s, line, (size_t)length, NULL) == 0 &&
            (s.step > t->last || (s.step == t->last && s.validated && !t->validated))) {
            result = write_step(t, &s, err);
            if (result == 0) {
                t->last = s.step;
                t->validated = s.validated;
            }
        }
        t->offset += result == 0 ? length : 0;
    }
    free(line);
    return result;
}

int tensorboard_follow(struct tensorboard *t, const char *metrics, struct error *err)
{
    FILE *file;
    int result;

    if (t->fd < 0 && open_events(t, err) < 0)
        return -1;
    file = fopen(metrics, "re");
    if (!file)
        return error_errno(err, CODE_IO, "cannot read %s", metrics);
    result = fseeko(file, t->offset, SEEK_SET) < 0 ? error_errno(err, CODE_IO, "cannot read %s", metrics)
                                                   : take_lines(t, file, err);
    fclose(file);
    return result;
}
