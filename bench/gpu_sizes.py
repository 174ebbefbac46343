"""gpu_sizes.py - for bench/gpu-day: a GPT's sizes, the FLOPs of its steps, and how many samples fit into a GPU."""
import math

SIZES = {  # layers, hidden, heads, vocabulary
    "gpt-tiny": (4, 128, 2, 256),  # by the preset, but for heads of 64
    "gpt-125m": (12, 768, 12, 50257),
    "gpt-350m": (24, 1024, 16, 50257),
    "gpt-760m": (24, 1536, 12, 50257),
    "gpt-1.3b": (24, 2048, 32, 50257),
}


def parameters(model, seq):
    layers, d, _, vocab = SIZES[model]
    return vocab * d + seq * d + layers * (12 * d * d + 13 * d) + 2 * d


def flops_a_token(model, seq):
    """PaLM's count (arXiv 2204.02311, appendix B)."""
    layers, d, _, _ = SIZES[model]
    return 6 * parameters(model, seq) + 12 * layers * d * seq


def steps(model, seq, batch):
    """About 4 s of them at 500 TFLOP/s, and at least 6: a GPU's clocks fall within the first second."""
    return max(6, math.ceil(2e15 / (flops_a_token(model, seq) * seq * batch)))


def micro_batch(model, seq, batch, memory, ours):
    """A first guess of the largest power of two that fits; who takes it halves it until it does."""
    layers, d, _, vocab = SIZES[model]
    # ours: x y1 mid y2 att, qkv 3, pre 4, act 4 in 16 bits; PyTorch: nearly these, its residual stream in fp32, and
    # all logits in 16 and 32 bits, with gradients.
    token = layers * d * 32 if ours else layers * d * 40 + 10 * vocab
    state = parameters(model, seq) * 18 + (2 << 30)
    guess = 1
    while guess * 2 <= batch and state + guess * 2 * seq * token <= 0.95 * memory:
        guess *= 2
    return guess
