/*
 * tokenize_speed.c - seconds to encode a text with tokenizer/, for bench/tokenize.
 *
 *   tokenize_speed TOKENIZER FILE THREADS
 *
 * The text is cut into pieces of 64 KiB, which the threads take in turn. Prints seconds, bytes and ids; opening and
 * reading do not count.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/text.h"
#include "tokenizer/tokenizer.h"

#define PIECE ((size_t)64 << 10)

static struct tokenizer *tokenizer;
static const char *text;
static size_t *cuts, pieces;
static atomic_size_t next_piece, ids_made;

static void *encode_some(void *unused)
{
    struct encoder *encoder = encoder_create(tokenizer, NULL);
    struct token_list ids = {0};
    size_t piece;

    (void)unused;
    while (encoder && (piece = atomic_fetch_add(&next_piece, 1)) < pieces) {
        ids.count = 0;
        encoder_encode(encoder, text + cuts[piece], cuts[piece + 1] - cuts[piece], piece ? ENCODE_CONTINUES : 0, &ids,
                       NULL);
        atomic_fetch_add(&ids_made, ids.count);
    }
    free(ids.ids);
    encoder_destroy(encoder);
    return NULL;
}

int main(int argc, char **argv)
{
    struct error err = {0};
    long threads = 1;
    size_t bytes = 0, rest;
    double begin;
    pthread_t running[64];

    if (argc != 4 || !text_to_long(argv[3], 1, 64, &threads))
        return CODE_USAGE;
    tokenizer = tokenizer_open(argv[1], &err);
    text = tokenizer ? text_read_file(argv[2], (size_t)1 << 34, &bytes, &err) : NULL;
    if (!text)
        return error_report(&err);
    cuts = calloc(bytes / 1024 + 2, sizeof *cuts);
    begin = clock_monotonic();
    for (rest = 0; cuts && rest < bytes; cuts[++pieces] = rest) {
        size_t cut = 0;

        for (size_t size = PIECE; cut == 0 && rest + size < bytes; size *= 2)
            cut = tokenizer_cut(tokenizer, text + rest, size);
        rest = cut ? rest + cut : bytes;
    }
    for (long i = 0; i < threads; i++)
        pthread_create(&running[i], NULL, encode_some, NULL);
    for (long i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    printf("%.6f %zu %zu\n", clock_monotonic() - begin, bytes, (size_t)ids_made);
    return 0;
}
