/* option.h - what the programs' option parsers share. For getopt_long(3) with opterr = 0 and short options ":hV". */
#ifndef MUSTER_COMMON_OPTION_H
#define MUSTER_COMMON_OPTION_H

/* The argument that getopt_long(3) has just refused, for a message. */
const char *option_refused(char **argv);

/* Prints "PROGRAM: what; PROGRAM --help lists the options" to stderr. Returns CODE_USAGE. */
int option_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Handles --version ('V'), --help ('h'), a missing value (':') and unknown options. Returns the exit code. */
int option_standard(int option, char **argv, const char *usage);

#endif
