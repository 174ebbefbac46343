/* Cores, memory and the tree of PCI devices, read from the text of machine.h. */
#include "srun-plugin/node/node_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/node/machine.h"

/* A bridge, whose address is "", or a device. */
struct pci_place {
    int above; /* index of the bridge above; -1 for none */
    bool is_host;
    int numa;
    unsigned class, vendor, device;
    char address[16];
};

struct node_tree {
    struct pci_place *places;
    size_t count;
};

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static int read_cpus(struct cpus *cpus, const char *list)
{
    *cpus = (struct cpus){0};
    if (strcmp(list, "-") == 0)
        return 0;
    return list[0] ? cpus_parse(cpus, list, NULL) : -1;
}

static int read_numa(struct node *node, const char *values)
{
    struct node_numa *numa = node_grow(&node->numas, &node->numa_count, sizeof *numa);
    int list = 0;

    if (!numa || sscanf(values, "%u %d %" SCNu64 " %n", &numa->os_index, &numa->package, &numa->memory, &list) < 3)
        return -1;
    return list ? read_cpus(&numa->cpus, values + list) : -1;
}

static int read_core(struct node *node, const char *list)
{
    struct node_core *core = node_grow(&node->cores, &node->core_count, sizeof *core);

    if (!core || read_cpus(&core->cpus, list) < 0)
        return -1;
    core->numa = node_numa_of_cpus(node, &core->cpus);
    return 0;
}

/* Appends a place. The one above it must have been read before. */
static struct pci_place *add_place(struct node_tree *tree)
{
    struct pci_place *place = node_grow(&tree->places, &tree->count, sizeof *place);

    if (place)
        *place = (struct pci_place){.above = -1, .numa = -1};
    return place;
}

static bool is_above(const struct node_tree *tree, const struct pci_place *place)
{
    return place->above >= -1 && place->above < (int)tree->count - 1;
}

static int read_bridge(struct node_tree *tree, const char *values)
{
    struct pci_place *place = add_place(tree);
    char kind[8];

    if (!place || sscanf(values, "%d %7s", &place->above, kind) < 2 || !is_above(tree, place))
        return -1;
    place->is_host = strcmp(kind, "host") == 0;
    return place->is_host || strcmp(kind, "pci") == 0 ? 0 : -1;
}

/*
 * True for GPUs that compute. Class codes are from the PCI Code and ID Assignment Specification: 0300 VGA, 0302 3D,
 * 0380 other display, 12xx accelerator.
 */
static bool is_compute(const struct pci_place *pci)
{
    bool display = pci->class >> 8 == 0x03, accelerator = pci->class >> 8 == 0x12;

    if (pci->vendor == 0x10de)
        return display || accelerator;
    if (pci->vendor == 0x1002 || pci->vendor == 0x8086)
        return accelerator || pci->class == 0x0302 || pci->class == 0x0380;
    return false;
}

static int add_gpu(struct node *node, const struct pci_place *place)
{
    struct node_gpu *gpu = node_grow(&node->gpus, &node->gpu_count, sizeof *gpu);

    if (!gpu)
        return -1;
    snprintf(gpu->address, sizeof gpu->address, "%s", place->address);
    gpu->vendor = (uint16_t)place->vendor;
    gpu->device = (uint16_t)place->device;
    gpu->numa = place->numa;
    return 0;
}

static int read_device(struct node *node, struct node_tree *tree, const char *values)
{
    struct pci_place *place = add_place(tree);

    if (!place ||
        sscanf(values, "%d %d %x %x:%x %15s", &place->above, &place->numa, &place->class, &place->vendor,
               &place->device, place->address) < 6 ||
        !is_above(tree, place) || place->numa < -1 || place->numa >= (int)node->numa_count)
        return -1;
    return is_compute(place) ? add_gpu(node, place) : 0;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static int read_line(struct node *node, struct node_tree *tree, const char *line)
{
    const char *space = strchr(line, ' '), *values = space ? space + 1 : "";
    size_t length = space ? (size_t)(space - line) : strlen(line);

#define IS(word) (length == sizeof word - 1 && memcmp(line, word, length) == 0)
    if (IS("core"))
        return read_core(node, values);
    if (IS("device"))
        return read_device(node, tree, values);
    if (IS("bridge"))
        return read_bridge(tree, values);
    if (IS("numa"))
        return read_numa(node, values);
    if (IS("cpus"))
        return read_cpus(&node->cpus, values);
    if (IS("allowed"))
        return read_cpus(&node->allowed, values);
    return -1;
#undef IS
}

static int read_lines(struct node *node, struct node_tree *tree, char *text)
{
    char *line = strsep(&text, "\n");

    if (strcmp(line, MACHINE_FORM) != 0)
        return -1;
    while ((line = strsep(&text, "\n")) && strcmp(line, "end") != 0)
        if (read_line(node, tree, line) < 0)
            return -1;
    return line && node->core_count ? 0 : -1;
}

static void clear_cores(struct node *node)
{
    free(node->numas);
    free(node->cores);
    free(node->gpus);
    node->numas = NULL;
    node->cores = NULL;
    node->gpus = NULL;
    node->numa_count = node->core_count = node->gpu_count = 0;
    node->cpus = node->allowed = (struct cpus){0};
}

static int by_address(const void *a, const void *b)
{
    return strcmp(((const struct node_gpu *)a)->address, ((const struct node_gpu *)b)->address);
}

int node_tree_read(struct node *node, struct node_tree **tree, char *text)
{
    if (!(*tree = calloc(1, sizeof **tree)))
        return -1;
    if (read_lines(node, *tree, text) < 0) {
        clear_cores(node);
        node_tree_close(*tree);
        *tree = NULL;
        return -1;
    }
    if (node->gpu_count)
        qsort(node->gpus, node->gpu_count, sizeof *node->gpus, by_address);
    node->has_hwloc = true;
    return 0;
}

void node_tree_close(struct node_tree *tree)
{
    if (tree)
        free(tree->places);
    free(tree);
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static int find_device(const struct node_tree *tree, const char *address)
{
    for (size_t i = 0; address[0] && i < tree->count; i++)
        if (strcmp(tree->places[i].address, address) == 0)
            return (int)i;
    return -1;
}

int node_find_numa(const struct node *node, const struct node_tree *tree, const char *pci)
{
    int place;

    if (node->numa_count == 1) /* also for devices that are on no PCI bus */
        return 0;
    place = find_device(tree, pci);
    return place < 0 ? -1 : tree->places[place].numa;
}

/* The lowest bridge above both; -1 if they share none. */
static int common_bridge(const struct node_tree *tree, int a, int b)
{
    for (; a >= 0; a = tree->places[a].above)
        for (int above = b; above >= 0; above = tree->places[above].above)
            if (a == above)
                return a;
    return -1;
}

enum node_path node_find_path(const struct node *node, const struct node_tree *tree, size_t gpu, size_t nic)
{
    int bridge =
        common_bridge(tree, find_device(tree, node->gpus[gpu].address), find_device(tree, node->nics[nic].pci));

    if (bridge >= 0)
        return tree->places[bridge].is_host ? PATH_HOST : PATH_SWITCH;
    return node_numa_path(node, node->gpus[gpu].numa, node->nics[nic].numa);
}
