"""boards.py - what TensorBoard and wandb have of a run, beside its metrics.jsonl. Fails where they differ.

    boards.py loaded METRICS DIR           TensorBoard's classes for event files
    boards.py served METRICS DIR FAST      a server on this machine; FAST: --load_fast
    boards.py offline METRICS FILE.wandb   an offline run of wandb
"""

import collections
import json
import math
import re
import struct
import subprocess
import sys
import time
import urllib.parse
import urllib.request

TAGS = {
    "loss": "train/loss", "order_loss": "train/order_loss", "lr": "train/learning_rate", "grad_norm": "train/grad_norm",
    "loss_scale": "train/loss_scale", "skipped": "train/skipped", "valid_loss": "validation/loss",
    "valid_order_loss": "validation/order_loss", "step_seconds": "speed/step_seconds",
    "tokens_per_second": "speed/tokens_per_second", "tflops": "speed/tflops", "mfu": "speed/mfu", "hfu": "speed/hfu",
    "world": "mesh/ranks",
}  # fmt: skip


def wanted(path):
    """By tag, a list of (step, value); values as TensorBoard has them, in 32 bits."""
    found = collections.defaultdict(list)
    for line in map(json.loads, open(path)):
        for key, tag in TAGS.items():
            if key in line:
                found[tag].append((line["step"], struct.unpack("f", struct.pack("f", line[key]))[0]))
    return dict(found)


def loaded(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def ask(url, what):
    return json.load(urllib.request.urlopen(f"{url}data/plugin/scalars/{what}", timeout=20))


def served(folder, fast):
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1", "--port", "0"]
    server = subprocess.Popen(command + ["--load_fast", fast], stderr=subprocess.PIPE, text=True)
    before = None
    try:
        url = next(m.group() for m in (re.search(r"http://\S+", line) for line in server.stderr) if m)
        for _ in range(120):
            found = {}
            for tag in ask(url, "tags").get(".", ()):
                points = ask(url, "scalars?" + urllib.parse.urlencode({"run": ".", "tag": tag}))
                found[tag] = [(step, value) for _, step, value in points]
            if found and found == before:  # it has read all
                break
            before = found
            time.sleep(0.5)
        return found
    finally:
        server.terminate()
        server.wait()


def records(path):
    """Of a log of LevelDB's format: blocks of 32 KiB; the first begins with 7 bytes of wandb's own."""
    data, at, whole = open(path, "rb").read(), 7, b""
    while at + 7 <= len(data):
        length, kind = struct.unpack_from("<HB", data, at + 4)
        if 32768 - at % 32768 < 7 or kind == 0:
            at += 32768 - at % 32768
            continue
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # full, last
            yield whole
            whole = b""


def offline(path):
    from wandb.proto.wandb_internal_pb2 import Record

    found = collections.defaultdict(list)
    for data in records(path):
        record = Record.FromString(data)
        for item in record.history.item:
            tag = item.key or "/".join(item.nested_key)
            if not tag.startswith("_"):
                found[tag].append((record.history.step.num, json.loads(item.value_json)))
    return dict(found)


def main():
    command, metrics, *arguments = sys.argv[1:]
    found, expected = {"loaded": loaded, "served": served, "offline": offline}[command](*arguments), wanted(metrics)
    assert expected and sorted(found) == sorted(expected), f"tags: {sorted(found)}"
    for tag, points in expected.items():
        assert [step for step, _ in found[tag]] == [step for step, _ in points], f"{tag}: steps {found[tag]}"
        for (step, value), (_, other) in zip(points, found[tag]):
            assert math.isclose(value, other, rel_tol=1e-6), f"{tag}, step {step}: {other}, not {value}"


main()
