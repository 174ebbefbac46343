# bats file_tags=more
# A checkpoint directory that does not answer: a frozen file system. Where that cannot be mounted, muster-ckptd's fsyncs
# wait instead, in a call that can be killed.
load ../helpers

setup() {
    need mpiexec.mpich
    DIR=$(realpath "$BATS_TEST_TMPDIR")
    mkdir -m 700 "$DIR/stage"
    mkdir "$DIR/ckpt"
    tiny_job "$DIR"
    sed -i 's/steps = 50;/steps = 100000;/; s/hidden = 32/hidden = 256/; s/global_batch = 24/global_batch = 4/;
        s/micro_batch = 4/micro_batch = 2/' "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 10; keep = 3; stage = \"$DIR/stage\"; last_seconds = 3; };" \
        >>"$DIR/job.cfg"
    cd "$DIR" || return
    mount_ext4 || wait_in_fsync
}

teardown() {
    [ -z "${background:-}" ] || kill -KILL "$background" 2>/dev/null || true
    answer
    pkill -KILL -f "muster-ckptd .*$DIR/stage" || true
    [ ! -e img ] || eventually 30 umount ckpt
}

mount_ext4() {
    [ "$(id -u)" -eq 0 ] && command -v fsfreeze mkfs.ext4 >/dev/null || return
    truncate -s 400M img
    mkfs.ext4 -q img
    mount -o loop img ckpt 2>/dev/null && fsfreeze -f ckpt && fsfreeze -u ckpt && return
    rm img
    return 1
}

wait_in_fsync() {
    local shim=$BUILD/tests/crash/.libs/libshim.so
    [ -e "$shim" ] || skip "no file system can be frozen here, and the crash tests' shim is not built"
    touch go
    export LD_PRELOAD=$shim SHIM_PROGRAM=muster-ckptd SHIM_ROOT=$DIR/ckpt SHIM_FAIL=fsync:1:WAIT+ SHIM_GO=$DIR/go \
        SHIM_HIT=$DIR/hit
}

hang() {
    if [ -e img ]; then
        fsfreeze -f ckpt
    else
        mkfifo go.new
        mv go.new go
    fi
}

answer() {
    if [ -e img ]; then
        fsfreeze -u ckpt 2>/dev/null || true
    elif [ -p go ]; then
        exec 9<>go
        touch go.new
        mv go.new go
        exec 9>&-
    fi
}

start() {
    mpiexec.mpich -n 2 muster-train job.cfg --set report.kill_file="$DIR/stop" "$@" >log 2>&1 3>&- &
    background=$!
    eventually 60 grep -q '^checkpoint of step 20 saved in ' log
}

# ended CODE: the run has ended with that, within 60 s
ended() {
    local status=0
    gone() { ! kill -0 "$background" 2>/dev/null; }
    eventually 60 gone
    wait "$background" || status=$?
    background=
    cat log
    [ "$status" -eq "$1" ]
}

unused() { ! pgrep -f "muster-ckptd .*$DIR/stage" >/dev/null; }

# bats test_tags=quick
@test "a run that stops while its checkpoint directory does not answer leaves its last step in memory, and ends: 75" {
    start
    hang
    eventually 60 grep -Eq '^the checkpoint of step [0-9]+ is dropped to make room for that of step [0-9]+: .*/ckpt has not answered for [0-9]+ s$' log
    eventually 60 grep -Eq '^warning: no checkpoint was committed since step [0-9]+, [0-9]+ s ago: .*/ckpt has not answered for ' log
    # Neither rank 0 nor a node's muster-ckptd says more of a save that is dropped.
    dropped=$(sed -n 's/^the checkpoint of step \([0-9]*\) is dropped.*/\1/p' log | head -n 1)
    eventually 60 grep -q 'dropped, a newer save needs its memory' stage/*/status.json
    dropped_again() { [ "$(grep -c ' is dropped to make room ' log)" -ge 2 ]; }
    eventually 60 dropped_again
    [ "$(grep -cw "step $dropped" log)" -eq 1 ]
    muster-ckpt status stage/* >status
    cat status
    grep -Eq ' hanging .*/ckpt has not answered for [0-9]+ s' status
    touch stop
    ended 75
    last=$(sed -n 's/^stopped at step //p' log)
    grep -q "^checkpoint of step $last is not in .*/ckpt; every node keeps its shards in .*: .*/ckpt has not answered for " log
    answer
    rm stop
    eventually 30 unused
    ranks 2 muster-train job.cfg --set report.minutes=0.001 >log || [ $? -eq 75 ]
    cat log
    grep -q "^resumed from .* at step $last " log
    muster-ckpt verify --all ckpt
}

@test "a checkpoint directory that does not answer for a while loses nothing: the save under way is committed, too" {
    start --set report.metrics="$DIR/ckpt/metrics.jsonl"
    hang
    eventually 60 grep -Eq '^the checkpoint of step [0-9]+ is dropped to make room' log
    held=$(muster-ckpt status stage/* | sed -n 's/^ *step \([0-9]*\) *hanging .*/\1/p')
    [ -n "$held" ]
    answer
    eventually 60 grep -q "^checkpoint of step $held saved in " log
    eventually 60 grep -q 'muster-ckptd.*: the drain to .*/ckpt works again, it had failed for ' log
    touch stop
    ended 75
    last=$(sed -n 's/^stopped at step //p' log)
    grep -q "^checkpoint of step $last saved in " log
    [ "$(wc -l <ckpt/metrics.jsonl)" -eq "$last" ]
    [ -z "$(ls stage)" ]
    muster-ckpt verify --all ckpt
}

@test "muster-ckptd --once leaves a checkpoint directory that does not answer at its deadline" {
    start
    hang
    eventually 60 eval 'ls -d stage/*/step-*.partial | grep -q .'
    kill -KILL "$background"
    pkill -KILL -f "muster-train job.cfg --set report.kill_file=$DIR/stop" || true
    pkill -KILL -f "muster-ckptd .*$DIR/stage" # the child stays, in the kernel
    background=
    status=0
    timeout -k 1 30 muster-ckptd --once --seconds 3 stage/* >once 2>&1 3>&- || status=$?
    cat once
    [ "$status" -eq 75 ]
    answer
    muster-ckptd --once stage/*
    muster-ckpt verify --all ckpt
}
