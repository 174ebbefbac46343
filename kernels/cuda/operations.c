#include "kernels/cuda/operations.h"

struct kernels cuda_operations(void)
{
    return (struct kernels){
        .matmul = cuda_matmul,
        .bias_backward = cuda_bias_backward,
        .layernorm_forward = cuda_layernorm_forward,
        .layernorm_backward = cuda_layernorm_backward,
        .residual = cuda_residual,
        .dropout_backward = cuda_dropout_backward,
        .attention_forward = cuda_attention_forward,
        .attention_backward = cuda_attention_backward,
        .embedding_forward = cuda_embedding_forward,
        .embedding_backward = cuda_embedding_backward,
        .positions_forward = cuda_positions_forward,
        .positions_backward = cuda_positions_backward,
        .cross_entropy = cuda_cross_entropy,
        .cross_entropy_stats = cuda_cross_entropy_stats,
        .cross_entropy_combine = cuda_cross_entropy_combine,
        .cross_entropy_finish = cuda_cross_entropy_finish,
        .adamw = cuda_adamw,
        .gelu_backward = cuda_gelu_backward,
        .tanh_forward = cuda_tanh_forward,
        .tanh_backward = cuda_tanh_backward,
        .copy = cuda_copy,
        .add = cuda_add,
        .accumulate = cuda_accumulate,
        .cast = cuda_cast,
        .zero = cuda_zero,
        .sum_of_squares = cuda_sum_of_squares,
    };
}
