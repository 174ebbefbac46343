# What a training saved, read by Python: shards as safetensors files, and the model that they add up to in PyTorch.
load ../helpers

setup_file() {
    export DIR=$BATS_FILE_TMPDIR
    load ../helpers
    tiny_job "$DIR"
    muster-data "$DIR/text" --out "$DIR/pairs" --valid-out "$DIR/valid_pairs" --valid-percent 5 --sentences >/dev/null
}

setup() {
    need mpiexec.mpich
    python=$BUILD/venv/bin/python3 # has the safetensors package
    [ -x "$python" ] || python=/usr/bin/python3
    python_has "$python" torch numpy || skip "python3-torch is not installed"
}

# check TOLERANCE RANKS SET...: train 30 steps, read the checkpoint, compare its validation loss
check() {
    local tolerance=$1 n=$2 out=$BATS_TEST_TMPDIR key sets=() options=() reported order
    sets=(batch.steps=30 report.eval_every=30 report.eval_batches=3 "checkpoint.dir=$out/ckpt" "report.metrics=$out/metrics"
        "${@:3}")
    for key in "${sets[@]}"; do options+=(--set "$key"); done
    ranks "$n" muster-train "$DIR/job.cfg" "${options[@]}" >"$out/log" 2>&1 || { cat "$out/log"; return 1; }
    reported=$(sed -n 's/.*"valid_loss":\([0-9.e+-]*\).*/\1/p' "$out/metrics" | tail -n 1)
    order=$(sed -n 's/.*"valid_order_loss":\([0-9.e+-]*\).*/\1/p' "$out/metrics" | tail -n 1)
    [ "$(ls "$out"/ckpt/step-00000030/*.safetensors | wc -l)" = "$n" ]
    "$python" "$TOP/tests/interop/safetensors.py" "$out"/ckpt/step-00000030/*.safetensors >"$out/tensors"
    # Where PyPI's package could be installed, it is what opens every shard.
    ! "$python" -c 'import safetensors' 2>/dev/null || grep -qx 'reader: the safetensors package' "$out/tensors"
    [ "$(grep -c '^param F32 ' "$out/tensors")" = "$n" ]
    "$BUILD/tests/interop/samples" "$DIR/job.cfg" valid 72 "$out/samples" "${sets[@]}"
    "$python" "$TOP/tests/interop/checkpoint.py" "$out/ckpt/step-00000030" "$out/samples" 2 32 24 "$reported" "$order" \
        "$tolerance"
}

bert() { printf '%s\n' model.kind=bert model.vocab=260 "data.train=$DIR/pairs" "data.valid=$DIR/valid_pairs"; }

@test "GPT on tp 2 x pp 2" { check 1e-4 4 parallel.tp=2 parallel.pp=2; }

@test "BERT on tp 2 x pp 2" {
    mapfile -t keys < <(bert)
    check 1e-4 4 parallel.tp=2 parallel.pp=2 "${keys[@]}"
}

@test "GPT on tp 2 x dp 2, ZeRO-3" { check 1e-4 4 parallel.tp=2 parallel.zero=3; }

# Its own validation is rounded to bf16; the checkpoint is not.
@test "GPT in bf16 on dp 2, ZeRO-2: the checkpoint holds the fp32 master weights" {
    check 5e-3 2 parallel.zero=2 precision.compute=bf16
}

@test "BERT in bf16 on dp 2, ZeRO-2: the checkpoint holds the fp32 master weights" {
    mapfile -t keys < <(bert)
    check 5e-3 2 parallel.zero=2 precision.compute=bf16 "${keys[@]}"
}
