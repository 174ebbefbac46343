# What releases read of each other (doc/COMPATIBILITY.md): the checkpoints of earlier formats in tests/fixtures/formats,
# which every later build must read, and a stage; and files of later formats, which nothing may touch.
load ../helpers

FIXTURES=$TOP/tests/fixtures/formats

setup() {
    need mpiexec.mpich
    need python3
    DIR=$BATS_TEST_TMPDIR
    cd "$DIR" || return
    cp "$FIXTURES/job.cfg" .
    head -c 4000 "$TOP/LICENSE" >text
    muster-data text --out train >/dev/null
    mkdir -p -m 700 ckpt stage
}

# crc32c of a string or, with --seal, of a manifest or part, whose checksum is then put right
crc32c() {
    python3 - "$@" <<'PY'
import sys
def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return b"%08x" % (crc ^ 0xffffffff)
if sys.argv[1] != "--seal":
    sys.exit(print(crc32c(sys.argv[1].encode()).decode()))
text = open(sys.argv[2], "rb").read()
start = len(b'{"crc32c":"')
text = text[:start] + b"0" * 8 + text[start + 8:]
open(sys.argv[2], "wb").write(text[:start] + crc32c(text) + text[start + 8:])
PY
}

# checkpoint NUMBER: the checkpoint of that format, in ckpt
checkpoint() {
    tar -xzf "$FIXTURES/checkpoint-$1.tar.gz"
}

# stage NUMBER: the stage of that format, in stage, where a training in this directory looks for it
stage() {
    STAGE=$DIR/stage/muster-$(id -u)-run.$(hostname | cut -d. -f1).$(crc32c "$(realpath ckpt)")-0123456789abcdef
    tar -xzpf "$FIXTURES/stage-$1.tar.gz" --no-same-owner
    mv muster-stage "$STAGE"
    mv "$STAGE"/step-00000004.* "$STAGE/step-00000004.x.partial" # of no claim
    sed -i "s|\"/checkpoints\"|\"$DIR/ckpt\"|; s/\"attempt\":\"[^\"]*/\"attempt\":\"x/" "$STAGE"/step-*/*.json
    for part in "$STAGE"/step-*/shard-*.json; do crc32c --seal "$part"; done
}

# later NUMBER FILE...: as a release writes them whose format has that number
later() {
    local file
    for file in "${@:2}"; do
        sed -i "s/\"version\":1,\"muster\":\"/\"version\":$1,\"muster\":\"9./" "$file"
        crc32c --seal "$file"
    done
}

# expect CODE COMMAND...: it ends with that code; what it prints is in the file log
expect() {
    local status=0
    "${@:2}" >log 2>&1 </dev/null || status=$?
    cat log
    [ "$status" -eq "$1" ]
}

train() {
    ranks 1 muster-train job.cfg --set batch.steps=6 --set checkpoint.stage="$DIR/stage" "$@"
}

# unknown NUMBER FILE: one line of log names the file, both releases and both numbers
unknown() {
    [ "$(grep -c "/$2: .*format version $1 is unknown (written by muster 9\.[0-9.]* in format $1; this is muster [0-9.]*, which knows format 1)" log)" -eq 1 ]
}

# other_stage MARK: one line of log names the stage, both releases and both numbers
other_stage() {
    [ "$(grep -c "$STAGE: stage format ${1% *} is unknown (made by muster ${1#* }; this is muster [0-9.]*, which knows format 3)" log)" -eq 1 ]
}

sums() {
    find ckpt/step-* "$STAGE"/step-* -type f -exec md5sum {} + | sort -k 2
}

@test "a checkpoint of format 1 is verified, and a run resumes from it on another mesh" {
    checkpoint 1
    expect 0 muster-ckpt verify ckpt
    expect 0 train
    grep -q '^resumed from ckpt at step 4 ' log
    grep -q '^done at step 6$' log
}

@test "a stage that another run left is drained by muster-ckptd and by the job's next run" {
    checkpoint 1
    mv ckpt checkpoint
    mkdir ckpt
    stage 3
    expect 0 muster-ckptd --once "$STAGE"
    [ ! -e "$STAGE" ]
    expect 0 muster-ckpt verify ckpt
    expect 0 muster-ckpt diff checkpoint ckpt
    rm -r ckpt/*
    stage 3
    expect 0 train
    grep -q '^resumed from ckpt at step 4 ' log
    [ ! -e "$STAGE" ]
}

# bats test_tags=more
@test "a claim of format 1 is read: the next run takes over the directory and logs the claim's job" {
    cp "$FIXTURES/owner-1.json.fixture" ckpt/owner-6.json
    sed -i 's/"released": [0-9.]*/"released": 0/' ckpt/owner-6.json
    SLURM_CLUSTER_NAME=cluster SLURM_JOB_ID=4713 SLURM_RESTART_COUNT=2 expect 0 train
    grep -q '^took over ckpt from job 4711_2 (restart 1) on node1 since .* (owner-6.json), which ended without releasing it' log
    [ "$(ls ckpt/owner-*)" = ckpt/owner-7.json ]
}

@test "a checkpoint of another format is refused with 78 and left unchanged" {
    for number in 2 0; do
        rm -rf ckpt/*
        checkpoint 1
        cp -r ckpt/step-00000004 ckpt/step-00000002 # an older one that could be loaded
        sed -i 's/"step":4\b/"step":2/' ckpt/step-00000002/manifest.json
        crc32c --seal ckpt/step-00000002/manifest.json
        muster-ckpt verify ckpt/step-00000002
        later $number ckpt/step-00000004/manifest.json
        sums >before
        expect 78 train
        unknown $number manifest.json
        expect 78 muster-ckpt verify ckpt
        unknown $number manifest.json
        expect 78 muster-ckpt rm --force ckpt/step-00000004
        sums | diff before -
    done
}

@test "an uncommitted save in a later format ends the run with 78 and is left unchanged" {
    stage 3
    cp -r "$STAGE"/step-00000004.*.partial ckpt
    rm ckpt/*/target.json
    rm -r "$STAGE"/step-*
    later 2 ckpt/step-*/shard-*.json
    sums >before
    expect 78 train
    unknown 2 'shard-0000[01]-of-00002.json'
    sums | diff before -
}

@test "a stage of another format ends muster-ckptd with 75 and a run with 78, and is left unchanged" {
    stage 3
    for mark in '4 9.1.0' '2 9.0.0'; do
        rm "$STAGE/format"
        ln -s "$mark" "$STAGE/format"
        sums >before
        expect 75 muster-ckptd --once "$STAGE"
        other_stage "$mark"
        expect 78 train
        other_stage "$mark"
        sums | diff before -
        [ -z "$(ls -A -I 'owner-*' ckpt)" ]
    done
}

@test "if a step is already committed in a later format, muster-ckptd keeps the staged copy and ends with 75" {
    stage 3
    checkpoint 1
    later 2 ckpt/step-00000004/manifest.json
    sums >before
    expect 75 muster-ckptd --once "$STAGE"
    unknown 2 manifest.json
    sums | diff before -
}
