# Hugging Face's transformers loads what muster-ckpt exports, and muster trains on from what transformers saved.
load ../helpers

setup_file() {
    export DIR=$BATS_FILE_TMPDIR HF_HUB_OFFLINE=1
    load ../helpers
    tiny_job "$DIR"
}

setup() {
    python=$BUILD/venv/bin/python3
    "$python" -c 'import torch, transformers' 2>/dev/null ||
        skip "no transformers in build/venv: ./setup --tests gets it from PyPI"
    need mpiexec.mpich
    cd "$BATS_TEST_TMPDIR"
    hf() { "$python" "$TOP/tests/interop/hf.py" "$@"; }
    logits() { "$BUILD/tests/interop/logits" "$DIR/job.cfg" "$@"; }
    model=(model.layers=3 model.hidden=48 model.heads=4 model.seq_length=24 model.vocab=301)
    # Every token of the vocabulary, and in an order that has nothing to do with the text.
    "$python" -c 'import numpy; numpy.random.default_rng(3).integers(0, 301, 24 * 20, dtype="<i4").tofile("tokens")'
}

# export_agrees TOLERANCE OPTION...: train on tp 2 x pp 2, export, and compare the logits
export_agrees() {
    local tolerance=$1 key options=()
    for key in "${model[@]}" model.init_std=0.1 batch.steps=30 optimizer.lr=1e-2 report.metrics= parallel.tp=2 \
        parallel.pp=2 checkpoint.dir=ckpt; do options+=(--set "$key"); done
    ranks 4 muster-train "$DIR/job.cfg" "${options[@]}" >log 2>&1 || { cat log; return 1; }
    muster-ckpt export --format hf "${@:2}" ckpt hf
    logits ckpt tokens ours "${model[@]}"
    hf compare hf tokens ours "$tolerance"
}

@test "an export gives our logits" { export_agrees 1e-4; }

@test "an export in several files gives our logits" {
    export_agrees 1e-4 --shard-size 40KB
    [ "$(ls hf/model-*-of-*.safetensors | wc -l)" -gt 3 ]
}

@test "an export in bf16 gives our logits, rounded" { export_agrees 0.1 --dtype bf16; }

# import_agrees SHARD_SIZE DTYPE OPTION...: a model that transformers saved
import_agrees() {
    hf make hf "$1" "$2" 3 48 4 24 301
    muster-ckpt import --format hf "${@:3}" hf ckpt >lines
    cat lines
    sed '/^model =/d' "$DIR/job.cfg" >rest
    cat lines rest >job.cfg # the printed lines are the model group of a job file
    "$BUILD/tests/interop/logits" job.cfg ckpt tokens ours
    hf compare hf tokens ours 1e-4
}

@test "an import gives their logits" { import_agrees 1GB float32; }

@test "an import of several files gives their logits" {
    import_agrees 40KB float32 --to dp=2,tp=4,pp=2
    [ "$(ls hf/model-*-of-*.safetensors | wc -l)" -gt 3 ]
}

@test "an import from bf16 and fp16 gives their logits" {
    import_agrees 1GB bfloat16
    rm -r hf ckpt
    import_agrees 1GB float16
}

@test "a training goes on from an import" {
    import_agrees 1GB float32 --to dp=3
    ranks 4 muster-train job.cfg --set checkpoint.load=ckpt --set checkpoint.dir=new --set parallel.tp=2 \
        --set batch.steps=3 --set optimizer.warmup_steps=1 --set report.metrics= >log 2>&1 || { cat log; return 1; }
    muster-ckpt verify new
    muster-ckpt export --format hf new again
    logits new tokens ours "${model[@]}"
    hf compare again tokens ours 1e-4
}

# change_tensors STATEMENT: change `t`, the tensors of hf/model.safetensors
change_tensors() {
    "$python" -c 'import sys; from safetensors.torch import load_file, save_file
t = load_file("hf/model.safetensors"); exec(sys.argv[1]); save_file(t, "hf/model.safetensors", {"format": "pt"})' "$1"
}

@test "a head of its own is refused, a copy of wte is not" {
    hf make hf 1GB float32 3 48 4 24 301
    change_tensors 't["lm_head.weight"] = t["transformer.wte.weight"].clone()'
    muster-ckpt import --format hf hf copy
    change_tensors 't["lm_head.weight"][300, 2] += 1'
    run muster-ckpt import --format hf hf ckpt
    echo "$output"
    [ "$status" -eq 65 ] && [[ $output == *"lm_head.weight differs from wte.weight at [300, 2]"* ]] && [ ! -e ckpt ]
}

@test "NaN and infinite weights are reported" {
    hf make hf 1GB float32 3 48 4 24 301
    change_tensors 't["transformer.h.1.mlp.c_fc.weight"][3, 17] = float("nan"); t["transformer.ln_f.bias"][:2] = float("inf")'
    run muster-ckpt import --format hf hf ckpt
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"warning: hf: 3 weights are NaN or infinite; the first: h.1.mlp.c_fc.weight[3, 17] is nan"* ]]
}
