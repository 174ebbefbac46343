#include "trainer/report/terminal.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct terminal terminal_look(int fd)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    struct terminal terminal = {.columns = 80};
    struct winsize size;

    terminal.live = isatty(fd) && term && strcmp(term, "dumb") != 0;
    terminal.colour = terminal.live && (!no_colour || !*no_colour);
    terminal.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        terminal.columns = size.ws_col;
    return terminal;
}
