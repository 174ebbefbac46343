"""gpu_sizes.py - for benchmarks beside PyTorch: models' sizes, the FLOPs of their steps, and how many samples fit into
a GPU."""
import math
import typing


class Shape(typing.NamedTuple):
    layers: int
    hidden: int
    heads: int
    vocab: int
    seq: int = 1024
    kv_heads: int = 0  # a GPT has none
    inner: int = 0
    theta: float = 0
    factor: int = 0  # of llama3's scaling of positions

    @property
    def head_size(self):
        return self.hidden // self.heads

    @property
    def qkv(self):
        return (self.heads + 2 * (self.kv_heads or self.heads)) * self.head_size


SIZES = {
    "gpt-tiny": Shape(4, 128, 2, 256, 32),  # as the preset, but for heads of 64 and the sequence
    "gpt-125m": Shape(12, 768, 12, 50257),
    "gpt-350m": Shape(24, 1024, 16, 50257),
    "gpt-760m": Shape(24, 1536, 12, 50257),
    "gpt-1.3b": Shape(24, 2048, 32, 50257),
    "llama-tiny": Shape(8, 128, 2, 256, 32, 1, 352, 1e4),  # as the preset, but for heads of 64 and the sequence
    "smollm2-135m": Shape(30, 576, 9, 49152, 2048, 3, 1536, 1e5),
    "llama-3.2-1b": Shape(16, 2048, 32, 128256, 8192, 8, 8192, 5e5, 32),
    "llama-3.2-3b": Shape(28, 3072, 24, 128256, 8192, 8, 8192, 5e5, 32),
}
TOKENS = 65536  # a step


def shape_of(name, changes=()):
    """A model of this name, changed by words KEY=NUMBER."""
    return SIZES[name]._replace(**{key: int(value) for key, value in (word.split("=") for word in changes)})


def parameters(m, seq):
    d = m.hidden
    if m.kv_heads:
        return m.vocab * d + m.layers * (d * m.qkv + d * d + 3 * d * m.inner + 2 * d) + d
    return m.vocab * d + seq * d + m.layers * (12 * d * d + 13 * d) + 2 * d


def flops_a_token(m, seq):
    """PaLM's count (arXiv 2204.02311, appendix B)."""
    return 6 * parameters(m, seq) + 12 * m.layers * m.hidden * seq


def steps(m, seq, batch):
    """About 4 s of them at 500 TFLOP/s, and at least 6: a GPU's clocks fall within the first second."""
    return max(6, math.ceil(2e15 / (flops_a_token(m, seq) * seq * batch)))


def micro_batch(m, seq, batch, memory, ours):
    """A first guess of the largest power of two that fits; who takes it halves it until it does."""
    # ours: x y1 mid y2 att, qkv, and pre and act of a GPT, gate, up and act of a Llama, in 16 bits; PyTorch: nearly
    # these, its residual stream in fp32, and all logits in 16 and 32 bits, with gradients.
    width = 5 * m.hidden + m.qkv + (3 * m.inner or 8 * m.hidden)
    token = 2 * m.layers * width * (1 if ours else 1.25) + (0 if ours else 10 * m.vocab)
    state = parameters(m, seq) * 18 + (2 << 30)
    guess = 1
    while guess * 2 <= batch and state + guess * 2 * seq * token <= 0.95 * memory:
        guess *= 2
    return guess
