# The tokenizer of a run's data: checkpoint.dir keeps it, and another one is refused.
load ../helpers

setup() {
    need mpiexec.mpich
    DIR=$BATS_TEST_TMPDIR
    tiny_job "$DIR"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; };" >>"$DIR/job.cfg"
    mkdir "$DIR/train.tokenizer" "$DIR/other" "$DIR/large"
    printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c >"$DIR/train.tokenizer/vocab.txt"
    { cat "$DIR/train.tokenizer/vocab.txt"; echo d; } >"$DIR/other/vocab.txt"
    { cat "$DIR/other/vocab.txt"; seq 1000 1290; } >"$DIR/large/vocab.txt"
    # bytes: without a folder. foreign: of another program, so without one.
    cp "$DIR/valid.bin" "$DIR/bytes.bin"
    cp "$DIR/valid.idx" "$DIR/bytes.idx"
    cp -r "$DIR/train.tokenizer" "$DIR/valid.tokenizer"
    muster-data "$DIR/text" --tokenizer "$DIR/other" --out "$DIR/foreign" >/dev/null
    rm -r "$DIR/foreign.tokenizer"
}

train() {
    ranks 2 muster-train "$DIR/job.cfg" "$@" >"$DIR/log" 2>"$DIR/err"
}

# refused CODE MESSAGE ARGS...: one line, with the exit code
refused() {
    local code=0 want=$1 message=$2
    shift 2
    train "$@" || code=$?
    cat "$DIR/err"
    [ "$code" -eq "$want" ]
    [ "$(grep -c 'muster-train: ' "$DIR/err")" -eq 1 ]
    grep -q "muster-train: $message" "$DIR/err"
}

@test "the data's tokenizer is copied to checkpoint.dir, and muster-ckpt ignores it there" {
    train --set batch.steps=10 --set checkpoint.every=5
    grep -qx "tokenizer: $DIR/train.tokenizer, WordPiece, 8 tokens" "$DIR/log"
    cmp "$DIR/train.tokenizer/vocab.txt" "$DIR/ckpt/tokenizer/vocab.txt"
    ls "$DIR/ckpt" | grep -v step- >"$DIR/names"
    [ "$(grep -c . "$DIR/names")" -eq "$(grep -cx 'latest\|tokenizer\|owner-[0-9]*.json' "$DIR/names")" ]
    muster-ckpt list "$DIR/ckpt" >"$DIR/list"
    cat "$DIR/list"
    [ "$(wc -l <"$DIR/list")" -eq 3 ]
    muster-ckpt verify "$DIR/ckpt"
    muster-ckpt prune --keep 1 "$DIR/ckpt"
    [ -e "$DIR/ckpt/tokenizer/vocab.txt" ]
    # from the copy itself, or from another folder with the same vocabulary
    train --set batch.steps=12 --set data.tokenizer="$DIR/ckpt/tokenizer"
    grep -q 'resumed from .* at step 10' "$DIR/log"
    cp -r "$DIR/train.tokenizer" "$DIR/moved"
    rm -r "$DIR/train.tokenizer"
    train --set batch.steps=14 --set data.tokenizer="$DIR/moved" --set data.train="$DIR/foreign"
    refused 78 "data set $DIR/bytes is of bytes (uint8), and $DIR/ckpt/tokenizer is another tokenizer (WordPiece, 8 tokens)" \
        --set batch.steps=16 --set data.train="$DIR/bytes" --set data.valid=
    cmp "$DIR/moved/vocab.txt" "$DIR/ckpt/tokenizer/vocab.txt"
}

@test "a tokenizer that differs from that of checkpoint.dir or of the data is refused" {
    train --set batch.steps=6
    refused 78 "$DIR/ckpt/tokenizer (WordPiece, 8 tokens) is another tokenizer than $DIR/other (WordPiece, 9 tokens)" \
        --set batch.steps=8 --set data.tokenizer="$DIR/other" --set data.train="$DIR/foreign" --set data.valid=
    cmp "$DIR/train.tokenizer/vocab.txt" "$DIR/ckpt/tokenizer/vocab.txt"
    refused 78 "$DIR/ckpt/tokenizer (.*) is another tokenizer than bytes (bytes, 257 tokens)" \
        --set batch.steps=8 --set data.tokenizer=bytes --set data.train="$DIR/bytes" --set data.valid=
    cp "$DIR/other/vocab.txt" "$DIR/valid.tokenizer/"
    refused 78 "$DIR/valid.tokenizer (.*) is another tokenizer than $DIR/train.tokenizer (.*): make all data" \
        --set batch.steps=8
    refused 78 "$DIR/valid.tokenizer (.*) is another tokenizer than $DIR/train.tokenizer (.*): make all data" \
        --set batch.steps=8 --set "data.train=1 $DIR/train 1 $DIR/valid" --set data.valid=
}

@test "a data set without a folder is of bytes: it is refused beside another tokenizer, by --evaluate too" {
    local bytes="data set $DIR/bytes is of bytes (uint8), and $DIR/train.tokenizer is another tokenizer (WordPiece, 8 tokens)"
    local foreign="data set $DIR/foreign is of bytes (there is no folder PREFIX.tokenizer), and"
    for blend in "1 $DIR/train 1 $DIR/bytes" "1 $DIR/bytes 1 $DIR/train"; do
        refused 78 "$bytes: make all data of a run with one tokenizer$" --set data.train="$blend" --set data.valid=
    done
    refused 78 "$bytes" --set data.valid="$DIR/bytes"
    refused 78 "$bytes" --set data.valid="$DIR/train" --set data.train="$DIR/bytes"
    refused 78 "$bytes" --set data.tokenizer="$DIR/train.tokenizer" --set data.valid="$DIR/bytes"
    refused 78 "$foreign $DIR/valid.tokenizer is .*, or name the one that made this set in data.tokenizer" \
        --set data.train="$DIR/foreign"
    [ ! -e "$DIR/ckpt/tokenizer" ]
    train --set data.train="1 $DIR/train 1 $DIR/foreign" --set data.tokenizer="$DIR/train.tokenizer" --set batch.steps=6
    refused 78 "$bytes" --evaluate --set data.valid="$DIR/bytes"
    refused 78 "$bytes" --evaluate --set data.valid="$DIR/bytes" --set checkpoint.load="$DIR/ckpt" --set checkpoint.dir=
    # Only the checkpoint has a tokenizer.
    refused 78 "data set $DIR/bytes is of bytes (uint8), and $DIR/ckpt/tokenizer is another" \
        --evaluate --set data.train="$DIR/bytes" --set data.valid="$DIR/bytes"
    refused 78 "data set $DIR/foreign is of bytes (there.*), and $DIR/ckpt/tokenizer is another" --set data.train="$DIR/foreign" \
        --set data.valid= --set batch.steps=8
    cp "$DIR/other/vocab.txt" "$DIR/ckpt/tokenizer/"
    refused 78 "$DIR/ckpt/tokenizer (.*) is another tokenizer than $DIR/train.tokenizer" --evaluate
    cp "$DIR/train.tokenizer/vocab.txt" "$DIR/ckpt/tokenizer/"
    train --evaluate
    grep -q '^{"checkpoint":.*"perplexity":' "$DIR/log"
    [ "$(wc -l <"$DIR/log")" -eq 1 ]
}

@test "a tokenizer that does not fit the model, or cannot be read, is refused" {
    refused 78 "the tokenizer $DIR/large has 300 tokens, and model.vocab = 256: at least 300 would fit" \
        --set data.tokenizer="$DIR/large"
    refused 74 "data.tokenizer: $DIR/none: No such file" --set data.tokenizer="$DIR/none"
    refused 65 "data.tokenizer: .*no tokenizer" --set data.tokenizer="$DIR"
    [ ! -e "$DIR/ckpt/tokenizer" ]
    train --set data.tokenizer=bytes --set data.train="$DIR/bytes" --set data.valid= --set batch.steps=6
    grep -qx "tokenizer: bytes, bytes, 257 tokens" "$DIR/log"
    [ ! -e "$DIR/ckpt/tokenizer" ]
}

@test "checkpoint.load with another tokenizer than the data's gives one warning, and the run continues" {
    train --set batch.steps=6
    cp -r "$DIR/ckpt" "$DIR/base"
    rm -r "$DIR/ckpt"
    train --set batch.steps=8 --set checkpoint.load="$DIR/base"
    [ "$(grep -c '^warning:' "$DIR/log")" -eq 0 ]
    rm -r "$DIR/ckpt"
    local warning="warning: $DIR/base/tokenizer (WordPiece, 8 tokens) is another tokenizer than $DIR/other (WordPiece, 9"
    for base in "$DIR/base" "$DIR/base/step-00000006"; do
        rm -rf "$DIR/ckpt"
        train --set batch.steps=8 --set checkpoint.load="$base" --set data.tokenizer="$DIR/other" \
            --set data.train="$DIR/foreign" --set data.valid=
        cat "$DIR/log"
        [ "$(grep -cF "$warning" "$DIR/log")" -eq 1 ]
        grep -q '^done at step 8$' "$DIR/log"
    done
    # once: a restart of the same run goes on from checkpoint.dir
    train --set batch.steps=10 --set checkpoint.load="$DIR/base" --set data.tokenizer="$DIR/other" \
        --set data.train="$DIR/foreign" --set data.valid=
    [ "$(grep -c '^warning:' "$DIR/log")" -eq 0 ]
    rm -r "$DIR/ckpt"
    train --set batch.steps=8 --set checkpoint.load="$DIR/base" --set data.train="$DIR/foreign" --set data.valid=
    grep -q "^warning: checkpoint.load has a tokenizer, $DIR/base/tokenizer, and the data has none" "$DIR/log"
}

# losses NAME ARGS...: of a few steps, into that file
losses() {
    rm -rf "$DIR/ckpt" "$DIR/metrics.jsonl"
    train --set batch.steps=6 "${@:2}" || { cat "$DIR/err"; return 1; }
    grep -o '"loss":[^,]*' "$DIR/metrics.jsonl" >"$DIR/$1"
}

@test "data.reset separates documents at the tokenizer's end-of-document token" {
    # its id is that of a blank in a text of bytes
    { echo '[UNK]'; seq 31; echo '[SEP]'; } | tee "$DIR"/{train,valid}.tokenizer/vocab.txt >/dev/null
    losses taken --set data.reset=document
    grep -qx "documents are separated: .* and after token 32, the tokenizer's end of a document" "$DIR/log"
    losses given --set data.reset=document --set data.eod=32
    grep -qx "documents are separated: .* and after token 32" "$DIR/log"
    cmp "$DIR/taken" "$DIR/given"
    rm -r "$DIR"/{train,valid}.tokenizer
    losses bytes --set data.reset=document --set data.tokenizer=bytes # its 256 is not in model.vocab
    grep -qx "documents are separated: they begin at the boundaries of the data's index" "$DIR/log"
    ! cmp -s "$DIR/taken" "$DIR/bytes"
}

@test "separated documents of one token give one warning that nothing is learned" {
    yes x | head -n 1000 | sed 's/.*/{"text": "x"}/' >"$DIR/x.jsonl"
    muster-data "$DIR/x.jsonl" --out "$DIR/x" >/dev/null
    train --set data.train="$DIR/x" --set data.valid="$DIR/x" --set data.tokenizer=bytes --set data.reset=document \
        --set batch.steps=6 --set report.eval_every=3 --set report.eval_batches=1
    cat "$DIR/log"
    [ "$(grep -c '^warning: nothing is learned in step 1: data.reset = "document"' "$DIR/log")" -eq 1 ]
    grep -q '^warning: the validation at iteration 3 predicts nothing: all its documents have one token' "$DIR/log"
    grep -q '"step":3,.*"loss":null,.*"valid_loss":null}' "$DIR/metrics.jsonl"
}

@test "muster-train and muster-generate find the tokenizer of muster-data without an option" {
    { printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]'; tr -cs 'A-Za-z' '\n' <"$DIR/text" |
        tr A-Z a-z | sort | uniq -c | sort -k1,1nr -k2 | awk 'NF == 2 && NR <= 200 { print $2 }'; } >"$DIR/vocab.txt"
    muster-data "$DIR/text" --tokenizer "$DIR/vocab.txt" --out "$DIR/words" >/dev/null
    muster-data "$DIR/job.cfg" --tokenizer "$DIR/vocab.txt" --out "$DIR/keys" >/dev/null
    train --set "data.train=0.9 $DIR/words 0.1 $DIR/keys" --set data.valid= --set batch.steps=40
    grep -q "^tokenizer: $DIR/words.tokenizer, WordPiece, " "$DIR/log"
    cmp "$DIR/vocab.txt" "$DIR/ckpt/tokenizer/vocab.txt"
    rm -r "$DIR/words.tokenizer"
    train --set "data.train=$DIR/words" --set data.valid= --set batch.steps=42 --set data.tokenizer="$DIR/ckpt/tokenizer"
    rm -r "$DIR"/words.* "$DIR"/keys.*
    muster-generate "$DIR/ckpt" --prompt "and god said" --tokens 20 --seed 1 >"$DIR/words"
    cat "$DIR/words"
    # also where the checkpoint has another name
    ln -s ckpt/step-00000042 "$DIR/best"
    muster-generate "$DIR/best" --prompt "and god said" --tokens 20 --seed 1 | cmp - "$DIR/words"
    (cd "$DIR/best/" && muster-generate . --prompt "and god said" --tokens 20 --seed 1) | cmp - "$DIR/words"
    # words of the vocabulary, not bytes
    [ "$(grep -o '[a-z]\+' "$DIR/words" | grep -cxFf "$DIR/vocab.txt")" -ge 10 ]
}

@test "what belongs to a tokenizer goes along from the data to the checkpoint, an export and an import" {
    local name
    mkdir -p "$DIR/folder/additional_chat_templates"
    { printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]'; seq 20; } >"$DIR/folder/vocab.txt"
    # transformers writes this number where there is no longest text
    echo '{"tokenizer_class": "BertTokenizer", "model_max_length": 1000000000000000019884624838656, "x": NaN}' \
        >"$DIR/folder/tokenizer_config.json"
    echo '{"additional_special_tokens": [], "x": 1e999}' >"$DIR/folder/special_tokens_map.json"
    echo '{}' >"$DIR/folder/added_tokens.json"
    for name in chat_template.jinja additional_chat_templates/rag.jinja; do echo $name >"$DIR/folder/$name"; done
    # a kind that is not known: vocab.txt is taken
    echo '{"pre_tokenizer": {"type": "UnicodeScripts"}, "model": {"type": "BPE", "vocab": {"[PAD]": 0}, "merges": []}}' \
        >"$DIR/folder/tokenizer.json"
    yes "$(seq 20)" | head -n 400 >"$DIR/numbers"
    muster-data "$DIR/numbers" --tokenizer "$DIR/folder/vocab.txt" --out "$DIR/set"
    rm -rf "$DIR/ckpt"
    train --set "data.train=$DIR/set" --set data.valid= --set "data.tokenizer=$DIR/folder" --set batch.steps=6 ||
        { cat "$DIR/err"; return 1; }
    grep -q "^$DIR/folder/vocab.txt is taken instead of $DIR/folder/tokenizer.json: pre_tokenizer.type: " "$DIR/log"
    diff -r --exclude=tokenizer.json "$DIR/folder" "$DIR/ckpt/tokenizer"
    muster-ckpt export --format hf "$DIR/ckpt" "$DIR/hf"
    diff -r --exclude={model.safetensors,config.json,generation_config.json} "$DIR/ckpt/tokenizer" "$DIR/hf"
    cp "$DIR/folder/tokenizer.json" "$DIR/hf"
    muster-ckpt import --format hf "$DIR/hf" "$DIR/back" >/dev/null
    diff -r -x generation_config.json "$DIR/folder" "$DIR/back/tokenizer"
    muster-generate "$DIR/back" --prompt "1 2" --tokens 2 --seed 1 2>"$DIR/err"
    grep -q "^muster-generate: $DIR/back/tokenizer/vocab.txt is taken instead of " "$DIR/err"
}
