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
            .residual = ISA(residual),
            .dropout_backward = ISA(dropout_backward),
            .attention_forward = ISA(attention_forward),
            .attention_backward = ISA(attention_backward),
            .embedding_forward = ISA(embedding_forward),
            .embedding_backward = ISA(embedding_backward),
            .positions_forward = ISA(positions_forward),
            .positions_backward = ISA(positions_backward),
            .cross_entropy = ISA(cross_entropy),
            .cross_entropy_stats = ISA(cross_entropy_stats),
            .cross_entropy_combine = ISA(cross_entropy_combine),
            .cross_entropy_finish = ISA(cross_entropy_finish),
            .adamw = ISA(adamw),
            .gelu_backward = ISA(gelu_backward),
            .tanh_forward = ISA(tanh_forward),
            .tanh_backward = ISA(tanh_backward),
            .add = ISA(add),
            .accumulate = ISA(accumulate),
            .cast = ISA(cast),
            .sum_of_squares = ISA(sum_of_squares),
        },
    .epilogue = ISA(epilogue),
    .epilogue_gelu = ISA(epilogue_gelu),
    .widen = ISA(widen),
};
