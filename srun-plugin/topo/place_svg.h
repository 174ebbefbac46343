/*
 * place_svg.h - a placement as a picture: switches as a tree from left to right, nodes as boxes with their ranks,
 * coloured by pipeline stage, or by dp replica where there is but one stage. With many nodes the boxes are small and
 * say nothing. Errors of the stream are the caller's to look for (ferror).
 */
#ifndef MUSTER_SRUN_PLUGIN_PLACE_SVG_H
#define MUSTER_SRUN_PLUGIN_PLACE_SVG_H

#include <stdio.h>

#include "srun-plugin/place/place_report.h"

int place_svg(FILE *out, const struct placement *placement, struct error *err);

#endif
