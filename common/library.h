/*
 * library.h - shared libraries that are opened when they are first needed, so that a program also runs where they are
 * not: CUDA's, on nodes without GPUs.
 *
 * Which functions are wanted is one list, from which come their table, its names and its types:
 *
 *     #define NCCL_FUNCTIONS(f) f(ncclCommSplit) f(ncclAllReduce)
 *     struct nccl { NCCL_FUNCTIONS(LIBRARY_MEMBER) };          // pointers of the types that nccl.h declares
 *     static const char *const names[] = {NCCL_FUNCTIONS(LIBRARY_NAME)};
 *     library_load(&(struct library){"NCCL", "MUSTER_NCCL", {"libnccl.so.2"}, "2.18"}, names, LENGTH, &nccl, &err)
 */
#ifndef MUSTER_COMMON_LIBRARY_H
#define MUSTER_COMMON_LIBRARY_H

#include <stddef.h>

#include "common/error.h"

#define LIBRARY_MEMBER(name) __typeof__(&(name)) name;
#define LIBRARY_NAME(name)   #name,

struct library {
    const char *name;       /* "NCCL" */
    const char *variable;   /* of the environment, whose value is a file to open instead: "MUSTER_NCCL" */
    const char *sonames[3]; /* tried in this order, where the dynamic linker looks; NULL ends them */
    const char *version;    /* the oldest that has all functions, for the message */
};

/*
 * Opens it and fills `table`, an array of `count` pointers to functions, by their names. The library stays open as long
 * as the process lives: CUDA's do not bear to be closed. CODE_CONFIG, with each name that was tried and why not, or
 * with the function that the library lacks.
 */
int library_load(const struct library *library, const char *const *names, size_t count, void *table, struct error *err);

#endif
