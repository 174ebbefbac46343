#!/usr/bin/env bash
# gpu_engine.sh - training on the device MUSTER_TEST_DEVICE ("cuda"), several ranks on one GPU: for tests/gpu.sh.
#
#   tests/gpu_engine.sh BUILD one|all
#
# Losses of one rank are the CPU's to 1e-4, in fp32; those of every mesh are those of one rank to 1e-4; and on one mesh
# they are the same to the bit in the ZeRO stages that reduce at the same moment (0 and 1; 2 and 3), with offload and
# recomputation, and after a resume. Prints TAP, and what the trainer said of a run that failed.
set -uo pipefail
build=$1 what=$2
tests=$(cd "$(dirname "$0")" && pwd)
device=${MUSTER_TEST_DEVICE:-cuda}
PATH=$build:$PATH
export OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
DIR=$(mktemp -d "${TMPDIR:-/tmp}/muster-gpu.XXXXXX")
trap 'rm -rf "$DIR"' EXIT

cat "$tests/../LICENSE" "$tests/../README.md" >"$DIR/text"
muster-data "$DIR/text" --out "$DIR/train" --valid-out "$DIR/valid" --valid-percent 5 >"$DIR/data.log" ||
    { cat "$DIR/data.log"; exit 1; }
cat >"$DIR/job.cfg" <<CFG
model = { ${MUSTER_GPU_MODEL:-preset = \"gpt-tiny\"; } };
batch = { ${MUSTER_GPU_BATCH:-global_batch = 24; micro_batch = 4; } steps = 6; seed = 1; };
optimizer = { lr = 1e-3; min_lr = 1e-4; warmup_steps = 2; decay_steps = 6; weight_decay = 0.1; clip = 1.0; };
data = { train = "$DIR/train"; valid = "$DIR/valid"; };
checkpoint = { stage = ""; };
report = { log_every = 10; peak_tflops = 1.0; };
CFG

number=0 failed=0

# train DEVICE NAME RANKS SET...: metrics are DIR/NAME.jsonl, checkpoints DIR/NAME
train() {
    local on=$1 name=$2 n=$3 sets=() key
    shift 3
    for key in "device=$on" "report.metrics=$DIR/$name.jsonl" "checkpoint.dir=$DIR/$name" "$@"; do sets+=(--set "$key"); done
    timeout -k 5 100 mpiexec.mpich -n "$n" muster-train "$DIR/job.cfg" "${sets[@]}" \
        >"$DIR/$name.log" 2>&1 && return
    tail -n 25 "$DIR/$name.log" | sed 's/^/  /'
    return 1
}

# check DESCRIPTION COMMAND...: one test
check() {
    local description=$1 begun=$SECONDS
    shift
    number=$((number + 1))
    if "$@"; then
        echo "ok $number - $description ($((SECONDS - begun)) s)"
    else
        echo "not ok $number - $description"
        failed=$((failed + 1))
    fi
}

# like NAME TOLERANCE RANKS SET...: a run on the device whose losses are those of NAME, which is kept as RUN if it is set
like() {
    is_like "$@" && return
    # A race between streams, or something else?
    RUN=again MUSTER_CUDA_WAIT=1 is_like "$@" >/dev/null && echo "# passes where each operation is waited for"
    return 1
}

# the same, and no more
is_like() {
    local name=$1 tolerance=$2 run=${RUN:-run}
    shift 2
    rm -rf "${DIR:?}/$run" "$DIR/$run.jsonl"
    train "$device" "$run" "$@" && muster-report compare --tolerance "$tolerance" "$DIR/$name.jsonl" "$DIR/$run.jsonl"
}

# mesh DESCRIPTION RANKS SET...: a mesh, and on it what promises the same bits
mesh() {
    local description=$1 way
    shift
    RUN=first check "$description: the losses of one rank to 1e-4" like one 1e-4 "$@"
    for way in parallel.offload=optimizer parallel.recompute=full; do
        check "$description, $way: bit-identical" like first 0 "$@" $way
    done
}

resumes() {
    train "$device" parts "$@" batch.steps=3 && train "$device" parts "$@" &&
        muster-report compare --tolerance 0 "$DIR/whole.jsonl" "$DIR/parts.jsonl" &&
        muster-ckpt diff "$DIR/whole/step-00000006" "$DIR/parts/step-00000006"
}

# Saves of every step, staged and not: each of its own step, whatever the GPU went on to do.
saves() {
    local step
    mkdir -p "$DIR/stage"
    train "$device" straight 2 parallel.zero=1 checkpoint.every=1 checkpoint.keep=0 &&
        train "$device" staged 2 parallel.zero=1 checkpoint.every=1 checkpoint.keep=0 "checkpoint.stage=$DIR/stage" \
            checkpoint.staged=16 || return
    for step in 1 2 3 4 5 6; do
        muster-ckpt diff "$DIR"/{straight,staged}/step-0000000$step || return
    done
}

no_allocations() {
    grep 'allocations in steps after the first, rank 0: 0$' "$DIR/one.log"
}

if [ "$what" = one ]; then
    echo 1..2
    check "training on the CPU works" train cpu cpu 1 batch.steps=1
    check "one step on $device: the CPU's loss to 1e-4" like cpu 1e-4 1 batch.steps=1
    exit $failed
fi

echo 1..30
check "training on the CPU works" train cpu cpu 1
RUN=one check "one rank: the CPU's losses to 1e-4" like cpu 1e-4 1
check "one rank: no allocation in steps after the first" no_allocations
check "one rank, repeated: bit-identical" like one 0 1
check "one rank, offload: bit-identical" like one 0 1 parallel.offload=optimizer
check "one rank, layers recomputed: bit-identical" like one 0 1 parallel.recompute=full
RUN=whole check "dp 2, ZeRO-0: the losses of one rank to 1e-4" like one 1e-4 2 parallel.zero=0
check "dp 2, ZeRO-1: bit-identical to ZeRO-0" like whole 0 2 parallel.zero=1
check "dp 2, ZeRO-1, offload: bit-identical to ZeRO-0" like whole 0 2 parallel.zero=1 parallel.offload=optimizer
RUN=early check "dp 2, ZeRO-2: the losses of one rank to 1e-4" like one 1e-4 2 parallel.zero=2
check "dp 2, ZeRO-2, offload: bit-identical to ZeRO-2" like early 0 2 parallel.zero=2 parallel.offload=optimizer
check "dp 2, ZeRO-3: bit-identical to ZeRO-2" like early 0 2 parallel.zero=3
check "dp 2, ZeRO-3, offload: bit-identical to ZeRO-2" like early 0 2 parallel.zero=3 parallel.offload=optimizer
check "dp 2: a resumed run is bit-identical to an uninterrupted one" resumes 2 parallel.zero=0
check "dp 2: direct and staged saves are bit-identical" saves
mesh "dp 4, ZeRO-2" 4 parallel.zero=2
mesh "tp 2" 2 parallel.tp=2
mesh "pp 2, two chunks" 2 parallel.pp=2 parallel.chunks=2
mesh "tp 2 x pp 2" 4 parallel.tp=2 parallel.pp=2
mesh "dp 2 x tp 2, ZeRO-3" 4 parallel.tp=2 parallel.zero=3
exit $((failed > 0))
