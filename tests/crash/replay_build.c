/* replay_build.c - files and directories out of the changes that survive. */
#include "tests/crash/replay_log.h"

#include "tests/cmocka_test.h"
#include "tests/unit/test_ckpt_world.h"

#include <sys/stat.h>

static void set_length(struct object *object, uint64_t length)
{
    if (length > object->room) {
        object->room = length + length / 2;
        object->data = realloc(object->data, object->room);
        assert_non_null(object->data);
    }
    if (length > object->length)
        memset(object->data + object->length, 0, length - object->length);
    object->length = length;
}

static void put_data(const struct change *change, uint64_t *random)
{
    struct object *object = change->object;
    uint64_t end = change->offset + change->bytes, sector = change->fate == TORN_512 ? 512 : 4096;

    if (change->kind == SHIM_TRUNCATE) {
        set_length(object, change->offset);
        return;
    }
    if (end > object->length)
        set_length(object, end);
    if (change->fate == KEPT) {
        memcpy(object->data + change->offset, change->data, change->bytes);
    } else if (change->fate != HOLLOW) {
        for (uint64_t at = change->offset; at < end;) { /* sectors are of the file, not of the write */
            uint64_t next = (at / sector + 1) * sector < end ? (at / sector + 1) * sector : end;

            if (world_random(random, 2))
                memcpy(object->data + at, change->data + (at - change->offset), next - at);
            at = next;
        }
    }
}

/* The names of the tree, each with the last surviving change that made it; found by looking back. */
static bool name_is_current(const struct replay *replay, size_t c)
{
    const struct change *made = &replay->changes[c];

    for (size_t later = c + 1; later < replay->nchanges; later++) {
        const struct change *change = &replay->changes[later];

        if (!change->name || change->fate == DROPPED)
            continue;
        if ((change->to == made->to && strcmp(change->to_name, made->to_name) == 0) ||
            (change->from == made->to && strcmp(change->from_name, made->to_name) == 0))
            return false;
    }
    return true;
}

static void build_directory(const struct replay *replay, const struct object *directory, const char *path)
{
    for (size_t c = 0; c < replay->nchanges; c++) {
        const struct change *change = &replay->changes[c];
        char inner[512];

        if (!change->name || change->fate == DROPPED || change->to != directory || !name_is_current(replay, c))
            continue;
        join(inner, path, change->to_name);
        if (change->object->directory) {
            assert_int_equal(mkdir(inner, 0777), 0);
            build_directory(replay, change->object, inner);
        } else {
            write_file(inner, change->object->data ? change->object->data : (const unsigned char *)"",
                       change->object->length);
        }
    }
}

void replay_build(struct replay *replay, uint64_t *random, const char *into)
{
    for (size_t c = 0; c < replay->nchanges; c++)
        if (!replay->changes[c].name && replay->changes[c].fate != DROPPED)
            put_data(&replay->changes[c], random);
    build_directory(replay, replay->root, into);
    for (struct object *object = replay->objects; object; object = object->next) {
        free(object->data);
        object->data = NULL;
        object->length = object->room = 0;
    }
}
