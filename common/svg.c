#include "common/svg.h"

#include <stdarg.h>
#include <string.h>

#include "common/text.h"

/* The curves have Okabe and Ito's colours, which colour-blind readers can distinguish. */
static const char STYLE[] =
    "text{font-family:'Helvetica Neue',Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif}\n"
    "text{font-size:12px;fill:#1f2933}\n"
    "text.title{font-size:18px;font-weight:600}\n"
    "text.key,text.tick,text.left{fill:#5f6b76}\n"
    "text.tick,text.name,text.small{text-anchor:middle}\n"
    "text.left,text.mark-left{text-anchor:end}\n"
    "text.name{font-weight:600}\n"
    "text.small{font-size:10.5px}\n"
    "text.mark,text.mark-left{font-size:11px;fill:#3e4c59}\n"
    "path{fill:none;stroke-linejoin:round;stroke-linecap:round}\n"
    ".grid{stroke:#e6e9ec}\n"
    ".axis,.wire{stroke:#9aa5b1}\n"
    ".train{stroke:#0072b2;stroke-width:1.8}\n"
    ".under{stroke:#5ab0ea;stroke-width:3.2}\n"
    ".reference{stroke:#1f2933;stroke-width:1.1;stroke-dasharray:5 4;stroke-linecap:butt}\n"
    "[class^=other]{stroke-width:1.4}\n"
    ".other1{stroke:#e69f00}.other2{stroke:#009e73}.other3{stroke:#cc79a7}.other4{stroke:#56b4e9}\n"
    ".other5{stroke:#8b4513}.other6{stroke:#8c7a00}.other7{stroke:#6b4fa0}\n"
    ".valid{fill:#d55e00;stroke:#fff;stroke-width:1.2}\n"
    "line.mark{stroke:#7b8794;stroke-dasharray:2 3}\n"
    ".frame{fill:none;stroke:#3e4c59}\n";

/* Writes text for XML. */
static void put_escaped(FILE *out, const char *text)
{
    while (*text) {
        size_t bytes = text_utf8_length(text);
        const char *special = strchr("&<>\"", *text);

        if (!bytes || (bytes == 1 && ((unsigned char)*text < 0x20 || *text == 0x7f)) ||
            (bytes == 3 && (memcmp(text, "\xef\xbf\xbe", 3) == 0 || memcmp(text, "\xef\xbf\xbf", 3) == 0)))
            fputc('?', out); /* XML allows no control characters, U+FFFE and U+FFFF */
        else if (special)
            fprintf(out, "&#%d;", *special);
        else
            fwrite(text, 1, bytes, out);
        text += bytes ? bytes : 1;
    }
}

void svg_begin(FILE *out, double width, double height, double left, const char *title)
{
    fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\">\n", width,
            height, width, height);
    fprintf(out, "<title>");
    put_escaped(out, title);
    fprintf(out, "</title>\n<style>\n%s</style>\n", STYLE);
    svg_rect(out, 0, 0, width, height, "fill=\"#ffffff\"");
    svg_text(out, left, 34, "title", "%s", title);
}

void svg_end(FILE *out)
{
    fprintf(out, "</svg>\n");
}

void svg_rect(FILE *out, double x, double y, double width, double height, const char *attributes)
{
    fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" %s/>\n", x, y, width, height, attributes);
}

void svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *class)
{
    fprintf(out, "<line class=\"%s\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n", class, x1, y1, x2, y2);
}

void svg_text(FILE *out, double x, double y, const char *class, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(out, "<text class=\"%s\" x=\"%.2f\" y=\"%.2f\">", class, x, y);
    put_escaped(out, text);
    fprintf(out, "</text>\n");
}
