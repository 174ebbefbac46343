#!/usr/bin/env bash
# gpu_pytorch.sh - a training in bf16 on real text, on the device MUSTER_TEST_DEVICE ("cuda"), against PyTorch's: for
# tests/gpu.sh.
#
#   tests/gpu_pytorch.sh BUILD
#
# 200 steps, with attention heads of 64; with MUSTER_TEST_EMULATED three, of two samples of 32 tokens. Both begin with
# the same weights and see the same samples; tests/interop/training.py says how nearly they agree. PYTHON is one with
# PyTorch and numpy.
set -uo pipefail
build=$1
tests=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
"$python" -c 'import torch' 2>/dev/null || [ -n "${PYTHON:-}" ] || python=/usr/bin/python3
PATH=$build:$PATH
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
DIR=$(mktemp -d "${TMPDIR:-/tmp}/muster-gpu.XXXXXX")
trap 'rm -rf "$DIR"' EXIT
steps=200 batch=16 seq=128 heads=2 rate=5e-4
[ -z "${MUSTER_TEST_EMULATED-}" ] || { steps=3 batch=2 seq=32; }

echo 1..1
"$python" -c 'import torch, numpy' 2>/dev/null || { echo "not ok 1 - $python has no PyTorch, or no numpy"; exit 1; }

cat >"$DIR/job.cfg" <<CFG
model = { preset = "gpt-tiny"; heads = $heads; seq_length = $seq; };
precision = { compute = "bf16"; };
batch = { global_batch = $batch; micro_batch = $batch; seed = 1; };
optimizer = { warmup_steps = 0; schedule = "constant"; beta1 = 0.9; beta2 = 0.95; eps = 1e-8; weight_decay = 0.1;
              clip = 1.0; };
data = { train = "$DIR/train"; };
checkpoint = { stage = ""; };
report = { log_every = 50; peak_tflops = 1.0; };
device = "${MUSTER_TEST_DEVICE:-cuda}";
CFG

# The weights before the first step are those after a step at a rate that is lost in rounding.
prepare() {
    cat "$tests"/../LICENSE "$tests"/../README.md "$tests"/../bench/RESULTS.md >"$DIR/text"
    muster-data "$DIR/text" --out "$DIR/train" &&
        muster-train "$DIR/job.cfg" --set optimizer.lr=1e-37 --set batch.steps=1 --set "checkpoint.dir=$DIR/first" &&
        muster-ckpt export "$DIR/first" "$DIR/weights" --format=hf --dtype=fp32 &&
        "$build/tests/interop/samples" "$DIR/job.cfg" train $((steps * batch)) "$DIR/samples" &&
        muster-train "$DIR/job.cfg" --set optimizer.lr=$rate --set "batch.steps=$steps" \
            --set "report.metrics=$DIR/metrics.jsonl"
}

prepare >"$DIR/log" 2>&1 || { tail -n 25 "$DIR/log"; echo "not ok 1 - training with muster-train works"; exit 1; }
if "$python" "$tests/interop/training.py" $heads $seq $batch $rate "$DIR/weights/model.safetensors" "$DIR/samples" \
    "$DIR/metrics.jsonl"; then
    echo "ok 1 - $steps steps in bf16: every loss is within 1% of PyTorch's"
else
    echo "not ok 1 - $steps steps in bf16: every loss is within 1% of PyTorch's"
    exit 1
fi
