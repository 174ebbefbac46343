#!/usr/bin/env bats
# bats file_tags=more
# etc/train.sbatch, as it is shipped: preempted, it comes back on the nodes that are left.
# However it is preempted, it is requeued once at most and finishes once. In the place of muster-train stands a script
# with its exit codes: it answers --mpi, notes where it runs, and on TERM it exits with 75. Files change what it does:
# with `finish` it ends well at once, with `last_step` on TERM, with `deaf` it does not stop on TERM.
load helpers

setup_file() {
    # slurmctld holds a job after so many requeues that it counts. Before 23.02 this was no setting, and always 5.
    mkdir "$BATS_FILE_TMPDIR/etc"
    if slurm_since 23.02; then echo MaxBatchRequeue=2 >"$BATS_FILE_TMPDIR/etc/slurm.conf"; fi
    plugin_sandbox 4 --etc "$BATS_FILE_TMPDIR/etc"
    [ -z "$WHY_NOT" ] || return 0
    mkdir "$BATS_FILE_TMPDIR/bin"
    cat >"$BATS_FILE_TMPDIR/bin/muster-train" <<'SH'
#!/bin/sh
[ "$*" != --mpi ] || { echo pmi2; exit; }
echo "run $MUSTER_RESTART_COUNT: rank $RANK of $WORLD_SIZE, $MUSTER_NODES nodes, $SLURMD_NODENAME"
finish() {
    [ "$RANK" != 0 ] || echo "done at step 5"
    exit 0
}
stop() {
    [ ! -e deaf ] || return
    [ ! -e last_step ] || finish
    echo "run $MUSTER_RESTART_COUNT: rank $RANK stops"
    exit 75
}
trap stop TERM USR1
while :; do
    [ ! -e finish ] || finish
    sleep 0.2
done
SH
    chmod +x "$BATS_FILE_TMPDIR/bin/muster-train"
}

setup() {
    skip_if "$WHY_NOT"
    cd "$BATS_TEST_TMPDIR" || return
    printf 'model = { preset = "gpt-tiny"; };\ndata = { train = "train"; };\n' >job.cfg
    unset MUSTER_JOB
    PATH=$BATS_FILE_TMPDIR/bin:$PATH # before the real one, which ../helpers finds
    OUT=$BATS_TEST_TMPDIR/out
    JOB=$(sbatch --parsable --output="$OUT" "$TOP/etc/train.sbatch" job.cfg)
    eventually 30 ranks_of_run 0 4
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    cat "$OUT"
    tail -n 20 "$SANDBOX_DIR/log/slurmctld.log"
    scancel --user "$(id -un)"
    scontrol update PartitionName=batch PreemptMode=REQUEUE GraceTime=10
    eventually 30 all_idle
}

# True when N ranks of run R have said that they run, and that they are N on N nodes.
ranks_of_run() {
    [ "$(grep -sE "^run $1: rank [0-9]+ of $2, $2 nodes" "$OUT" | wc -l)" -eq "$2" ]
}

nodes_of_run() {
    sed -n "s/^run $1: rank .* nodes, //p" "$OUT" | sort | tr '\n' ' '
}

# bats test_tags=quick
@test "a job preempted by a two-node job continues with two ranks on the other two nodes" {
    [ "$(nodes_of_run 0)" = "n1 n2 n3 n4 " ]
    local begun=$SECONDS
    urgent=$(sbatch --parsable -p urgent -N2 -o /dev/null --wrap 'sleep 60')
    eventually 45 ranks_of_run 1 2
    echo "# restarted after $((SECONDS - begun)) s" >&3
    [ "$(grep -c '^run 0: rank [0-9]* stops$' "$OUT")" -eq 4 ]
    [ "$(state "$urgent")" = RUNNING ]
    theirs=$(scontrol show hostnames "$(squeue -h -o %N -j "$urgent")") # Slurm may take any two
    [ "$(nodes_of_run 1)" = "$(printf 'n%d\n' 1 2 3 4 | grep -vxF "$theirs" | tr '\n' ' ')" ]
    [ "$(scontrol show job "$JOB" | grep -o 'Restarts=[0-9]*')" = Restarts=1 ]

    # And grows again once there is room: the urgent job gone, a requeue brings all four nodes back.
    scancel "$urgent"
    two_idle() { [ "$(sinfo -h -N -p batch -t idle | wc -l)" -eq 2 ]; }
    eventually 20 two_idle
    scontrol requeue "$JOB"
    eventually 45 ranks_of_run 2 4
}

# urgent: preempts two of the job's four nodes
urgent() {
    sbatch --parsable -p urgent -N2 -o /dev/null --wrap 'sleep 60' >urgent
}

# ended: it is over, and Slurm will not start it again
ended() {
    scontrol show job "$JOB" | grep -oE 'JobState=[A-Z]*' | grep -qxE 'JobState=(COMPLETED|FAILED|PREEMPTED|CANCELLED)'
}

# ended_once RESTARTS: the job ends after so many restarts, and has finished once
ended_once() {
    eventually 60 ended
    scontrol show job "$JOB" | grep -E 'JobState|Restarts'
    [ "$(scontrol show job "$JOB" | grep -o 'Restarts=[0-9]*')" = "Restarts=$1" ]
    [ "$(grep -c '^done at step 5$' "$OUT")" -eq 1 ]
}

@test "a preempted job that then finishes is requeued once and finishes once" {
    urgent
    eventually 45 ranks_of_run 1 2
    touch finish
    ended_once 1
    scontrol show job "$JOB" | grep -q JobState=COMPLETED
}

@test "a job preempted more often than MaxBatchRequeue is not held, and finishes once" {
    local restarts most=3
    slurm_since 23.02 || most=6
    for ((restarts = 1; restarts <= most; restarts++)); do
        sbatch -p urgent -N4 -o /dev/null --wrap true
        eventually 45 ranks_of_run $restarts 4
    done
    touch finish
    ended_once $most
}

@test "a job whose grace time runs out is requeued once and finishes once" {
    touch deaf
    scontrol update PartitionName=batch GraceTime=3
    urgent
    eventually 90 ranks_of_run 1 2
    touch finish
    ended_once 1
}

@test "a job preempted without grace time is requeued once and finishes once" {
    scontrol update PartitionName=batch GraceTime=0
    urgent
    eventually 45 ranks_of_run 1 2
    touch finish
    ended_once 1
    scontrol show job "$JOB" | grep -q JobState=COMPLETED
}

@test "a job that finishes within the grace time is not started again" {
    touch last_step
    urgent
    ended_once 0
}

@test "a job preempted under PreemptMode=CANCEL is not requeued, and the reason is logged" {
    scontrol update PartitionName=batch PreemptMode=CANCEL
    urgent
    eventually 45 ended
    scontrol show job "$JOB" | grep -q 'Restarts=0 '
    grep -q '^muster-supervise: not requeued: it was preempted with PreemptMode=CANCEL; submit it again' "$OUT"
}

@test "scancel --full with USR1 saves and requeues; with TERM it ends srun too, and is no way to stop a run" {
    scancel --full --signal=USR1 "$JOB"
    eventually 45 ranks_of_run 1 4
    [ "$(grep -c '^run 0: rank .* stops' "$OUT")" -eq 4 ]
    scancel --full --signal=TERM "$JOB"
    eventually 45 ended
    scontrol show job "$JOB" | grep -q JobState=FAILED
    scontrol show job "$JOB" | grep -q 'Restarts=1 '
}

@test "a job with --no-requeue is not requeued, and the reason is logged" {
    scancel "$JOB"
    eventually 30 all_idle
    OUT=$OUT.again
    JOB=$(sbatch --parsable --no-requeue --output="$OUT" "$TOP/etc/train.sbatch" job.cfg)
    eventually 45 ranks_of_run 0 4
    urgent
    eventually 45 ended
    scontrol show job "$JOB" | grep -q 'Restarts=0 '
    grep -q '^muster-supervise: not requeued: it has --no-requeue, ' "$OUT"
    no_line -q 'slurmctld does not answer' "$OUT"
}

@test "sbatch --export=NONE: the ranks have the environment of the script" {
    scancel "$JOB"
    eventually 30 all_idle
    touch finish
    OUT=$OUT.again
    printf '#!/bin/bash\nexport PATH=%q SLURM_CONF=%q\nsource %q "$@"\n' "$PATH" "$SLURM_CONF" "$TOP/etc/train.sbatch" >script
    JOB=$(sbatch --parsable --export=NONE -N4 --exclusive --output="$OUT" script job.cfg)
    eventually 45 ended
    ranks_of_run 0 4
}

@test "a run that ends with 78 is not requeued" {
    printf 'model = { presett = "gpt-tiny"; };\n' >job.cfg
    scontrol requeue "$JOB"
    failed() {
        [ "$(scontrol show job "$JOB" | grep -oE 'JobState=[A-Z]*|ExitCode=[0-9]*' | xargs)" = \
            "JobState=FAILED ExitCode=78" ]
    }
    eventually 45 failed # not COMPLETING
    grep -q '^muster: job.cfg:1: ' "$OUT"
}

# The daemons of the sandbox are known by the log that they have open.
slurmctld_pid() {
    local pid
    for pid in $(pgrep -x slurmctld); do
        readlink /proc/"$pid"/fd/* 2>/dev/null | grep -qxF "$SANDBOX_DIR/log/slurmctld.log" && echo "$pid"
    done
}

srun_waits() {
    local pid
    for pid in $(pgrep -x srun); do
        [ "$(readlink /proc/"$pid"/cwd)" != "$PWD" ] || return 0
    done
    return 1
}

# As the sandbox does, but with the jobs that it had.
slurmctld_again() {
    (
        for fd in /proc/self/fd/*; do
            fd=${fd##*/}
            ((fd > 2)) && eval "exec $fd>&-"
        done
        exec setsid env -i PATH="$PATH" HOME="${HOME:-/}" SLURM_CONF="$SLURM_CONF" slurmctld -D \
            </dev/null >"$SANDBOX_DIR/log/slurmctld.again" 2>&1
    ) &
}

@test "if slurmctld is down when the run asks for a requeue, the job asks again and restarts" {
    kill -TERM "$(slurmctld_pid)"
    gone() { [ -z "$(slurmctld_pid)" ]; }
    eventually 20 gone
    pkill -TERM -f "^/bin/sh $BATS_FILE_TMPDIR/bin/muster-train"
    said() { grep -q '^muster-supervise: slurmctld does not answer, or refuses; asking again$' "$OUT"; }
    # The script asks again; on newer releases srun itself waits until slurmctld is back, and the script asks then.
    eventually 20 said || srun_waits
    slurmctld_again
    eventually 90 ranks_of_run 1 4
    [ "$(scontrol show job "$JOB" | grep -o 'Restarts=[0-9]*')" = Restarts=1 ]
}

# The last one: for some time afterwards Slurm may not give n2 to a job.
@test "when a node dies, the run starts again on the three remaining nodes; without --no-kill, Slurm requeues the job" {
    local begun=$SECONDS
    "$SANDBOX" kill-node n2 --dir "$SANDBOX_DIR"
    eventually 90 ranks_of_run 0 3
    echo "# restarted after $((SECONDS - begun)) s" >&3
    job_is 'Restarts=0 '
    scancel "$JOB"
    "$SANDBOX" revive-node n2 --dir "$SANDBOX_DIR"
    eventually 30 all_idle
    OUT=$OUT.again
    sed '/--no-kill/d' "$TOP/etc/train.sbatch" >script
    JOB=$(sbatch --parsable --output="$OUT" script job.cfg)
    eventually 45 ranks_of_run 0 4
    grep -q '^muster-supervise: without #SBATCH --no-kill, Slurm ends and requeues the job when a node dies$' "$OUT"
    "$SANDBOX" kill-node n2 --dir "$SANDBOX_DIR"
    eventually 90 ranks_of_run 1 3
    [ "$(nodes_of_run 1)" = "n1 n3 n4 " ]
    scancel "$JOB"
    "$SANDBOX" revive-node n2 --dir "$SANDBOX_DIR"
}
