"""checkpoint.py CHECKPOINT SAMPLES HEADS SEQ GLOBAL_BATCH LOSS TOLERANCE - what PyTorch makes of a checkpoint.

Puts the logical tensors together from the shards by muster-checkpoint(5) alone, evaluates the model in fp32 on the
validation samples that samples.c wrote, and compares the mean loss over all their tokens with LOSS, which muster-train
reported of the same step; relative. Exits 1 when they differ by more than TOLERANCE.

All state must be fp32 with more digits than bf16 has, whatever type the training computed with: the master's values.
"""
import json
import math
import os
import struct
import sys

import numpy as np
import torch

import model


def read_shard(path, kinds):
    """Kind -> its 1-D fp32 data."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    for kind in kinds:
        assert header[kind]["dtype"] == "F32" and len(header[kind]["shape"]) == 1, f"{path}: {kind}: {header[kind]}"
    return {kind: np.frombuffer(data[slice(*header[kind]["data_offsets"])], "<f4") for kind in kinds}


def read(directory):
    """Kind -> name -> logical tensor."""
    with open(os.path.join(directory, "manifest.json")) as file:
        manifest = json.load(file)
    kinds, tensors = manifest["kinds"], manifest["tensors"]
    state = {kind: {name: np.zeros(shape, np.float32) for name, shape in tensors} for kind in kinds}
    written = {name: np.zeros(shape, np.int32) for name, shape in tensors}
    for entry in manifest["files"]:
        shard, at = read_shard(os.path.join(directory, entry["file"]), kinds), 0
        for index, first, count, *box in entry["pieces"]:
            name, whole = tensors[index]
            start, shape = box or ([0] * len(whole), whole)
            inside = np.unravel_index(np.arange(first, first + count), shape)
            place = tuple(axis + origin for axis, origin in zip(inside, start))
            for kind in kinds:
                state[kind][name][place] = shard[kind][at:at + count]
            written[name][place] += 1
            at += count
    for name, times in written.items():
        assert (times == 1).all(), f"{name}: not every element is there once"
    return state


def beyond_bf16(tensors):
    """The part of all values that bf16 cannot hold."""
    values = np.concatenate([t.ravel() for t in tensors.values()])
    return np.mean((values.view(np.uint32) & 0xFFFF) != 0)


def evaluate(parameters, samples, heads, size):
    """The mean losses over all batches together: by batch only to save memory."""
    parts = []
    for i in range(0, len(samples.tokens), size):
        parts.append(model.losses(parameters, samples.slice(i, i + size), heads))
    tokens, order = (torch.cat(part) for part in zip(*parts))
    return model.mean_loss(tokens, order, samples).item(), order.mean().item()


def main():
    directory, path, heads, seq, size, reported, reported_order, tolerance = sys.argv[1:]
    state = read(directory)
    assert set(state) == {"param", "exp_avg", "exp_avg_sq"}
    for kind, tensors in state.items():
        part = beyond_bf16(tensors)
        print(f"{kind}: {len(tensors)} tensors, {part:.1%} of the values need more digits than bf16 has")
        assert part > 0.9, "were these rounded to 16 bits?"
    parameters = {name: torch.from_numpy(t) for name, t in state["param"].items()}
    samples = model.Samples(path, int(seq))
    assert len(samples.tokens) > 0 and len(samples.tokens) % int(size) == 0
    with torch.no_grad():
        loss, order = evaluate(parameters, samples, int(heads), int(size))
    assert bool(reported_order) == (order > 0), "only a BERT has a loss of its sentences' order"
    if reported_order:
        assert abs(order - float(reported_order)) <= float(tolerance) * loss, f"{reported_order}, PyTorch's {order}"
    off = abs(loss - float(reported)) / loss
    print(f"validation loss {float(reported):.7f}, PyTorch's {loss:.7f}: {off:.1e} apart")
    assert math.isfinite(off)
    return 0 if off <= float(tolerance) else 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
