#include "common/crc32c.h"

#include <isa-l/crc.h>
#include <string.h>

#define MAX_RUN ((size_t)1 << 30) /* crc32_iscsi takes the length as an int */

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    crc = ~crc; /* ISA-L leaves out the inversions before and after */
    while (bytes > 0) {
        size_t run = bytes < MAX_RUN ? bytes : MAX_RUN;

        crc = crc32_iscsi((unsigned char *)at, (int)run, crc); /* not const in its header, but only read */
        at += run;
        bytes -= run;
    }
    return ~crc;
}

/*
 * Checksum and copy in one pass: each cache line is folded into the checksum between its load and its store. In a
 * separate pass the memory would be idle while the checksum is computed.
 *
 * Folding: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.
 * Four registers hold 256 bytes. A fold multiplies them by x^2048 modulo the polynomial and adds (xor) the next 256
 * bytes. The checksum of the registers after the last fold is that of all the data.
 */

#if defined __x86_64__ && defined __GNUC__
#include <immintrin.h>

enum { LINE = 64, RUN = 4 * LINE, AHEAD = 16 * RUN };

/* x^(2048+32) and x^(2048-32) modulo the polynomial, reflected, shifted left by one. */
#define FOLD_LOW  0xdcb17aa4
#define FOLD_HIGH 0xb9e02b86

__attribute__((target("avx512f,vpclmulqdq"))) static __m512i fold_line(__m512i sum, __m512i next)
{
    const __m512i by = _mm512_set4_epi64(FOLD_HIGH, FOLD_LOW, FOLD_HIGH, FOLD_LOW);

    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, by, 0x00), _mm512_clmulepi64_epi128(sum, by, 0x11),
                                     next, 0x96); /* xor of all three */
}

/* `to` is aligned to LINE; bytes is a multiple of RUN and not 0. */
__attribute__((target("avx512f,vpclmulqdq"))) static uint32_t fold_and_copy(uint32_t crc, unsigned char *to,
                                                                            const unsigned char *from, size_t bytes)
{
    unsigned char rest[RUN] __attribute__((aligned(LINE)));
    __m512i sum[4], line[4];

    for (size_t at = 0; at < bytes; at += RUN) {
        for (int i = 0; i < 4; i++) {
            /* A prefetch beyond the end is harmless. */
            _mm_prefetch((const char *)from + at + AHEAD + i * LINE, _MM_HINT_T0);
            line[i] = _mm512_loadu_si512(from + at + i * LINE);
            _mm512_stream_si512((void *)(to + at + i * LINE), line[i]);
        }
        if (at == 0) /* the checksum so far goes into the first bytes, as inversion does */
            line[0] = _mm512_xor_si512(line[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
        for (int i = 0; i < 4; i++)
            sum[i] = at == 0 ? line[i] : fold_line(sum[i], line[i]);
    }
    _mm_sfence(); /* makes the streamed stores visible before the function returns */
    for (int i = 0; i < 4; i++)
        _mm512_store_si512(rest + i * LINE, sum[i]);
    return crc32c(~0u, rest, RUN); /* all ones: no inversion before */
}
#endif

uint32_t crc32c_copy(uint32_t crc, void *to, const void *from, size_t bytes)
{
    unsigned char *target = to;
    const unsigned char *source = from;

#if defined __x86_64__ && defined __GNUC__
    size_t head = -(uintptr_t)target & (LINE - 1);

    if (bytes >= head + RUN && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) {
        size_t folded = (bytes - head) / RUN * RUN;

        crc = crc32c(crc, source, head);
        memcpy(target, source, head);
        crc = fold_and_copy(crc, target + head, source + head, folded);
        target += head + folded;
        source += head + folded;
        bytes -= head + folded;
    }
#endif
    /* In pieces small enough that memcpy reads them from the cache. */
    while (bytes > 0) {
        size_t run = bytes < 16384 ? bytes : 16384;

        crc = crc32c(crc, source, run);
        memcpy(target, source, run);
        target += run;
        source += run;
        bytes -= run;
    }
    return crc;
}
