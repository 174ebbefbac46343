/*
 * crc32c.h - the Castagnoli CRC of iSCSI (RFC 3720, appendix B.4), over ISA-L: tens of GB/s a core.
 *
 * A running checksum starts at 0; the data may come in any number of calls:
 *
 *     crc = crc32c(crc32c(0, "12345", 5), "6789", 4);     // 0xe3069283, the same as of "123456789" in one
 */
#ifndef MUSTER_COMMON_CRC32C_H
#define MUSTER_COMMON_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/*
 * The same, and copies the data in the same pass, at about the speed of memcpy. For data much larger than the caches:
 * where the processor supports it, the copy bypasses them.
 */
uint32_t crc32c_copy(uint32_t crc, void *to, const void *from, size_t bytes);

#endif
