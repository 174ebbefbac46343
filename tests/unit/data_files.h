/* data_files.h - files of data sets made by hand, for the tests that read them. Included after cmocka.h. */
#ifndef MUSTER_TESTS_DATA_FILES_H
#define MUSTER_TESTS_DATA_FILES_H

#include <stdint.h>
#include <stdio.h>

/* Little-endian. */
static inline void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static inline void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

#endif
