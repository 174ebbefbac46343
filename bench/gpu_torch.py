"""A model of gpu_sizes.py in PyTorch on one GPU, for bench/gpu-day: the fastest plain setup (torch.compile, SDPA, fused
AdamW, autocast).

    gpu_torch.py train MODEL BATCH MICRO_BATCH SEQ STEPS
    gpu_torch.py compile MODEL MICRO_BATCH SEQ
    gpu_torch.py ceilings

train prints "tokens/s PEAK_MIB MICRO_BATCH" last, by the median of STEPS steps after three to warm up. Where
MICRO_BATCH samples do not fit, it halves them until they do. Parameters are fp32 and products bf16, as ours are; tokens
are drawn from all of the vocabulary.

compile only fills the cache of torch.compile, from which train then takes the code. Which of a kernel's configurations
is the fastest is measured in train: other programs may run beside compile.

ceilings prints, by cuBLAS and copies, best of several runs: "product MxNxK TFLOP/s" in bf16 of large squares and of the
models' own shapes, "copy GB/s" within the device, counting what is read and what is written, and "to-host GB/s" and
"to-device GB/s" of pinned memory.

Without a GPU all of this runs on the CPU, with smaller products and copies, to try it.
"""
import contextlib
import re
import statistics
import sys
import time

import torch

import gpu_sizes
from torch_models import NEW, model_of, optimizer_of

WARM_UP = 3
KIND = "cuda" if torch.cuda.is_available() else "cpu"


def wait():
    if KIND == "cuda":
        torch.cuda.synchronize()


def build(shape, seq):
    torch.set_float32_matmul_precision("high")
    padded = (shape.vocab + 127) // 128 * 128  # as in muster: whole tiles are faster
    with torch.device(KIND) if NEW else contextlib.nullcontext():
        model = model_of(shape._replace(vocab=padded), seq)
    if NEW:
        # A choice that was measured beside other programs would be kept for train.
        from torch._inductor import config

        config.autotune_local_cache = False
    return torch.compile(model) if NEW else model


def gradient(model, parts):
    for tokens in parts:
        with torch.autocast(KIND, torch.bfloat16):
            loss = model(tokens[:, :-1], tokens[:, 1:]) / len(parts)
        loss.backward()


def train(shape, batch, micro, seq, steps):
    model = build(shape, seq)
    optimizer = optimizer_of(model)
    parts = torch.randint(0, shape.vocab, (batch, seq + 1), device=KIND).split(micro)
    seconds = []
    for i in range(steps + WARM_UP):
        wait()
        started = time.perf_counter()
        gradient(model, parts)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        elapsed = time.perf_counter() - started
        print(f"step {i} {elapsed:.4f} s", flush=True)
        if i >= WARM_UP:
            seconds.append(elapsed)
    mib = torch.cuda.max_memory_allocated() / 2**20 if KIND == "cuda" else 0
    print(f"{batch * seq / statistics.median(seconds):.1f} {mib:.0f} {micro}")


def fill_cache(shape, micro, seq):
    started = time.perf_counter()
    gradient(build(shape, seq), [torch.randint(0, shape.vocab, (micro, seq + 1), device=KIND)])
    wait()
    print(f"compiled in {time.perf_counter() - started:.1f} s")


def is_no_memory(error):
    """Of PyTorch's allocator, of cuBLAS, or of Triton where it loads a kernel: those have no class of their own."""
    return re.search("out of memory|ALLOC_FAILED|OutOfMemory", f"{type(error).__name__} {error}", re.I)


def train_what_fits(shape, batch, micro, seq, steps):
    import gc

    while True:
        try:
            return train(shape, batch, micro, seq, steps)
        except RuntimeError as error:
            if micro == 1 or not is_no_memory(error):
                raise
        micro //= 2
        print(f"out of memory; {micro} samples at a time", flush=True)
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def seconds_of(run):
    if KIND == "cpu":
        started = time.perf_counter()
        run()
        return time.perf_counter() - started
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


def fastest(run, repeats=20):
    return min(seconds_of(run) for _ in range(repeats))


PRODUCTS = [(n, n, n) for n in (4096, 8192, 12288)] + [
    (16384, 6144, 1536), (16384, 1536, 6144), (16384, 4608, 1536), (16384, 8192, 2048), (16384, 3072, 768),
    (4096, 50304, 1536), (1536, 6144, 16384)]


def ceilings():
    for m, n, k in PRODUCTS if KIND == "cuda" else [(256, 256, 256)]:
        a = torch.randn(m, k, device=KIND).bfloat16()
        b = torch.randn(k, n, device=KIND).bfloat16()
        c = torch.empty(m, n, device=KIND, dtype=torch.bfloat16)
        rate = 2 * m * n * k / fastest(lambda a=a, b=b, c=c: torch.mm(a, b, out=c))
        print(f"product {m}x{n}x{k} {rate * 1e-12:.1f}", flush=True)
    x = torch.zeros(1 << (30 if KIND == "cuda" else 20), dtype=torch.uint8, device=KIND)
    y = torch.empty_like(x)
    host = torch.zeros(x.shape, dtype=torch.uint8, pin_memory=KIND == "cuda")
    print(f"copy {2 * x.numel() / fastest(lambda: y.copy_(x)) * 1e-9:.0f}")
    print(f"to-host {x.numel() / fastest(lambda: host.copy_(x, non_blocking=True), 5) * 1e-9:.1f}")
    print(f"to-device {x.numel() / fastest(lambda: x.copy_(host, non_blocking=True), 5) * 1e-9:.1f}")


def main():
    command, name, *numbers = [*sys.argv[1:], *("", "")[len(sys.argv) - 1:]]
    numbers = [int(number) for number in numbers]
    if command == "train" and len(numbers) == 4:
        train_what_fits(gpu_sizes.SIZES[name], *numbers)
    elif command == "compile" and len(numbers) == 2:
        fill_cache(gpu_sizes.SIZES[name], *numbers)
    elif command == "ceilings":
        ceilings()
    else:
        sys.exit(__doc__)


main()
