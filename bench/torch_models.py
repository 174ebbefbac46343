"""torch_models.py - GPT-2 and Llama in plain PyTorch, for cpu_torch.py and gpu_torch.py: the products of a matrix
together, attention and AdamW the fused ones where this PyTorch has them."""
import math

import torch
import torch.nn.functional as F
from torch import nn

NEW = int(torch.__version__.split(".")[0]) >= 2  # Debian's is 1.13
EPS = 1e-5


class GptBlock(nn.Module):
    def __init__(self, m, seq):
        super().__init__()
        d = m.hidden
        self.heads = m.heads
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
    def __init__(self, m, seq):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(m.vocab, m.hidden), nn.Embedding(seq, m.hidden)
        self.blocks = nn.Sequential(*(GptBlock(m, seq) for _ in range(m.layers)))
        self.ln_f = nn.LayerNorm(m.hidden)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        logits = self.ln_f(self.blocks(x)) @ self.wte.weight.t()
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def frequencies(m):
    """Of rotary positions, with llama3's scaling of an original length of 8192, low 1 and high 4."""
    f = m.theta ** (-torch.arange(0, m.head_size, 2, dtype=torch.float64) / m.head_size)
    if not m.factor:
        return f
    share = ((8192 / (2 * math.pi / f) - 1) / 3).clamp(0, 1)
    return (1 - share) * f / m.factor + share * f


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, m):
        super().__init__()
        d = m.hidden
        self.m = m
        self.norm_1, self.norm_2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.qkv, self.o = nn.Linear(d, m.qkv, bias=False), nn.Linear(d, d, bias=False)
        self.gate_up, self.down = nn.Linear(d, 2 * m.inner, bias=False), nn.Linear(m.inner, d, bias=False)

    def forward(self, x, cos, sin):
        b, s, d = x.shape
        heads, kv_heads = self.m.heads, self.m.kv_heads
        qkv = self.qkv(F.rms_norm(x, (d,), self.norm_1, EPS)).view(b, s, -1, self.m.head_size).transpose(1, 2)
        q, k, v = qkv.split((heads, kv_heads, kv_heads), 1)
        attended = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True,
                                                  enable_gqa=heads != kv_heads)
        x = x + self.o(attended.transpose(1, 2).reshape(b, s, d))
        gate, up = self.gate_up(F.rms_norm(x, (d,), self.norm_2, EPS)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, m, seq):
        super().__init__()
        self.embed = nn.Embedding(m.vocab, m.hidden)
        self.blocks = nn.ModuleList(LlamaBlock(m) for _ in range(m.layers))
        self.norm = nn.Parameter(torch.ones(m.hidden))
        angles = torch.arange(seq, dtype=torch.float64)[:, None] * frequencies(m)
        self.angles = angles.cos().float(), angles.sin().float()  # no buffers: in fp32 in a model of bf16 too

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, *self.angles)
        logits = F.rms_norm(x, x.shape[-1:], self.norm, EPS) @ self.embed.weight.t()
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def init(module):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def model_of(m, seq):
    torch.manual_seed(1)
    return (Llama if m.kv_heads else Gpt)(m, seq).apply(init)


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                             **({"fused": True} if NEW else {}))
