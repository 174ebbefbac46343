"""training.py HEADS SEQ BATCH RATE WEIGHTS SAMPLES METRICS - train in PyTorch what muster has trained, in bf16.

WEIGHTS is a safetensors file that muster-ckpt export wrote, before the first step; SAMPLES what samples.c wrote, BATCH a
step; METRICS muster-train's. The model (model.py) runs under autocast on a GPU, where there is one, with fp32 parameters;
AdamW has muster's defaults, a constant RATE, and no decay on biases and norms.

No step's loss may be 1% from muster's: what rounding does to it shows from step to step, and a wrong optimizer soon.
"""
import contextlib
import json
import struct
import sys

import numpy as np
import torch

import model

TOLERANCE = 0.01


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F32", entry
        values = np.frombuffer(data[begin:end], np.float32).copy()
        tensors[name.replace("transformer.", "")] = torch.from_numpy(values).view(entry["shape"])
    return tensors


def ours(path):
    return [json.loads(line)["loss"] for line in open(path)]


def theirs(weights, samples, heads, batch, rate, steps, kind):
    p = {name: w.to(kind).requires_grad_() for name, w in weights.items()}
    groups = [{"params": [w for w in p.values() if w.dim() > 1], "weight_decay": 0.1},
              {"params": [w for w in p.values() if w.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-8)
    for step in range(steps):
        part = samples.slice(step * batch, (step + 1) * batch)
        part.__dict__ = {name: value.to(kind) for name, value in part.__dict__.items()}
        with torch.autocast(kind, torch.bfloat16):
            tokens, order = model.losses(p, part, heads)
        loss = model.mean_loss(tokens, order, part)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimizer.step()
        yield float(loss)


def main():
    heads, seq, batch, rate = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    weights, samples = read_safetensors(sys.argv[5]), model.Samples(sys.argv[6], seq)
    expected = ours(sys.argv[7])
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    # What the model makes for itself, its mask, is to lie where its operands do.
    place = torch.device("cuda") if kind == "cuda" else contextlib.nullcontext()
    worst = 0
    assert expected and len(samples.tokens) == batch * len(expected), "not as many samples as steps"
    with place:
        for step, loss in enumerate(theirs(weights, samples, heads, batch, rate, len(expected), kind)):
            off = abs(expected[step] - loss) / loss
            worst = max(worst, off)
            if not off <= TOLERANCE or step % 50 == 0 or step == len(expected) - 1:
                print(f"# step {step + 1}: muster {expected[step]:.5f}, PyTorch {loss:.5f}")
    print(f"# farthest off by {worst:.2%}; {TOLERANCE:.0%} is allowed")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
