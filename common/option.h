/* option.h - the words of a command line that getopt_long(3) refuses. */
#ifndef MUSTER_COMMON_OPTION_H
#define MUSTER_COMMON_OPTION_H

/* The word that getopt_long(3) has just refused, for a message, where opterr is 0. */
const char *option_refused(char **argv);

#endif
