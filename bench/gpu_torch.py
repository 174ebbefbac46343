"""GPT-2 in PyTorch on one GPU, for bench/gpu: the fastest plain setup (torch.compile, SDPA, fused AdamW, autocast).

    gpu_torch.py train LAYERS HIDDEN HEADS VOCAB BATCH SEQ STEPS
    gpu_torch.py ceilings

train prints "tokens/s PEAK_MIB", by the fastest of STEPS steps after five to warm up. Parameters are fp32 and products
bf16, as ours are. ceilings prints "TFLOP/s GB/s": the best bf16 matrix product by cuBLAS of several sizes, and a copy
within the device, counting what is read and what is written.
"""
import sys
import time

WARM_UP = 5


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

        def forward(self, tokens, targets):
            x = self.ln_f(self.blocks(self.wte(tokens) + self.wpe.weight))
            logits = F.linear(x, self.wte.weight)
            return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    return torch.compile(Gpt().cuda())


def train(layers, d, heads, vocab, batch, seq, steps):
    import torch

    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = build(layers, d, heads, vocab, seq)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(0, 256, (batch, seq + 1), device="cuda")
    best = float("inf")
    for step in range(steps + WARM_UP):
        torch.cuda.synchronize()
        started = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step >= WARM_UP:
            best = min(best, time.perf_counter() - started)
    print(f"{batch * seq / best:.1f} {torch.cuda.max_memory_allocated() / 2**20:.0f}")


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


def ceilings():
    import torch

    rate = 0.0
    for n in (4096, 8192, 12288):
        a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        rate = max(rate, 2 * n**3 / fastest(lambda a=a, b=b: a @ b))
    x = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    print(f"{rate * 1e-12:.1f} {2 * x.numel() / fastest(lambda: y.copy_(x)) * 1e-9:.0f}")


def main():
    if len(sys.argv) == 9 and sys.argv[1] == "train":
        train(*(int(a) for a in sys.argv[2:]))
    elif sys.argv[1:] == ["ceilings"]:
        ceilings()
    else:
        sys.exit(__doc__)


main()
