#!/usr/bin/env bats
# bats file_tags=more
# A checkpoint directory that does not answer (a frozen file system), where Slurm tracks processes by cgroups: a step ends
# only when all processes of its cgroup have ended, else its node is drained after UnkillableStepTimeout.
load helpers

setup_file() {
    WHY_NOT=$(why_not)
    WHY_NOT=${WHY_NOT:-$(why_no_cgroup)}
    export WHY_NOT
    [ -z "$WHY_NOT" ] || return 0
    mkdir "$BATS_FILE_TMPDIR/etc"
    printf 'ProctrackType=proctrack/cgroup\nUnkillableStepTimeout=20\n' >"$BATS_FILE_TMPDIR/etc/slurm.conf"
    sandbox_up 2 --plugin "$PLUGIN" --site epilog_seconds=3 --etc "$BATS_FILE_TMPDIR/etc"
}

why_no_cgroup() {
    local img=$BATS_FILE_TMPDIR/probe
    [ "$(id -u)" -eq 0 ] || { echo "only root can freeze a file system"; return; }
    [ -d /sys/fs/cgroup/freezer ] || { echo "there is no freezer cgroup (v1)"; return; }
    mkdir "$img.d" && truncate -s 40M "$img" && mkfs.ext4 -q "$img" && mount -o loop "$img" "$img.d" 2>/dev/null &&
        fsfreeze -f "$img.d" && fsfreeze -u "$img.d" && umount "$img.d" || echo "no file system can be frozen here"
}

setup() {
    skip_if "$WHY_NOT"
    unset MUSTER_JOB
    DIR=$BATS_TEST_TMPDIR OUT=$BATS_TEST_TMPDIR/out
    tiny_job "$DIR"
    sed -i 's/steps = 50;/steps = 100000;/; s/hidden = 32/hidden = 256/; s/global_batch = 24/global_batch = 4/;
        s/micro_batch = 4/micro_batch = 2/' "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 10; keep = 3; last_seconds = 3; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
    mkdir ckpt
    truncate -s 400M img
    mkfs.ext4 -q img
    mount -o loop img ckpt
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    grep -v iteration "$OUT"
    tail -n 5 "$SANDBOX_DIR"/log/slurmd.n*.log
    fsfreeze -u ckpt 2>/dev/null || true
    scancel --user "$(id -un)"
    scontrol update NodeName=ALL State=resume 2>/dev/null || true
    eventually 60 all_idle
    eventually 30 umount ckpt
    rm -rf /dev/shm/muster-"$(id -u)-${JOB:?}".n[12].*
}

submit() {
    JOB=$(sbatch --parsable --nodes=2 --no-requeue --output="$OUT" "$TOP/etc/train.sbatch" job.cfg)
}

freeze_in_a_save() {
    eventually 90 grep -q '^checkpoint of step 20 saved in ' "$OUT"
    fsfreeze -f ckpt
    eventually 60 eval 'muster-ckpt status /dev/shm/muster-*-"$JOB".n?.* | grep -q hanging'
}

has_ended() {
    job_is 'JobState=\(COMPLETED\|CANCELLED\|FAILED\)'
}

# The job has ended, its nodes are idle, and Slurm killed no task in vain.
nodes_stay() {
    eventually 60 has_ended
    eventually 30 all_idle
    no_line -r 'Kill task failed' "$SANDBOX_DIR/log"
}

# Of this job, none waits for the file system in the cgroup of a step.
unused() {
    ! pgrep -f "muster-ckptd .*$1" >/dev/null
}

@test "a job that stops while its checkpoint directory hangs ends with 75, and its nodes stay idle" {
    submit
    freeze_in_a_save
    scancel --signal=USR1 "$JOB"
    nodes_stay
    grep -q '^stopped at step ' "$OUT"
    grep -q 'Exited with exit code 75' "$OUT"
    no_line 'may not be killable' "$OUT"
    fsfreeze -u ckpt
    eventually 30 unused "$DIR/ckpt"
    muster-ckptd --once /dev/shm/muster-*-"$JOB".n1.* 3>&- &
    muster-ckptd --once /dev/shm/muster-*-"$JOB".n2.*
    wait $!
    [ -e "ckpt/step-$(printf %08d "$(sed -n 's/^stopped at step //p' "$OUT")")" ]
    muster-ckpt verify --all ckpt
}

@test "a running job that is cancelled while its checkpoint directory hangs leaves its nodes idle" {
    submit
    freeze_in_a_save
    scancel "$JOB"
    nodes_stay
}

@test "a job that starts while its checkpoint directory hangs says so, can be cancelled, and its nodes stay idle" {
    fsfreeze -f ckpt
    submit
    eventually 60 grep -q "^waiting for checkpoint.dir = \"$DIR/ckpt\", which has not answered for 3 s$" "$OUT"
    scancel "$JOB"
    nodes_stay
    fsfreeze -u ckpt
    eventually 30 unused "$DIR/ckpt"
}

@test "a job that starts while its checkpoint directory hangs trains when it answers again, by a relative path too" {
    sed -i "s#dir = \"$DIR/ckpt\"#dir = \"ckpt\"#" job.cfg
    fsfreeze -f ckpt
    submit
    eventually 60 grep -q '^waiting for checkpoint.dir = "ckpt", ' "$OUT"
    fsfreeze -u ckpt
    eventually 60 grep -q '^checkpoint of step 20 saved in ' "$OUT"
    scancel --signal=USR1 "$JOB"
    nodes_stay
}

# signal_all SIGNAL: to all muster-ckptd of the job, with their children
signal_all() {
    pkill "-$1" -f "muster-ckptd .*(--claim $DIR/ckpt|/dev/shm/muster-$(id -u)-$JOB\.n)"
}

@test "a job whose muster-ckptd are stopped says so and saves on; stopped at its end, it ends with 75, and its nodes stay idle" {
    submit
    eventually 90 grep -q '^checkpoint of step 20 saved in ' "$OUT"
    signal_all STOP
    eventually 60 grep -q 'muster-ckptd made no progress for [0-9]* s and is restarted' "$OUT"
    saved=$(grep -c ' saved in ' "$OUT")
    eventually 60 eval '[ "$(grep -c " saved in " "$OUT")" -gt $((saved + 1)) ]'
    signal_all STOP
    scancel --signal=USR1 "$JOB"
    nodes_stay
    signal_all CONT
    eventually 30 unused "$DIR/ckpt"
    grep -q '^stopped at step ' "$OUT"
    grep -q 'Exited with exit code 75' "$OUT"
    muster-ckpt verify --all ckpt
}

@test "without the plugin's option, a job that stops while its checkpoint directory hangs warns that Slurm drains the node" {
    JOB=$(sbatch --parsable --nodes=2 --no-requeue --output="$OUT" --wrap \
        "srun --ntasks-per-node=1 --mpi=$(muster-train --mpi) muster-train job.cfg")
    freeze_in_a_save
    scancel --signal=USR1 "$JOB"
    eventually 60 grep -Eq "warning: a child of muster-ckptd .*waits for $DIR/ckpt and may not be killable: Slurm then drains this node n[12] " "$OUT"
    fsfreeze -u ckpt # in time
    eventually 60 has_ended
}
