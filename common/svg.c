#include "common/svg.h"

#include <math.h>
#include <string.h>

#include "common/text.h"

static const char FONT[] =
    "font-family=\"'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\"";

void svg_begin(FILE *out, double width, double height, const char *title)
{
    fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" %s>\n",
            width, height, width, height, FONT);
    fprintf(out, "<title>");
    svg_escape(out, title);
    fprintf(out, "</title>\n");
}

void svg_end(FILE *out)
{
    fprintf(out, "</svg>\n");
}

/* ---- text ---- */

/* The length of the character at text if it is UTF-8 that XML allows, else 0. */
static size_t character_bytes(const char *text)
{
    size_t bytes = text_utf8_length(text);

    if ((bytes == 1 && ((unsigned char)*text < 0x20 || *text == 0x7f)) ||
        (bytes == 3 && (memcmp(text, "\xef\xbf\xbe", 3) == 0 || memcmp(text, "\xef\xbf\xbf", 3) == 0)))
        return 0; /* control characters, U+FFFE and U+FFFF */
    return bytes;
}

void svg_escape(FILE *out, const char *text)
{
    while (*text) {
        size_t bytes = character_bytes(text);

        if (!bytes)
            fputc('?', out);
        else if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '>')
            fputs("&gt;", out);
        else if (*text == '"')
            fputs("&quot;", out);
        else
            fwrite(text, 1, bytes, out);
        text += bytes ? bytes : 1;
    }
}

double svg_text_width(const char *text, double font_size)
{
    double ems = 0.0;

    while (*text) {
        size_t bytes = character_bytes(text);

        ems += bytes > 2 ? 1.0 : 0.6; /* CJK and symbols; DejaVu Sans, the widest of the fonts, averages 0.58 */
        text += bytes ? bytes : 1;
    }
    return ems * font_size;
}

void svg_text(FILE *out, double x, double y, enum svg_anchor anchor, const char *style, const char *text)
{
    static const char *const name[] = {[SVG_START] = "start", [SVG_MIDDLE] = "middle", [SVG_END] = "end"};

    fprintf(out, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"%s\" %s>", x, y, name[anchor], style);
    svg_escape(out, text);
    fprintf(out, "</text>\n");
}

void svg_text_up(FILE *out, double x, double y, const char *style, const char *text)
{
    fprintf(out, "<text transform=\"translate(%.2f %.2f) rotate(-90)\" text-anchor=\"middle\" %s>", x, y, style);
    svg_escape(out, text);
    fprintf(out, "</text>\n");
}

/* ---- shapes ---- */

void svg_rect(FILE *out, double x, double y, double width, double height, const char *style)
{
    fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" %s/>\n", x, y, width, height, style);
}

void svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *style)
{
    fprintf(out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" %s/>\n", x1, y1, x2, y2, style);
}

void svg_circle(FILE *out, double x, double y, double radius, const char *style)
{
    fprintf(out, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\" %s/>\n", x, y, radius, style);
}

void svg_path_begin(struct svg_path *path, FILE *out, const char *style)
{
    *path = (struct svg_path){.out = out};
    fprintf(out, "<path fill=\"none\" stroke-linejoin=\"round\" %s d=\"", style);
}

void svg_path_to(struct svg_path *path, double x, double y)
{
    if (!isfinite(x) || !isfinite(y)) {
        path->down = 0;
        return;
    }
    if (!path->down) /* and a line of length 0: round caps make it a dot, so that a single point is visible */
        fprintf(path->out, "M%.2f %.2f", x, y);
    fprintf(path->out, "L%.2f %.2f", x, y);
    path->down = 1;
}

void svg_path_break(struct svg_path *path)
{
    path->down = 0;
}

void svg_path_end(struct svg_path *path)
{
    fprintf(path->out, "\"/>\n");
}
