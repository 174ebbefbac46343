"""model.py - a plain GPT-2, and Megatron's BERT, in PyTorch: what muster's engine is held against.

Written from the published definitions, not from muster's code. Weights are [in, out], and that of the attention's first
product is [d, 3, d]: Q, K and V. Everything is computed in the type of the parameters, as a model in PyTorch does after
model.bfloat16(); only the cross-entropy is taken in fp32, as everyone does who trains in 16 bits.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F


class Samples:
    """What samples.c wrote. eod: the token that ends a document, for data.reset = "document"; starts: of each token,
    the position of the first token of its document."""

    def __init__(self, path, seq, eod=None):
        rows = torch.from_numpy(np.fromfile(path, np.int32).astype(np.int64)).view(-1, 3 * seq + 2)
        self.tokens, self.targets, self.types = rows[:, :seq], rows[:, seq:2 * seq], rows[:, 2 * seq:3 * seq]
        self.lengths, self.order = rows[:, -2], rows[:, -1]
        self.starts = torch.zeros_like(self.tokens)
        if eod is not None:
            ends = self.tokens == eod
            assert ends.any() and torch.equal(self.targets < 0, ends), "other targets are masked than those after eod"
            after = torch.where(ends, torch.arange(1, seq + 1), 0).cummax(1).values
            self.starts[:, 1:] = after[:, :-1]

    def slice(self, first, end):
        part = object.__new__(Samples)
        part.__dict__ = {name: value[first:end] for name, value in self.__dict__.items()}
        return part


def linear(x, weight, bias):
    return F.linear(x, weight.flatten(1).T, bias.flatten())


def norm(x, p, name):
    weight, bias = p[name + ".weight"], p[name + ".bias"]
    return F.layer_norm(x.to(weight.dtype), x.shape[-1:], weight, bias, 1e-5)  # the types differ under autocast only


def attention(x, p, prefix, heads, hidden_keys):
    batch, seq, hidden = x.shape
    q, k, v = linear(x, p[prefix + "c_attn.weight"], p[prefix + "c_attn.bias"]).split(hidden, dim=2)
    q, k, v = (t.view(batch, seq, heads, hidden // heads).transpose(1, 2) for t in (q, k, v))
    scores = (q @ k.transpose(2, 3) / math.sqrt(hidden // heads)).masked_fill(hidden_keys, -math.inf)
    y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, seq, hidden)
    return linear(y, p[prefix + "c_proj.weight"], p[prefix + "c_proj.bias"])


def block(x, p, prefix, heads, hidden_keys):
    x = x + attention(norm(x, p, prefix + "ln_1"), p, prefix + "attn.", heads, hidden_keys)
    y = linear(norm(x, p, prefix + "ln_2"), p[prefix + "mlp.c_fc.weight"], p[prefix + "mlp.c_fc.bias"])
    return x + linear(F.gelu(y, approximate="tanh"), p[prefix + "mlp.c_proj.weight"], p[prefix + "mlp.c_proj.bias"])


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.float() if logits.dtype == torch.bfloat16 else logits, targets, ignore_index=-1,
                           reduction="none")


def losses(p, samples, heads):
    """Of every sample: the sum of its tokens' losses, and that of its order (0 for a GPT)."""
    bert = "mlm.bias" in p
    batch, seq = samples.tokens.shape
    layers = sum(name.endswith("ln_1.weight") for name in p)
    x = F.embedding(samples.tokens, p["wte.weight"]) + p["wpe.weight"][torch.arange(seq) - samples.starts]
    if bert:
        x = x + F.embedding(samples.types, p["wtt.weight"])
        hidden_keys = (torch.arange(seq) >= samples.lengths[:, None])[:, None, None, :]
    else:
        hidden_keys = torch.ones(seq, seq, dtype=torch.bool).triu(1) | (torch.arange(seq) < samples.starts[:, :, None])
        hidden_keys = hidden_keys[:, None]
    for i in range(layers):
        x = block(x, p, f"h.{i}.", heads, hidden_keys)
    x = norm(x, p, "ln_f")
    y, order = x, torch.zeros(batch)
    if bert:
        y = norm(F.gelu(linear(x, p["mlm.dense.weight"], p["mlm.dense.bias"]), approximate="tanh"), p, "mlm.ln")
        pooled = torch.tanh(linear(x[:, 0], p["pooler.weight"], p["pooler.bias"]))
        order = cross_entropy(linear(pooled, p["order.weight"], p["order.bias"]), samples.order)
    logits = F.linear(y, p["wte.weight"], p.get("mlm.bias"))
    tokens = cross_entropy(logits.flatten(0, 1), samples.targets.flatten()).view(batch, seq).sum(1)
    return tokens, order


def mean_loss(tokens, order, samples):
    """The mean over all tokens that are to be predicted, and for a BERT besides that over all samples' orders."""
    return tokens.sum() / (samples.targets >= 0).sum() + order.mean()
