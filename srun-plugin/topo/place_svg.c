#include "srun-plugin/topo/muster_topo.h"

#include <stdlib.h>
#include <string.h>

#include "common/mesh.h"
#include "common/svg.h"

enum {
    LEFT = 24,
    TOP = 92,
    INDENT = 24, /* of a switch from the one above it */
    NAME = 112,  /* a switch's name */
    NAME_HIGH = 24,
    GAP = 8,     /* below a switch and its nodes */
    LARGE = 256, /* nodes that still get boxes with text in them */
    KEYS = 12,   /* colours that the head explains */
};

struct drawing {
    FILE *out;
    const struct order *order;
    const struct switch_tree *tree;
    const int *first, *ranks; /* order_by_node */
    int colours;              /* stages, or replicas */
    bool small;
    double box_width, box_high, gap;
    int boxes; /* in a line */
};

/*
 * Up to eight stages or replicas get Okabe and Ito's colours, which the colour-blind can distinguish; more get a ramp
 * of colours.
 */
static void fill_box(const struct drawing *drawing, double x, double y, double width, double high, int index)
{
    static const unsigned char okabe_ito[][3] = {{86, 180, 233},  {230, 159, 0}, {0, 158, 115}, {240, 228, 66},
                                                 {204, 121, 167}, {213, 94, 0},  {0, 114, 178}, {153, 153, 153}};
    static const unsigned char viridis[][3] = {{253, 231, 37}, {94, 201, 98}, {33, 145, 140},
                                               {59, 82, 139},  {68, 1, 84},   {68, 1, 84}};
    bool few = drawing->colours <= 8;
    double at = few ? 0.0 : 4.0 * index / (drawing->colours - 1);
    const unsigned char(*colour)[3] = few ? &okabe_ito[index] : &viridis[(int)at];
    unsigned rgb[3];
    char fill[32];

    for (int i = 0; i < 3; i++)
        rgb[i] = few ? colour[0][i] : (unsigned)(colour[0][i] + (at - (int)at) * (colour[1][i] - colour[0][i]));
    snprintf(fill, sizeof fill, "fill=\"#%02x%02x%02x\"", rgb[0], rgb[1], rgb[2]);
    svg_rect(drawing->out, x, y, width, high, fill);
}

static int colour_index(const struct drawing *drawing, int rank)
{
    struct mesh_coords place = mesh_coords(&drawing->order->mesh, rank);

    return drawing->order->mesh.pp > 1 ? place.pp : place.dp;
}

/* A text in the middle of x and x + width; a longer one is cut, and its end becomes "..". */
static void draw_name(const struct drawing *drawing, double x, double y, const char *class, int most, const char *name)
{
    bool whole = strlen(name) <= (size_t)most;

    svg_text(drawing->out, x, y, class, "%.*s%s", whole ? most : most - 2, name, whole ? "" : "..");
}

/* The name, the ranks, and below a stripe for each rank; adjacent ranks of one colour share a stripe. */
static void draw_node(const struct drawing *drawing, int node, double x, double y)
{
    const int *ranks = &drawing->ranks[drawing->first[node]];
    int count = drawing->first[node + 1] - drawing->first[node];
    double each = count ? drawing->box_width / count : 0, text_high = drawing->small ? 0 : 32;
    char *list = count ? rank_map_text(ranks, count, NULL) : NULL;

    for (int from = 0, to; from < count; from = to) {
        int index = colour_index(drawing, ranks[from]);

        for (to = from + 1; to < count && colour_index(drawing, ranks[to]) == index; to++)
            ;
        fill_box(drawing, x + from * each, y + text_high, (to - from) * each, drawing->box_high - text_high, index);
    }
    svg_rect(drawing->out, x, y, drawing->box_width, drawing->box_high, "class=\"frame\"");
    if (!drawing->small) {
        draw_name(drawing, x + drawing->box_width / 2, y + 14, "name", 12, drawing->tree->nodes[node]);
        draw_name(drawing, x + drawing->box_width / 2, y + 27, "small", 14, list ? list : "-");
    }
    free(list);
}

/* ---- the tree, as an outline: a switch, right of it the nodes right beneath it in lines, then the switches beneath it */

static int count_nodes(const struct drawing *drawing, int at)
{
    int count = 0;

    for (int node = 0; node < drawing->tree->node_count; node++)
        count += drawing->tree->above[node] == at;
    return count;
}

static double switch_high(const struct drawing *drawing, int at)
{
    int lines = (count_nodes(drawing, at) + drawing->boxes - 1) / drawing->boxes;
    double high = lines * (drawing->box_high + drawing->gap);

    return GAP + (high < NAME_HIGH ? NAME_HIGH : high);
}

static double nodes_left(const struct drawing *drawing)
{
    return LEFT + (drawing->tree->levels - 1) * INDENT + NAME;
}

/* Returns where the switch and all beneath it ends. */
static double draw_switch(const struct drawing *drawing, int at, double y)
{
    const struct tree_switch *switches = drawing->tree->switches;
    double x = LEFT + switches[at].depth * INDENT, end = y + switch_high(drawing, at), last = y + 24;

    draw_name(drawing, x, y + 16, "switch", 15, *switches[at].name ? switches[at].name : "(top)");
    for (int node = 0, drawn = 0; node < drawing->tree->node_count; node++)
        if (drawing->tree->above[node] == at) {
            draw_node(drawing, node, nodes_left(drawing) + drawn % drawing->boxes * (drawing->box_width + drawing->gap),
                      y + (drawing->small ? 6 : 0) + drawn / drawing->boxes * (drawing->box_high + drawing->gap));
            drawn++;
        }
    for (int child = at + 1; child < drawing->tree->switch_count; child++)
        if (switches[child].parent == at) {
            last = end + 12;
            svg_line(drawing->out, x + 6, last, x + INDENT - 4, last, "wire");
            end = draw_switch(drawing, child, end);
        }
    svg_line(drawing->out, x + 6, y + 24, x + 6, last, "wire");
    return end;
}

static void draw_head(const struct drawing *drawing)
{
    const struct order *order = drawing->order;
    int keys = drawing->colours < KEYS ? drawing->colours : KEYS;
    char bytes[32], depth[64];

    svg_text(drawing->out, LEFT, 56, "key", "%s in a step %s",
             order_bytes_text(order->cost.traffic[0], bytes, sizeof bytes),
             order_depth_text(drawing->tree, 0, depth, sizeof depth));
    svg_text(drawing->out, LEFT, 78, "key", order->mesh.pp > 1 ? "stage" : "replica");
    for (int i = 0; i < keys; i++) { /* of a ramp, its ends and some steps between */
        int index = keys > 1 ? (int)((long)i * (drawing->colours - 1) / (keys - 1)) : 0;

        fill_box(drawing, LEFT + 52 + 44 * i, 68, 12, 12, index);
        svg_text(drawing->out, LEFT + 68 + 44 * i, 78, "key", "%d", index);
    }
}

int place_svg(FILE *out, const struct order *order, struct error *err)
{
    const struct mesh *mesh = &order->mesh;
    int nodes = order->switch_tree->node_count, world = mesh_world(mesh), widest = 1;
    int *first = error_calloc((size_t)nodes + 1 + (size_t)world, sizeof *first, err), *ranks = first + nodes + 1;
    bool small = nodes > LARGE;
    struct drawing drawing = {.out = out,
                              .order = order,
                              .tree = order->switch_tree,
                              .first = first,
                              .ranks = ranks,
                              .colours = mesh->pp > 1 ? mesh->pp : mesh->dp,
                              .small = small,
                              .box_width = small ? 12 : 92,
                              .box_high = small ? 12 : 44,
                              .gap = small ? 3 : 6,
                              .boxes = small ? 64 : 8};
    double high = TOP, width;
    char title[128];

    if (!first)
        return -1;
    order_by_node(order->node_of, world, nodes, first, ranks);
    for (int at = 0; at < drawing.tree->switch_count; at++) {
        widest = count_nodes(&drawing, at) > widest ? count_nodes(&drawing, at) : widest;
        high += switch_high(&drawing, at);
    }
    width =
        nodes_left(&drawing) + (widest < drawing.boxes ? widest : drawing.boxes) * (drawing.box_width + drawing.gap);
    snprintf(title, sizeof title, "%d ranks (dp %d, tp %d, pp %d) on %d nodes", world, mesh->dp, mesh->tp, mesh->pp,
             nodes);
    svg_begin(out, LEFT + (width < 620 ? 620 : width), high + GAP, LEFT, title);
    draw_head(&drawing);
    draw_switch(&drawing, 0, TOP);
    svg_end(out);
    free(first);
    return 0;
}
