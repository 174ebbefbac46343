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

@test "a run leaves no stage, and every save is committed" {
    ranks 2 muster-train job.cfg >log
    [ "$(grep -c '^checkpoint of step [0-9]* saved in ' log)" -eq 4 ]
    [ "$(muster-ckpt list --json ckpt | grep -c '"step"')" -eq 3 ]
    muster-ckpt verify --all ckpt
    [ "$(stages)" -eq 0 ]
}

@test "what is staged is what is written straight, bit by bit" {
    ranks 3 muster-train job.cfg >log
    ranks 3 muster-train job.cfg --set checkpoint.dir=straight --set checkpoint.stage= >log
    run muster-ckpt diff ckpt straight
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

@test "24 saves against a drain that is much too slow: memory stays bounded, training goes on, all that is kept is whole" {
    larger
    local most=0 now
    ranks 2 muster-train job.cfg --set checkpoint.every=1 --set batch.steps=100000 --set checkpoint.drain_mib=40 \
        --set report.kill_file="$DIR/stop" >log 2>&1 3>&- &
    background=$!
    until [ "$(grep -c '^checkpoint of step [0-9]* saved in ' log)" -ge 24 ]; do
        now=$(du -s --block-size=1K "$DIR/stage" 2>/dev/null | cut -f1)
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

@test "ranks and muster-ckptd are killed while they drain; the next run adopts what was staged" {
    larger
    mpiexec.mpich -n 2 muster-train job.cfg --set checkpoint.drain_mib=2 >log 2>&1 3>&- &
    background=$!
    staged() { [ "$(ls stage/*/step-00000010.*/shard-*.json 2>/dev/null | wc -l)" -eq 2 ]; }
    eventually 30 staged
    # The ranks first: they would start a muster-ckptd anew, which the next run would find at work.
    pkill -KILL -P "$(pgrep -P $background | head -n 1)" || true
    kill -KILL $background || true
    pkill -KILL -f "muster-ckptd .*$DIR/stage"
    wait $background || true
    background=
    [ ! -e ckpt/step-00000010 ]
    ranks 2 muster-train job.cfg >log
    grep -Eq '^resumed from .* at step [1-4]0 ' log
    [ "$(grep -c 'another job' log)" -eq 0 ]
    grep -q '^done at step 40$' log
    [ "$(stages)" -eq 0 ]
}

@test "a stage that a later release left: 78, both releases, and nothing of it is touched" {
    larger
    mpiexec.mpich -n 2 muster-train job.cfg --set checkpoint.drain_mib=2 >log 2>&1 3>&- &
    background=$!
    staged() { [ "$(ls stage/*/step-00000010.*/shard-*.json 2>/dev/null | wc -l)" -eq 2 ]; }
    eventually 30 staged
    pkill -KILL -P "$(pgrep -P $background | head -n 1)" || true
    kill -KILL $background || true
    pkill -KILL -f "muster-ckptd .*$DIR/stage"
    wait $background || true
    background=
    sed -i 's/"version":1,"muster":"/"version":2,"later":1,"muster":"9./' stage/*/step-00000010.*/target.json
    (cd stage && find . -type f -exec md5sum {} +) | sort >before
    status=0
    ranks 2 muster-train job.cfg >log 2>err || status=$?
    cat log err
    [ "$status" -eq 78 ]
    grep -q '/target.json: format version 2 is unknown (written by muster 9\.[0-9.]* in format 2; this is muster [0-9.]*,' err
    status=0
    muster-ckptd --quiet --once stage/* 2>err || status=$?
    cat err
    [ "$status" -eq 75 ]
    grep -q ' is left as it is: .*/target.json: format version 2 is unknown (written by muster 9' err
    (cd stage && find . -type f -exec md5sum {} +) | grep -v status.json | sort >after
    [ "$(grep -c 'step-00000010.*safetensors' after)" -eq 2 ]
    diff <(grep step-00000010 before) <(grep step-00000010 after)
}

@test "a muster-ckptd that is killed is started anew" {
    larger
    ranks 2 muster-train job.cfg --set checkpoint.drain_mib=10 >log 2>&1 3>&- &
    background=$!
    eventually 30 pgrep -f "muster-ckptd .*$DIR/stage" >/dev/null
    eventually 30 grep -q 'iteration       10' log
    pkill -KILL -f "muster-ckptd .*$DIR/stage"
    wait $background
    background=
    grep -q '^muster-ckptd had ended and was started anew$' log
    [ "$(muster-ckpt list ckpt | tail -n +2 | head -n 1 | awk '{ print $1 }')" -eq 40 ]
    muster-ckpt verify ckpt
}

@test "where staging is not possible saves go straight, and that is said once" {
    ranks 2 muster-train job.cfg --set checkpoint.stage=/nowhere >log
    [ "$(grep -c '^checkpoints are written straight to .*: /nowhere' log)" -eq 1 ]
    [ "$(grep -c '^checkpoint of step [0-9]* saved in ' log)" -eq 4 ]
    muster-ckpt verify --all ckpt
}

@test "a stage without an inode left: said as that, saves go straight, and nothing stays" {
    unshare -m mount -t tmpfs none stage || skip "may not mount"
    unshare -m bash -c 'mount -t tmpfs -o size=30m,nr_inodes=6,mode=700 none stage && "$@"; result=$?; ls -A stage >left
        exit $result' bash timeout 60 mpiexec.mpich -n 2 muster-train job.cfg >log
    cat log left
    grep -q '^checkpoints are written straight to .*, but no inode: No space left on device$' log
    [ ! -s left ]
    muster-ckpt verify ckpt
}

@test "a stage that is not ours is not used" {
    larger
    ranks 2 muster-train job.cfg --set checkpoint.drain_mib=20 >log 2>&1 3>&- &
    background=$!
    there() { name=$(ls stage | head -n 1); [ -n "$name" ]; }
    eventually 30 there
    wait $background
    background=
    mkdir -m 755 other
    ln -s "$DIR/other" "stage/$name"
    ranks 2 muster-train job.cfg --set batch.steps=50 >log
    grep -q '^checkpoints are written straight to .*'"$name" log
    [ -z "$(ls other)" ]
    [ -L "stage/$name" ]
    grep -q '^done at step 50$' log
}

@test "a checkpoint directory that vanishes fails the save, not the training" {
    larger
    ranks 2 muster-train job.cfg --set checkpoint.drain_mib=4 --set batch.steps=60 >log 2>&1 3>&- &
    background=$!
    partial() { ls -d ckpt/step-00000010.*.partial >/dev/null 2>&1; }
    eventually 30 partial
    mv ckpt gone
    wait $background
    background=
    cat log
    # Whether the drainer of step 10 finds out first, or the one of step 20 is through with its own in a new directory.
    grep -Eq '^checkpoint of step 10 (failed: .*; training goes on|was overtaken by a newer one)$' log
    grep -q '^done at step 60$' log
    muster-ckpt verify ckpt
    [ "$(stages)" -eq 0 ]
}
