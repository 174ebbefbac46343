"""GPT-2 in PyTorch on one GPU, for bench/gpu: the fastest plain setup (torch.compile, SDPA, fused AdamW, autocast).

    gpu_torch.py train LAYERS HIDDEN HEADS VOCAB BATCH MICRO_BATCH SEQ STEPS
    gpu_torch.py ceilings

train prints "tokens/s PEAK_MIB MICRO_BATCH" last, by the fastest of STEPS steps after three to warm up. Where
MICRO_BATCH samples do not fit, it halves them until they do. Parameters are fp32 and products bf16, as ours are; tokens
are drawn from all of the vocabulary. Which kernel makes attention is PyTorch's choice, but with ATTENTION=cudnn in the
environment.

ceilings prints, by cuBLAS and copies, best of several runs: "product MxNxK TFLOP/s" in bf16 of large squares and of the
models' own shapes, "copy GB/s" within the device, counting what is read and what is written, and "to-host GB/s" and
"to-device GB/s" of pinned memory.
"""
import contextlib
import os
import re
import sys
import time

WARM_UP = 3


def build(layers, d, heads, vocab, seq):
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            b, s, _ = x.shape
            parts = self.qkv(self.ln_1(x)).split(d, 2)
            q, k, v = (t.view(b, s, heads, d // heads).transpose(1, 2) for t in parts)
            attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(attention.transpose(1, 2).reshape(b, s, d))
            return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            padded = (vocab + 127) // 128 * 128  # as ours, and as whoever wants speed does
            self.wte, self.wpe = nn.Embedding(padded, d), nn.Embedding(seq, d)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.ln_f = nn.LayerNorm(d)
            self.apply(self.init)

        @staticmethod
        def init(module):
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

        def forward(self, tokens, targets):
            x = self.ln_f(self.blocks(self.wte(tokens) + self.wpe.weight))
            logits = F.linear(x, self.wte.weight)
            return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    with torch.device("cuda"):
        return torch.compile(Gpt())


def attention():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    chosen = os.environ.get("ATTENTION") == "cudnn"
    return sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if chosen else contextlib.nullcontext()


def step(model, optimizer, parts):
    import torch

    for tokens in parts:
        with torch.autocast("cuda", torch.bfloat16), attention():
            loss = model(tokens[:, :-1], tokens[:, 1:]) / len(parts)
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def train(layers, d, heads, vocab, batch, micro, seq, steps):
    import torch

    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = build(layers, d, heads, vocab, seq)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    parts = torch.randint(0, vocab, (batch, seq + 1), device="cuda").split(micro)
    best = float("inf")
    for i in range(steps + WARM_UP):
        torch.cuda.synchronize()
        started = time.perf_counter()
        step(model, optimizer, parts)
        torch.cuda.synchronize()
        elapsed = time.perf_counter() - started
        print(f"step {i} {elapsed:.4f} s", flush=True)
        if i >= WARM_UP:
            best = min(best, elapsed)
    print(f"{batch * seq / best:.1f} {torch.cuda.max_memory_allocated() / 2**20:.0f} {micro}")


def is_no_memory(error):
    """Of PyTorch's allocator, of cuBLAS, or of Triton where it loads a kernel: those have no class of their own."""
    return re.search("out of memory|ALLOC_FAILED|OutOfMemory", f"{type(error).__name__} {error}", re.I)


def train_what_fits(layers, d, heads, vocab, batch, micro, seq, steps):
    import gc

    import torch

    while True:
        try:
            return train(layers, d, heads, vocab, batch, micro, seq, steps)
        except RuntimeError as error:
            if micro == 1 or not is_no_memory(error):
                raise
        micro //= 2
        print(f"out of memory; {micro} samples at a time", flush=True)
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def fastest(run, repeats=20):
    """Seconds of the fastest run, by events on the device."""
    import torch

    best = float("inf")
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e-3)
    return best


PRODUCTS = [(n, n, n) for n in (4096, 8192, 12288)] + [
    (16384, 6144, 1536), (16384, 1536, 6144), (16384, 4608, 1536), (16384, 8192, 2048), (16384, 3072, 768),
    (4096, 50304, 1536), (1536, 6144, 16384)]


def ceilings():
    import torch

    for m, n, k in PRODUCTS:
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
        c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        rate = 2 * m * n * k / fastest(lambda a=a, b=b, c=c: torch.mm(a, b, out=c))
        print(f"product {m}x{n}x{k} {rate * 1e-12:.1f}", flush=True)
    x = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    host = torch.zeros(1 << 30, dtype=torch.uint8, pin_memory=True)
    print(f"copy {2 * x.numel() / fastest(lambda: y.copy_(x)) * 1e-9:.0f}")
    print(f"to-host {x.numel() / fastest(lambda: host.copy_(x, non_blocking=True), 5) * 1e-9:.1f}")
    print(f"to-device {x.numel() / fastest(lambda: x.copy_(host, non_blocking=True), 5) * 1e-9:.1f}")


def main():
    if len(sys.argv) == 10 and sys.argv[1] == "train":
        train_what_fits(*(int(a) for a in sys.argv[2:]))
    elif sys.argv[1:] == ["ceilings"]:
        ceilings()
    else:
        sys.exit(__doc__)


main()
