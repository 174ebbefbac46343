/* In the place of node_hwloc.c where there is no hwloc: NICs and their links are all that is seen. */
#include "srun-plugin/node_impl.h"

int node_tree_open(struct node *node, struct node_tree **tree, const char *root, const char *xml, struct error *err)
{
    (void)root, (void)xml, (void)err;
    *tree = NULL;
    node_problem(
        node, "built without hwloc: nothing is known of cores, memory and GPUs; install libhwloc-dev and build anew");
    return 0;
}

int node_tree_parse(struct node *node, struct node_tree **tree, const char *text)
{
    (void)node, (void)text;
    *tree = NULL;
    return -1;
}

void node_tree_close(struct node_tree *tree)
{
    (void)tree;
}

int node_tree_save(const struct node_tree *tree, const char *path, struct error *err)
{
    (void)tree;
    return error_set(err, CODE_USAGE, "%s cannot be written: built without hwloc", path);
}

char *node_tree_text(struct node_tree *tree, size_t *size)
{
    (void)tree, (void)size;
    return NULL;
}

int node_read_cores(struct node *node, struct node_tree *tree)
{
    (void)node, (void)tree;
    return 0;
}

int node_read_gpus(struct node *node, struct node_tree *tree)
{
    (void)node, (void)tree;
    return 0;
}

int node_find_numa(const struct node *node, struct node_tree *tree, const char *pci)
{
    (void)node, (void)tree, (void)pci;
    return -1;
}

enum node_path node_find_path(const struct node *node, struct node_tree *tree, size_t gpu, size_t nic)
{
    (void)node, (void)tree, (void)gpu, (void)nic;
    return PATH_SYSTEM;
}
