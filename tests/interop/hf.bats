# bats file_tags=more
# Hugging Face's transformers loads what muster-ckpt exports, and muster trains on from what transformers saved.
load ../helpers

setup_file() {
    export DIR=$BATS_FILE_TMPDIR HF_HUB_OFFLINE=1
    load ../helpers
    tiny_job "$DIR"
    muster-data "$DIR/text" --out "$DIR/pairs" --sentences >/dev/null
}

setup() {
    python=$BUILD/venv/bin/python3
    python_has "$python" torch transformers ||
        skip "no transformers in build/venv: ./setup --tests gets it from PyPI"
    need mpiexec.mpich
    cd "$BATS_TEST_TMPDIR"
    hf() { "$python" "$TOP/tests/interop/hf.py" "$@"; }
    logits() { "$BUILD/tests/interop/logits" "$DIR/job.cfg" "$@"; }
    kind=gpt
    model=(model.layers=3 model.hidden=48 model.heads=4 model.seq_length=24 model.vocab=301)
}

# a_bert: the tests that follow are of a BERT
a_bert() {
    kind=bert
    model+=(model.kind=bert "data.train=$DIR/pairs" data.valid=)
}

# export_agrees TOLERANCE OPTION...: train on tp 2 x pp 2, export, and compare the logits
export_agrees() {
    local tolerance=$1 key options=()
    for key in "${model[@]}" model.init_std=0.1 batch.steps=30 optimizer.lr=1e-2 report.metrics= parallel.tp=2 \
        parallel.pp=2 checkpoint.dir=ckpt; do options+=(--set "$key"); done
    ranks 4 muster-train "$DIR/job.cfg" "${options[@]}" >log 2>&1 || { cat log; return 1; }
    muster-ckpt export "${@:2}" ckpt hf
    hf tokens "$kind" tokens 24 301 20
    logits ckpt tokens ours "${model[@]}"
    hf compare hf tokens ours "$tolerance"
}

# bats test_tags=quick
@test "an export gives the same logits in transformers" { export_agrees 1e-4; }

@test "an export in several files gives the same logits in transformers" {
    export_agrees 1e-4 --shard-size 40KB
    [ "$(ls hf/model-*-of-*.safetensors | wc -l)" -gt 3 ]
}

@test "an export of a BERT gives the same logits in transformers" {
    a_bert
    export_agrees 1e-4
}

@test "an export in bf16 gives the same logits in transformers, up to rounding" { export_agrees 0.1 --dtype bf16; }

# import_agrees SHARD_SIZE DTYPE OPTION...: a model that transformers saved
import_agrees() {
    hf make "$kind" hf "$1" "$2" 3 48 4 24 301
    muster-ckpt import "${@:3}" hf ckpt >lines
    cat lines
    sed '/^model =/d' "$DIR/job.cfg" >rest
    cat lines rest >job.cfg # the printed lines are the model group of a job file
    hf tokens "$kind" tokens 24 301 20
    "$BUILD/tests/interop/logits" job.cfg ckpt tokens ours "${model[@]:5}"
    hf compare hf tokens ours 1e-4
}

# bats test_tags=quick
@test "an import gives the same logits as transformers" { import_agrees 1GB float32; }

@test "an import of several files gives the same logits as transformers" {
    import_agrees 40KB float32 --to dp=2,tp=4,pp=2
    [ "$(ls hf/model-*-of-*.safetensors | wc -l)" -gt 3 ]
}

@test "an import of a BERT gives the same logits as transformers" {
    a_bert
    import_agrees 40KB float32 --to dp=3,tp=2,pp=2
}

@test "an import from bf16 and fp16 gives the same logits as transformers" {
    import_agrees 1GB bfloat16
    rm -r hf ckpt
    import_agrees 1GB float16
}

# bats test_tags=quick
@test "training continues from an imported model" {
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

@test "an lm_head that differs from wte is refused, a copy of wte is accepted" {
    hf make gpt hf 1GB float32 3 48 4 24 301
    change_tensors 't["lm_head.weight"] = t["transformer.wte.weight"].clone()'
    muster-ckpt import --format hf hf copy
    change_tensors 't["lm_head.weight"][300, 2] += 1'
    run muster-ckpt import --format hf hf ckpt
    echo "$output"
    [ "$status" -eq 65 ] && [[ $output == *"lm_head.weight differs from wte.weight at [300, 2]"* ]] && [ ! -e ckpt ]
}

@test "NaN and infinite weights are reported" {
    hf make gpt hf 1GB float32 3 48 4 24 301
    change_tensors 't["transformer.h.1.mlp.c_fc.weight"][3, 17] = float("nan"); t["transformer.ln_f.bias"][:2] = float("inf")'
    run muster-ckpt import --format hf hf ckpt
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"warning: hf: 3 weights are NaN or infinite; the first: h.1.mlp.c_fc.weight[3, 17] is nan"* ]]
}

# bats test_tags=quick
@test "import and export keep the tokenizer" {
    local kind
    if grep -q '^#define HAVE_SENTENCEPIECE' "$BUILD/config.h"; then
        english english
        mkdir theirs
        for kind in bpe unigram; do
            muster-data train-tokenizer english --out theirs/$kind --vocab-size 400 --kind $kind
        done
    fi
    hf folders theirs
    for kind in $(ls theirs); do
        muster-ckpt import --format hf "theirs/$kind" "ckpt/$kind"
        muster-ckpt export --format hf "ckpt/$kind" "ours/$kind"
    done
    grep -q '^#define HAVE_SENTENCEPIECE' "$BUILD/config.h" || rm -rf ours/model # tokenize could not read it
    echo '{"tokenizer_class": "Other"}' >tokenizer_config.json # is not beside "bytes"
    muster-ckpt export --format hf --tokenizer bytes ckpt/json ours/bytes
    hf tokenizers "$BUILD/tests/interop/tokenize" ours/*
    [ "$(ls theirs | wc -l)" -ge 3 ]
    if [ -d theirs/bpe ]; then # an import of the export
        muster-ckpt import --format hf ours/bpe back
        diff -r ours/bpe/tokenizer.model back/tokenizer/tokenizer.model
        muster-generate back --prompt "In the" --tokens 3 --seed 1
        muster-ckpt export --format hf back twice
        diff -r ours/bpe twice
    fi
    muster-ckpt import --format hf theirs/json/model.safetensors again --heads 2 # the files beside it
    cmp again/tokenizer/tokenizer.json theirs/json/tokenizer.json
    echo '{{ messages }}' >theirs/json/chat_template.jinja
    muster-ckpt import --format hf theirs/json chat
    muster-ckpt export --format hf chat templates
    cmp theirs/json/chat_template.jinja templates/chat_template.jinja
    muster-ckpt export --format hf --tokenizer theirs/pair/merges.txt ckpt/json other
    cmp other/vocab.json theirs/pair/vocab.json
    # transformers reads neither the first line nor what is behind the last line break
    tail -n +2 theirs/pair/merges.txt | head -c -1 >bare.txt
    cp theirs/pair/vocab.json bare-vocab.json && mv bare.txt bare-merges.txt
    muster-ckpt export --format hf --tokenizer bare-merges.txt ckpt/json third
    diff <(tail -n +2 theirs/pair/merges.txt) <(tail -n +2 third/merges.txt)
    head -n 1 third/merges.txt | grep -q '^#version'
}

@test "a missing tokenizer is reported, and a wrong one is refused" {
    hf make gpt hf 1GB float32 2 32 2 16 300
    run muster-ckpt import --format hf hf ckpt
    echo "$output"
    [ "$status" -eq 0 ] && [[ $output == *"hf: no tokenizer: expected tokenizer.json"*"imported without a tokenizer"* ]]
    [ ! -e ckpt/tokenizer ]
    run muster-ckpt export --format hf ckpt out
    echo "$output"
    [ "$status" -eq 0 ] && [[ $output == *"out: without a tokenizer, since there is no folder tokenizer beside"* ]]
    rm -r out
    # refused CODE PATTERN ARGUMENT...: that exit code, one line with the pattern, and no export
    refused() {
        run muster-ckpt "${@:3}"
        echo "$output"
        [ "$status" -eq "$1" ] && [[ $output == *$2* ]] && [ "${#lines[@]}" -eq 1 ] && [ ! -e out ]
    }
    export_with() { refused "$1" "$2" export --format hf --tokenizer "$3" ckpt out; }
    mkdir small large
    printf '%s\n' '[UNK]' a b >small/vocab.txt
    seq 302 >large/vocab.txt
    export_with 64 "large: its ids go to 301, the model's vocabulary has 300: not the model's tokenizer" large
    export_with 65 "hf: no tokenizer: expected tokenizer.json" hf
    echo '{"model": {"vocab": 1}}' >none.json
    export_with 65 "none.json: model.vocab must be an object" none.json
    echo '{"model": {"vocab": {"a": 1e99}}}' >real.json
    export_with 65 "real.json: token \"a\": its id is not a number" real.json
    echo no >broken.model
    export_with 65 "broken.model: not a model of SentencePiece" broken.model
    cp -r small ckpt/tokenizer
    refused 64 "ckpt/tokenizer is another tokenizer: move it, or choose another name" \
        import --format hf --tokenizer large hf ckpt
    mkdir empty
    cp -r small empty/tokenizer
    refused 64 "empty/tokenizer is there, but hf has no tokenizer" import --format hf hf empty
}

@test "variants of Hugging Face folders give transformers' logits or are refused in one line" {
    sed "s|^data = .*|data = { train = \"$DIR/pairs\"; };|" "$DIR/job.cfg" >bert.cfg
    "$python" "$TOP/tests/interop/hf_variants.py" "$BUILD/tests/interop/logits" "$DIR/job.cfg" bert.cfg \
        >log 2>&1 || { cat log; return 1; }
    tail -n 1 log
}
