#include "srun-plugin/visible.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *value_for(const struct visible *visible, uint16_t vendor)
{
    switch (vendor) {
    case 0x10de:
        return visible->cuda;
    case 0x1002:
        return visible->rocr;
    case 0x8086:
        return visible->ze;
    default:
        return NULL;
    }
}

/* "GPU-0b1c...", "MIG-GPU-...". Slurm's "NoDevFiles" is no name, but says that there are none. */
static bool names_by_uuid(const char *value)
{
    while (isspace((unsigned char)*value))
        value++;
    return isalpha((unsigned char)*value) && strncmp(value, "NoDevFiles", strlen("NoDevFiles")) != 0;
}

static size_t pick(const char *value, const size_t *usable, size_t usable_count, size_t indices[VISIBLE_MOST])
{
    size_t count = 0;

    while (count < VISIBLE_MOST) {
        char *end;
        long index = strtol(value, &end, 10);

        if (end == value || index < 0 || (size_t)index >= usable_count)
            break;
        indices[count++] = usable[index];
        end += strcspn(end, ",");
        if (!*end)
            break;
        value = end + 1;
    }
    return count;
}

size_t visible_gpus(const struct node *node, const struct visible *visible, size_t indices[VISIBLE_MOST])
{
    size_t usable[VISIBLE_MOST], count = 0;
    const char *value;

    for (size_t i = 0; i < node->gpu_count && count < VISIBLE_MOST; i++)
        if (node->gpus[i].state == GPU_USABLE)
            usable[count++] = i;
    value = count ? value_for(visible, node->gpus[usable[0]].vendor) : NULL;
    if (value && !names_by_uuid(value))
        return pick(value, usable, count, indices);
    memcpy(indices, usable, count * sizeof *indices);
    return count;
}
