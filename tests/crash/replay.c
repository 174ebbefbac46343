/* replay.c - reading a log, and deciding what of it survives. replay_build.c makes the files. */
#include "tests/crash/replay_log.h"

#include "tests/cmocka_test.h"
#include "tests/unit/test_ckpt_world.h"

static struct object *object_create(struct replay *replay, uint64_t inode, bool directory)
{
    struct object *object = calloc(1, sizeof *object);

    assert_non_null(object);
    object->inode = inode;
    object->directory = directory;
    object->next = replay->objects;
    replay->objects = object; /* the newest first: an inode number may be used again */
    return object;
}

/* NULL for what was there before, or is not beneath the root. */
static struct object *object_of(const struct replay *replay, uint64_t inode)
{
    struct object *object = replay->objects;

    while (object && object->inode != inode)
        object = object->next;
    return object;
}

/* Whom that name stands for after all changes so far. */
static struct object *object_named(const struct replay *replay, const struct object *directory, const char *name)
{
    for (size_t c = replay->nchanges; c-- > 0;) {
        const struct change *change = &replay->changes[c];

        if (change->to == directory && strcmp(change->to_name, name) == 0)
            return change->object;
        if (change->from == directory && strcmp(change->from_name, name) == 0)
            return NULL;
    }
    return NULL;
}

/* Changes that this sync makes durable. */
static void add_sync(struct replay *replay, const struct object *object, size_t moment)
{
    for (size_t c = 0; c < replay->nchanges; c++) {
        struct change *change = &replay->changes[c];
        bool ours = change->name ? change->to == object || change->from == object : change->object == object;

        if (ours && change->durable_from > moment)
            change->durable_from = moment;
    }
}

static void add_change(struct replay *replay, const struct shim_record *record, const char *names, const void *data)
{
    struct object *where = object_of(replay, record->inode);
    struct change change = {.moment = replay->count, .durable_from = SIZE_MAX, .kind = record->kind};

    if (!where)
        return;
    switch (record->kind) {
    case SHIM_CREATE:
    case SHIM_MKDIR:
        change.name = true;
        change.object = object_create(replay, record->other, record->kind == SHIM_MKDIR);
        change.to = where;
        change.to_name = names;
        break;
    case SHIM_RENAME:
        change.name = true;
        change.object = object_named(replay, where, names);
        change.from = where;
        change.from_name = names;
        change.to = object_of(replay, record->other);
        change.to_name = names + strlen(names) + 1;
        assert_non_null(change.object);
        assert_non_null(change.to);
        break;
    case SHIM_UNLINK:
        change.name = true;
        change.object = object_named(replay, where, names);
        change.from = where;
        change.from_name = names;
        assert_non_null(change.object);
        break;
    case SHIM_WRITE:
    case SHIM_TRUNCATE:
        change.object = where;
        change.offset = record->offset;
        change.bytes = record->bytes;
        change.data = data;
        break;
    default:
        add_sync(replay, where, replay->count);
        return;
    }
    assert_true(replay->nchanges < replay->room);
    replay->changes[replay->nchanges++] = change;
}

static void add_promise(struct replay *replay, const char *text, size_t bytes)
{
    char line[64];
    unsigned long long step;

    snprintf(line, sizeof line, "%.*s", (int)bytes, text);
    if (strncmp(line, "staged ", 7) == 0)
        return; /* in memory, which is no promise */
    assert_int_equal(sscanf(line, "committed %llu", &step), 1);
    replay->promises[replay->npromises++] = (struct promise){replay->count, step};
}

struct replay *replay_create(const char *log, uint64_t root)
{
    struct replay *replay = calloc(1, sizeof *replay);
    size_t bytes;

    assert_non_null(replay);
    replay->log = read_file(log, &bytes);
    replay->room = bytes / sizeof(struct shim_record) + 1;
    replay->changes = calloc(replay->room, sizeof *replay->changes);
    replay->promises = calloc(replay->room, sizeof *replay->promises);
    assert_non_null(replay->changes);
    assert_non_null(replay->promises);
    replay->root = object_create(replay, root, true);
    for (size_t at = 0; at < bytes; replay->count++) {
        struct shim_record record;
        const char *names = replay->log + at + sizeof record;

        assert_true(bytes - at >= sizeof record);
        memcpy(&record, replay->log + at, sizeof record);
        at += sizeof record + record.names + record.bytes;
        assert_true(at <= bytes);
        if (record.kind == SHIM_SAID)
            add_promise(replay, names + record.names, record.bytes);
        else
            add_change(replay, &record, names, names + record.names);
    }
    return replay;
}

void replay_destroy(struct replay *replay)
{
    while (replay->objects) {
        struct object *object = replay->objects;

        replay->objects = object->next;
        free(object);
    }
    free(replay->changes);
    free(replay->promises);
    free(replay->log);
    free(replay);
}

size_t replay_count(const struct replay *replay)
{
    return replay->count;
}

uint64_t replay_promised(const struct replay *replay, size_t moment)
{
    uint64_t newest = 0;

    for (size_t p = 0; p < replay->npromises; p++)
        if (replay->promises[p].moment < moment && replay->promises[p].step > newest)
            newest = replay->promises[p].step;
    return newest;
}

/* ---- fates ------------------------------------------------------------------------------------------------------- */

static enum fate choose(enum replay_loss loss, const struct change *change, size_t one, uint64_t *random)
{
    switch (loss) {
    case REPLAY_NOTHING_LOST:
        return KEPT;
    case REPLAY_ALL_LOST:
        return DROPPED;
    case REPLAY_TAIL_LOST:
        return change->moment < one ? KEPT : DROPPED;
    case REPLAY_DATA_LOST:
        return change->name ? KEPT : DROPPED;
    case REPLAY_NAMES_LOST:
        return change->name ? DROPPED : KEPT;
    case REPLAY_ONE_LOST:
        return change->moment == one ? DROPPED : KEPT;
    case REPLAY_ONE_KEPT:
        return change->moment == one ? KEPT : DROPPED;
    default:
        break;
    }
    if (world_random(random, 2) == 0)
        return DROPPED;
    if (change->kind != SHIM_WRITE || loss == REPLAY_ANY_LOST || world_random(random, 2) == 0)
        return KEPT;
    return loss == REPLAY_HOLLOW ? HOLLOW : loss == REPLAY_TORN_512 ? TORN_512 : TORN_4096;
}

/* One of the changes that are not durable yet: at it something happens, if only one thing may. */
static size_t pick_one(const struct replay *replay, size_t moment, uint64_t *random)
{
    size_t pending = 0, pick;

    for (size_t c = 0; c < replay->nchanges; c++)
        pending += replay->changes[c].moment < moment && replay->changes[c].durable_from >= moment;
    pick = pending ? world_random(random, pending) : 0;
    for (size_t c = 0; c < replay->nchanges; c++)
        if (replay->changes[c].moment < moment && replay->changes[c].durable_from >= moment && pick-- == 0)
            return replay->changes[c].moment;
    return SIZE_MAX;
}

void replay_tree(struct replay *replay, size_t moment, enum replay_loss loss, uint64_t *random, const char *into)
{
    size_t one = pick_one(replay, moment, random);

    for (struct object *object = replay->objects; object; object = object->next)
        object->later_kept = false;
    for (size_t c = replay->nchanges; c-- > 0;) {
        struct change *change = &replay->changes[c];

        if (change->moment >= moment)
            change->fate = DROPPED;
        else if (change->durable_from < moment || (change->name && change->object->later_kept))
            change->fate = KEPT;
        else
            change->fate = choose(loss, change, one, random);
        if (change->name && change->fate == KEPT)
            change->object->later_kept = true;
    }
    replay_build(replay, random, into);
}
