/*
 * error.h - how every function of muster reports failure.
 *
 * A function that can fail returns 0 or -1 (or a pointer or NULL) and fills a struct error: one line that says what is
 * wrong, where, and what would be right, and the exit code for the program.
 * Libraries never print and never exit; a program's main prints the line and returns the code.
 *
 *     struct error err;
 *     if (job_load(&job, path, NULL, 0, &err) < 0)
 *         return error_report(&err);         // prints "muster-train: gpt.cfg:7: ..." and yields 78
 */
#ifndef MUSTER_COMMON_ERROR_H
#define MUSTER_COMMON_ERROR_H

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exit codes (sysexits). A failure that requeuing cannot fix must not be STOPPED or PEER. */
enum exit_code {
    CODE_OK = 0,
    CODE_USAGE = 64,    /* wrong command line */
    CODE_DATA = 65,     /* bad data or checkpoint */
    CODE_INTERNAL = 70, /* a bug in muster, or a library failure that the user did not cause */
    CODE_IO = 74,       /* the operating system refused a read, a write or memory */
    CODE_STOPPED = 75,  /* stopped on request, state saved: requeue me */
    CODE_PEER = 76,     /* another rank was lost or hung: requeue me */
    CODE_CONFIG = 78,   /* bad job file; another run owns checkpoint.dir; a file of another release (json_fields.h) */
};

struct error {
    enum exit_code code;
    char text[1024]; /* one line, no newline at its end, and no other control characters */
};

/* Fill *err; err may be NULL. Always returns -1, so that "return error_set(...)" reads well. */
int error_set(struct error *err, enum exit_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same, with ": " and the text of errno (as it was on entry) at the end. */
int error_errno(struct error *err, enum exit_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* calloc(3). NULL, and *err is filled with CODE_IO, when there is no memory. */
void *error_calloc(size_t count, size_t size, struct error *err);

/* Gives the malloc'ed array at *array, of *room elements, room for `more` behind `count`. 0, or -1 with CODE_IO. */
int error_reserve(void *array, size_t *room, size_t count, size_t more, size_t size, struct error *err);

/* Put "context: " before the present text. Returns -1. */
int error_prefix(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * For code that goes on after a failure and reports the first one later, from *kept, which begins as zeros.
 * error_first: where a function that is called meanwhile should write its error. error_take: 0, or -1 with the failure,
 * which is then forgotten.
 */
struct error *error_first(struct error *kept);
int error_take(struct error *kept, struct error *err);

/* Make text one printable line: replaces control characters (a file name may contain any) by blanks and '?'. */
void error_tame(char *text);

/* For mains only: prints "program: text" to stderr and returns the code (INTERNAL if nobody set one). */
int error_report(const struct error *err);

/*
 * For mains only, at the end: flushes standard output and returns `code`. If writing failed (a full disk), reports that
 * and returns CODE_IO, unless `code` is already one of the failures above.
 */
int error_output(int code);

#ifdef __cplusplus
}
#endif

#endif
