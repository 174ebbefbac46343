"""gradients.py DIR layers heads seq vocab hidden batch - compare what gradients.c wrote with PyTorch in float64 and float32.

Builds GPT-2 from its published definition on the same weights, runs the same batch, and prints for every tensor the
greatest difference relative to the greatest gradient of that tensor. Exits 1 when the loss or any tensor is off by more
than 1e-4.
"""
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F

TOLERANCE = 1e-4


def load(directory):
    lines = open(f"{directory}/index.txt").read().splitlines()
    loss = float(lines[0].split()[1])
    weights = np.fromfile(f"{directory}/weights.bin", np.float32)
    gradients = np.fromfile(f"{directory}/gradients.bin", np.float32)
    table = {}
    for line in lines[1:]:
        name, offset, count = line.split()
        part = slice(int(offset), int(offset) + int(count))
        table[name] = (weights[part], gradients[part])
    return loss, table


def gpt2(p, tokens, targets, layers, heads):
    batch, seq = tokens.shape
    x = p["wte.weight"][tokens] + p["wpe.weight"][:seq]
    hidden = x.shape[-1]
    mask = torch.full((seq, seq), -math.inf, dtype=x.dtype).triu(1)
    for i in range(layers):
        block = {name[len(f"h.{i}."):]: value for name, value in p.items() if name.startswith(f"h.{i}.")}
        y = F.layer_norm(x, (hidden,), block["ln_1.weight"], block["ln_1.bias"], 1e-5)
        q, k, v = (y @ block["attn.c_attn.weight"] + block["attn.c_attn.bias"]).split(hidden, dim=2)
        q, k, v = (t.view(batch, seq, heads, hidden // heads).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(hidden // heads) + mask
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, seq, hidden)
        x = x + y @ block["attn.c_proj.weight"] + block["attn.c_proj.bias"]
        y = F.layer_norm(x, (hidden,), block["ln_2.weight"], block["ln_2.bias"], 1e-5)
        y = F.gelu(y @ block["mlp.c_fc.weight"] + block["mlp.c_fc.bias"], approximate="tanh")
        x = x + y @ block["mlp.c_proj.weight"] + block["mlp.c_proj.bias"]
    x = F.layer_norm(x, (hidden,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    return F.cross_entropy((x @ p["wte.weight"].T).flatten(0, 1), targets.flatten())


def main():
    directory = sys.argv[1]
    layers, heads, seq, vocab, hidden, batch = map(int, sys.argv[2:8])
    loss, table = load(directory)
    pairs = torch.from_numpy(np.fromfile(f"{directory}/batch.bin", np.int32).astype(np.int64)).view(batch, 2, seq)
    shapes = {"wte.weight": (vocab, hidden), "wpe.weight": (seq, hidden), "attn.c_attn.weight": (hidden, 3 * hidden),
              "attn.c_proj.weight": (hidden, hidden), "mlp.c_fc.weight": (hidden, 4 * hidden),
              "mlp.c_proj.weight": (4 * hidden, hidden)}
    assert len(table) == 12 * layers + 4, "not every tensor of the model is there"
    failed = False
    for dtype in (torch.float64, torch.float32):
        parameters = {}
        for name, (weights, _) in table.items():
            shape = next((s for suffix, s in shapes.items() if name.endswith(suffix)), (-1,))
            parameters[name] = torch.tensor(weights, dtype=dtype).view(shape).requires_grad_()
        theirs = gpt2(parameters, pairs[:, 0], pairs[:, 1], layers, heads)
        theirs.backward()
        off = abs(loss - theirs.item()) / theirs.item()
        worst, where = off, "loss"
        for name, (_, ours) in table.items():
            gradient = parameters[name].grad.flatten().numpy()
            scale = np.abs(gradient).max()
            assert scale > 0, f"PyTorch's gradient of {name} is zero"
            error = np.abs(ours - gradient).max() / scale
            if not error <= worst:
                worst, where = error, name
        print(f"{dtype}: loss {theirs.item():.7f} against {loss:.7f}; greatest relative difference {worst:.2e} ({where})")
        failed |= not worst <= TOLERANCE
    return 1 if failed else 0


sys.exit(main())
