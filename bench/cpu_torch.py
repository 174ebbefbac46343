"""GPT-2 in plain PyTorch, for bench/cpu: seconds of training steps of the same model, batch and optimizer. Its model is
that of gpu_torch.py too.

    cpu_torch.py PRECISION LAYERS HIDDEN HEADS VOCAB BATCH SEQ STEPS
    cpu_torch.py precisions      those that this PyTorch has, and first its version

PRECISION: fp32, bf16 (weights and activations in bf16) or autocast (fp32 weights, products in bf16); with "-compiled"
behind it, by torch.compile. Attention and AdamW are the fused ones where this PyTorch has them. Prints a line a step:
its seconds. The first one warms up.
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

NEW = int(torch.__version__.split(".")[0]) >= 2  # Debian's is 1.13


class Block(nn.Module):
    def __init__(self, d, heads, seq):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.register_buffer("mask", torch.ones(seq, seq, dtype=torch.bool).tril(), persistent=False)

    def attend(self, q, k, v):
        if NEW:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = (q @ k.transpose(2, 3)) * q.shape[3] ** -0.5
        return scores.masked_fill(~self.mask, float("-inf")).softmax(-1) @ v

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.heads, d // self.heads).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(d, 2))
        x = x + self.proj(self.attend(q, k, v).transpose(1, 2).reshape(b, s, d))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, d, heads, vocab, seq):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(seq, d)
        self.blocks = nn.Sequential(*(Block(d, heads, seq) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(d)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        logits = self.ln_f(self.blocks(x)) @ self.wte.weight.t()
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def train(precision, layers, d, heads, vocab, batch, seq, steps):
    torch.manual_seed(1)
    precision, _, compiled = precision.partition("-")
    model = Gpt(layers, d, heads, vocab, seq)
    if precision == "bf16":
        model = model.bfloat16()
    fused = {"fused": True} if NEW else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, **fused)
    run = torch.compile(model) if compiled else model
    tokens = torch.randint(0, 256, (batch, seq + 1))
    for _ in range(steps + 1):
        started = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"{time.perf_counter() - started:.3f}", flush=True)


def main():
    if sys.argv[1:] == ["precisions"]:
        names = ["fp32", "bf16", "autocast"]
        print(torch.__version__, *names, *(f"{name}-compiled" for name in names if NEW))
    else:
        train(sys.argv[1], *(int(a) for a in sys.argv[2:]))


if __name__ == "__main__":
    main()
