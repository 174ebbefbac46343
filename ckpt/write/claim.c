/* claim.c - one directory, one run: the files owner-N.json (struct ckpt_claim). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/write/attempt.h"
#include "common/text.h"

#define ATTEMPT_MARK   ".owner-"
#define MAX_BYTES      ((size_t)256 << 10)
#define VANISHED_TRIES 100

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void name_claim(char name[FILE_NAME_SIZE], uint64_t number)
{
    snprintf(name, FILE_NAME_SIZE, "owner-%" PRIu64 ".json", number);
}

/* True also for its temporary names; `whole` is false for these. */
static bool parse_claim(const char *name, uint64_t *number, bool *whole)
{
    char again[FILE_NAME_SIZE];
    size_t length;

    if (sscanf(name, "owner-%19" SCNu64, number) != 1 || *number == 0)
        return false;
    name_claim(again, *number);
    length = strlen(again);
    *whole = name[length] == '\0';
    return strncmp(name, again, length) == 0 && (*whole || text_ends_with(name, ".tmp"));
}

void ckpt_claim_attempt(char attempt[static CKPT_ATTEMPT_SIZE], uint64_t number)
{
    size_t used = strlen(attempt);

    if (number > 0)
        snprintf(attempt + used, CKPT_ATTEMPT_SIZE - used, ATTEMPT_MARK "%" PRIu64, number);
}

/* 0: none. */
static uint64_t claim_of(const char *attempt)
{
    const char *mark = strstr(attempt, ATTEMPT_MARK);

    return mark ? strtoull(mark + strlen(ATTEMPT_MARK), NULL, 10) : 0;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static const struct file_format claim_format = {"muster-owner", 1};

static const char *const claim_head[] = {"format", "version", "muster", "keys", NULL};

static const struct json_field claim_fields[] = {
    {"accepts", FIELD_COUNT, JSON_PLACE(struct ckpt_claim, accepts), false},
    {"cluster", FIELD_TEXT, JSON_PLACE(struct ckpt_claim, cluster), false},
    {"job", FIELD_TEXT, JSON_PLACE(struct ckpt_claim, job), false},
    {"array_task", FIELD_TEXT, JSON_PLACE(struct ckpt_claim, array_task), false},
    {"restart", FIELD_INT, JSON_PLACE(struct ckpt_claim, restart), false},
    {"step", FIELD_TEXT, JSON_PLACE(struct ckpt_claim, step), false},
    {"host", FIELD_TEXT, JSON_PLACE(struct ckpt_claim, host), false},
    {"machine", FIELD_TEXT, JSON_PLACE(struct ckpt_claim, machine), false},
    {"pid", FIELD_INT, JSON_PLACE(struct ckpt_claim, pid), false},
    {"pid_started", FIELD_COUNT, JSON_PLACE(struct ckpt_claim, pid_started), false},
    {"since", FIELD_DOUBLE, JSON_PLACE(struct ckpt_claim, since), false},
    {"heartbeat", FIELD_DOUBLE, JSON_PLACE(struct ckpt_claim, heartbeat), false},
    {"released", FIELD_DOUBLE, JSON_PLACE(struct ckpt_claim, released), false},
    {"run", FIELD_TEXT, JSON_PLACE(struct ckpt_claim, run), true},
    {0},
};

static int write_claim(const struct directory *directory, const char *name, const struct ckpt_claim *claim,
                       struct error *err)
{
    json_t *json = json_pack("{s:s, s:i, s:s}", "format", claim_format.name, "version", claim_format.number, "muster",
                             PACKAGE_VERSION);

    if (json_object_update_new(json, json_write_fields(claim_fields, claim)) < 0 ||
        json_object_set_new(json, "keys", claim->keys ? json_incref(claim->keys) : json_array()) < 0) {
        json_decref(json);
        json = NULL;
    }
    return json_write_file(directory, name, json, JSON_INDENT(1), err);
}

/* As written by this release; else -1 with CODE_CONFIG for an unknown format, and CODE_DATA for damage. */
static int decode_claim(struct ckpt_claim *claim, json_t *json, struct error *err)
{
    json_object_del(json, "life"); /* which earlier releases wrote */
    if (format_check(json, &claim_format, err) < 0 || format_check_members(json, claim_head, claim_fields, err) < 0)
        return format_explain(json, &claim_format, err);
    if (json_read_fields(json, claim_fields, claim, err) < 0)
        return -1;
    claim->keys = json_incref(json_object_get(json, "keys"));
    return 0;
}

/* 1; 0 if it has vanished; -1. Of a damaged file nothing is known but its time; `accepts` is 0. */
static int read_claim(const struct directory *directory, uint64_t number, struct ckpt_claim *claim, struct error *err)
{
    char name[FILE_NAME_SIZE];
    struct error why = {0};
    struct stat info;
    json_t *json;

    name_claim(name, number);
    json = json_read_file(directory, name, MAX_BYTES, &why);
    if (fstatat(directory->fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0) {
        json_decref(json);
        return errno == ENOENT ? 0 : error_errno(err, CODE_IO, "%s/%s", directory->path, name);
    }
    if (json && decode_claim(claim, json, &why) < 0)
        memset(claim, 0, sizeof *claim);
    json_decref(json);
    if (why.code == CODE_CONFIG || why.code == CODE_IO)
        return error_set(err, why.code, "%s/%s: %s", directory->path, name, why.text);
    if (why.code == CODE_DATA)
        claim->heartbeat = claim->since = (double)info.st_mtime;
    claim->number = number;
    claim->user = info.st_uid;
    return 1;
}

/* ---- the owner --------------------------------------------------------------------------------------------------- */

/* The highest number, or 0 if there is none. */
static int find_highest(const struct directory *directory, uint64_t *highest, struct error *err)
{
    struct listing listing = listing_open(directory);
    const char *name;
    uint64_t number;
    bool whole;

    *highest = 0;
    while ((name = listing_next(&listing)))
        if (parse_claim(name, &number, &whole) && whole && number > *highest)
            *highest = number;
    return listing_close(&listing, err);
}

/* 1, or 0 if there is none; -1. */
static int read_owner(const struct directory *directory, struct ckpt_claim *owner, struct error *err)
{
    uint64_t highest;
    int result = 0;

    memset(owner, 0, sizeof *owner);
    for (int tries = 0; tries < VANISHED_TRIES && result == 0; tries++) { /* a newer claim may have removed it */
        if (find_highest(directory, &highest, err) < 0)
            return -1;
        if (highest == 0)
            return 0;
        result = read_claim(directory, highest, owner, err);
    }
    return result != 0 ? result : error_set(err, CODE_IO, "%s: its owner files keep vanishing", directory->path);
}

int ckpt_claim_read(const char *dir, struct ckpt_claim *owner, struct error *err)
{
    struct directory directory;
    int result;

    memset(owner, 0, sizeof *owner);
    if (directory_open(&directory, NULL, dir, err) < 0)
        return errno == ENOENT ? 0 : -1;
    result = read_owner(&directory, owner, err);
    directory_close(&directory);
    return result;
}

void ckpt_claim_clear(struct ckpt_claim *claim)
{
    json_decref(claim->keys);
    memset(claim, 0, sizeof *claim);
}

void ckpt_claim_describe(char *text, size_t size, const struct ckpt_claim *claim)
{
    char who[400] = "an unknown run", since[32] = "?";
    time_t seconds = (time_t)claim->since;
    struct tm parts;

    if (claim->job[0])
        snprintf(who, sizeof who, "job %s (restart %d) on %s", claim->array_task[0] ? claim->array_task : claim->job,
                 claim->restart, claim->host);
    else if (claim->pid > 0)
        snprintf(who, sizeof who, "process %d on %s", claim->pid, claim->host);
    if (localtime_r(&seconds, &parts))
        strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text, size, "%s since %s (owner-%" PRIu64 ".json)", who, since, claim->number);
    error_tame(text);
}

/* Fills *err, and returns 1. */
static int explain_loss(const char *dir, uint64_t number, const struct ckpt_claim *owner, struct error *err)
{
    char text[256];

    ckpt_claim_describe(text, sizeof text, owner);
    error_set(err, CODE_CONFIG,
              "%s belongs to %s: the run of owner-%" PRIu64 ".json has lost it, and saves nothing more", dir, text,
              number);
    return 1;
}

int ckpt_claim_check(const char *dir, struct ckpt_claim *claim, struct error *err)
{
    struct ckpt_claim owner, earlier = *claim;
    int result = ckpt_claim_read(dir, &owner, err);

    if (result < 0)
        return err->code == CODE_CONFIG ? 1 : -1; /* of a later release */
    result = result > 0 && owner.number != claim->number ? explain_loss(dir, claim->number, &owner, err) : 0;
    if (owner.number == claim->number && owner.accepts > 0) {
        *claim = owner;
        owner = earlier;
    }
    ckpt_claim_clear(&owner);
    return result;
}

int attempt_check_claim(const struct directory *parent, const char *attempt, struct error *err)
{
    uint64_t number = claim_of(attempt);
    struct ckpt_claim owner;
    int result;

    if (number == 0)
        return 0;
    result = read_owner(parent, &owner, err);
    if (result > 0 && owner.accepts == 0 && number < owner.number) /* its run may be the same job, requeued */
        result = error_set(err, CODE_IO, "%s/owner-%" PRIu64 ".json: is damaged: whose saves it accepts is unknown",
                           parent->path, owner.number);
    else if (result > 0)
        result = number < owner.accepts ? explain_loss(parent->path, number, &owner, err) : 0;
    ckpt_claim_clear(&owner);
    return result;
}

/* ---- claiming ---------------------------------------------------------------------------------------------------- */

static bool is_same_file(const struct directory *directory, const char *one, const char *other)
{
    struct stat a, b;

    return fstatat(directory->fd, one, &a, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(directory->fd, other, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Gives a file that is complete its name, unless another process has it: 1, 0 or -1. */
static int link_claim(const struct directory *directory, const char *from, const char *to, struct error *err)
{
    int failed = linkat(directory->fd, from, directory->fd, to, 0);

    if (failed && (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS)) /* no hard links there */
        failed = renameat2(directory->fd, from, directory->fd, to, RENAME_NOREPLACE);
    if (!failed)
        return 1;
    if (errno == EEXIST) /* an NFS client may repeat a request that was done */
        return is_same_file(directory, from, to);
    if (errno == ENOENT) /* the winner has removed the temporary name */
        return 0;
    return file_write_failed(directory, to, 0, err);
}

/* Its number may have been another's, which a still later owner has removed: then that one is the owner. 1, 0 or -1. */
static int confirm_claim(const struct directory *directory, uint64_t number, struct error *err)
{
    char name[FILE_NAME_SIZE];
    uint64_t highest;

    if (directory_sync(directory, err) < 0 || find_highest(directory, &highest, err) < 0)
        return -1;
    if (highest <= number)
        return 1;
    name_claim(name, number);
    unlinkat(directory->fd, name, 0);
    return 0;
}

/* Removes earlier claims, and temporary names of these and of this number: their processes have lost, or are dead. */
static void sweep_claims(const struct directory *directory, uint64_t number)
{
    struct listing listing = listing_open(directory);
    const char *name;
    uint64_t other;
    bool whole;

    while ((name = listing_next(&listing)))
        if (parse_claim(name, &other, &whole) && (whole ? other < number : other <= number))
            unlinkat(directory->fd, name, 0);
    listing_close(&listing, NULL);
}

/* See attempt_check_claim. Attempts of an unknown format stay. */
static void abandon_earlier(const struct directory *directory, const struct ckpt_claim *claim)
{
    struct attempt *attempts;
    char why[256];
    size_t count;

    if (claim->accepts < 2 || attempt_list(directory, &attempts, &count, NULL) < 0)
        return;
    ckpt_claim_describe(why, sizeof why, claim);
    for (size_t i = 0; i < count; i++) {
        uint64_t number = claim_of(attempts[i].attempt);

        if (!attempts[i].abandoned && number > 0 && number < claim->accepts)
            attempt_abandon(directory, attempts[i].step, attempts[i].attempt, why, NULL);
    }
    free(attempts);
}

int ckpt_claim_take(const char *dir, const struct ckpt_claim *claim, struct error *err)
{
    char name[FILE_NAME_SIZE], temporary[FILE_NAME_SIZE + 32];
    struct directory directory;
    uint64_t highest;
    int result;

    if (directory_open(&directory, NULL, dir, err) < 0)
        return -1;
    name_claim(name, claim->number);
    file_temporary_name(temporary, sizeof temporary, name);
    result = write_claim(&directory, temporary, claim, err);
    if (result == 0)
        result = link_claim(&directory, temporary, name, err);
    unlinkat(directory.fd, temporary, 0);
    if (result < 0 && find_highest(&directory, &highest, NULL) == 0 && highest >= claim->number)
        result = 0; /* the winner has removed the temporary name while it was written */
    if (result > 0)
        result = confirm_claim(&directory, claim->number, err);
    if (result > 0) {
        abandon_earlier(&directory, claim);
        sweep_claims(&directory, claim->number);
    }
    directory_close(&directory);
    return result;
}

int ckpt_claim_refresh(const char *dir, const struct ckpt_claim *claim, struct error *err)
{
    char name[FILE_NAME_SIZE];
    struct directory directory;
    int result;

    if (directory_open(&directory, NULL, dir, err) < 0)
        return -1;
    name_claim(name, claim->number);
    result = file_exists(&directory, name) ? write_claim(&directory, name, claim, err)
                                           : error_set(err, CODE_IO, "%s/%s is missing", dir, name);
    directory_close(&directory);
    return result;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The claim's keys follow as JSON. */
struct claim_packet {
    char release[32];
    struct claim_message message; /* claim.keys has no meaning */
    char keys[32768];
};

int claim_message_send(int fd, const struct claim_message *message)
{
    struct claim_packet packet = {.release = PACKAGE_VERSION, .message = *message};
    size_t keys = json_dumpb(message->claim.keys, packet.keys, sizeof packet.keys, JSON_COMPACT);

    if (keys > sizeof packet.keys)
        return -1;
    return send(fd, &packet, offsetof(struct claim_packet, keys) + keys, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

int claim_message_receive(int fd, struct claim_message *message)
{
    const size_t head = offsetof(struct claim_packet, keys);
    struct claim_packet packet;
    ssize_t got = recv(fd, &packet, sizeof packet, 0);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got < (ssize_t)head || strcmp(packet.release, PACKAGE_VERSION) != 0)
        return -1;
    *message = packet.message;
    message->claim.keys = json_loadb(packet.keys, (size_t)got - head, 0, NULL);
    return 1;
}
