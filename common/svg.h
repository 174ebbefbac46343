/*
 * svg.h - writes a chart as SVG: the loss of muster-report and the tree of switches of muster-topo. The caller checks
 * the stream for errors (io_close_file).
 *
 * Coordinates are pixels from the top left. A class is one of the style sheet in svg.c; attributes such as
 * `fill="#ffffff"` are trusted. Text is not: the document stays well-formed whatever it contains.
 */
#ifndef MUSTER_COMMON_SVG_H
#define MUSTER_COMMON_SVG_H

#include <stdio.h>

/* A white page. The title, for screen readers too, begins at `left`. */
void svg_begin(FILE *out, double width, double height, double left, const char *title);
void svg_end(FILE *out);

void svg_rect(FILE *out, double x, double y, double width, double height, const char *attributes);
void svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *class);

/* x is the start, middle or end of the text, as its class says. A byte that is not valid UTF-8 becomes "?". */
void svg_text(FILE *out, double x, double y, const char *class, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
