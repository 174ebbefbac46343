/*
 * trace.h - run a program with all processes and threads that come of it, and kill one of them, or all, before a given
 * system call.
 *
 * By ptrace, so nothing is mocked and nothing missed. A process's calls are counted from the first one that names the
 * directory `root`, whatever they are and whichever of its threads makes them; so starting up is not counted. Processes
 * are numbered in the order in which they were forked, the program itself being 0.
 */
#ifndef MUSTER_TESTS_CRASH_TRACE_H
#define MUSTER_TESTS_CRASH_TRACE_H

#include <stdbool.h>
#include <stddef.h>

#define TRACE_MAX_PROCESSES 32

struct trace_kill {
    int process; /* -1: nobody is killed */
    int twin;    /* another that does the same work, or process itself: whichever makes as many calls first is meant */
    long call;   /* before its call-th call: that one is never made */
    bool all;    /* everybody, as when a node dies; else this process alone, and the others go on */
};

struct trace {
    int processes;
    long calls[TRACE_MAX_PROCESSES]; /* counted ones */
    bool killed;                     /* the call was reached */
    int victim;                      /* by this process, or it would have been */
    bool refused;                    /* this machine does not allow one process to trace another */
    int status;                      /* of the program, as waitpid has it */
    char said[4096];                 /* on its standard output, by all of them */
};

/* Returns when the last process has ended. Its standard error goes nowhere. */
void trace_run(const char *const *argv, const char *root, struct trace_kill kill, struct trace *trace);

#endif
