#!/usr/bin/env python3
"""Seconds that PyTorch takes for checkpoints of so many bytes, in fp32 tensors of 16 MiB, for bench/checkpoint.

    checkpoint_torch.py save|load BYTES FILE          torch.save and fsync; torch.load
    checkpoint_torch.py dcp-save|dcp-load BYTES DIR RANKS
    checkpoint_torch.py dcp                           whether torch.distributed.checkpoint is there, and if not why

DCP: RANKS processes each hold a part of every tensor's rows. dcp-save prints the seconds that async_save keeps the caller
(of the second one: the first starts the thread that writes), and those until all of a save is on disk. dcp-load is
into ranks that hold columns. Nothing of the files should be in the page cache.
"""
import os
import shutil
import socket
import sys
import time
import warnings

import torch

SHAPE = 1024, 4096  # 16 MiB


def full(count):
    return {f"h.{i}.weight": torch.full(SHAPE, float(i)) for i in range(count)}


def check(tensor, expected):
    if tensor[-1, -1] != expected:
        sys.exit("checkpoint_torch.py: read something else")


def save(count, path):
    state = full(count)
    start = time.perf_counter()
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    return [time.perf_counter() - start]


def load(count, path):
    start = time.perf_counter()
    state = torch.load(path)
    seconds = time.perf_counter() - start
    check(state[f"h.{count - 1}.weight"], count - 1)
    return [seconds]


# ---- DCP: in each rank ----


def sharded(count, dimension, ranks, values):
    """A state whose tensors are split in this dimension."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (ranks,))
    part = [size // ranks if i == dimension else size for i, size in enumerate(SHAPE)]
    return {f"h.{i}.weight": DTensor.from_local(torch.full(part, float(i) if values else -1.0), mesh, [Shard(dimension)])
            for i in range(count)}


def timed(run):
    """The seconds of the slowest rank, and what run returned."""
    import torch.distributed as dist

    dist.barrier()
    start = time.perf_counter()
    result = run()
    seconds = torch.tensor(time.perf_counter() - start)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return seconds.item(), result


def dcp_save(count, path, ranks):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    state = sharded(count, 0, ranks, True)
    # Its other ways to stage need a GPU, or know no DTensor (2.11).
    writer = dcp.FileSystemWriter(f"{path}/async", thread_count=2)
    for _ in range(2):
        stall, future = timed(lambda: dcp.async_save(state, storage_writer=writer))
        future.result()
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(f"{path}/async")
    writer = dcp.FileSystemWriter(f"{path}/sync", thread_count=2)
    seconds, _ = timed(lambda: dcp.save(state, storage_writer=writer))
    return [stall, seconds]


def dcp_load(count, path, ranks):
    import torch.distributed.checkpoint as dcp

    state = sharded(count, 1, ranks, False)
    seconds, _ = timed(lambda: dcp.load(state, checkpoint_id=f"{path}/sync"))
    check(state[f"h.{count - 1}.weight"].to_local(), count - 1)
    return [seconds]


def rank(index, run, port, ranks, count, path):
    import torch.distributed as dist

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Detected an existing checkpoint")
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", world_size=ranks, rank=index)
    seconds = run(count, path, ranks)
    if index == 0:
        print(*seconds)
    dist.destroy_process_group()


def in_ranks(run, count, path, ranks):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(rank, (run, port, ranks, count, path), ranks)


def why_no_dcp():
    try:
        from torch.distributed.checkpoint import async_save  # noqa: F401
        from torch.distributed.tensor import DTensor  # noqa: F401
    except ImportError:
        return f"not in PyTorch {torch.__version__}"
    return ""


def main():
    if sys.argv[1] == "dcp":
        print(why_no_dcp() or "installed")
        return
    count = max(1, int(sys.argv[2]) >> 24)
    if sys.argv[1].startswith("dcp-"):
        in_ranks(dcp_save if sys.argv[1] == "dcp-save" else dcp_load, count, sys.argv[3], int(sys.argv[4]))
    else:
        print(*(save if sys.argv[1] == "save" else load)(count, sys.argv[3]))


if __name__ == "__main__":
    main()
