/*
 * library.h - opens shared libraries when they are first needed, so that a program also runs where they are not
 * installed: CUDA's, on nodes without GPUs.
 *
 * One list of functions gives their table, its names and its types:
 *
 *     #define NCCL_FUNCTIONS(f) f(ncclCommSplit) f(ncclAllReduce)
 *     struct nccl { NCCL_FUNCTIONS(LIBRARY_MEMBER) };          // pointers of the types that nccl.h declares
 *     static const char *const names[] = {NCCL_FUNCTIONS(LIBRARY_NAME)};
 *     library_load(&(struct library){"NCCL", "MUSTER_NCCL", "libnccl.so.2", "2.18"}, names, LENGTH, &nccl, &err)
 */
#ifndef MUSTER_COMMON_LIBRARY_H
#define MUSTER_COMMON_LIBRARY_H

#include <stddef.h>

#include "common/error.h"

#define LIBRARY_MEMBER(name) __typeof__(&(name)) name;
#define LIBRARY_NAME(name)   #name,

struct library {
    const char *name;     /* "NCCL" */
    const char *variable; /* environment variable that names a file to open instead: "MUSTER_NCCL" */
    const char *soname;   /* of the file, in the dynamic linker's directories */
    const char *version;  /* the oldest with all functions, for the message */
};

/*
 * Opens it and fills `table`, an array of `count` pointers to functions, by their names. The library stays open until
 * the process ends: CUDA's cannot be closed safely. CODE_CONFIG, with the name and the reason, or with the missing
 * function.
 */
int library_load(const struct library *library, const char *const *names, size_t count, void *table, struct error *err);

#endif
