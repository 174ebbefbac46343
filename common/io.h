/* io.h - reads and writes of whole ranges, continued after interrupted and short system calls. */
#ifndef MUSTER_COMMON_IO_H
#define MUSTER_COMMON_IO_H

#include <stddef.h>
#include <sys/types.h>

/* -1 with errno. */
int io_write_all(int fd, const void *data, size_t bytes);

/* Reads at `offset`. Returns the bytes read, fewer than asked for only at the end of the file; or -1 with errno. */
ssize_t io_read_at(int fd, void *buffer, size_t bytes, off_t offset);

/* fsync of the directory that holds `path`: a new or renamed file is on disk only after that. -1 with errno. */
int io_sync_parent(const char *path);

#endif
