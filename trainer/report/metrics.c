#include "trainer/report/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/io.h"
#include "common/text.h"

enum kind {
    KIND_LONG,
    KIND_INT,
    KIND_RESULT,  /* a double that must read back unchanged */
    KIND_MEASURE, /* a double for which nine digits are enough */
};

struct metrics_key {
    const char *name;
    enum kind kind;
    long least; /* of counts */
    size_t offset;
};

#define KEY(field, type, low) .name = #field, .kind = type, .least = low, .offset = offsetof(struct metrics_step, field)

/* Both directions use this table. */
static const struct metrics_key KEYS[] = {
    {KEY(step, KIND_LONG, 0)},
    {KEY(consumed_samples, KIND_LONG, 0)},
    {KEY(loss, KIND_RESULT, 0)},
    {KEY(lr, KIND_RESULT, 0)},
    {KEY(grad_norm, KIND_RESULT, 0)},
    {KEY(loss_scale, KIND_RESULT, 0)},
    {KEY(skipped, KIND_INT, 0)},
    {KEY(step_seconds, KIND_MEASURE, 0)},
    {KEY(tokens_per_second, KIND_MEASURE, 0)},
    {KEY(tflops, KIND_MEASURE, 0)},
    {KEY(mfu, KIND_MEASURE, 0)},
    {KEY(hfu, KIND_MEASURE, 0)},
    {KEY(world, KIND_INT, 1)},
    {KEY(dp, KIND_INT, 1)},
    {KEY(tp, KIND_INT, 1)},
    {KEY(pp, KIND_INT, 1)},
    /* optional ones */
    {KEY(order_loss, KIND_RESULT, 0)},
    {KEY(valid_loss, KIND_RESULT, 0)},
    {KEY(valid_order_loss, KIND_RESULT, 0)},
};

enum { KEY_COUNT = sizeof KEYS / sizeof KEYS[0], KEY_VALIDATION = KEY_COUNT - 2, KEY_OPTIONAL = KEY_VALIDATION - 1 };

/* ---- a step as text ---- */

/* The fewest digits that read back the same double: 0.00015 rather than 0.00014999999999999999. */
static int format_double(char *buf, size_t size, double value, enum kind kind)
{
    if (!isfinite(value))
        return snprintf(buf, size, "null");
    if (value == 0.0) /* "-0" would be read as an integer of JSON, without its sign */
        return snprintf(buf, size, signbit(value) ? "-0.0" : "0");
    if (kind == KIND_MEASURE)
        return snprintf(buf, size, "%.9g", value);
    for (int digits = 9; digits < 17; digits++) {
        int used = snprintf(buf, size, "%.*g", digits, value);

        if (strtod(buf, NULL) == value)
            return used;
    }
    return snprintf(buf, size, "%.17g", value);
}

static int format_value(char *buf, size_t size, const struct metrics_key *key, const void *field)
{
    if (key->kind == KIND_LONG)
        return snprintf(buf, size, "%ld", *(const long *)field);
    if (key->kind == KIND_INT)
        return snprintf(buf, size, "%d", *(const int *)field);
    return format_double(buf, size, *(const double *)field, key->kind);
}

static size_t format_array(char *buf, size_t size, const char *name, const double *values, int count)
{
    size_t used = 0;

    for (int i = 0; i < count; i++) {
        used += i ? (size_t)snprintf(buf + used, size - used, ",")
                  : (size_t)snprintf(buf + used, size - used, ",\"%s\":[", name);
        used += (size_t)format_double(buf + used, size - used, values[i], KIND_RESULT);
    }
    return used + (count ? (size_t)snprintf(buf + used, size - used, "]") : 0);
}

/* Leaves out an order_loss or valid_order_loss that is NaN. */
static size_t format_keys(char *buf, size_t size, int first, int end, const struct metrics_step *step)
{
    size_t used = 0;

    for (int i = first; i < end; i++) {
        const void *field = (const char *)step + KEYS[i].offset;

        if (i >= KEY_OPTIONAL && i != KEY_VALIDATION && isnan(*(const double *)field))
            continue;
        used += (size_t)snprintf(buf + used, size - used, "%c\"%s\":", i ? ',' : '{', KEYS[i].name);
        used += (size_t)format_value(buf + used, size - used, &KEYS[i], field);
    }
    return used;
}

/* The end of the line of a step: what a validation adds to it, and "}\n". */
static size_t format_end(char *buf, size_t size, const struct metrics_step *step)
{
    size_t used = step->validated ? format_keys(buf, size, KEY_VALIDATION, KEY_COUNT, step) : 0;

    used += format_array(buf + used, size - used, "valid_set_losses", step->valid_set_losses, step->valid_sets);
    return used + (size_t)snprintf(buf + used, size - used, "}\n");
}

size_t metrics_format(char *buf, const struct metrics_step *step)
{
    /* No check for room: 19 keys of at most 17 + 5 characters and 19 values of at most 24 are under 900, and 2 arrays
     * of 128 values and commas are under 6500. */
    size_t used = format_keys(buf, METRICS_LINE_SIZE, 0, KEY_VALIDATION, step);

    used += format_array(buf + used, METRICS_LINE_SIZE - used, "set_losses", step->set_losses, step->sets);
    return used + format_end(buf + used, METRICS_LINE_SIZE - used, step);
}

static int parse_value(const struct metrics_key *key, const json_t *value, struct metrics_step *step, struct error *err)
{
    void *field = (char *)step + key->offset;
    json_int_t most = key->kind == KIND_INT ? INT_MAX : LONG_MAX, count = json_integer_value(value);

    if (key->kind == KIND_RESULT || key->kind == KIND_MEASURE) {
        if (!json_is_number(value) && !json_is_null(value))
            return error_set(err, CODE_DATA, "\"%s\" must be a number, or null where there is none", key->name);
        *(double *)field = json_is_null(value) ? NAN : json_number_value(value);
        return 0;
    }
    if (!json_is_integer(value) || count < key->least || count > most)
        return error_set(err, CODE_DATA, "\"%s\" must be a whole number from %ld to %lld", key->name, key->least,
                         (long long)most);
    if (key->kind == KIND_INT)
        *(int *)field = (int)count;
    else
        *(long *)field = (long)count;
    return 0;
}

static int check_array(json_t *object, const char *name, struct error *err)
{
    const json_t *array = json_object_get(object, name);

    if (array && !json_is_array(array))
        return error_set(err, CODE_DATA, "\"%s\" must be an array", name);
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!json_is_number(json_array_get(array, i)) && !json_is_null(json_array_get(array, i)))
            return error_set(err, CODE_DATA, "\"%s\" must have numbers, and null for a set without predictions", name);
    return 0;
}

static int parse_object(struct metrics_step *step, json_t *object, struct error *err)
{
    const char *missing = NULL;

    step->validated = json_object_get(object, "valid_loss") != NULL;
    if (check_array(object, "set_losses", err) < 0 || check_array(object, "valid_set_losses", err) < 0)
        return -1;

    for (int i = 0; i < KEY_COUNT; i++) {
        const json_t *value = json_object_get(object, KEYS[i].name);

        if (!value && !missing && i < KEY_OPTIONAL)
            missing = KEYS[i].name;
        else if (value && parse_value(&KEYS[i], value, step, err) < 0)
            return -1;
    }
    return missing ? error_set(err, CODE_DATA, "key \"%s\" is missing", missing) : 0;
}

int metrics_parse(struct metrics_step *step, const char *text, size_t length, struct error *err)
{
    json_error_t why;
    json_t *object;
    int result;

    memset(step, 0, sizeof *step);
    step->order_loss = step->valid_loss = step->valid_order_loss = NAN;
    object = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
    if (!object)
        return error_set(err, CODE_DATA, "column %d: %s; a line must be one JSON object", why.column, why.text);
    if (json_is_object(object))
        result = parse_object(step, object, err);
    else
        result = error_set(err, CODE_DATA, "a line must be one JSON object");
    json_decref(object);
    return result;
}

/* ---- reading a file ---- */

static int add_step(struct metrics_step **steps, size_t *count, size_t *room, const struct metrics_step *step,
                    struct error *err)
{
    if (*count == *room) {
        size_t more = *room ? 2 * *room : 256;
        struct metrics_step *larger = reallocarray(*steps, more, sizeof *larger);

        if (!larger)
            return error_errno(err, CODE_IO, "no memory for %zu steps of metrics", more);
        *steps = larger;
        *room = more;
    }
    (*steps)[(*count)++] = *step;
    return 0;
}

/* What becomes of a file's lines that are steps. `line` has no newline. */
typedef int take_step(void *arg, const struct metrics_step *step, const char *line, struct error *err);

/* A last line without a newline is being written, unless it is a whole step. */
static int each_step(const char *path, take_step *take, void *arg, struct metrics_damage *damage, struct error *err)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0, number = 0;
    ssize_t length;
    int result = 0;

    damage->lines = 0;
    if (!file)
        return error_errno(err, CODE_IO, "cannot open metrics %s", path);
    while (result == 0 && (length = getline(&line, &size, file)) > 0) {
        bool ended = line[length - 1] == '\n';
        struct metrics_step step;
        struct error why;

        number++;
        line[length - ended] = '\0';
        if (metrics_parse(&step, line, (size_t)(length - ended), &why) == 0) {
            result = take(arg, &step, line, err);
        } else if (ended && damage->lines++ == 0) {
            error_prefix(&why, "%s:%zu", path, number);
            damage->first = why;
        }
    }
    if (result == 0 && !feof(file)) /* a directory can be opened and fails only here; or there is no memory */
        result = error_errno(err, CODE_IO, "cannot read metrics %s", path);
    free(line);
    fclose(file);
    return result;
}

struct step_list {
    struct metrics_step *steps;
    size_t count, room;
};

static int list_step(void *arg, const struct metrics_step *step, const char *line, struct error *err)
{
    struct step_list *list = arg;

    (void)line;
    return add_step(&list->steps, &list->count, &list->room, step, err);
}

int metrics_read(const char *path, struct metrics_step **steps, size_t *count, struct metrics_damage *damage,
                 struct error *err)
{
    struct step_list list = {0};
    int result = each_step(path, list_step, &list, damage, err);

    if (result == 0 && list.count == 0 && damage->lines > 0) {
        *err = damage->first;
        result = -1;
    }
    if (result < 0) {
        free(list.steps);
        list = (struct step_list){0};
    }
    *steps = list.steps;
    *count = list.count;
    return result;
}

/* ---- the writer ---- */

enum {
    CHECK_SECONDS = 5, /* between two checks of the name, which need the file system */
    READER_SECONDS = 10,
};

struct metrics_writer {
    int fd;
    time_t checked; /* when the name was last checked */
    bool displaced; /* it belonged to another file */
    long last_step; /* of the lines that metrics_open kept; 0: there are none */
    bool validated; /* that step */
    char path[PATH_MAX];
};

/* ---- removing the steps that a resumed run will repeat ---- */

static int replace_file(const char *path, mode_t mode, const char *text, size_t length, struct error *err)
{
    char beside[PATH_MAX + 8];
    int fd;

    snprintf(beside, sizeof beside, "%s.tmp", path);
    fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0)
        return error_errno(err, CODE_IO, "cannot create %s", beside);
    if (fchmod(fd, mode & 0777) == 0 && io_write_all(fd, text, length) == 0 && fsync(fd) == 0 &&
        rename(beside, path) == 0 && io_sync_parent(path) == 0) {
        close(fd);
        return 0;
    }
    error_errno(err, CODE_IO, "cannot write %s and rename it to %s", beside, path);
    close(fd);
    unlink(beside);
    return -1;
}

struct kept_lines {
    FILE *text;
    long resume_step;
    struct metrics_writer *writer;
};

static int keep_line(void *arg, const struct metrics_step *step, const char *line, struct error *err)
{
    const struct kept_lines *kept = arg;

    (void)err;
    if (step->step > kept->resume_step)
        return 0;
    fprintf(kept->text, "%s\n", line); /* fclose reports a failure */
    kept->writer->last_step = step->step;
    kept->writer->validated = step->validated;
    return 0;
}

/* The damaged file stays: it may be none of metrics at all, but a file that the job file names by mistake. */
static int keep_damaged(const char *path, struct metrics_damage *damage, struct error *err)
{
    snprintf(damage->kept, sizeof damage->kept, "%s.damaged", path);
    for (int k = 2; k < 1000 && access(damage->kept, F_OK) == 0; k++)
        snprintf(damage->kept, sizeof damage->kept, "%s.damaged-%d", path, k);
    if (link(path, damage->kept) < 0 && rename(path, damage->kept) < 0) /* not every file system has hard links */
        return error_errno(err, CODE_IO, "cannot keep the damaged metrics as %s", damage->kept);
    return 0;
}

/* A last line that is torn is not among the steps. */
static int drop_beyond(struct metrics_writer *writer, const struct stat *now, long resume_step,
                       struct metrics_damage *damage, struct error *err)
{
    const char *path = writer->path;
    char *text = NULL;
    size_t length = 0;
    struct kept_lines kept = {open_memstream(&text, &length), resume_step, writer};
    int result = kept.text ? each_step(path, keep_line, &kept, damage, err) : 0;

    if ((!kept.text || fclose(kept.text) != 0) && result == 0)
        result = error_errno(err, CODE_IO, "no memory to read %s", path);
    if (result == 0 && damage->lines > 0)
        result = keep_damaged(path, damage, err);
    if (result == 0 && (damage->lines > 0 || (off_t)length != now->st_size))
        result = replace_file(path, now->st_mode, text, length, err);
    free(text);
    return result;
}

/* ---- appending ---- */

/* After the file was replaced. */
static int open_again(struct metrics_writer *writer, struct error *err)
{
    close(writer->fd);
    writer->fd = open(writer->path, O_WRONLY | O_CLOEXEC | O_APPEND);
    return writer->fd < 0 ? error_errno(err, CODE_IO, "cannot open metrics %s", writer->path) : 0;
}

/* Opens the file without waiting: a FIFO without a reader would hang the run. Pipes, terminals and /dev/null are files
 * to append to; what can never be one is the job file's mistake. */
static int open_file(const char *path, struct stat *now, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | O_NONBLOCK, 0666), failure = errno;
    bool known = fd < 0 ? stat(path, now) == 0 : fstat(fd, now) == 0;
    const char *what = !known                   ? NULL
                       : S_ISDIR(now->st_mode)  ? "a directory"
                       : S_ISSOCK(now->st_mode) ? "a socket"
                       : S_ISBLK(now->st_mode)  ? "a disk"
                       : S_ISFIFO(now->st_mode) && fd < 0 && failure == ENXIO
                           ? "a FIFO that nobody reads; start the reader first, or"
                           : NULL;

    if (fd >= 0 && known && !what)
        return fd;
    if (fd >= 0)
        close(fd);
    errno = failure;
    if (what)
        return error_set(err, CODE_CONFIG, "metrics %s: it is %s%s name a file", path, what,
                         S_ISFIFO(now->st_mode) ? "" : ";");
    return error_errno(err, CODE_IO, "cannot open metrics %s", path);
}

struct metrics_writer *metrics_open(const char *path, long resume_step, struct metrics_damage *damage,
                                    struct error *err)
{
    struct metrics_writer *writer = error_calloc(1, sizeof *writer, err);
    struct stat now;

    damage->lines = 0;
    if (!writer)
        return NULL;
    writer->fd = open_file(path, &now, err);
    if (writer->fd < 0)
        goto fail;
    snprintf(writer->path, sizeof writer->path, "%s", path);
    if (!S_ISREG(now.st_mode)) /* a pipe or a terminal has no lines to remove, and /dev/stdout then leads to no name */
        return writer;
    /* Resolve symbolic links, so that the rename replaces the file and not a link to it. */
    if (!realpath(path, writer->path)) {
        error_errno(err, CODE_IO, "cannot resolve metrics %s", path);
        goto fail;
    }
    if (now.st_size == 0)
        return writer;
    if (drop_beyond(writer, &now, resume_step, damage, err) < 0 || open_again(writer, err) < 0)
        goto fail;
    return writer;
fail:
    metrics_close(writer);
    return NULL;
}

bool metrics_has_validation(const struct metrics_writer *writer, long step)
{
    return writer->last_step == step && writer->validated;
}

int metrics_add_validation(struct metrics_writer *writer, const struct metrics_step *step, struct error *err)
{
    char *text, *room;
    struct stat now;
    size_t bytes;
    int result;

    if (writer->last_step != step->step || writer->validated)
        return 0;
    text = text_read_file(writer->path, SIZE_MAX / 2, &bytes, err);
    if (!text)
        return -1;
    room = realloc(text, bytes + METRICS_LINE_SIZE);
    if (!room || fstat(writer->fd, &now) < 0) {
        result = error_errno(err, CODE_IO, "cannot change metrics %s", writer->path);
    } else {
        bytes += format_end(room + bytes - 2, METRICS_LINE_SIZE, step) - 2; /* in place of "}\n" */
        result = replace_file(writer->path, now.st_mode, room, bytes, err) < 0 ? -1 : open_again(writer, err);
    }
    writer->validated = result == 0;
    free(room ? room : text);
    return result;
}

bool metrics_displaced(struct metrics_writer *writer)
{
    struct stat ours, named;
    time_t now = time(NULL);

    if (writer->displaced || (now - writer->checked < CHECK_SECONDS && now >= writer->checked))
        return false;
    writer->checked = now;
    if (fstat(writer->fd, &ours) < 0)
        return writer->displaced = errno == ESTALE; /* removed on another node, by NFS */
    if (!S_ISREG(ours.st_mode))
        return false;
    if (stat(writer->path, &named) < 0)
        writer->displaced = errno == ENOENT;
    else
        writer->displaced = named.st_ino != ours.st_ino || named.st_dev != ours.st_dev;
    return writer->displaced;
}

/* A pipe is full: waits until its reader has read, but not for a reader that was stopped. */
static bool wait_for_reader(int fd)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};

    if (poll(&room, 1, READER_SECONDS * 1000) > 0)
        return true;
    errno = ETIMEDOUT;
    return false;
}

int metrics_write(struct metrics_writer *writer, const struct metrics_step *step, struct error *err)
{
    char line[METRICS_LINE_SIZE];
    size_t length = metrics_format(line, step);
    struct stat now;
    ssize_t done;

    do
        done = write(writer->fd, line, length);
    while (done < 0 && (errno == EINTR || (errno == EAGAIN && wait_for_reader(writer->fd))));
    if (done == (ssize_t)length)
        return 0;
    if (done < 0)
        return error_errno(err, CODE_IO, "cannot write step %ld to metrics %s", step->step, writer->path);
    /* Half a line would make the next one invalid too. */
    if (fstat(writer->fd, &now) < 0 || ftruncate(writer->fd, now.st_size - done) < 0)
        return error_errno(err, CODE_IO, "step %ld is torn in metrics %s", step->step, writer->path);
    return error_set(err, CODE_IO, "cannot write step %ld to metrics %s: no space for the whole line", step->step,
                     writer->path);
}

int metrics_sync(struct metrics_writer *writer, struct error *err)
{
    if (fdatasync(writer->fd) < 0 && errno != EINVAL) /* EINVAL: a pipe or a terminal, which has no disk */
        return error_errno(err, CODE_IO, "cannot sync metrics %s", writer->path);
    return 0;
}

void metrics_close(struct metrics_writer *writer)
{
    if (!writer)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    free(writer);
}
