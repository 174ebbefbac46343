#!/usr/bin/env bats
# bats file_tags=more
# A save that is staged is not lost with the job's processes, nor, where partners keep copies, with a node.
load helpers

setup_file() {
    plugin_sandbox 3
}

setup() {
    skip_if "$WHY_NOT"
    unset MUSTER_JOB
    export SLURM_WAIT=5
    DIR=$BATS_TEST_TMPDIR OUT=$BATS_TEST_TMPDIR/out
    tiny_job "$DIR"
    # 30 MB of state, which a node drains at 1 MiB a second: there is time to kill it in the middle.
    sed -i 's/hidden = 32;/hidden = 320;/; s/steps = 50;/steps = 60;/; s/global_batch = 24;/global_batch = 6;/; s/micro_batch = 4;/micro_batch = 2;/' "$DIR/job.cfg"
    cd "$DIR" || return
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    cat "$OUT"
    tail -n 5 "$SANDBOX_DIR"/log/slurmd.n*.log
    ls -R /dev/shm/muster-"$(id -u)-${JOB:-none}".*
    scancel --user "$(id -un)"
    eventually 60 all_idle
    rm -rf /dev/shm/muster-"$(id -u)-${JOB:?}".n[123].*
}

# submit KEY...: etc/train.sbatch on two or three nodes, without restarts in place unless $restarts is set; one save at
# step 30
submit() {
    sed "s/muster-supervise --/muster-supervise --restarts ${restarts:-0} --/" "$TOP/etc/train.sbatch" >train.sbatch
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 30; drain_mib = 1; $* };" >>job.cfg
    JOB=$(sbatch --parsable --nodes=2-3 --output="$OUT" train.sbatch job.cfg)
}

# Step 30 is complete on every node, and nobody has committed it.
staged() {
    [ "$(ls -d /dev/shm/muster-"$(id -u)-$JOB".n?.*/step-00000030.*/shard-*.json 2>/dev/null | wc -l)" -ge 3 ] &&
        [ ! -e ckpt/step-00000030 ]
}

# The processes of the job on a node: the trainer and its muster-ckptd, not Slurm's.
kill_all_on() {
    local pid
    for pid in $(pgrep -f 'muster-(train|ckptd)'); do
        grep -qz "^SLURM_CONF=$SLURM_CONF" "/proc/$pid/environ" 2>/dev/null || continue
        grep -qz "^SLURM_JOB_ID=$JOB" "/proc/$pid/environ" || continue
        ! grep -qz "^SLURMD_NODENAME=$1" "/proc/$pid/environ" || kill -KILL "$pid"
    done
}

committed() {
    [ -e ckpt/step-00000030 ]
}

restarted() {
    scontrol show job "$JOB" | grep -q 'Restarts=1'
}

completed() {
    scontrol show job "$JOB" | grep -q 'JobState=COMPLETED'
}

# bats test_tags=quick
@test "after all processes of a node are killed in a drain, the epilog commits the save and the job resumes" {
    submit
    eventually 60 staged
    kill_all_on n2
    [ ! -e ckpt/step-00000030 ]
    eventually 90 committed
    eventually 60 restarted
    eventually 120 completed
    # From the last save that was staged: on a fast machine all steps are done before step 30's has drained.
    grep -Eq "^resumed from .*ckpt at step (30|60) " "$OUT"
    grep -q '^done at step 60$' "$OUT"
    muster-ckpt verify ckpt
}

@test "after a node is lost with its staged save, its partner's copy is committed and the job resumes" {
    restarts=5
    submit 'partner = true;'
    eventually 60 staged
    "$SANDBOX" kill-node n2 --dir "$SANDBOX_DIR"
    rm -rf /dev/shm/muster-"$(id -u)-$JOB".n2.* # this machine is all nodes: memory of a dead one is gone
    [ ! -e ckpt/step-00000030 ]
    eventually 180 committed
    eventually 120 completed
    grep -Eq "^resumed from .*ckpt at step [36]0 " "$OUT" # 60 too was staged by then, if the rest was quick
    grep -q '^done at step 60$' "$OUT"
    muster-ckpt verify ckpt
    "$SANDBOX" revive-node n2 --dir "$SANDBOX_DIR"
}

@test "the epilog commits the last save once the checkpoint directory works again, and the job resumes" {
    submit 'last_seconds = 2;'
    eventually 60 staged
    mv ckpt away
    touch ckpt
    scancel --signal=USR1 "$JOB"
    tried() { grep -q "drain failed, it stays in /dev/shm/muster-$(id -u)-$JOB.* and is tried again: .*Not a directory" "$SANDBOX_DIR"/log/slurmd.n?.log; }
    eventually 120 tried
    grep -Eq '^checkpoint of step [0-9]+ is not in .*/ckpt; every node keeps its shards in /dev/shm/muster-.*: .*Not a directory' "$OUT"
    rm ckpt
    mv away ckpt
    eventually 180 completed
    last=$(sed -n 's/^stopped at step //p' "$OUT")
    [ -n "$last" ]
    grep -Eq "^resumed from .*ckpt at step $last " "$OUT"
    grep -q '^done at step 60$' "$OUT"
    muster-ckpt verify ckpt
}
