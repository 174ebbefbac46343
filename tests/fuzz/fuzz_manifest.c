/*
 * Any text as a manifest, or as a part of one (first byte 'p', then its shard and the number of shards as bytes):
 * refused with one line, or it is written as text that is read as the same. Its checksum is put right first, or nothing
 * beyond it would ever be looked at.
 */
#include "ckpt/format/pieces.h"
#include "ckpt/format/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void mend_crc(char *text, size_t size)
{
    char digits[16];

    if (size < MANIFEST_CRC_AT + 8)
        return;
    snprintf(digits, sizeof digits, "%08x", (unsigned)manifest_crc(text, size));
    memcpy(text + MANIFEST_CRC_AT, digits, 8);
}

static void look_at(const struct manifest *manifest, int part, int shards)
{
    struct manifest *again;
    struct piece_index index = {0};
    struct error err = {0};
    size_t bytes, bytes_again;
    char *text = manifest_encode(manifest, &bytes, &err), *text_again;

    if (!text)
        abort();
    again = manifest_decode(text, bytes, part, shards, &err);
    if (!again)
        abort();
    text_again = manifest_encode(again, &bytes_again, &err);
    if (!text_again || bytes != bytes_again || memcmp(text, text_again, bytes) != 0)
        abort();
    if (part >= 0 && manifest_agree(manifest, again, &err) < 0)
        abort();
    if (part < 0 && piece_index_create(&index, manifest, &err) == 0)
        piece_index_destroy(&index);
    free(text);
    free(text_again);
    manifest_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int part = -1, shards = 0;
    struct manifest *manifest;
    struct error err = {0};
    char *text;

    if (size >= 3 && data[0] == 'p') {
        part = data[1] % 16;
        shards = part + 1 + data[2] % 16;
        data += 3;
        size -= 3;
    }
    text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    mend_crc(text, size);
    manifest = manifest_decode(text, size, part, shards, &err);
    if (manifest)
        look_at(manifest, part, shards);
    else if (err.text[0] == '\0' || strchr(err.text, '\n'))
        abort();
    manifest_destroy(manifest);
    free(text);
    return 0;
}
