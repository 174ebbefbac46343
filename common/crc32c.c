#include "common/crc32c.h"

#include <isa-l/crc.h>

/* crc32_iscsi takes the length as an int. */
#define MAX_RUN ((size_t)1 << 30)

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
