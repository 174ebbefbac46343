/*
 * emulated_names.h - what the emulated kernels and their device are called, so that one program may have them beside
 * those of a GPU. Included before all else, by the compiler's -include.
 */
#ifndef MUSTER_TESTS_CUDA_EMULATED_NAMES_H
#define MUSTER_TESTS_CUDA_EMULATED_NAMES_H

#define cuda_matmul                      emulated_matmul
#define cuda_bias_backward               emulated_bias_backward
#define cuda_norm_forward                emulated_norm_forward
#define cuda_norm_backward               emulated_norm_backward
#define cuda_residual                    emulated_residual
#define cuda_dropout_backward            emulated_dropout_backward
#define cuda_query_key_forward           emulated_query_key_forward
#define cuda_query_key_backward          emulated_query_key_backward
#define cuda_gated_forward               emulated_gated_forward
#define cuda_gated_backward              emulated_gated_backward
#define cuda_attention_forward           emulated_attention_forward
#define cuda_attention_backward          emulated_attention_backward
#define attention_aligned                emulated_attention_aligned
#define attention_tiled_forward          emulated_attention_tiled_forward
#define attention_tiled_backward         emulated_attention_tiled_backward
#define attention_plain_forward          emulated_attention_plain_forward
#define attention_plain_backward         emulated_attention_plain_backward
#define attention_by_cudnn               emulated_attention_by_cudnn
#define attention_cudnn_load             emulated_attention_cudnn_load
#define attention_cudnn_close            emulated_attention_cudnn_close
#define cuda_embedding_forward           emulated_embedding_forward
#define cuda_embedding_backward          emulated_embedding_backward
#define cuda_position_embedding_forward  emulated_position_embedding_forward
#define cuda_position_embedding_backward emulated_position_embedding_backward
#define cuda_cross_entropy_stats         emulated_cross_entropy_stats
#define cuda_cross_entropy_combine       emulated_cross_entropy_combine
#define cuda_cross_entropy               emulated_cross_entropy
#define cuda_cross_entropy_finish        emulated_cross_entropy_finish
#define cuda_adamw                       emulated_adamw
#define cuda_gelu_forward                emulated_gelu_forward
#define cuda_gelu_backward               emulated_gelu_backward
#define cuda_tanh_forward                emulated_tanh_forward
#define cuda_tanh_backward               emulated_tanh_backward
#define cuda_copy                        emulated_copy
#define cuda_add                         emulated_add
#define cuda_accumulate                  emulated_accumulate
#define cuda_cast                        emulated_cast
#define cuda_zero                        emulated_zero
#define cuda_sum_of_squares              emulated_sum_of_squares
#define cuda_column_sums                 emulated_column_sums
#define cuda_add_partial_sums            emulated_add_partial_sums
#define cuda_epilogue                    emulated_epilogue
#define cuda_workspace                   emulated_workspace
#define cuda_fetch                       emulated_fetch
#define cuda_ok                          emulated_ok

#endif
