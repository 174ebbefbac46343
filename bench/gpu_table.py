"""gpu_table.py - for bench/gpu-day: its table, beside the last record of a GPU of the same name."""
import json
import pathlib

RECORD = pathlib.Path(__file__).resolve().parent / "gpu_recorded.jsonl"
# What two runs of the same program differ by: whole steps by 0.7% on an H200, operations by more.
NOISE, NOISE_OPERATION = 0.02, 0.05
LEAST_SHARE = 0.002  # of the operations' time, to be in the table
# What is wanted of an H200: MFU, and tokens/s over PyTorch's.
WANTED = {"gpt-125m": (0.55, 1.15), "gpt-350m": (0.57, 1.15), "gpt-760m": (0.62, 1.12), "gpt-1.3b": (0.62, 1.10),
          "smollm2-135m": (None, 1.10), "llama-3.2-1b": (0.58, 1.10), "llama-3.2-3b": (None, 1.10)}
BASE = {"offload": "plain", "recompute": "plain", "fp16": "plain", "attention=cudnn": "ours", "attention=own": "ours"}


def recorded(gpu):
    """By key, the last lines of the record that a GPU of this name has."""
    rows = [json.loads(line) for line in RECORD.read_text().splitlines()]
    return {row["key"]: row for row in rows if row["gpu"] == gpu}


class Table:
    def __init__(self, results):
        self.results, self.record = results, recorded(results.gpu)
        self.lines, self.slower = [], []

    def print(self, text=""):
        self.lines.append(text)

    def compare(self, name, now, before, noise):
        """now and before are rates. "+1.0%", or why there is none; marks what became slower."""
        if not before:
            return "new"
        change = now / before - 1
        if change < -noise:
            self.slower.append(f"{name} {100 * change:+.1f}%")
        return f"{100 * change:+.1f}%"

    def tests(self):
        row = self.results.row("tests") or {"stages": {}, "failed": []}
        for stage, outcome in row["stages"].items():
            self.print(f"tests: {stage} in {outcome['seconds']} s: {outcome['said']}")
        for line in row["failed"]:
            self.print(line)

    def rate(self, key, note=""):
        row, before = self.results.row(key), self.record.get(key, {})
        if row:
            change = self.compare(key, row["tokens_per_second"], before.get("tokens_per_second"), NOISE)
            self.print("%-26s %10.0f %10s %8s %6.1f%% %8d %6d  %s" % (
                key, row["tokens_per_second"], "%.0f" % before["tokens_per_second"] if before else "-", change,
                100 * row["mfu"], row["mib"], row["micro"], note))

    def rates(self):
        self.print("\n%-26s %10s %10s %8s %7s %8s %6s" % ("", "tokens/s", "recorded", "change", "MFU", "MiB", "micro"))
        for model in dict.fromkeys(row["key"].split()[1] for row in self.results.rows
                                   if row["key"].startswith(("ours", "torch"))):
            mfu, ratio = WANTED.get(model, (None, None))
            self.rate(f"ours {model}", f"wanted {100 * mfu:.0f}%" if mfu else "")
            self.rate(f"torch {model}")
            ours, torch = (self.results.row(f"{kind} {model}") for kind in ("ours", "torch"))
            peer = torch or self.record.get(f"torch {model}")
            if ours and peer:
                self.print("%-26s %10.2f%s%s" % (
                    "  ours / torch", ours["tokens_per_second"] / peer["tokens_per_second"],
                    f"  wanted {ratio:.2f}" if ratio else "", "" if torch else ", by PyTorch's recorded rate"))
        for row in self.results.rows:
            variant, _, model = row["key"].partition(" ")
            base = self.results.row(f"{BASE.get(variant, '')} {model}")
            if variant in ("plain", *BASE) and "error" not in row:
                self.rate(row["key"], "%.3f of %s" % (row["tokens_per_second"] / base["tokens_per_second"],
                                                      base["key"]) if base else "")

    def kernels(self, row):
        before = self.record.get(row["key"], {}).get("kernels", {})
        total = sum(ms for ms, _, _ in row["kernels"].values())
        self.print("\n%-40s %9s %9s %8s %8s %8s %8s" % (row["key"], "ms a step", "recorded", "change", "TFLOP/s",
                                                        "GB/s", "recorded"))
        for name, (ms, tflops, gbs) in sorted(row["kernels"].items(), key=lambda item: -item[1][0]):
            if ms >= LEAST_SHARE * total:
                old = before.get(name)
                change = self.compare(f"{name} ({row['key']})", 1 / ms, old and old[0] and 1 / old[0], NOISE_OPERATION)
                self.print("%-40s %9.3f %9s %8s %8s %8.0f %8s" % (
                    name, ms, "%.3f" % old[0] if old else "-", change, "%.1f" % tflops if tflops else "", gbs,
                    "%.0f" % old[2] if old else "-"))
        gone = [name for name, (ms, _, _) in before.items() if name not in row["kernels"] and ms >= LEAST_SHARE * total]
        if gone:
            self.print("recorded, and not in this step: " + "; ".join(gone))

    def ceilings(self, row):
        before = self.record.get("ceilings", {}).get("ceilings", {})
        self.print("\nceilings: " + "; ".join("%s %g (%s)" % (
            name, value, self.compare(name, value, before.get(name), NOISE_OPERATION))
            for name, value in row["ceilings"].items()))

    def save(self, row):
        self.print("\n%s: training stood for %s s; 1.2 x bytes / bandwidth to the host is %s s" % (
            row["key"], " and ".join("%.3f" % s for s in row["stalls"]), row["limit_seconds"] or "?"))
        for line in row["said"]:
            self.print("    " + line)


def failures(results):
    """Tests, and parts that never went well."""
    failed = [row["key"] for row in results.rows if "error" in row and not results.has(row["key"])]
    return (results.row("tests") or {"failed": []})["failed"] + failed


def table(results, left_out):
    t = Table(results)
    date = max((row["date"] for row in t.record.values()), default=None)
    t.print(f"\n{results.gpu}, beside {f'the record of {date}' if date else 'nothing: it has no record'}")
    t.tests()
    t.rates()
    for row in results.rows:
        if "error" not in row:
            for kind, show in (("kernels", t.kernels), ("ceilings", t.ceilings), ("stalls", t.save)):
                if kind in row:
                    show(row)
    t.print()
    t.print("slower than recorded: " + ("; ".join(t.slower) or "nothing"))
    if left_out:
        t.print("left out, no time: " + "; ".join(left_out))
    for row in results.rows:
        if "error" in row and not results.has(row["key"]):
            t.print(f"failed: {row['key']}: {row['error']}")
    t.print(f"{results.elapsed():.0f} s; all of it is in {results.dir}")
    return "\n".join(t.lines) + "\n"
