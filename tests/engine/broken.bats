# Broken input, through the programs, as a user meets it: one line that says what and where, the right exit code, no
# crash.
load ../helpers

setup() {
    DIR=$BATS_TEST_TMPDIR
}

# refused CODE WORDS COMMAND...: exits with CODE and one line on stderr that has WORDS in it
refused() {
    local code=$1 words=$2 status=0
    shift 2
    "$@" >"$DIR/out" 2>"$DIR/err" || status=$?
    [ "$status" -eq "$code" ] && [ "$(wc -l <"$DIR/err")" -eq 1 ] && grep -qF -- "$words" "$DIR/err" && return
    echo "$* ended with $status, not $code and one line with '$words':"
    cat "$DIR/out" "$DIR/err"
    return 1
}

@test "every invalid job file is refused with 78, file and line" {
    local count=0 file line
    for file in "$TOP"/tests/unit/broken_jobs/*.cfg; do
        # the first line says where and how it is broken: "# LINE: message", or "# message" where no line is to blame
        line=$(sed -n '1s/^# \([0-9]*\): .*/\1/p' "$file")
        refused 78 "$file${line:+:$line:}" muster-train --check "$file"
        count=$((count + 1))
    done
    echo "$count job files"
    [ "$count" -ge 30 ]
}

@test "--help of the scripts works from any directory" {
    cd "$TOP/etc"
    for script in check setup quickstart bench/cpu bench/checkpoint; do
        run "../$script" --help
        echo "$output"
        [ "$status" -eq 0 ]
        [[ $output == "${script##*/} - "*"$script"* ]]
    done
}

@test "a missing job file, an invalid --set and an invalid option are refused" {
    tiny_job "$DIR/tiny"
    refused 78 "$DIR/nothing.cfg" muster-train "$DIR/nothing.cfg"
    mkfifo "$DIR/pipe.cfg"
    refused 78 "$DIR/pipe.cfg: not a regular file" timeout 20 muster-train "$DIR/pipe.cfg"
    refused 78 "--set batch.steps=many" muster-train "$DIR/tiny/job.cfg" --set batch.steps=many
    refused 78 "did you mean 'batch.steps'" muster-train "$DIR/tiny/job.cfg" --set batch.step=3
    refused 64 "--stes" muster-train --stes "$DIR/tiny/job.cfg"
    refused 64 "no job file was given" muster-train
    refused 64 "unknown option -verbose" muster-train -verbose "$DIR/tiny/job.cfg"
    for ranks in 8x 1e3 4.5 0 99999999999 ''; do
        refused 64 "--plan needs a whole number from 1 to 1000000, not $ranks" \
            muster-train --plan "$ranks" "$DIR/tiny/job.cfg"
    done
}

@test "--check warns of a library that every rank would load" {
    tiny_job "$DIR/tiny"
    echo 'environment = { LD_PRELOAD = "/opt/x.so"; };' >>"$DIR/tiny/job.cfg"
    run muster-train --check "$DIR/tiny/job.cfg"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"LD_PRELOAD makes every rank load /opt/x.so"*"is a valid job file" ]]
}

@test "--check refuses what data and checkpoints contradict (78), warns of what this node cannot see (0), and writes nothing" {
    tiny_job "$DIR/tiny"
    cd "$DIR/tiny"
    muster-train job.cfg --set batch.steps=6 --set checkpoint.dir=base >/dev/null
    rm metrics.jsonl
    touch stop
    muster-data train-tokenizer text --out tok --vocab-size 400 >/dev/null
    find . -printf '%P %T@ %s\n' | sort >../before
    check() { muster-train --check job.cfg "$@"; }
    refused 78 "with model.vocab = 100 tokens are 0 to 99" check --set model.vocab=100
    refused 78 "the tokenizer tok has 400 tokens, and model.vocab = 256" check --set data.tokenizer=tok
    refused 78 "a sample of model.seq_length = 1048576 needs" check --set model.seq_length=1048576
    refused 78 "is of another model: its wpe.weight is 32 x 32, the job file's 64 x 32" \
        check --set checkpoint.dir=base --set model.seq_length=64
    refused 78 "is of another model: it has 2 heads" check --set checkpoint.load=base --set model.heads=4
    refused 78 "base was trained with batch.seed = 1, the job file has 7" check --set checkpoint.dir=base --set batch.seed=7
    refused 78 "is of step 6, which counts: nothing is left to train" check --set checkpoint.load=base --set batch.steps=6
    refused 78 "the kill-switch file stop exists" check --set report.kill_file=stop
    unseen() { # WORDS ARGUMENT...
        refused 0 "muster-train: warning: $1" check "${@:2}"
        grep -qx "job.cfg is a valid job file" ../out
    }
    unseen "this node cannot check all: data.valid: nowhere.idx: No such file" --set data.valid=nowhere
    unseen "this node cannot check all: data.tokenizer: none: No such file" --set data.tokenizer=none
    unseen "this node cannot check all: checkpoint.load: none: No such file" --set checkpoint.load=none
    unseen "this node cannot check all: report.metrics: cannot write to no/dir/: No such file" --set report.metrics=no/dir/m
    unseen "this node cannot check all: checkpoint.dir: cannot write to /proc/sys/" --set checkpoint.dir=/proc/sys/ck
    unseen "not looked at, outside of that job: checkpoint.dir: %j is the job's number" --set checkpoint.dir=base/%j
    check --set checkpoint.dir=new/deep --set report.metrics=m --set checkpoint.load=base | grep -x "job.cfg is a valid job file"
    find . -printf '%P %T@ %s\n' | sort | cmp - ../before
}

@test "--check gives up a file system that does not answer" {
    local shim=$BUILD/tests/crash/.libs/libshim.so
    [ -e "$shim" ] || skip "the crash tests' shim is not built"
    tiny_job "$DIR/tiny"
    mkdir "$DIR/stuck"
    mv "$DIR"/tiny/train.* "$DIR/stuck/"
    run env LD_PRELOAD="$shim" SHIM_PROGRAM=muster-train SHIM_FAIL=look:1:WAIT SHIM_GO="$DIR/never" \
        SHIM_ROOT="$(realpath "$DIR/stuck")" timeout 120 muster-train --check "$DIR/tiny/job.cfg" --set data.train="$DIR/stuck/train"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"warning: this node cannot check all: data.train and data.valid not looked at: no answer within 5 s"* ]]
}

@test "an invalid MUSTER_RANK_MAP of a one-rank run is refused with 64" {
    tiny_job "$DIR/tiny"
    for map in garbage 0-3 1 0,0 -; do
        refused 64 "MUSTER_RANK_MAP: " env MUSTER_RANK_MAP=$map muster-train "$DIR/tiny/job.cfg"
    done
    MUSTER_RANK_MAP=0 muster-train "$DIR/tiny/job.cfg" --set batch.steps=6
}

@test "a MUSTER_RANK_MAP that differs between ranks ends all ranks with 64" {
    need mpiexec.mpich
    tiny_job "$DIR/tiny"
    printf '#!/bin/sh\n[ "$PMI_RANK" = 0 ] || export MUSTER_RANK_MAP=$1\nshift\nexec "$@"\n' >"$DIR/rank"
    chmod +x "$DIR/rank"
    for map in 1,x 1,0; do
        run ranks 2 "$DIR/rank" $map muster-train "$DIR/tiny/job.cfg"
        echo "$output"
        [ "$status" -eq 64 ]
        [ "$(grep -c "MUSTER_RANK_MAP differs between ranks, here it is \"\($map\)\?\"" <<<"$output")" -eq 1 ]
    done
}

@test "invalid numbers and options of the other programs are refused in one line" {
    for number in 5.7 1e300 -1 99999999999999999999 3x ''; do
        refused 64 "--tokens needs a whole number of at least 0, not $number" muster-generate --tokens "$number" x
        refused 64 "--seed needs a whole number of at least 0, not $number" muster-generate --seed "$number" x
        refused 64 "--checkpoint-bytes needs a whole number of at least 0, not $number" \
            muster-preflight --checkpoint-bytes "$number"
    done
    refused 64 "--seconds needs a whole number from 3 to 3600, not 10m" muster-preflight --seconds 10m
    refused 64 "unknown option --fast" muster-preflight --fast
    refused 64 "unexpected argument n1" muster-preflight n1
    refused 64 "a file is missing after --text" "$TOP/quickstart" --text
    refused 64 "--prefix=inst: make install takes an absolute path" "$TOP/setup" --prefix=inst
    refused 64 "--prefix=$DIR/in st: make install takes an absolute path" "$TOP/setup" "--prefix=$DIR/in st"
}

@test "output that cannot be written ends the program with 74" {
    tiny_job "$DIR/tiny"
    for command in "muster-train --keys" "muster-train --check $DIR/tiny/job.cfg" \
        "muster-train --plan 4 $DIR/tiny/job.cfg" "muster-data verify $DIR/tiny/train" "muster-ckpt --help" \
        "muster-ckptd --version" "muster-generate --help" "muster-preflight --help" "muster-report --help"; do
        status=0
        $command >/dev/full 2>"$DIR/err" || status=$?
        echo "$command: $status, $(cat "$DIR/err")"
        [ "$status" -eq 74 ]
        grep -q "No space left on device" "$DIR/err"
    done
}

@test "a NaN is logged as nan, without a sign" {
    tiny_job "$DIR/tiny"
    status=0
    muster-train "$DIR/tiny/job.cfg" --set precision.compute=fp16 --set precision.loss_scale=1e30 \
        --set report.log_every=2 --set optimizer.most_skipped=2 >"$DIR/log" 2>&1 || status=$?
    cat "$DIR/log"
    [ "$status" -eq 65 ]
    grep -q '| grad norm: nan | .* number of skipped iterations:   2 |' "$DIR/log"
}

# on_terminal VARIABLE=VALUE...: what a short run shows on a terminal
on_terminal() {
    local sets="--set batch.steps=6 --set report.metrics= --set report.log_every=3"
    env "$@" script -qc "muster-train $DIR/tiny/job.cfg $sets" /dev/null
}

@test "terminal output has colors and UTF-8 only where the terminal supports them" {
    command -v script >/dev/null || skip "script is not installed"
    tiny_job "$DIR/tiny"
    if locale -a | grep -qix 'c.utf-\?8'; then
        on_terminal TERM=xterm LC_ALL=C.UTF-8 NO_COLOR= | tee "$DIR/out"
        LC_ALL=C grep -q $'\033\\[32m\342\224\201' "$DIR/out"
    fi
    on_terminal TERM=xterm LC_ALL=C NO_COLOR=1 >"$DIR/out"
    grep -q $'\r\033\\[K6/6  .*loss' "$DIR/out"
    [ "$(LC_ALL=C grep -c $'\033\\[3' "$DIR/out")" -eq 0 ]
    grep -q $'\r\033\\[K3/6  loss [0-9.]*  .*tok/s' "$DIR/out" # stays above the bar
    [ "$(grep -c 'iteration' "$DIR/out")" -eq 0 ]
    [ "$(LC_ALL=C tr -d '\000-\177' <"$DIR/out" | wc -c)" -eq 0 ]
    on_terminal TERM=dumb LC_ALL=C >"$DIR/out"
    grep -q ' iteration        6/       6 ' "$DIR/out"
    [ "$(grep -c $'\033' "$DIR/out")" -eq 0 ]
}

# capitals_model: checkpoints DIR/c of a model that knows bytes up to 90, a small one
capitals_model() {
    tiny_job "$DIR/tiny"
    tr 'a-z' 'A-Z' <"$DIR/tiny/text" | tr -c 'A-Z \n' ' ' >"$DIR/capitals"
    muster-data "$DIR/capitals" --out "$DIR/capitals" >/dev/null
    muster-train "$DIR/tiny/job.cfg" --set data.train="$DIR/capitals" --set data.valid= --set model.vocab=91 \
        --set batch.steps=20 --set checkpoint.every=10 --set checkpoint.dir="$DIR/c" >/dev/null
}

@test "muster-generate refuses unknown tokens and missing checkpoints, and skips a damaged newest one" {
    capitals_model
    muster-generate --prompt IN --tokens 5 "$DIR/c"
    refused 64 "--prompt has token 110 (bytes); with model.vocab = 91 the model knows 0 to 90" \
        muster-generate --prompt In "$DIR/c"
    refused 65 "$DIR/tiny: no checkpoint" muster-generate "$DIR/tiny"
    refused 65 "$DIR/nothing: No such file or directory" muster-generate "$DIR/nothing"
    # Tokens that are no bytes, which a padded vocabulary has, are never printed, though nothing has taught that.
    for vocab in 384 1024; do
        muster-train "$DIR/tiny/job.cfg" --set data.valid= --set model.vocab=$vocab --set batch.steps=6 \
            --set optimizer.lr=1e-9 --set optimizer.min_lr=0 --set checkpoint.dir="$DIR/v$vocab" >/dev/null
    done
    # 257 are possible, of which 256 ends a document. What is no UTF-8 is printed as U+FFFD.
    muster-generate --prompt In --tokens 300 --temperature 1 "$DIR/v384" | iconv -f UTF-8 -t UTF-8 >/dev/null
    refused 65 "there is no $DIR/v1024/tokenizer: name the model's tokenizer by --tokenizer" \
        muster-generate --prompt In "$DIR/v1024"
    : >"$DIR/c/step-00000020/manifest.json"
    refused 0 "trying the one before it" muster-generate --prompt IN --tokens 5 "$DIR/c"
    status=0
    muster-generate --prompt IN --tokens 5 "$DIR/c/step-00000010" >/dev/full 2>"$DIR/err" || status=$?
    [ "$status" -eq 74 ]
}

@test "muster-generate refuses invalid options in one line" {
    refused 64 "--top-p needs a number from 0 to 1, not 1.5" muster-generate --top-p 1.5 x
    refused 64 "--top-k needs a whole number from 1 to 2147483647, not 0" muster-generate --top-k 0 x
    refused 64 "--prompt must not be empty" muster-generate --prompt '' x
    capitals_model
    cd "$DIR"
    refused 74 "no such tokenizer: No such file" muster-generate --tokenizer "no such tokenizer" c
}

@test "muster-train --evaluate without a checkpoint or data.valid is refused in one line" {
    tiny_job "$DIR/tiny"
    refused 78 "--evaluate needs data.valid" muster-train --evaluate "$DIR/tiny/job.cfg" --set data.valid=
    refused 78 "--evaluate needs a checkpoint: give --checkpoint, or set checkpoint.dir, load or init" \
        muster-train --evaluate "$DIR/tiny/job.cfg"
    refused 65 "$DIR/none: there is no checkpoint to evaluate" \
        muster-train --evaluate "$DIR/tiny/job.cfg" --set checkpoint.dir="$DIR/none"
    [ ! -e "$DIR/none" ]
}

# broken_data NAME WORDS: the data set DIR/d is broken; both who make data and who train on it refuse it
broken_data() {
    refused 65 "$2" muster-data verify "$DIR/d"
    refused 65 "$2" muster-train "$DIR/tiny/job.cfg" --set data.train="$DIR/d"
    cases=$((cases + 1))
}

# Copy the good data and change it: patch FILE OFFSET BYTES
fresh() {
    cp "$DIR/tiny/train.bin" "$DIR/d.bin"
    cp "$DIR/tiny/train.idx" "$DIR/d.idx"
}
patch() {
    printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

@test "broken data sets are refused with 65 and the file's name" {
    tiny_job "$DIR/tiny"
    cases=0
    fresh && truncate -s -1 "$DIR/d.bin" && broken_data short-bin d.bin
    fresh && printf x >>"$DIR/d.bin" && broken_data long-bin d.bin
    fresh && truncate -s 20 "$DIR/d.idx" && broken_data short-idx d.idx
    fresh && : >"$DIR/d.idx" && broken_data empty-idx d.idx
    fresh && printf x >>"$DIR/d.idx" && broken_data long-idx d.idx
    fresh && patch "$DIR/d.idx" 0 X && broken_data magic d.idx
    fresh && patch "$DIR/d.idx" 9 '\2' && broken_data version d.idx
    fresh && patch "$DIR/d.idx" 17 '\143' && broken_data dtype d.idx
    fresh && patch "$DIR/d.idx" 18 '\377\377\377\377\377\377\377\177' && broken_data count d.idx
    fresh && patch "$DIR/d.idx" 34 '\377\377\377\377' && broken_data length d.idx
    fresh && patch "$DIR/d.idx" 38 '\1' && broken_data pointer d.idx
    fresh && rm "$DIR/d.idx" && refused 65 d.idx muster-data verify "$DIR/d"
    [ "$cases" -ge 10 ]
    refused 65 "a sample of model.seq_length = 400000" muster-train "$DIR/tiny/job.cfg" --set model.seq_length=400000
    refused 65 "token" muster-train "$DIR/tiny/job.cfg" --set model.vocab=65
}

# broken_checkpoint WORDS: DIR/c/step-00000010 is broken: verify refuses it, and training on it does not start anew
broken_checkpoint() {
    refused 65 "$1" muster-ckpt verify "$DIR/c/step-00000010"
    refused 65 "none of its 1 checkpoints" muster-train "$DIR/tiny/job.cfg" --set checkpoint.dir="$DIR/c"
    refused 65 "" muster-generate "$DIR/c/step-00000010"
    cases=$((cases + 1))
}
again() {
    rm -rf "$DIR/c"
    cp -r "$DIR/good" "$DIR/c"
    step=$DIR/c/step-00000010
}

@test "broken checkpoints are refused with 65 and the file's name, and none is loaded" {
    need mpiexec.mpich
    tiny_job "$DIR/tiny"
    ranks 2 muster-train "$DIR/tiny/job.cfg" --set batch.steps=10 --set checkpoint.dir="$DIR/good" >/dev/null
    shard0=shard-00000-of-00002.safetensors shard1=shard-00001-of-00002.safetensors cases=0
    again && truncate -s -4 "$step/$shard1" && broken_checkpoint $shard1
    again && printf x >>"$step/$shard1" && broken_checkpoint $shard1
    again && patch "$step/$shard0" 20000 '\252\252\252' && broken_checkpoint $shard0
    again && patch "$step/$shard0" 30 '#' && broken_checkpoint $shard0
    again && rm "$step/$shard0" && broken_checkpoint $shard0
    again && mv "$step/$shard0" "$step/x" && cp "$step/$shard1" "$step/$shard0" && rm "$step/x" && broken_checkpoint $shard0
    again && : >"$step/manifest.json" && broken_checkpoint manifest.json
    again && truncate -s -10 "$step/manifest.json" && broken_checkpoint manifest.json
    again && sed -i 's/"wte.weight"/"wtf.weight"/' "$step/manifest.json" && broken_checkpoint manifest.json
    again && sed -i 's/"crc32c":"[0-9a-f]*"/"crc32c":"00000000"/' "$step/manifest.json" && broken_checkpoint manifest.json
    again && sed -i "s/$shard1/..\/..\/shard/" "$step/manifest.json" && broken_checkpoint manifest.json
    again && rm "$step/manifest.json" && broken_checkpoint manifest.json
    [ "$cases" -ge 10 ]
}

# reseal FILE SCRIPT: change a manifest by a script of sed, and give it the checksum that is right for what it says now
reseal() {
    sed -i "$2" "$1"
    python3 - "$1" <<'PY'
import sys
text = bytearray(open(sys.argv[1], "rb").read())
text[11:19] = b"00000000"
crc = 0xffffffff
for byte in text:
    crc ^= byte
    for _ in range(8):
        crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
text[11:19] = b"%08x" % (crc ^ 0xffffffff)
open(sys.argv[1], "wb").write(text)
PY
}

# newer WORDS: the newest of DIR/c's two checkpoints is of a later release: 78, it stays, and the older one is not taken
newer() {
    cp -r "$DIR/c" "$DIR/before"
    refused 78 "step-00000020/manifest.json: $1" muster-train "$DIR/tiny/job.cfg" --set checkpoint.dir="$DIR/c"
    grep -q 'written by muster 9\.[0-9.]* in format [12]; this is muster [0-9.]*, which knows format 1' "$DIR/err"
    refused 78 "step-00000020/manifest.json: $1" muster-generate --tokens 5 "$DIR/c"
    refused 78 "step-00000020/manifest.json: $1" muster-ckpt verify "$DIR/c"
    refused 78 "step-00000020/manifest.json: $1" muster-ckpt rm --force "$DIR/c/step-00000020"
    diff -r -x 'owner-*.json' "$DIR/before" "$DIR/c"
    rm -r "$DIR/before"
}

@test "a checkpoint of a later release is refused with 78 and kept, and no older one is loaded instead" {
    need python3
    tiny_job "$DIR/tiny"
    muster-train "$DIR/tiny/job.cfg" --set batch.steps=20 --set checkpoint.every=10 --set checkpoint.dir="$DIR/good" >/dev/null
    again && reseal "$DIR/c/step-00000020/manifest.json" 's/"muster":"/&9./; s/"version":1/"version":2/'
    newer "format version 2 is unknown"
    again && reseal "$DIR/c/step-00000020/manifest.json" 's/"muster":"/&9./; s/"tensors":/"later":1,&/'
    newer 'member "later" is unknown'
    again && reseal "$DIR/c/step-00000020/manifest.json" 's/"muster":"/&9./; s/"block_bytes":/"block_size":/'
    newer 'files[0]: member "block_size" is unknown'
}
