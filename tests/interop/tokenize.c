/*
 * tokenize.c - for the Python checks: ids of many texts, or texts of their ids.
 *
 *   tokenize TOKENIZER                              prints kind, size, fingerprint and special tokens
 *   tokenize TOKENIZER encode IN OUT [WINDOW] [plain]
 *   tokenize TOKENIZER decode IN OUT [WINDOW] [plain]
 *
 * A file is a sequence of texts (uint32 bytes, then the bytes) or of ids (uint32 count, then int32 ids). With WINDOW
 * each text is encoded in pieces: blocks of WINDOW bytes (more, where there is no cut) are cut with tokenizer_cut, and
 * two encoders take turns; ids are decoded WINDOW at a time, and no part may end in the middle of a character.
 * `plain` is ENCODE_ORDINARY.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "tokenizer/tokenizer.h"

static struct error err;

struct task {
    const struct tokenizer *tokenizer;
    struct encoder *encoders[2];
    size_t window;
    unsigned flags;
};

static int encode_pieces(const struct task *task, const char *text, size_t bytes, struct token_list *ids)
{
    unsigned flags = task->flags;
    size_t window = task->window ? task->window : bytes;

    for (int turn = 0; bytes > 0; turn ^= 1) {
        size_t piece = bytes;

        for (size_t size = window; size < bytes; size *= 2) {
            piece = tokenizer_cut(task->tokenizer, text, size);
            if (piece > 0)
                break;
            piece = bytes;
        }
        if (encoder_encode(task->encoders[turn], text, piece, flags, ids, &err) < 0)
            return -1;
        flags |= ENCODE_CONTINUES;
        text += piece;
        bytes -= piece;
    }
    return 0;
}

static int decode_pieces(const struct task *task, const int32_t *ids, size_t count, struct text_list *text)
{
    struct decode_state state = {0};
    size_t window = task->window ? task->window : count;

    do {
        size_t piece = count < window ? count : window, before = text->count;
        bool more = piece < count;

        if (tokenizer_decode(task->tokenizer, &state, ids, piece, more, text, &err) < 0)
            return -1;
        if (more && text->count > before && ((unsigned char)text->text[text->count - 1] & 0xc0) == 0xc0)
            return error_set(&err, CODE_INTERNAL, "a part of the text ends with the first byte of a character");
        ids += piece;
        count -= piece;
    } while (count > 0);
    return 0;
}

static int run_task(const struct task *task, const char *in, size_t bytes, FILE *out, int decode)
{
    struct token_list ids = {0};
    struct text_list text = {0};
    int result = 0;

    for (size_t at = 0; at < bytes && result == 0;) {
        uint32_t count, written;
        size_t size;

        memcpy(&count, in + at, sizeof count);
        at += sizeof count;
        ids.count = text.count = 0;
        if (decode) {
            int32_t *aligned = malloc(count * sizeof *aligned + 1);

            memcpy(aligned, in + at, count * sizeof *aligned);
            result = decode_pieces(task, aligned, count, &text);
            free(aligned);
        } else {
            result = encode_pieces(task, in + at, count, &ids);
        }
        at += decode ? count * sizeof(int32_t) : count;
        written = (uint32_t)(decode ? text.count : ids.count);
        size = decode ? text.count : ids.count * sizeof *ids.ids;
        if (result == 0 && (fwrite(&written, sizeof written, 1, out) != 1 ||
                            fwrite(decode ? (void *)text.text : (void *)ids.ids, 1, size, out) != size))
            result = error_errno(&err, CODE_IO, "write");
    }
    free(ids.ids);
    free(text.text);
    return result;
}

static int work_on(struct task *task, char **argv)
{
    int decode = strcmp(argv[2], "decode") == 0, result = -1;
    size_t bytes;
    char *in = text_read_file(argv[3], (size_t)1 << 32, &bytes, &err);
    FILE *out = in ? fopen(argv[4], "w") : NULL;

    for (int i = 0; i < 2 && out; i++)
        if (!(task->encoders[i] = encoder_create(task->tokenizer, &err)))
            return -1;
    if (in && !out)
        error_errno(&err, CODE_IO, "%s", argv[4]);
    else if (in)
        result = run_task(task, in, bytes, out, decode);
    if (out && fclose(out) != 0)
        result = error_errno(&err, CODE_IO, "%s", argv[4]);
    free(in);
    encoder_destroy(task->encoders[0]);
    encoder_destroy(task->encoders[1]);
    return result;
}

int main(int argc, char **argv)
{
    struct tokenizer *tokenizer = argc > 1 ? tokenizer_open(argv[1], &err) : NULL;
    struct task task = {.tokenizer = tokenizer};

    if (!tokenizer)
        return argc > 1 ? error_report(&err) : CODE_USAGE;
    if (argc < 5) {
        printf("%s %d %08x", tokenizer_kind(tokenizer), (int)tokenizer_size(tokenizer),
               (unsigned)tokenizer_fingerprint(tokenizer));
        for (int i = 0; i < SPECIAL_TOKENS; i++)
            printf(" %d", (int)tokenizer_special(tokenizer, (enum special_token)i));
        printf("\n");
    }
    for (int i = 5; i < argc; i++) {
        long window = 0;

        if (strcmp(argv[i], "plain") == 0)
            task.flags = 2; /* of both kinds */
        else if (text_to_long(argv[i], 0, 1 << 30, &window))
            task.window = (size_t)window;
        else
            return CODE_USAGE;
    }
    if (argc >= 5 && work_on(&task, argv) < 0)
        return error_report(&err);
    tokenizer_close(tokenizer);
    return 0;
}
