# checkpoint.init: a run starts from weights alone, of a checkpoint of any mesh or of a Hugging Face folder.
load ../helpers

setup_file() {
    export BASE=$BATS_FILE_TMPDIR
    load ../helpers
    need mpiexec.mpich
    tiny_job "$BASE"
    ranks 2 muster-train "$BASE/job.cfg" --set batch.steps=20 --set parallel.tp=2 --set checkpoint.dir="$BASE/base" \
        --set report.metrics= >/dev/null
    muster-ckpt export -q --tokenizer bytes "$BASE/base" "$BASE/hf" >/dev/null
    muster-train --evaluate "$BASE/job.cfg" --set checkpoint.dir="$BASE/base" --set report.metrics= --batches 10 \
        >"$BASE/loss" 2>/dev/null
}

setup() {
    need mpiexec.mpich
    DIR=$BATS_TEST_TMPDIR
}

# tune RANKS SET...: a new run of 6 steps with another seed
tune() {
    local n=$1 set options=()
    shift
    for set in batch.seed=9 batch.steps=6 optimizer.warmup_steps=2 report.metrics="$DIR/metrics.jsonl" "$@"; do
        options+=(--set "$set")
    done
    ranks "$n" muster-train "$BASE/job.cfg" "${options[@]}" >"$DIR/log" 2>"$DIR/err" || { cat "$DIR/err"; return 1; }
}

# value KEY FILE: the number of a key in a line of JSON
value() { sed "s/.*\"$1\":\([-0-9.e+]*\).*/\1/" "$2"; }

# near A B TOLERANCE
near() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; exit !(d <= t && -d <= t) }'; }

@test "weights of a checkpoint and of a folder start the same run, from step 0 with a fresh optimizer" {
    tune 1 checkpoint.init="$BASE/hf" checkpoint.dir="$DIR/one"
    cat "$DIR/log"
    grep -qx "starting from the weights of $BASE/hf" "$DIR/log"
    grep -qx "done at step 6" "$DIR/log"
    # before the first step: what --evaluate says of the same checkpoint
    [ "$(grep -n 'validation loss at iteration 0' "$DIR/log" | cut -d: -f1)" -lt \
        "$(grep -n 'iteration .*6/' "$DIR/log" | cut -d: -f1)" ]
    near "$(sed -n 's/.*validation loss at iteration 0: \([^ ]*\).*/\1/p' "$DIR/log")" \
        "$(value loss "$BASE/loss")" 1e-5
    [ "$(sed -n 1p "$DIR/metrics.jsonl" | sed 's/.*"step":\([0-9]*\).*/\1/')" = 1 ]
    near "$(sed -n 1p "$DIR/metrics.jsonl" >"$DIR/first"; value loss "$DIR/first")" "$(value loss "$BASE/loss")" 0.3
    rm "$DIR/metrics.jsonl"
    tune 1 checkpoint.init="$BASE/base/step-00000020" checkpoint.dir="$DIR/two"
    muster-ckpt diff "$DIR/one" "$DIR/two"
    # any mesh, and every ZeRO stage
    tune 4 checkpoint.init="$BASE/hf" checkpoint.dir="$DIR/three" parallel.tp=2 parallel.pp=2
    tune 4 checkpoint.init="$BASE/base" checkpoint.dir="$DIR/four" parallel.tp=2 parallel.pp=2
    muster-ckpt diff "$DIR/three" "$DIR/four"
    tune 2 checkpoint.init="$BASE/hf" checkpoint.dir="$DIR/five" parallel.zero=3 parallel.reduce=micro_batch
    tune 2 checkpoint.init="$BASE/base" checkpoint.dir="$DIR/six" parallel.zero=0 parallel.reduce=micro_batch
    muster-ckpt diff "$DIR/five" "$DIR/six"
}

@test "a run with checkpoints of its own goes on from those, and says so" {
    tune 1 checkpoint.init="$BASE/hf" checkpoint.dir="$DIR/ckpt"
    tune 1 checkpoint.init="$BASE/hf" checkpoint.dir="$DIR/ckpt" batch.steps=8
    cat "$DIR/log"
    grep -q "^resumed from $DIR/ckpt at step 6" "$DIR/log"
    grep -q "^checkpoint.init = \"$BASE/hf\" was for the first start: the run goes on from its own checkpoints$" "$DIR/log"
    [ "$(grep -c 'iteration 0' "$DIR/log")" -eq 0 ]
    [ "$(wc -l <"$DIR/metrics.jsonl")" -eq 8 ]
}

# refused MESSAGE SET...: 78 and one line, by --check too
refused() {
    local code=0
    tune 1 "${@:2}" >"$DIR/out" || code=$?
    cat "$DIR/out" "$DIR/err"
    [ "$(grep -c 'muster-train: ' "$DIR/err")" -eq 1 ]
    grep -qF "$1" "$DIR/err"
}

@test "another model is refused by its key" {
    for path in "$BASE/hf" "$BASE/base/step-00000020"; do
        refused "$path is of another model: it has model.layers = 2, the job file 3" checkpoint.init="$path" model.layers=3
        refused "it has model.seq_length = 32, the job file 16" checkpoint.init="$path" model.seq_length=16
        refused "it has model.norm_eps = 1e-05, the job file 0.001" checkpoint.init="$path" model.norm_eps=1e-3
        refused "$path has model.vocab = 256, the job file 300: a vocabulary cannot grow" checkpoint.init="$path" \
            model.vocab=300
    done
    refused "checkpoint.init = \"$DIR\", but that is no checkpoint, no directory of checkpoints and no folder with a config.json" checkpoint.init="$DIR"
    run muster-train --check "$BASE/job.cfg" --set checkpoint.init="$BASE/hf" --set model.layers=3
    echo "$output"
    [ "$status" -eq 78 ] && [[ $output == *"it has model.layers = 2, the job file 3"* ]]
    muster-train --check "$BASE/job.cfg" --set checkpoint.init="$BASE/hf"
}

@test "a tokenizer of the folder that is not the data's is one warning" {
    cp -r "$BASE/hf" "$DIR/hf"
    rm "$DIR"/hf/tokenizer*
    printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c >"$DIR/hf/vocab.txt"
    tune 1 checkpoint.init="$DIR/hf"
    cat "$DIR/log"
    [ "$(grep -c "^warning: checkpoint.init has a tokenizer, $DIR/hf, and the data has none" "$DIR/log")" -eq 1 ]
    grep -qx "done at step 6" "$DIR/log"
}

@test "--evaluate --checkpoint takes checkpoints and folders" {
    for path in "$BASE/hf" "$BASE/base" "$BASE/base/step-00000020"; do
        muster-train --evaluate --checkpoint "$path" --batches 10 "$BASE/job.cfg" >"$DIR/loss"
        cat "$DIR/loss"
        [ "$(value loss "$DIR/loss")" = "$(value loss "$BASE/loss")" ]
        grep -qF "{\"checkpoint\":\"$path\",\"step\":$([ "$path" = "$BASE/hf" ] && echo 0 || echo 20)," "$DIR/loss"
    done
    run muster-train --checkpoint "$BASE/hf" "$BASE/job.cfg"
    echo "$output"
    [ "$status" -eq 64 ] && [[ $output == *"--checkpoint is for --evaluate; a training starts from checkpoint.init"* ]]
}

@test "an export keeps every number of the model: what it writes is the same model" {
    local eps=9.9999997473787516e-6 # 1e-5 of fp32, as in many published models
    tune 1 model.norm_eps=$eps checkpoint.dir="$DIR/own"
    muster-ckpt export -q "$DIR/own" "$DIR/hf" >/dev/null
    grep -q "\"layer_norm_epsilon\": $eps" "$DIR/hf/config.json"
    muster-train --evaluate --checkpoint "$DIR/hf" --batches 1 "$BASE/job.cfg" --set model.norm_eps=$eps \
        --set report.metrics=
    muster-ckpt export -q "$BASE/base" "$DIR/plain" >/dev/null
    grep -q '"layer_norm_epsilon": 1e-5,' "$DIR/plain/config.json"
}
