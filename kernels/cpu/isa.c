#include "config.h"
#include "kernels/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

/* From the least to the best; the compiler's names for what -march=x86-64-v3 and -v4 may use. */
static const struct vector_kernels *const tables[] = {
    &vector_kernels_baseline,
#ifdef HAVE_ISA_X86
    &vector_kernels_avx2,
    &vector_kernels_avx512,
#endif
};

static int best_table(void)
{
#ifdef HAVE_ISA_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4"))
        return 2;
    if (__builtin_cpu_supports("x86-64-v3"))
        return 1;
#endif
    return 0;
}

const struct vector_kernels *vector_kernels_choose(struct error *err)
{
    const char *wanted = getenv("MUSTER_ISA");
    int best = best_table();

    if (!wanted || !*wanted)
        return tables[best];
    for (int i = 0; i <= best; i++)
        if (strcmp(tables[i]->isa, wanted) == 0)
            return tables[i];
    error_set(err, CODE_CONFIG, "environment MUSTER_ISA=%s: this processor and this build have %s%s%s", wanted,
              tables[0]->isa, best >= 1 ? ", avx2" : "", best >= 2 ? ", avx512" : "");
    return NULL;
}
