#include "kernels/cpu/vector/vector.h"

#define ISA_STRING(isa) #isa
#define ISA_NAME(isa)   ISA_STRING(isa)

const struct vector_kernels ISA(vector_kernels) = {
    .isa = ISA_NAME(KERNELS_ISA),
    .op =
        {
            .bias_backward = ISA(bias_backward),
            .layernorm_forward = ISA(layernorm_forward),
            .layernorm_backward = ISA(layernorm_backward),
            .attention_forward = ISA(attention_forward),
            .attention_backward = ISA(attention_backward),
            .embedding_forward = ISA(embedding_forward),
            .embedding_backward = ISA(embedding_backward),
            .cross_entropy_stats = ISA(cross_entropy_stats),
            .cross_entropy_finish = ISA(cross_entropy_finish),
            .adamw = ISA(adamw),
            .add = ISA(add),
            .sum_of_squares = ISA(sum_of_squares),
        },
    .gelu = ISA(gelu),
    .gelu_backward = ISA(gelu_backward),
};
