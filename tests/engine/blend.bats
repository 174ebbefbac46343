# A blend of data sets: exact proportions, and the same run on every mesh.
load ../helpers

setup() {
    need mpiexec.mpich
    DIR=$BATS_TEST_TMPDIR
    english "$DIR/text"
    tr a-z A-Z <"$DIR/text" >"$DIR/upper"
    seq 3000 3110 >"$DIR/digits"
    muster-data "$DIR/text" --out "$DIR/lower" --valid-out "$DIR/lower-valid" --valid-percent 5 >/dev/null
    muster-data "$DIR/upper" --out "$DIR/upper" --valid-out "$DIR/upper-valid" --valid-percent 5 >/dev/null
    muster-data "$DIR/digits" --out "$DIR/digits" >/dev/null
    cat >"$DIR/job.cfg" <<CFG
model = { layers = 1; hidden = 16; heads = 2; seq_length = 16; vocab = 256; };
batch = { global_batch = 13; micro_batch = 3; steps = ${MUSTER_CHECK_FULL:+10}60; seed = 5; };
optimizer = { lr = 3e-3; schedule = "constant"; };
data = {
    train = (
        { data = "$DIR/lower"; weight = 7; },
        { data = "$DIR/upper"; weight = 2.5; },
        { data = "$DIR/digits"; weight = 0.5; }
    );
    valid = "0.5 $DIR/lower-valid 0.5 $DIR/upper-valid";
};
checkpoint = { dir = "$DIR/ckpt"; };
report = { metrics = "$DIR/metrics.jsonl"; log_every = 20; eval_every = 40; eval_batches = 2; peak_tflops = 0.1; };
CFG
    steps=${MUSTER_CHECK_FULL:+10}60
}

# run_on N NAME ARGS...: trains on N ranks with metrics and checkpoints of that name
run_on() {
    local n=$1 name=$2
    shift 2
    RANKS_SECONDS=600 ranks "$n" muster-train "$DIR/job.cfg" --set checkpoint.dir="$DIR/$name" \
        --set report.metrics="$DIR/$name.jsonl" "$@"
}

@test "in every prefix of a run, each data set's share of samples is exact to within one sample" {
    need python3
    "$BUILD/tests/interop/samples" "$DIR/job.cfg" train 4000 "$DIR/samples"
    python3 - "$DIR/samples" <<'PY'
import struct, sys
data = open(sys.argv[1], "rb").read()
size, parts, counts = 4 * (3 * 16 + 2), [0.7, 0.25, 0.05], [0, 0, 0]
assert len(data) == 4000 * size
for n in range(4000):
    tokens = bytes(struct.unpack_from("<16i", data, n * size))
    lower, upper = (any(first <= t < first + 26 for t in tokens) for first in (97, 65))
    counts[0 if lower else 1 if upper else 2] += 1
    for i in range(3):
        assert abs(counts[i] - (n + 1) * parts[i]) < 1, (n + 1, counts)
PY
}

@test "1, 2, 3 and 5 ranks give the same losses, and a preempted run resumes on another mesh" {
    run_on 1 one >"$DIR/log"
    for n in 2 3 5; do
        run_on $n "mesh$n" --set parallel.zero=$((n % 4)) >/dev/null
        muster-report compare --tolerance 1e-4 "$DIR/one.jsonl" "$DIR/mesh$n.jsonl"
    done
    run_on 3 stage2 --set parallel.zero=2 >/dev/null
    muster-report compare --tolerance 0 "$DIR/mesh3.jsonl" "$DIR/stage2.jsonl" # that of ZeRO-3
    run_on 4 mesh22 --set parallel.tp=2 --set parallel.pp=2 --set model.layers=2 >/dev/null
    run_on 1 two_layers --set model.layers=2 >/dev/null
    muster-report compare --tolerance 1e-4 "$DIR/two_layers.jsonl" "$DIR/mesh22.jsonl"

    # preempted on 5 ranks after a step, then on 3 and 2 ranks, then on 1
    code=0
    run_on 5 moved --set report.minutes=1e-9 >/dev/null || code=$?
    [ "$code" -eq 75 ]
    run_on 3 moved --set batch.steps=$((steps / 3)) >/dev/null
    run_on 2 moved --set batch.steps=$((steps / 2)) >/dev/null
    run_on 1 moved >"$DIR/moved.log"
    grep -q "resumed from .* at step $((steps / 2))" "$DIR/moved.log"
    muster-report compare --tolerance 1e-4 "$DIR/one.jsonl" "$DIR/moved.jsonl"
    # on one mesh: bit by bit
    run_on 1 again --set batch.steps=$((steps / 3)) >/dev/null
    run_on 1 again >/dev/null
    muster-report compare --tolerance 0 "$DIR/one.jsonl" "$DIR/again.jsonl"
    muster-ckpt diff "$DIR/one/step-$(printf %08d "$steps")" "$DIR/again/step-$(printf %08d "$steps")"
}

@test "each data set's epochs and losses are reported, and a changed blend is logged" {
    run_on 2 run >"$DIR/log"
    cat "$DIR/log"
    grep -qx "data set $DIR/digits: 5% of the samples; an epoch has [0-9]*" "$DIR/log"
    grep -qx "epoch 2 of data set $DIR/digits begins at iteration [0-9]*" "$DIR/log"
    [ "$(grep -c "of data set $DIR/lower begins" "$DIR/log")" -eq 0 ]
    grep -Eqx " loss of data sets at iteration 20: $DIR/lower [0-9.E+]+ \| $DIR/upper [0-9.E+]+ \| $DIR/digits [0-9.E+]+" "$DIR/log"
    grep -Eqx " validation loss of data sets at iteration 40: $DIR/lower-valid [0-9.E+]+ \| $DIR/upper-valid [0-9.E+]+" "$DIR/log"
    run_on 5 five --set parallel.zero=3 >/dev/null
    python3 - "$DIR/run.jsonl" "$DIR/five.jsonl" <<'PY'
import json, sys
runs = [[json.loads(line) for line in open(name)] for name in sys.argv[1:]]
logged = [[s for s in run if "set_losses" in s] for run in runs]
assert len(logged[0]) == len(logged[1]) == len(runs[0]) // 20
for a, b in zip(*logged):
    assert a["step"] == b["step"] and a["step"] % 20 == 0 and len(a["set_losses"]) == 3
    assert all(abs(x - y) < 1e-4 * x for x, y in zip(a["set_losses"], b["set_losses"]))
    # all samples have the same number of tokens, so the mean over the steps is that over the samples
    steps = runs[0][a["step"] - 20:a["step"]]
    mean = sum(s["loss"] for s in steps) / 20
    parts = sum(w * x for w, x in zip([0.7, 0.25, 0.05], a["set_losses"]))
    assert abs(mean - parts) < 0.05 * mean, (mean, parts)
valid = [s for s in runs[0] if "valid_loss" in s]
assert valid and all(abs(sum(s["valid_set_losses"]) / 2 - s["valid_loss"]) < 1e-9 for s in valid)
PY
    # A resume drops the steps after its checkpoint and keeps what lines have besides.
    run_on 2 kept --set batch.steps=40 >/dev/null
    run_on 2 kept --set batch.steps=45 --set "data.train=0.5 $DIR/lower 0.5 $DIR/upper" >"$DIR/log"
    grep -qx "data.train was \"7 $DIR/lower 2.5 $DIR/upper 0.5 $DIR/digits\" up to step 40, and is \"0.5 $DIR/lower 0.5 $DIR/upper\" from now on" "$DIR/log"
    [ "$(grep -c set_losses "$DIR/kept.jsonl")" -ge 3 ]
}

@test "each invalid blend is refused in one line" {
    # refused CODE MESSAGE ARGS...
    refused() {
        local code=0 want=$1 message=$2
        shift 2
        ranks 2 muster-train "$DIR/job.cfg" "$@" >"$DIR/out" 2>"$DIR/err" || code=$?
        cat "$DIR/err"
        [ "$code" -eq "$want" ]
        [ "$(grep -c "muster-train: " "$DIR/err")" -eq 1 ]
        grep -q "$message" "$DIR/err"
    }
    muster-train --check "$DIR/job.cfg"
    muster-train --plan 6 "$DIR/job.cfg" >"$DIR/plan"
    grep -q '^6 ranks' "$DIR/plan"
    head -c 10 "$DIR/text" >"$DIR/short"
    muster-data "$DIR/short" --out "$DIR/short" >/dev/null
    refused 78 'data set .*lower is given twice' --set "data.train=0.5 $DIR/lower 0.5 $DIR/lower"
    refused 65 'there is no .*missing.idx' --set "data.train=0.5 $DIR/lower 0.5 $DIR/missing"
    refused 65 'short.bin has 10 tokens' --set "data.train=0.5 $DIR/lower 0.5 $DIR/short"
    refused 65 'model.vocab' --set model.vocab=80 --set model.layers=2
    refused 78 'lower-valid has .* samples, and a validation takes .* (500 batches of ' --set report.eval_batches=500
    refused 65 'there is no .*broken.idx' --set "data.valid=0.5 $DIR/lower-valid 0.5 $DIR/broken"
}
