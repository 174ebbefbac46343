#include "config.h"

#include "common/option.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/error.h"

/* getopt moves to the next argument only after the last letter of "-xyz". */
const char *option_refused(char **argv)
{
    const char *next = argv[optind];

    return next && next[0] == '-' && next[1] == (char)optopt && next[1] && next[2] ? next : argv[optind - 1];
}

int option_fail(const char *format, ...)
{
    char what[512];
    struct error err;
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    error_set(&err, CODE_USAGE, "%s; %s --help lists the options", what, program_invocation_short_name);
    return error_report(&err);
}

int option_standard(int option, char **argv, const char *usage)
{
    switch (option) {
    case 'V':
        printf("%s %s\n", program_invocation_short_name, VERSION);
        return CODE_OK;
    case 'h':
        fputs(usage, stdout);
        return CODE_OK;
    case ':':
        return option_fail("a value is missing after %s", option_refused(argv));
    default:
        return option_fail("unknown option %s", option_refused(argv));
    }
}
