/*
 * svg.h - the few shapes of a chart, written to a stream. The caller checks the stream for errors (ferror).
 *
 * Coordinates are pixels from the top left. A style is a string of SVG attributes (`stroke="#333" stroke-width="1"`)
 * and is trusted; text is not: the document stays well-formed whatever it contains.
 */
#ifndef MUSTER_COMMON_SVG_H
#define MUSTER_COMMON_SVG_H

#include <stddef.h>
#include <stdio.h>

enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };

void svg_begin(FILE *out, double width, double height, const char *title); /* title: for screen readers */
void svg_end(FILE *out);

void svg_rect(FILE *out, double x, double y, double width, double height, const char *style);
void svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *style);
void svg_circle(FILE *out, double x, double y, double radius, const char *style);
void svg_text(FILE *out, double x, double y, enum svg_anchor anchor, const char *style, const char *text);
void svg_text_up(FILE *out, double x, double y, const char *style, const char *text); /* centred, read from below */

/* A line through points given one by one. A point that is not finite, and svg_path_break, interrupt it. */
struct svg_path {
    FILE *out;
    int down; /* the line goes on from the last point */
};

void svg_path_begin(struct svg_path *path, FILE *out, const char *style);
void svg_path_to(struct svg_path *path, double x, double y);
void svg_path_break(struct svg_path *path);
void svg_path_end(struct svg_path *path);

/* Writes text for XML: &, <, > and quotes as entities; a byte that is not valid UTF-8 becomes "?". */
void svg_escape(FILE *out, const char *text);

/* An upper estimate of the width of a text at this font size; SVG has no way to measure it. */
double svg_text_width(const char *text, double font_size);

#endif
