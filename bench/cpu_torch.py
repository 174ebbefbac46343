"""A model in plain PyTorch (torch_models.py), for bench/cpu: seconds of training steps of the same model, batch and
optimizer.

    cpu_torch.py PRECISION BATCH SEQ STEPS MODEL [KEY=NUMBER]...
    cpu_torch.py precisions MODEL      the fastest that this PyTorch has, and first its version; fails without any

PRECISION: fp32, bf16 (weights and activations in bf16) or autocast (fp32 weights, products in bf16); with "-compiled"
behind it, by torch.compile. MODEL is of gpu_sizes.py, and the words behind it change its sizes. Prints a line a step:
its seconds. The first one warms up.
"""
import sys
import time

import torch

import gpu_sizes
from torch_models import NEW, model_of, optimizer_of


def train(precision, batch, seq, steps, shape):
    precision, _, compiled = precision.partition("-")
    model = model_of(shape, seq)
    if precision == "bf16":
        model = model.bfloat16()
    optimizer = optimizer_of(model)
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
    if sys.argv[1] == "precisions":
        if gpu_sizes.SIZES[sys.argv[2]].kv_heads and not NEW:
            sys.exit(f"PyTorch {torch.__version__} has no attention with fewer heads of keys")
        print(torch.__version__, *(f"{name}{'-compiled' if NEW else ''}" for name in ("fp32", "bf16", "autocast")))
    else:
        train(sys.argv[1], *(int(a) for a in sys.argv[2:5]), gpu_sizes.shape_of(sys.argv[5], sys.argv[6:]))


if __name__ == "__main__":
    main()
