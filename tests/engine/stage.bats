# bats file_tags=more
# Saves that are staged and drained behind the training: slow drains, killed processes, places that cannot be used.
load ../helpers

setup() {
    need mpiexec.mpich
    DIR=$BATS_TEST_TMPDIR
    mkdir -m 700 "$DIR/stage"
    tiny_job "$DIR"
    sed -i 's/steps = 50;/steps = 40;/' "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 10; keep = 3; stage = \"$DIR/stage\"; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
}

teardown() {
    [ -z "${background:-}" ] || kill -KILL "$background" 2>/dev/null || true
    pkill -KILL -f "muster-ckptd .*$DIR/stage" || true
}

# The staging directories that are there; none after a run that ended well.
stages() {
    find "$DIR/stage" -mindepth 1 -maxdepth 1 | wc -l
}

# larger: 20 MB of state, so that a drain of some MiB a second takes its time
larger() {
    sed -i 's/hidden = 32/hidden = 256/; s/global_batch = 24/global_batch = 4/; s/micro_batch = 4/micro_batch = 2/' job.cfg
}

# train_until_staged STEP ARGUMENT...: two ranks in the background, until that step is staged
train_until_staged() {
    mpiexec.mpich -n 2 muster-train job.cfg "${@:2}" >log 2>&1 3>&- &
    background=$!
    staged() { [ "$(ls stage/*/step-000000"$1".*/shard-*.json 2>/dev/null | wc -l)" -eq 2 ]; }
    eventually 60 staged "$1"
}

# kill_ranks: before muster-ckptd, which they would start anew: the next run would find it at work
kill_ranks() {
    pkill -KILL -P "$(pgrep -P $background | head -n 1)" || true
    kill -KILL $background || true
    wait $background || true
    background=
}

# bats test_tags=quick
@test "a run leaves no stage behind, and every save is committed" {
    ranks 2 muster-train job.cfg >log
    [ "$(grep -c '^checkpoint of step [0-9]* saved in ' log)" -eq 4 ]
    [ "$(muster-ckpt list --json ckpt | grep -c '"step"')" -eq 3 ]
    muster-ckpt verify --all ckpt
    [ "$(stages)" -eq 0 ]
}

@test "staged and direct saves are bit-identical" {
    ranks 3 muster-train job.cfg >log
    ranks 3 muster-train job.cfg --set checkpoint.dir=straight --set checkpoint.stage= >log
    run muster-ckpt diff ckpt straight
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

@test "with a slow drain, staged memory is bounded, training continues and all checkpoints are whole" {
    larger
    local most=0 now
    ranks 2 muster-train job.cfg --set checkpoint.every=1 --set batch.steps=100000 --set checkpoint.drain_mib=80 \
        --set report.kill_file="$DIR/stop" >log 2>&1 3>&- &
    background=$!
    until [ "$(grep -c '^checkpoint of step [0-9]* saved in ' log)" -ge 24 ]; do
        # The lesser of two readings: a file that moves from one directory to another may be counted twice in one.
        now=$({ du -s --block-size=1K "$DIR/stage"; du -s --block-size=1K "$DIR/stage"; } 2>/dev/null | sort -n | sed 's/\t.*//;q')
        [ "${now:-0}" -le "$most" ] || most=$now
        kill -0 $background || { cat log; return 1; }
        sleep 0.05
    done
    touch stop
    wait $background || [ $? -eq 75 ]
    background=
    echo "# at most $most KiB staged; $(tail -n 3 log | head -n 1)" >&3
    [ "$most" -gt 18000 ]                                            # one save is 19 MiB
    [ "$most" -le 42000 ]                                            # two are allowed
    [ "$(grep -c 'waits until an earlier one is drained' log)" -ge 1 ] # training did not
    muster-ckpt verify --all ckpt
}

# bats test_tags=quick
@test "after ranks and muster-ckptd are killed during a drain, the next run adopts the staged save" {
    larger
    train_until_staged 10 --set checkpoint.drain_mib=2
    kill_ranks
    pkill -KILL -f "muster-ckptd .*$DIR/stage"
    [ ! -e ckpt/step-00000010 ]
    ranks 2 muster-train job.cfg >log
    grep -Eq '^resumed from .* at step [1-4]0 ' log
    [ "$(grep -c 'another job' log)" -eq 0 ]
    grep -q '^done at step 40$' log
    [ "$(stages)" -eq 0 ]
}

@test "a muster-ckptd that is stopped before a run stops is replaced, and commits the last step" {
    larger
    ranks 2 muster-train job.cfg --set batch.steps=100000 --set checkpoint.last_seconds=5 \
        --set report.kill_file="$DIR/stop" >log 2>&1 3>&- &
    background=$!
    eventually 30 saved 10
    pkill -STOP -f "muster-ckptd .*$DIR/stage"
    touch stop
    wait $background || [ $? -eq 75 ]
    background=
    cat log
    grep -Eq '^muster-ckptd made no progress for [0-9]+ s and is restarted$' log
    saved "$(sed -n 's/^stopped at step //p' log)"
    [ "$(stages)" -eq 0 ]
    muster-ckpt verify ckpt
}

@test "a muster-ckptd that is stopped on one of two nodes is replaced, and the run goes on committing" {
    larger
    timeout 100 mpiexec.mpich \
        -n 1 -env SLURMD_NODENAME a muster-train job.cfg --set batch.steps=100000 --set report.kill_file="$DIR/stop" : \
        -n 1 -env SLURMD_NODENAME b muster-train job.cfg --set batch.steps=100000 --set report.kill_file="$DIR/stop" \
        >log 2>&1 3>&- &
    background=$!
    eventually 30 saved 10
    pkill -STOP -f "muster-ckptd .*$DIR/stage/.*[.]b[.]"
    before=$(grep -c '^checkpoint of step [0-9]* saved in ' log)
    more() { [ "$(grep -c '^checkpoint of step [0-9]* saved in ' log)" -gt $((before + 2)) ]; }
    eventually 60 more
    touch stop
    wait $background || [ $? -eq 75 ]
    background=
    cat log
    grep -Eq '^rank 1 on .*: muster-ckptd made no progress for [0-9]+ s and is restarted$' log
    saved "$(sed -n 's/^stopped at step //p' log)"
    [ "$(stages)" -eq 0 ]
    muster-ckpt verify ckpt
}

@test "a stopped muster-ckptd that a killed run left is replaced by the next run" {
    larger
    train_until_staged 10 --set checkpoint.drain_mib=2
    pkill -STOP -f "muster-ckptd .*$DIR/stage"
    muster-ckpt status stage/* | grep -q ' drains it$'
    kill_ranks
    eventually 10 eval 'muster-ckpt status stage/* | grep -Eq "drains it, without progress for [0-9]+ s$"'
    ranks 2 muster-train job.cfg >log
    cat log
    grep -Eq 'failed: the process that drains .* has not moved for [0-9]+ s: it is killed$' log
    grep -Eq '^resumed from .* at step [1-4]0 ' log
    [ "$(stages)" -eq 0 ]
}

@test "a muster-ckptd that is killed is restarted" {
    larger
    ranks 2 muster-train job.cfg --set checkpoint.drain_mib=20 >log 2>&1 3>&- &
    background=$!
    eventually 30 pgrep -f "muster-ckptd .*$DIR/stage" >/dev/null
    eventually 30 grep -q 'iteration       10' log
    pkill -KILL -f "muster-ckptd .*$DIR/stage"
    wait $background
    background=
    grep -q '^muster-ckptd had ended and was restarted$' log
    [ "$(muster-ckpt list ckpt | tail -n +2 | head -n 1 | awk '{ print $1 }')" -eq 40 ]
    muster-ckpt verify ckpt
}

@test "if muster-ckptd does not drain, saves are written directly once the stage is full" {
    mkdir bin
    cp "$BUILD/muster-train" bin
    printf '#!/bin/sh\n[ "$1" != --claim ] || exec "%s/muster-ckptd" "$@"\nexit 1\n' "$BUILD" >bin/muster-ckptd
    chmod +x bin/muster-ckptd
    ranks 2 bin/muster-train job.cfg --set batch.steps=1000000 --set report.kill_file="$DIR/stop" >log 2>&1 3>&- &
    background=$!
    eventually 60 grep -q '^checkpoints are written directly to .*: 2 saves are staged and none is drained yet' log
    eventually 60 grep -q '^checkpoint of step [0-9]* saved in ' log
    touch stop
    wait $background || [ $? -eq 75 ]
    background=
    muster-ckpt verify --all ckpt
    rm -r stage/*
}

@test "if muster-ckptd does not run, the run ends with 74 before its first step" {
    mkdir bin
    cp "$BUILD/muster-train" bin
    printf '#!/bin/sh\nexit 1\n' >bin/muster-ckptd
    chmod +x bin/muster-ckptd
    run ranks 2 bin/muster-train job.cfg
    echo "$output"
    [ "$status" -eq 74 ]
    grep -q "^muster-train: muster-ckptd ended while it claimed $DIR/ckpt: is it the one of this muster-train?$" <<<"$output"
}

@test "if staging is impossible, saves are written directly, and that is logged once" {
    ranks 2 muster-train job.cfg --set checkpoint.stage=/nowhere >log
    [ "$(grep -c '^checkpoints are written directly to .*: /nowhere' log)" -eq 1 ]
    [ "$(grep -c '^checkpoint of step [0-9]* saved in ' log)" -eq 4 ]
    muster-ckpt verify --all ckpt
}

@test "a stage without free inodes is reported and left empty, and saves are written directly" {
    unshare -m mount -t tmpfs none stage || skip "may not mount"
    unshare -m bash -c 'mount -t tmpfs -o size=30m,nr_inodes=7,mode=700 none stage && "$@"; result=$?; ls -A stage >left
        exit $result' bash timeout 60 mpiexec.mpich -n 2 muster-train job.cfg >log
    cat log left
    grep -q '^checkpoints are written directly to .*, but no inode: No space left on device$' log
    [ ! -s left ]
    muster-ckpt verify ckpt
}

@test "an earlier run's stage whose name is a symbolic link is left alone" {
    larger
    ranks 2 muster-train job.cfg --set checkpoint.drain_mib=40 >log 2>&1 3>&- &
    background=$!
    there() { name=$(ls stage | head -n 1); [ -n "$name" ]; }
    eventually 30 there
    wait $background
    background=
    mkdir -m 755 other
    ln -s "$DIR/other" "stage/$name"
    ranks 2 muster-train job.cfg --set batch.steps=50 >log
    [ -z "$(ls other)" ]
    [ -L "stage/$name" ]
    grep -q '^done at step 50$' log
}

# A checkpoint directory that fails, and works again: a file in its place.
break_target() {
    mv ckpt away
    touch ckpt
}

mend_target() {
    rm -f ckpt
    mv away ckpt
}

saved() {
    grep -q "^checkpoint of step $1 saved in " log
}

# waits_for_target PID: that run of 30 steps ends while the checkpoint directory fails, and commits its last one later
waits_for_target() {
    background=$1
    eventually 30 grep -q 'iteration       10' log
    break_target
    eventually 60 grep -q 'drain failed, it stays in ' log
    sleep 2
    kill -0 $background
    mend_target
    wait $background
    background=
    saved 30
}

# bats test_tags=quick
@test "while the checkpoint directory is missing, only saves that do not fit into memory are lost" {
    larger
    ranks 2 muster-train job.cfg --set batch.steps=100000 --set report.kill_file="$DIR/stop" >log 2>&1 3>&- &
    background=$!
    eventually 30 saved 10
    break_target
    eventually 60 grep -q 'muster-ckptd.*: drain failed, it stays in .* and is tried again: .*Not a directory' log
    # Memory for two: the oldest makes room for the next, by name.
    eventually 60 grep -Eq '^the checkpoint of step [0-9]+ is dropped to make room for that of step [0-9]+: .*Not a directory' log
    eventually 60 grep -q 'dropped, a newer save needs its memory: .*Not a directory' stage/*/status.json
    kept=$(ls -d stage/*/step-*.partial | sed 's/.*step-0*//; s/[.].*//' | sort -n | tail -n 1)
    mend_target
    eventually 60 grep -q 'muster-ckptd.*: the drain to .*/ckpt works again, it had failed for ' log
    touch stop
    wait $background || [ $? -eq 75 ]
    background=
    cat log
    [ "$kept" -gt 10 ]
    [ "$(grep -c 'it stays in .* and is tried again' log)" -le 4 ] # not one line for each try
    last=$(sed -n 's/^stopped at step //p' log)
    [ -n "$last" ] && [ -e "ckpt/step-$(printf %08d "$last")" ]
    muster-ckpt verify --all ckpt
    [ "$(stages)" -eq 0 ]
}

@test "a run that ends while the checkpoint directory fails waits for it and commits its last step" {
    larger
    ranks 2 muster-train job.cfg --set checkpoint.every=0 --set batch.steps=30 >log 2>&1 3>&- &
    waits_for_target $!
    muster-ckpt verify ckpt
    [ "$(stages)" -eq 0 ]
}

@test "a last save whose directory is removed during the drain is written again directly" {
    larger
    ranks 2 muster-train job.cfg --set checkpoint.every=0 --set batch.steps=10 --set checkpoint.drain_mib=16 \
        --set checkpoint.last_seconds=30 >log 2>&1 3>&- &
    background=$!
    begun() { [ -n "$(ls -d ckpt/step-*.partial 2>/dev/null)" ]; }
    eventually 30 begun
    rm -r ckpt/step-*.partial
    wait $background
    background=
    cat log
    grep -q '^checkpoint of step 10 failed: .*has been removed' log
    saved 10
    muster-ckpt verify ckpt
    [ "$(stages)" -eq 0 ]
}

@test "a last save that cannot be drained is not written beneath a missing mount" {
    larger
    ranks 2 muster-train job.cfg --set checkpoint.every=0 --set batch.steps=10 --set checkpoint.drain_mib=8 \
        --set checkpoint.last_seconds=3 >log 2>&1 3>&- &
    background=$!
    begun() { [ -n "$(ls -d ckpt/step-*.partial 2>/dev/null)" ]; }
    eventually 30 begun
    mv ckpt away
    status=0
    wait $background || status=$?
    background=
    cat log
    [ "$status" -eq 74 ]
    [ ! -e ckpt ]
    mv away ckpt
    muster-ckptd --once stage/*
    muster-ckpt verify ckpt
}

# ends_with CODE WORDS...: of a run whose checkpoint directory fails for longer than it waits, and what it leaves
ends_with() {
    local code=$1 status=0
    shift
    larger
    ranks 2 env "${@:2}" muster-train job.cfg --set checkpoint.every=0 --set batch.steps="$1" \
        --set report.kill_file="$DIR/stop" >log 2>&1 3>&- &
    background=$!
    eventually 30 grep -q 'iteration       10' log
    break_target
    [ "$1" -lt 1000 ] || touch stop
    wait $background || status=$?
    background=
    cat log
    [ "$status" -eq "$code" ]
    rm -f stop
    grep -Eq 'checkpoint of step [0-9]+ is not in .*/ckpt; every node keeps its shards in .*/stage/muster-.*: ' log
    unused() { ! pgrep -f "muster-ckptd .*$DIR/stage" >/dev/null; }
    eventually 30 unused # the drainer tries once more by itself
    [ "$(stages)" -eq 1 ]
    [ "$(ls stage/*/step-*.partial/shard-*.json | wc -l)" -eq 2 ]
    run muster-ckptd --once stage/*
    [ "$status" -eq 75 ]
    mend_target
    muster-ckptd --once stage/*
    muster-ckpt verify ckpt
    [ "$(muster-ckpt list ckpt | tail -n +2 | wc -l)" -eq 1 ]
    [ "$(stages)" -eq 0 ]
}

@test "a stopped run whose checkpoint directory fails too long ends with 75 and keeps its save in memory" {
    sed -i 's/keep = 3;/keep = 3; last_seconds = 2;/' job.cfg
    ends_with 75 100000 A=
}

@test "a finished run that cannot write its last checkpoint ends with 74 and keeps it in memory" {
    sed -i 's/keep = 3;/keep = 3; last_seconds = 2;/' job.cfg
    ends_with 74 30 A=
}

@test "a run whose checkpoint directory fails waits no longer than the job's time limit" {
    ends_with 75 100000 SLURM_JOB_END_TIME=$(($(date +%s) + 18))
}

@test "a run whose time limit was extended still waits for its checkpoint directory" {
    larger
    SLURM_JOB_END_TIME=$(($(date +%s) - 100)) ranks 2 muster-train job.cfg --set checkpoint.every=0 \
        --set batch.steps=30 >log 2>&1 3>&- &
    waits_for_target $!
}

# A rank of the earlier run hangs: it still holds the stage, where its save will never be complete.
@test "a start waits for checkpoint.last_seconds for a stage that an earlier run still uses" {
    larger
    train_until_staged 10 --set checkpoint.drain_mib=2
    kill_ranks
    pkill -KILL -f "muster-ckptd .*$DIR/stage"
    rm stage/*/step-000000*/shard-00001-of-00002.json
    python3 -c 'import fcntl, struct, sys, time
users = open(sys.argv[1], "r+")
fcntl.fcntl(users, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0)) # F_OFD_SETLK
time.sleep(60)' stage/*/users >held 2>&1 3>&- &
    background=$!
    ranks 2 muster-train job.cfg --set checkpoint.last_seconds=2 >log
    cat log held; kill $background
    wait $background || true
    background=
    cat log
    grep -q 'not drained yet; .*that run has not ended$' log
    grep -q '^done at step ' log
    [ "$(stages)" -eq 1 ]
}

@test "a run whose earlier stage cannot be drained resumes from the last committed checkpoint" {
    larger
    # Step 40 is staged, and the run is killed before it is drained.
    ranks 2 muster-train job.cfg --set batch.steps=20 >log 2>&1
    train_until_staged 40 --set checkpoint.every=0 --set checkpoint.drain_mib=1
    kill_ranks
    pkill -KILL -f "muster-ckptd .*$DIR/stage"
    rm -rf ckpt/step-00000040.*                   # what the drain has begun is not to be found
    # A later save takes longer than that to drain, and does get on.
    ranks 2 muster-train job.cfg --set checkpoint.every=0 --set checkpoint.last_seconds=2 --set checkpoint.drain_mib=6 \
        >log 2>&1 || status=$?
    cat log
    [ "${status:-0}" -eq 0 ]
    grep -q '^saves that an earlier run staged are not drained yet; muster-ckptd tries again .*has been removed' log
    grep -q '^resumed from .* at step 20 ' log
    grep -q '^done at step 40$' log
    muster-ckpt verify ckpt
    [ "$(stages)" -eq 0 ]
}
