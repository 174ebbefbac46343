# Reported losses are means over predicted tokens, however many each step, batch and rank has of them.
load ../helpers

# Documents of one character and of many: with data.reset, samples of 0 to 15 predictions. The same data set validates.
setup() {
    need mpiexec.mpich
    DIR=$BATS_TEST_TMPDIR
    python3 - >"$DIR/text.jsonl" <<'PY'
import json, random
random.seed(1)
for _ in range(40):
    for _ in range(64):
        print('{"text": "%s"}' % random.choice("abc"))
    print(json.dumps({"text": "".join(random.choices("abcdefgh", k=55))}))
PY
    muster-data "$DIR/text.jsonl" --out "$DIR/text" >/dev/null
    cat >"$DIR/job.cfg" <<CFG
model = { layers = 1; hidden = 16; heads = 2; seq_length = 16; vocab = 256; };
batch = { global_batch = 1; micro_batch = 1; steps = 40; seed = 5; };
optimizer = { lr = 1e-3; schedule = "constant"; spike_factor = 1.2; };
data = { train = "$DIR/text"; valid = "$DIR/text"; reset = "document"; };
report = { metrics = "$DIR/metrics.jsonl"; log_every = 10; peak_tflops = 0.1; };
CFG
}

@test "a step that predicts nothing has no loss, and makes no other step a spike" {
    muster-train "$DIR/job.cfg" >"$DIR/log"
    cat "$DIR/log"
    python3 - "$DIR/metrics.jsonl" "$DIR/log" <<'PY'
import json, math, re, sys
steps = [json.loads(line) for line in open(sys.argv[1])]
losses = [s["loss"] for s in steps if s["loss"] is not None]
assert 10 < len(losses) < 30 and min(losses) > 3, losses
assert not any(s["skipped"] for s in steps)
lines = re.findall(r"lm loss: (\S+) .*nan iterations:\s+(\d+)", open(sys.argv[2]).read())
assert len(lines) == 4 and all(float(loss) > 3 and nans == "0" for loss, nans in lines), lines
PY
}

# valid RANKS BATCH BATCHES SET...: the validation loss of the first 14 samples, with the initial weights
valid() {
    rm -f "$DIR/metrics.jsonl"
    ranks "$1" muster-train "$DIR/job.cfg" --set batch.steps=1 --set optimizer.lr=1e-12 --set optimizer.min_lr=0 \
        --set report.eval_every=1 --set batch.global_batch="$2" --set report.eval_batches="$3" "${@:4}" >/dev/null
    sed -n 's/.*"valid_loss":\([0-9.]*\).*/\1/p' "$DIR/metrics.jsonl"
}

@test "a validation is the mean over its tokens, in any number of batches and on any mesh" {
    {
        valid 1 14 1
        valid 1 1 14
        valid 1 2 7 --set batch.micro_batch=2
        valid 2 7 2
        valid 2 2 7 --set parallel.pp=2 --set model.layers=2
        valid 2 2 7 --set parallel.tp=2
    } >"$DIR/losses"
    cat "$DIR/losses"
    awk 'NR == 1 { first = $1 } NR != 5 && ($1 - first)^2 > 1e-12 { exit 1 } END { exit NR != 6 }' "$DIR/losses"
    # two layers are another model, so they have a value of their own
    [ "$(valid 1 14 1 --set model.layers=2 | cut -c1-8)" = "$(sed -n 5p "$DIR/losses" | cut -c1-8)" ]
}

@test "muster-train --evaluate prints the loss of all of data.valid, on any mesh, and changes nothing" {
    muster-train "$DIR/job.cfg" --set batch.steps=3 --set data.reset=none --set checkpoint.dir="$DIR/ckpt" >/dev/null
    find "$DIR/ckpt" -printf '%P %T@ %s\n' | sort >"$DIR/before"
    for way in "1 14" "1 1" "2 5" "3 4"; do
        set -- $way
        ranks "$1" muster-train --evaluate "$DIR/job.cfg" --set checkpoint.dir="$DIR/ckpt" \
            --set batch.global_batch="$2" >>"$DIR/lines"
    done
    ranks 2 muster-train --evaluate "$DIR/job.cfg" --set checkpoint.load="$DIR/ckpt" --set parallel.tp=2 >>"$DIR/lines"
    find "$DIR/ckpt" -printf '%P %T@ %s\n' | sort | cmp - "$DIR/before"
    cat "$DIR/lines"
    # Beside it, a run that validates as many samples at its last step, whose learning rate changes nothing.
    rm -f "$DIR/metrics.jsonl"
    samples=$(sed -n '1s/.*"samples":\([0-9]*\).*/\1/p' "$DIR/lines")
    muster-train "$DIR/job.cfg" --set batch.steps=4 --set checkpoint.load="$DIR/ckpt" --set report.eval_every=1 \
        --set report.eval_batches="$samples" --set optimizer.lr=1e-12 --set optimizer.min_lr=0 >/dev/null
    python3 - "$DIR/lines" "$DIR/metrics.jsonl" <<'PY'
import json, math, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
valid = [json.loads(line)["valid_loss"] for line in open(sys.argv[2])][-1]
assert len(lines) == 5 and lines[0]["step"] == 3 and lines[0]["tokens"] > 500, lines
for line in lines:
    assert (line["samples"], line["tokens"]) == (lines[0]["samples"], lines[0]["tokens"]), line
    assert abs(line["loss"] - valid) < 1e-6, (line, valid)
    assert abs(line["perplexity"] - math.exp(line["loss"])) < 1e-5 * line["perplexity"], line
PY
}

@test "--evaluate --batches N takes the first N batches, and shows its progress on a terminal alone" {
    muster-train "$DIR/job.cfg" --set batch.steps=3 --set checkpoint.dir="$DIR/ckpt" >/dev/null
    evaluate="muster-train --evaluate $DIR/job.cfg --set checkpoint.dir=$DIR/ckpt --set batch.global_batch=4"
    samples=$($evaluate | sed 's/.*"samples":\([0-9]*\).*/\1/')
    [ "$samples" -gt 8 ]
    $evaluate --batches 2 2>"$DIR/err" | tee "$DIR/two" | grep '"samples":8,'
    [ ! -s "$DIR/err" ]
    $evaluate --batches 1000000 | grep "\"samples\":$samples,"
    run muster-train --batches 2 "$DIR/job.cfg"
    [ "$status" -eq 64 ]
    command -v script >/dev/null || skip "script is not installed"
    TERM=xterm LC_ALL=C script -qc "$evaluate --batches 2 >$DIR/alone" /dev/null >"$DIR/shown"
    cat -v "$DIR/shown"
    grep -q $'\r\033\\[K1/2  .*loss' "$DIR/shown"
    cmp "$DIR/alone" "$DIR/two"
}

@test "uneven numbers of predictions: micro-batches and ranks change neither the loss nor the gradient" {
    for way in "1 7" "1 1" "3 1" "2 2"; do
        set -- $way
        rm -f "$DIR/metrics.jsonl"
        ranks "$1" muster-train "$DIR/job.cfg" --set batch.steps=8 --set batch.global_batch=7 \
            --set batch.micro_batch="$2" >/dev/null
        sed 's/.*"loss":\([0-9.]*\).*"grad_norm":\([0-9.]*\).*/\1 \2/' "$DIR/metrics.jsonl" >>"$DIR/steps"
    done
    cat "$DIR/steps"
    awk 'NR <= 8 { loss[NR] = $1; norm[NR] = $2; next }
        { i = (NR - 1) % 8 + 1; if (($1 - loss[i])^2 > 1e-10 || ($2 - norm[i])^2 > 1e-10) exit 1 }
        END { exit NR != 32 }' "$DIR/steps"
}
