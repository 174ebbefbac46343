#!/usr/bin/env python3
"""Seconds of torch.save (with fsync) or torch.load (page cache dropped) of so many bytes, in fp32 tensors of 16 MiB.

checkpoint_torch.py save|load BYTES FILE
checkpoint_torch.py dcp                   whether PyTorch's distributed checkpoint is there, and if not why
"""
import os
import sys
import time

import torch


def save(count, path):
    state = {f"h.{i}.weight": torch.full((1024, 4096), float(i)) for i in range(count)}
    start = time.perf_counter()
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - start


def load(count, path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.perf_counter()
    state = torch.load(path)
    seconds = time.perf_counter() - start
    if len(state) != count or state[f"h.{count - 1}.weight"][1023, 4095] != count - 1:
        sys.exit("checkpoint_torch.py: read something else")
    return seconds


if sys.argv[1] == "dcp":
    try:
        import torch.distributed.checkpoint  # noqa: F401
        print("installed")
    except ImportError:
        print(f"not in PyTorch {torch.__version__}")
    sys.exit()
print((save if sys.argv[1] == "save" else load)(max(1, int(sys.argv[2]) >> 24), sys.argv[3]))
