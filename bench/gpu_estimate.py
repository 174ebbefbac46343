"""gpu_estimate.py - for bench/gpu: a GPT's sizes, what a step on one GPU may take, and how much memory it wants.

All of this is arithmetic from a GPU's data sheet and from counting what trainer/ and kernels/cuda do; none of it was
measured. It is there to be held against what is. One training step of R tokens, d wide, L layers, s long, V words,
N parameters:

    products of the layers   6 R (12 L d^2) FLOPs          PRODUCT of the peak
    projection to the words  6 R d V FLOPs, and what of it is bound by memory: each chunk of C rows adds to the fp32
                             gradient of the embedding, 8 d V bytes (MUSTER_LOGITS_ROWS)
    attention                2 causal products forward, 7 backward (5 are needed; the other 2 are the price of adding
                             in a fixed order), 2 R s d / 2 FLOPs each, at FORWARD and BACKWARD
    rows                     28 arrays [R, d] of 16-bit numbers a layer, each read or written once: LayerNorm 2 + 4
                             forward and 4 + 4 backward, residual 3, sums for biases' gradients 1 + 4 + 1 + 3, rowsum of
                             dout * out 2
    logits                   2 arrays [R, V]: read for the statistics, overwritten by the gradient; a row is still in
                             the L2 cache when its gradient reads it
    optimizer                30 bytes a parameter for AdamW, 4 for the norm: once a step
    micro-batches after the first: 12 bytes a parameter, to add their gradients to the step's
    launches                 31 a layer and micro-batch forward and backward: 4 us each on the host, which is ahead of
                             the GPU but for the waits: one a micro-batch (its loss), one a unit (its norm), 15 us each

That leaves out the tails of kernels that do not fill the GPU, and gaps between kernels of 1 to 2 us.
"""

PEAK, PRODUCT = 989e12, 0.75  # dense bf16 of an H100 SXM, FLOP/s; what large products reach of it
BANDWIDTH, STREAM = 3.35e12, 0.9
FORWARD, BACKWARD = 350e12, 250e12  # attention with mma.sync
CHUNK = 4096  # rows of logits at a time: LOGITS_ROWS_GPU of kernels.h
WAIT = 15e-6

SIZES = {  # layers, hidden, heads, vocabulary
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


def seconds(model, seq, tokens, micro_batches, chunk=CHUNK):
    """By group, of one step."""
    layers, d, _, vocab = SIZES[model]
    n, stream = parameters(model, seq), BANDWIDTH * STREAM
    product = tokens * seq * d * layers  # causal, all layers
    head = 2 * tokens * d * vocab / (PEAK * PRODUCT)
    weight = max(head, 8 * d * vocab * (tokens / chunk) / stream)
    return {
        "products of the layers": 72 * tokens * layers * d * d / (PEAK * PRODUCT),
        "projection": 2 * head + weight,
        "attention": 2 * product / FORWARD + 7 * product / BACKWARD,
        "rows": 28 * 2 * tokens * d * layers / stream,
        "logits": 2 * 2 * tokens * vocab / stream,
        "optimizer": 34 * n / stream,
        "adding micro-batches": 12 * n * (micro_batches - 1) / stream,
        "waits": (micro_batches + layers + 3) * WAIT,
    }


def micro_batch(model, seq, batch, memory, ours):
    """A first guess of the largest power of two that fits; who takes it halves it until it does."""
    layers, d, _, vocab = SIZES[model]
    n = parameters(model, seq)
    # ours: x y1 mid y2 att, qkv 3, pre 4, act 4 in 16 bits; PyTorch: nearly these, its residual stream in fp32, and
    # all logits in 16 and 32 bits, with gradients.
    token = layers * d * 32 if ours else layers * d * 40 + 10 * vocab
    state = n * (18 if ours else 18) + (2 << 30)
    guess = 1
    while guess * 2 <= batch and state + guess * 2 * seq * token <= 0.95 * memory:
        guess *= 2
    return guess
