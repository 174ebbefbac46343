#include "srun-plugin/preflight/say.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "srun-plugin/preflight/record.h"

static char name[RECORD_NAME_SIZE];

void say_as(const char *node)
{
    snprintf(name, sizeof name, "%s", node);
}

void say(const char *key, const char *format, ...)
{
    char line[RECORD_LINE_SIZE];
    int length = snprintf(line, sizeof line, "preflight %s %s ", name, key);
    size_t end;
    va_list args;

    va_start(args, format);
    vsnprintf(line + length, sizeof line - (size_t)length - 1, format, args);
    va_end(args);
    for (char *c = line; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    end = strlen(line);
    line[end] = '\n';
    /* Who reads it has a deadline; there is nobody to tell of a write that failed. */
    if (write(STDOUT_FILENO, line, end + 1) < 0)
        return;
}
