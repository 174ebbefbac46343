#include "srun-plugin/topo/muster_topo.h"

#include <stdlib.h>
#include <string.h>

#include "common/mesh.h"
#include "common/svg.h"
#include "plan/hostlist.h"
#include "srun-plugin/place/order.h"

#define LEFT         24.0
#define TOP          96.0
#define COLUMN       150.0 /* from a switch to those beneath it */
#define SWITCH_WIDTH 104.0
#define SWITCH_HIGH  28.0
#define SPACE        8.0 /* below a switch without children */
#define LARGE        256 /* nodes that still get boxes with text in them */

#define STYLE_TITLE    "font-size=\"18\" font-weight=\"600\" fill=\"#1f2933\""
#define STYLE_SUBTITLE "font-size=\"12.5\" fill=\"#5f6b76\""
#define STYLE_SWITCH   "fill=\"#f2f4f6\" stroke=\"#9aa5b1\" stroke-width=\"1\" rx=\"4\""
#define STYLE_NAME     "font-size=\"12\" fill=\"#1f2933\""
#define STYLE_WIRE     "stroke=\"#9aa5b1\" stroke-width=\"1.2\""
#define STYLE_FRAME    "fill=\"none\" stroke=\"#3e4c59\" stroke-width=\"1\""

struct drawing {
    FILE *out;
    const struct order *order;
    const int *first, *ranks; /* order_by_node */
    bool by_stage;
    int colours; /* stages, or replicas */
    bool small;
    double box_width, box_high, gap;
    int boxes;    /* in a line */
    double *high; /* [switches] of a switch and all beneath it */
};

/* ---- colours ---- */

static const unsigned char okabe_ito[][3] = {{86, 180, 233},  {230, 159, 0}, {0, 158, 115}, {240, 228, 66},
                                             {204, 121, 167}, {213, 94, 0},  {0, 114, 178}, {153, 153, 153}};
static const unsigned char viridis[][3] = {{253, 231, 37}, {94, 201, 98}, {33, 145, 140}, {59, 82, 139}, {68, 1, 84}};

/* Up to eight stages or replicas get colours that the colour-blind can distinguish; more get a ramp of colours. */
static void colour_of(int index, int count, int rgb[3])
{
    double at = count > 1 ? 4.0 * index / (count - 1) : 0.0;
    int low = at >= 4.0 ? 3 : (int)at;

    for (int i = 0; i < 3; i++)
        rgb[i] = count <= 8 ? okabe_ito[index][i]
                            : (int)(viridis[low][i] + (at - low) * (viridis[low + 1][i] - viridis[low][i]));
}

static void fill_box(FILE *out, double x, double y, double width, double high, int index, int count)
{
    char style[64];
    int rgb[3];

    colour_of(index, count, rgb);
    snprintf(style, sizeof style, "fill=\"#%02x%02x%02x\"", (unsigned)rgb[0], (unsigned)rgb[1], (unsigned)rgb[2]);
    svg_rect(out, x, y, width, high, style);
}

static const char *ink_on(int index, int count, bool strong)
{
    int rgb[3];

    colour_of(index, count, rgb);
    if (0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] < 120)
        return strong ? "font-size=\"12\" font-weight=\"600\" fill=\"#ffffff\"" : "font-size=\"10.5\" fill=\"#ffffff\"";
    return strong ? "font-size=\"12\" font-weight=\"600\" fill=\"#1f2933\"" : "font-size=\"10.5\" fill=\"#1f2933\"";
}

/* ---- nodes ---- */

static int colour_index(const struct drawing *drawing, int rank)
{
    struct mesh_coords place = mesh_coords(&drawing->order->mesh, rank);

    return drawing->by_stage ? place.pp : place.dp;
}

/* Shortens a text to a width; the end becomes "..". */
static void cut_text(char *text, double font_size, double width)
{
    while (strlen(text) > 3 && svg_text_width(text, font_size) > width) {
        size_t length = strlen(text) - (strcmp(text + strlen(text) - 2, "..") == 0 ? 3 : 1);

        strcpy(text + length, "..");
    }
}

static void draw_labels(const struct drawing *drawing, int node, double x, double y)
{
    const int *ranks = &drawing->ranks[drawing->first[node]];
    int count = drawing->first[node + 1] - drawing->first[node],
        middle = count ? colour_index(drawing, ranks[count / 2]) : 0;
    char name[HOSTNAME_SIZE], list[64], *all = count ? rank_map_text(ranks, count, NULL) : NULL;

    snprintf(name, sizeof name, "%s", drawing->order->switch_tree->nodes[node]);
    snprintf(list, sizeof list, "%.60s", all ? all : "-");
    free(all);
    cut_text(name, 12, drawing->box_width - 6);
    cut_text(list, 10.5, drawing->box_width - 6);
    svg_text(drawing->out, x + drawing->box_width / 2, y + 16, SVG_MIDDLE,
             count ? ink_on(middle, drawing->colours, true) : STYLE_NAME, name);
    svg_text(drawing->out, x + drawing->box_width / 2, y + 31, SVG_MIDDLE,
             count ? ink_on(middle, drawing->colours, false) : STYLE_NAME, list);
}

/* A stripe for each rank; adjacent ranks of one colour share a stripe. */
static void draw_node(const struct drawing *drawing, int node, double x, double y)
{
    const int *ranks = &drawing->ranks[drawing->first[node]];
    int count = drawing->first[node + 1] - drawing->first[node];
    double each = count ? drawing->box_width / count : 0;

    for (int from = 0, to; from < count; from = to) {
        int index = colour_index(drawing, ranks[from]);

        for (to = from + 1; to < count && colour_index(drawing, ranks[to]) == index; to++)
            ;
        fill_box(drawing->out, x + from * each, y, (to - from) * each, drawing->box_high, index, drawing->colours);
    }
    svg_rect(drawing->out, x, y, drawing->box_width, drawing->box_high, STYLE_FRAME);
    if (!drawing->small)
        draw_labels(drawing, node, x, y);
}

static double nodes_left(const struct drawing *drawing)
{
    return LEFT + drawing->order->switch_tree->levels * COLUMN;
}

static int count_nodes(const struct switch_tree *switch_tree, int at)
{
    int count = 0;

    for (int node = 0; node < switch_tree->node_count; node++)
        count += switch_tree->above[node] == at;
    return count;
}

/* The height of all lines of boxes right beneath a switch, of which the last may be short; 0 without nodes. */
static double lines_high(const struct drawing *drawing, int at)
{
    int count = count_nodes(drawing->order->switch_tree, at);

    return (count + drawing->boxes - 1) / drawing->boxes * (drawing->box_high + drawing->gap);
}

/* The same, but as high as the switch at least. */
static double nodes_high(const struct drawing *drawing, int at)
{
    double high = lines_high(drawing, at), least = SWITCH_HIGH + drawing->gap;

    return high > 0 && high < least ? least : high;
}

/* The nodes right beneath a switch, in lines. */
static void draw_nodes(const struct drawing *drawing, int at, double y)
{
    const struct switch_tree *switch_tree = drawing->order->switch_tree;
    double line = drawing->box_high + drawing->gap;
    int count = 0;

    y += (nodes_high(drawing, at) - lines_high(drawing, at)) / 2; /* centers a line lower than its switch */
    for (int node = 0; node < switch_tree->node_count; node++) {
        if (switch_tree->above[node] != at)
            continue;
        draw_node(drawing, node, nodes_left(drawing) + count % drawing->boxes * (drawing->box_width + drawing->gap),
                  y + count / drawing->boxes * line);
        count++;
    }
}

/* ---- the tree ---- */

static void draw_switch(const struct drawing *drawing, int at, double y)
{
    const struct tree_switch *drawn = &drawing->order->switch_tree->switches[at];
    double x = LEFT + drawn->depth * COLUMN;
    char name[HOSTNAME_SIZE];

    snprintf(name, sizeof name, "%s", *drawn->name ? drawn->name : "(top)");
    cut_text(name, 12, SWITCH_WIDTH - 8);
    svg_rect(drawing->out, x, y - SWITCH_HIGH / 2, SWITCH_WIDTH, SWITCH_HIGH, STYLE_SWITCH);
    svg_text(drawing->out, x + SWITCH_WIDTH / 2, y + 4, SVG_MIDDLE, STYLE_NAME, name);
}

/* From the right edge of a switch to a child or the nodes, at (x, y). */
static void draw_wire(const struct drawing *drawing, int depth, double middle, double x, double y)
{
    double from = LEFT + depth * COLUMN + SWITCH_WIDTH, bend = from + (COLUMN - SWITCH_WIDTH) / 2;

    svg_line(drawing->out, from, middle, bend, middle, STYLE_WIRE);
    svg_line(drawing->out, bend, middle, bend, y, STYLE_WIRE);
    svg_line(drawing->out, bend, y, x, y, STYLE_WIRE);
}

/* Children come after their parents. A leaf has some space below. */
static void measure_tree(const struct drawing *drawing)
{
    const struct switch_tree *switch_tree = drawing->order->switch_tree;

    for (int at = switch_tree->switch_count - 1; at >= 0; at--) {
        bool is_leaf = drawing->high[at] == 0;

        drawing->high[at] += nodes_high(drawing, at) + (is_leaf ? SPACE : 0);
        if (at > 0)
            drawing->high[switch_tree->switches[at].parent] += drawing->high[at];
    }
}

/* Draws a switch in the middle of its nodes and children. */
static void draw_tree(const struct drawing *drawing, int at, double top)
{
    const struct switch_tree *switch_tree = drawing->order->switch_tree;
    int depth = switch_tree->switches[at].depth;
    double own = nodes_high(drawing, at), y = top + own;
    double middle = top + (drawing->high[at] - SPACE) / 2;

    draw_nodes(drawing, at, top);
    for (int child = at + 1; child < switch_tree->switch_count; child++) {
        if (switch_tree->switches[child].parent != at)
            continue;
        draw_wire(drawing, depth, middle, LEFT + (depth + 1) * COLUMN, y + (drawing->high[child] - SPACE) / 2);
        draw_tree(drawing, child, y);
        y += drawing->high[child];
    }
    if (own > 0)
        draw_wire(drawing, depth, middle, nodes_left(drawing) - 6, y == top + own ? middle : top + own / 2);
    draw_switch(drawing, at, middle);
}

static void draw_heading(const struct drawing *drawing)
{
    const struct order *order = drawing->order;
    const struct mesh *mesh = &order->mesh;
    char text[256], bytes[32], depth[64];
    double x = LEFT;

    snprintf(text, sizeof text, "%d ranks (dp %d, tp %d, pp %d) on %d nodes", mesh_world(mesh), mesh->dp, mesh->tp,
             mesh->pp, order->switch_tree->node_count);
    svg_text(drawing->out, LEFT, 34, SVG_START, STYLE_TITLE, text);
    snprintf(text, sizeof text, "%s in a step %s", order_bytes_text(order->cost.traffic[0], bytes, sizeof bytes),
             order_depth_text(order->switch_tree, 0, depth, sizeof depth));
    svg_text(drawing->out, LEFT, 56, SVG_START, STYLE_SUBTITLE, text);
    for (int i = 0; i < drawing->colours && i < 16; i++) { /* of a ramp, its ends and some steps between */
        int index = drawing->colours <= 16 ? i : (int)((long)i * (drawing->colours - 1) / 15);

        snprintf(text, sizeof text, i == 0 ? (drawing->by_stage ? "stage %d" : "replica %d") : "%d", index);
        fill_box(drawing->out, x, 68, 12, 12, index, drawing->colours);
        svg_text(drawing->out, x + 17, 78, SVG_START, STYLE_SUBTITLE, text);
        x += 17 + svg_text_width(text, 12.5) + 12;
    }
}

/* The longest line of boxes that any switch needs, no longer than `most`. */
static int widest_line(const struct switch_tree *switch_tree, int most)
{
    int widest = 1;

    for (int at = 0; at < switch_tree->switch_count; at++)
        widest = count_nodes(switch_tree, at) > widest ? count_nodes(switch_tree, at) : widest;
    return widest < most ? widest : most;
}

int place_svg(FILE *out, const struct order *order, struct error *err)
{
    size_t nodes = (size_t)order->switch_tree->node_count, world = (size_t)mesh_world(&order->mesh);
    int *first = calloc(nodes + 1 + world, sizeof *first), *ranks = first + nodes + 1;
    bool small = nodes > LARGE;
    struct drawing drawing = {.out = out,
                              .order = order,
                              .first = first,
                              .ranks = ranks,
                              .by_stage = order->mesh.pp > 1,
                              .colours = order->mesh.pp > 1 ? order->mesh.pp : order->mesh.dp,
                              .small = small,
                              .box_width = small ? 12 : 92,
                              .box_high = small ? 12 : 40,
                              .gap = small ? 3 : 6,
                              .boxes = widest_line(order->switch_tree, small ? 64 : 8),
                              .high = calloc((size_t)order->switch_tree->switch_count, sizeof(double))};
    double high, width;
    int rc = 0;

    if (first && drawing.high) {
        order_by_node(order->node_of, mesh_world(&order->mesh), order->switch_tree->node_count, first, ranks);
        measure_tree(&drawing);
        high = TOP + drawing.high[0] + 16;
        width = nodes_left(&drawing) + drawing.boxes * (drawing.box_width + drawing.gap) + LEFT;
        width = width < 640 ? 640 : width; /* the heading's */
        svg_begin(out, width, high, "Ranks on nodes");
        svg_rect(out, 0, 0, width, high, "fill=\"#ffffff\"");
        draw_tree(&drawing, 0, TOP);
        draw_heading(&drawing);
        svg_end(out);
    } else {
        rc = error_errno(err, CODE_IO, "no memory for a picture of %zu ranks", world);
    }
    free(drawing.high);
    free(first);
    return rc;
}
