"""gpu_results.py - for bench/gpu-day: programs that are run within a time, and their results, one line each."""
import datetime
import json
import os
import pathlib
import re
import subprocess
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
# A bundle has a build/ too once gpu-day has made it there.
BIN = pathlib.Path(os.environ.get("BIN") or (TOP if (TOP / "muster-train").exists() else TOP / "build")).resolve()
DEVICE = os.environ.get("MUSTER_TEST_DEVICE", "cuda")
PEAKS = {"PCIe": 756, "NVL": 835, "A100": 312}  # dense bf16 TFLOP/s; of others PEAK, an H100's or H200's with SXM
PEAK = 989


def python():
    """One with PyTorch, as tests/gpu_pytorch.sh takes it."""
    if os.environ.get("PYTHON"):
        return os.environ["PYTHON"]
    found = subprocess.run(["python3", "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0
    return "python3" if found else "/usr/bin/python3"


PYTHON = python()


def program(name):
    """A program of a build tree, or of a bundle."""
    return str(BIN / name)


class Results:
    def __init__(self, directory, seconds):
        self.started, self.seconds = time.monotonic(), seconds
        self.dir = directory
        self.dir.mkdir(parents=True, exist_ok=True)
        self.rows = []
        self.gpu, self.memory, self.peak = DEVICE, 80 << 30, PEAK
        if (self.dir / "results.jsonl").exists():
            self.rows = [json.loads(line) for line in (self.dir / "results.jsonl").read_text().splitlines() if line]

    def elapsed(self):
        return time.monotonic() - self.started

    def left(self):
        return self.seconds - self.elapsed()

    def look_at_gpu(self):
        """Why there is none, or None."""
        if DEVICE == "cpu":
            return None
        said = subprocess.run([program("tests/cuda/describe")], capture_output=True, text=True)
        if said.returncode:
            return (said.stdout + said.stderr).strip()
        fields = said.stdout.strip().split(", ")  # cuda, NVIDIA H200, 132 SMs, 140 GiB, GPU 0 of 1
        self.gpu = fields[1]
        self.memory = next((int(f[:-4]) << 30 for f in fields if f.endswith(" GiB")), self.memory)
        self.peak = next((peak for name, peak in PEAKS.items() if name in self.gpu), PEAK)
        self.rows = [row for row in self.rows if row["gpu"] == self.gpu]
        return None

    def has(self, key):
        return self.row(key) is not None

    def row(self, key):
        """The last that did not fail."""
        return next((row for row in reversed(self.rows) if row["key"] == key and "error" not in row), None)

    def log(self, key):
        return self.dir / (re.sub(r"[^\w.]+", "_", key) + ".log")

    def run(self, key, command, environment=None):
        """Its output, also in a file of the key's name. Raises RuntimeError."""
        left = max(1, self.left())
        with open(self.log(key), "w") as file:
            try:
                code = subprocess.run(list(map(str, command)), stdout=file, stderr=subprocess.STDOUT, cwd=TOP,
                                      env={**os.environ, **(environment or {})}, timeout=left).returncode
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"not done after {left:.0f} s") from None
        text = self.log(key).read_text(errors="replace")
        if code:
            raise RuntimeError(" ".join(text.split("\n")[-12:]).strip() or f"exit code {code}")
        return text

    def do(self, key, function, *arguments):
        begun = self.elapsed()
        try:
            values = function(key, *arguments)
        except Exception as error:  # whatever it is, the next thing may still go well
            values = {"error": str(error)[-400:]}
        row = {"key": key, "date": datetime.date.today().isoformat(), "gpu": self.gpu,
               "seconds": round(self.elapsed() - begun, 1), **values}
        self.rows.append(row)
        with open(self.dir / "results.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{self.elapsed():4.0f} s  {key}: {row.get('error') or 'done'}", flush=True)
