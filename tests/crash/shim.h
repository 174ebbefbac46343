/*
 * shim.h - what libshim.so, preloaded into a program, writes down of what it does to files beneath one directory, and
 * which of its calls fail.
 *
 * The program's calls are carried out, then logged in the order in which they took effect, whichever of its threads and
 * forked processes made them: replay.h makes of the log the trees that a machine could show after a crash. Files are
 * known by their inode numbers, so that duplicated, inherited and renamed ones need no following.
 *
 * The environment says what to do (nothing is done without SHIM_ROOT):
 *   SHIM_ROOT  the directory, absolute and without links
 *   SHIM_LOG   the file to append records to; without it nothing is logged
 *   SHIM_SYNC  "none", "files" or "directories": only these are synced; an fsync of others does nothing and says that
 *              it did. For the controls: tests that must then fail.
 *   SHIM_FAIL  CALL:N:HOW[+]: the process's N-th call of that name beneath the directory fails; with "+" all later ones
 *              too. CALL: open (to write), mkdir, write, fallocate, ftruncate, fsync, close, rename, unlink, symlink; look (open
 *              to read), read, list (readdir), stat (and access). HOW: ENOSPC, EDQUOT, EIO, EACCES, EROFS, ESTALE,
 *              ENOTCONN; or "short": a write does half and says so; or KILL: the process is killed in its
 *              stead; or WAIT: the call waits, and nothing with it but its thread, until the file SHIM_GO is there; if
 *              that is a FIFO, without using the processor, until somebody opens it to write. A
 *              close that fails has closed, as on Linux
 *   SHIM_HIT   a file that is created when a call was made to fail, or to wait
 *   SHIM_LATE  milliseconds: a network file system whose renames take so long, and whose listings lack the names that
 *              were made or renamed less than that ago
 *   SHIM_PROGRAM  do nothing in programs of other names, which a program may start
 *
 * A write to descriptor 1 is logged too: it is how a program tells what it has promised.
 */
#ifndef MUSTER_TESTS_CRASH_SHIM_H
#define MUSTER_TESTS_CRASH_SHIM_H

#include <stdint.h>

enum shim_kind {
    SHIM_CREATE,    /* `name` in directory `inode` is now the new file `other` */
    SHIM_MKDIR,     /* `name` in directory `inode` is now the new directory `other` */
    SHIM_RENAME,    /* `name` in `inode` is now called `name2` in `other` */
    SHIM_UNLINK,    /* `name` is no longer in `inode`: a file or a directory */
    SHIM_WRITE,     /* `bytes` bytes of data at `offset` of `inode` */
    SHIM_TRUNCATE,  /* `inode` is now `offset` bytes long */
    SHIM_SYNC_FILE, /* `inode` */
    SHIM_SYNC_DIRECTORY,
    SHIM_SAID, /* `bytes` bytes that were written to descriptor 1 */
};

/* Followed by `names` bytes (name and name2, each with its zero) and `bytes` bytes of data. */
struct shim_record {
    uint32_t kind, names;
    uint64_t inode, other, offset, bytes;
};

#endif
