"""gpu_parts.py - for bench/gpu-day: what it measures alone. Each returns the values of a line of results.jsonl."""
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import gpu_sizes as sizes
from gpu_results import DEVICE, PYTHON, program

USUAL, TINY = "gpt-760m", "gpt-tiny"
TINIES = [TINY, "llama-tiny"]
DRAIN = 20
# Job keys, and the number of micro-batches; None: as many as a step of 64 samples has.
VARIANTS = {
    "plain": ({}, 2),
    "offload": ({"parallel.offload": "optimizer"}, 2),
    "recompute": ({"parallel.recompute": "full"}, 2),
    "fp16": ({"precision.compute": "fp16", "precision.loss_scale": 1024}, 2),  # constant: no step is skipped
    "attention=cudnn": ({"attention": "cudnn"}, None),
    "attention=own": ({"attention": "own"}, None),
}
# What the arena says, what the engine says before it begins, what CUDA says.
NO_MEMORY = re.compile("MiB of device memory|GiB of its GPU's memory|out of memory|ALLOC_FAILED", re.I)
STEP = re.compile(r"^ +[\d.]+ +([\d.]+) +[\d.]+ +(\S+)$", re.M)  # of bench/step: seconds tokens/s GFLOP/s loss
OPERATION = re.compile(r"^(\S.*?) +[\d.]+ +([\d.]+) +[\d.]+%(?: +([\d.]+))?? +(\d+)$", re.M)


class Parts:
    def __init__(self, results, tiny):
        self.results, self.tiny = results, tiny

    def batch(self, model):
        return 4 if self.tiny else sizes.TOKENS // sizes.SIZES[model].seq

    def steps(self, model):
        shape = sizes.SIZES[model]
        return 2 if self.tiny else sizes.steps(shape, shape.seq, self.batch(model))

    def micro_batch(self, model, ours):
        shape = sizes.SIZES[model]
        return sizes.micro_batch(shape, shape.seq, self.batch(model), self.results.memory, ours)

    # ---- steps of bench/step ----

    def step(self, key, model, sets, micro_batches=None, steps=None, environment=None):
        shape, micro = sizes.SIZES[model], self.micro_batch(model, True)
        heads = {"model.heads": shape.heads, **({"model.kv_heads": shape.kv_heads} if shape.kv_heads else {})}
        while True:
            batch = micro * micro_batches if micro_batches else self.batch(model)
            keys = {"device": DEVICE, "precision.compute": "bf16", "batch.micro_batch": micro,
                    "report.peak_tflops": self.results.peak, **heads, **sets}
            command = [program("bench/step"), "--preset", model, "--batch", batch, "--seq", shape.seq, "--steps",
                       steps or self.steps(model), *sum((["--set", f"{k}={v}"] for k, v in keys.items()), [])]
            try:
                text = self.results.run(key, command, environment)
                break
            except RuntimeError as error:
                if micro == 1 or not NO_MEMORY.search(str(error)):
                    raise
                micro //= 2
        return {"micro": micro, "batch": batch, **self.read_step(text, model)}

    def read_step(self, text, model):
        rates = [float(rate) for rate, _ in STEP.findall(text)]
        loss = STEP.findall(text)[-1][1]
        if not math.isfinite(float(loss)):
            raise RuntimeError(f"the loss is {loss}: what it took to compute that says nothing")
        memory = float(re.search(r"^memory of rank 0 +([\d.]+) GiB", text, re.M).group(1))
        rate = statistics.median(rates)
        return {"tokens_per_second": rate, "mfu": self.mfu(model, rate), "mib": round(memory * 1024), "loss": loss}

    def mfu(self, model, rate):
        shape = sizes.SIZES[model]
        return round(rate * sizes.flops_a_token(shape, shape.seq) / (self.results.peak * 1e12), 4)

    def ours(self, key, model):
        return self.step(key, model, {})

    def variants(self):
        return [name for name in VARIANTS if not (self.tiny and name.startswith("attention"))]

    def variant(self, key, name, model):
        sets, micro_batches = VARIANTS[name]
        return self.step(key, model, sets, micro_batches, 3)

    def kernels(self, key, model):
        values = self.step(key, model, {}, None, 3, {"MUSTER_PROFILE": "1"})
        text = self.results.log(key).read_text()
        found = OPERATION.findall(text[text.index("\noperation"):])
        return {**values, "kernels": {name: [float(ms), float(tflops or 0), float(gbs)]
                                      for name, ms, tflops, gbs in found}}

    # ---- PyTorch ----

    def compile_command(self, model):
        return list(map(str, [PYTHON, "bench/gpu_torch.py", "compile", model, self.micro_batch(model, False),
                              sizes.SIZES[model].seq]))

    def torch(self, key, model):
        batch, micro = self.batch(model), self.micro_batch(model, False)
        text = self.results.run(key, [PYTHON, "bench/gpu_torch.py", "train", model, batch, micro,
                                      sizes.SIZES[model].seq, self.steps(model)])
        rate, mib, micro = re.findall(r"^([\d.]+) (\d+) (\d+)$", text, re.M)[-1]
        return {"micro": int(micro), "batch": batch, "tokens_per_second": float(rate),
                "mfu": self.mfu(model, float(rate)), "mib": int(mib)}

    def ceilings(self, key):
        text = self.results.run(key, [PYTHON, "bench/gpu_torch.py", "ceilings"])
        return {"ceilings": {name: float(value) for name, value in
                             re.findall(r"^((?:product|copy|to-)[^\n]*) ([\d.]+)$", text, re.M)}}

    # ---- the stall of a save ----

    def save(self, key, model):
        """Seconds that a save adds to the steps after it, as one who reads the metrics sees them come."""
        place = pathlib.Path(tempfile.mkdtemp(prefix="gpu-day-"))
        try:
            return self.stall(key, model, place, *((4, 12, 2) if self.tiny else (16, 48, 10)))
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def stall(self, key, model, place, every, steps, after):
        arrivals = self.watch(key, self.write_job(model, place, every, steps), place / "metrics.jsonl", steps)
        gaps = {step: arrivals[step] - arrivals[step - 1] for step in range(2, steps + 1)}
        # What is captured after a step is transferred under the next one, and staged beside those that follow: as many
        # as that takes, and each may be slower for it. They are held against the nearest of the others, since a GPU's
        # clocks fall as it gets warm.
        saves = range(every, steps, every)
        others = [s for s in gaps if not any(at < s <= at + after for at in saves)]
        usual = {at: statistics.median(gaps[s] for s in sorted(others, key=lambda s: abs(s - at - after / 2))[:8])
                 for at in saves}
        stalls = [arrivals[at + after] - arrivals[at] - after * usual[at] for at in saves]
        said = [line for line in self.results.log(key).read_text().splitlines() if line.startswith("checkpoint")]
        bytes_ = 12 * sizes.parameters(sizes.SIZES[model], sizes.SIZES[model].seq)
        ceilings = (self.results.row("ceilings") or {}).get("ceilings", {})
        limit = round(1.2 * bytes_ / (ceilings["to-host"] * 1e9), 4) if "to-host" in ceilings else None
        return {"stalls": [round(s, 4) for s in stalls], "step_seconds": round(max(usual.values()), 4),
                "bytes": bytes_, "limit_seconds": limit, "said": said}

    def write_job(self, model, place, every, steps):
        (place / "text").write_bytes(os.urandom(1 << 20).replace(b"\0", b"\1").hex().encode())
        subprocess.run([program("muster-data"), place / "text", "--out", place / "data"], check=True,
                       stdout=subprocess.DEVNULL)
        batch, shape = min(16, self.batch(model)), sizes.SIZES[model]
        # A container's may be small; then the page cache of a disk, rather than saves that go straight.
        free = shutil.disk_usage("/dev/shm").free > 2.1 * 12 * sizes.parameters(shape, shape.seq)
        (place / "job.cfg").write_text(f"""model: {{ preset = "{model}"; seq_length = {shape.seq}; }};
device = "{DEVICE}";
precision: {{ compute = "bf16"; }};
batch: {{ global_batch = {batch}; micro_batch = {batch}; steps = {steps}; }};
data: {{ train = "{place}/data"; }};
checkpoint: {{ dir = "{place}/checkpoints"; every = {every}; keep = 1; stage = "{'/dev/shm' if free else place}"; }};
report: {{ metrics = "{place}/metrics.jsonl"; peak_tflops = {self.results.peak}.0; }};
""")
        return [program("muster-train"), place / "job.cfg"]

    def watch(self, key, command, metrics, steps):
        """When the line of each step came. What follows the last, saves that are still written to a disk, is given
        DRAIN seconds: it tells the saves' own account, and nothing of these times."""
        arrivals = {}
        until = time.monotonic() + self.results.left()
        with open(self.results.log(key), "w") as log:
            process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT)
            while process.poll() is None and time.monotonic() < until:
                lines = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
                for step in range(len(arrivals) + 1, lines + 1):
                    arrivals[step] = time.monotonic()
                    if step == steps:
                        until = min(until, time.monotonic() + DRAIN)
                time.sleep(0.001)
            ended = process.poll() is not None
            if not ended:
                process.kill()
                process.wait()
        if ended and process.returncode:
            raise RuntimeError(f"muster-train: exit code {process.returncode}: see the log")
        if len(arrivals) < steps:
            raise RuntimeError(f"muster-train: {len(arrivals)} of {steps} steps in time")
        return arrivals
