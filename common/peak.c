#include "common/peak.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

struct peak {
    const char *words[2]; /* of the name, all of them */
    double tflops[3];     /* in enum dtype's order: fp32, bf16, fp16 */
};

/* The first that fits counts, so variants stand before the plain name, which is the SXM module's. */
static const struct peak peaks[] = {
    {{"b200", NULL}, {75, 2250, 2250}},
    {{"gh200", NULL}, {67, 989, 989}},
    {{"h200", "nvl"}, {60, 835, 835}},
    {{"h200", NULL}, {67, 989, 989}},
    {{"h100", "pcie"}, {51, 756, 756}},
    {{"h100", "nvl"}, {60, 835, 835}},
    {{"h100", NULL}, {67, 989, 989}},
    {{"h800", NULL}, {67, 989, 989}},
    {{"h20", NULL}, {44, 148, 148}},
    {{"a100", NULL}, {19.5, 312, 312}},
    {{"a800", NULL}, {19.5, 312, 312}},
    {{"a40", NULL}, {37.4, 149.7, 149.7}},
    {{"a30", NULL}, {10.3, 165, 165}},
    {{"a10", NULL}, {31.2, 125, 125}},
    {{"a6000", NULL}, {38.7, 154.8, 154.8}},
    {{"l40s", NULL}, {91.6, 362, 362}},
    {{"l40", NULL}, {90.5, 181, 181}},
    {{"l4", NULL}, {30.3, 121, 121}},
    {{"v100s", NULL}, {16.4, 0, 130}},
    {{"v100", "pcie"}, {14, 0, 112}},
    {{"v100", NULL}, {15.7, 0, 125}},
    {{"t4", NULL}, {8.1, 0, 65}},
    {{"p100", "pcie"}, {9.3, 0, 18.7}},
    {{"p100", NULL}, {10.6, 0, 21.2}},
    {{"mi325x", NULL}, {163.4, 1307.4, 1307.4}},
    {{"mi300x", NULL}, {163.4, 1307.4, 1307.4}},
    {{"mi300a", NULL}, {122.6, 980.6, 980.6}},
    {{"mi250x", NULL}, {47.9 / 2, 383.0 / 2, 383.0 / 2}},
    {{"mi250", NULL}, {45.3 / 2, 362.1 / 2, 362.1 / 2}},
    {{"mi210", NULL}, {22.6, 181, 181}},
    {{"mi100", NULL}, {23.1, 92.3, 184.6}},
};

/* Whether `word` stands in the name between what are no letters or digits: "a10" is not in "NVIDIA A10G". */
static bool has_word(const char *name, const char *word)
{
    size_t length = strlen(word);

    while (*name) {
        size_t run = 0, same = 0;

        while (isalnum((unsigned char)name[run])) {
            if (run < length && tolower((unsigned char)name[run]) == word[run])
                same++;
            run++;
        }
        if (run == length && same == length)
            return true;
        name += run ? run : 1;
    }
    return false;
}

double device_peak_flops(const char *name, enum dtype dtype)
{
    if (has_word(name, "mig"))
        return 0;
    for (size_t i = 0; i < sizeof peaks / sizeof peaks[0]; i++)
        if (has_word(name, peaks[i].words[0]) && (!peaks[i].words[1] || has_word(name, peaks[i].words[1])))
            return peaks[i].tflops[dtype] * 1e12;
    return 0;
}
