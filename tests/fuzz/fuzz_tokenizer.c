/*
 * Any bytes as a tokenizer's file. It is refused with one line, or its ids do not depend on where text is cut, and
 * those of byte-level BPE decode to the text. The first byte is the kind; a byte 1 ends the file, and the text follows.
 *
 *   j  tokenizer.json     v  vocab.json, with merges of its own     m  merges.txt, with a vocabulary of its own
 *   w  vocab.txt          s  a SentencePiece .model, which is all of the input: any of its bytes may be a 1
 *   r  tiktoken's ranks
 */
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[200];

static void check_that(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "not true: %s\n", what);
    abort();
}

static const char *write_file(const char *name, const void *bytes, size_t count)
{
    static char path[300];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "w");
    check_that(file && fwrite(bytes, 1, count, file) == count && fclose(file) == 0, "the file can be written");
    return path;
}

/* {"a": 97, ...}: all bytes in the alphabet of such files, and two merged tokens. */
static size_t write_vocab(char *out)
{
    size_t used = (size_t)sprintf(out, "{\"th\": 256, \"the\": 257");
    int next = 256;

    for (int byte = 0; byte < 256; byte++) {
        int shown = (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);

        used += (size_t)sprintf(out + used, ", \"\\u%04x\": %d", (unsigned)(shown ? byte : next), byte);
        next += !shown;
    }
    return used + (size_t)sprintf(out + used, "}");
}

static void look_at(const struct tokenizer *tokenizer, const char *text, size_t bytes, int lossless)
{
    struct error err = {0};
    struct encoder *encoder = encoder_create(tokenizer, &err);
    struct token_list whole = {0}, pieces = {0};
    struct text_list again = {0};
    struct decode_state state = {0};
    size_t cut = tokenizer_cut(tokenizer, text, bytes / 2);

    check_that(encoder != NULL, "there is memory");
    if (encoder_encode(encoder, text, bytes, 0, &whole, &err) < 0) {
        check_that(err.text[0] && !strchr(err.text, '\n'), "a text is refused with one line");
        goto done;
    }
    if (cut > 0) {
        check_that(cut < bytes / 2 && encoder_encode(encoder, text, cut, 0, &pieces, &err) == 0 &&
                       encoder_encode(encoder, text + cut, bytes - cut, ENCODE_CONTINUES, &pieces, &err) == 0,
                   "a piece of a text can be encoded");
        check_that(pieces.count == whole.count &&
                       (whole.count == 0 || memcmp(pieces.ids, whole.ids, whole.count * sizeof *whole.ids) == 0),
                   "ids do not depend on the cut");
    }
    for (size_t i = 0; i < whole.count; i++)
        check_that(tokenizer_decode(tokenizer, &state, &whole.ids[i], 1, i + 1 < whole.count, &again, &err) == 0,
                   "ids can be decoded");
    if (lossless && encoder_take_loss(encoder).bytes == 0)
        check_that(again.count == bytes && (bytes == 0 || memcmp(again.text, text, bytes) == 0),
                   "ids decode to the text");
done:
    free(whole.ids);
    free(pieces.ids);
    free(again.text);
    encoder_destroy(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char vocab[8192];
    const uint8_t *end = size > 1 ? memchr(data, 1, size) : NULL;
    size_t bytes = size > 1 ? (end && data[0] != 's' ? (size_t)(end - data) : size) - 1 : 0;
    const char *text = end ? (const char *)end + 1 : "the cat's\n 12 \xc3\xa9";
    size_t text_bytes = end ? size - (size_t)(text - (const char *)data) : strlen(text),
           vocab_bytes = write_vocab(vocab);
    struct tokenizer *tokenizer;
    struct error err = {0};
    const char *path;

    if (size == 0)
        return 0;
    if (!*dir)
        check_that(snprintf(dir, sizeof dir, "%s/fuzz_tokenizer.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp") >
                           0 &&
                       mkdtemp(dir),
                   "there is a directory");
    switch (data[0]) {
    case 'j':
        path = write_file("tokenizer.json", data + 1, bytes);
        break;
    case 'v':
        write_file("merges.txt", "t h\nth e\n", 9);
        path = write_file("vocab.json", data + 1, bytes);
        break;
    case 'm':
        write_file("merges.txt", data + 1, bytes);
        path = write_file("vocab.json", vocab, vocab_bytes);
        break;
    case 'w':
        path = write_file("vocab.txt", data + 1, bytes);
        break;
    case 's':
    case 'r':
        path = write_file("x.model", data + 1, bytes);
        break;
    default:
        return 0;
    }
    tokenizer = tokenizer_open(path, &err);
    if (tokenizer)
        look_at(tokenizer, text, text_bytes, data[0] == 'v' || data[0] == 'm');
    else
        check_that(err.text[0] && !strchr(err.text, '\n'), "a file is refused with one line");
    tokenizer_close(tokenizer);
    return 0;
}
