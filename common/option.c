#include "common/option.h"

#include <getopt.h>

/* getopt passes a word when it is through with it: with the first letter of "-xyz" it is not. */
const char *option_refused(char **argv)
{
    const char *next = argv[optind];

    return next && next[0] == '-' && next[1] == (char)optopt && next[1] && next[2] ? next : argv[optind - 1];
}
