#!/usr/bin/env bats
# bats file_tags=more
# muster-supervise requeues a job by what Slurm says about it. The private Slurm has no slurmdbd, and so no QOS: programs
# that print the recorded lines of scontrol and sacctmgr stand in for it. requeue.bats runs it on a real one.
load ../helpers

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    mkdir bin
    PATH=$PWD/bin:$PATH
    cat >bin/scontrol <<'SH'
#!/bin/sh
case "$*" in
*"show job 8") cat array_job job ;; # the id of the array, and of its last task
*"show job 8_3" | *"show job 7") cat job ;;
*"show partition"*) echo "PartitionName=batch QoS=N/A PreemptMode=REQUEUE GraceTime=10" ;;
*"show config") cat config ;;
*"show hostnames"*) echo n1 ;;
"write batch_script"*) ;;
*) echo "scontrol $*" >>done ;;
esac
SH
    printf '#!/bin/sh\n[ -e qos ] && cat qos\n' >bin/sacctmgr
    step 'exit 75'
    chmod +x bin/*
    echo "JobId=7 JobName=gpt QOS=low Requeue=1 Restarts=0 PreemptTime=2026-01-02T03:04:05" >job
    slurm 22.05.8 preempt/qos
    : >done
}

# step SCRIPT: what srun does, but for the agents: they wait for the end of their input
step() {
    printf '#!/bin/bash\ncase "$*" in *--agent) exec cat >/dev/null ;; esac\n%s\n' "$1" >bin/srun
}

# supervised VARIABLE=VALUE...: muster-supervise in the job
supervised() {
    env SLURM_JOB_ID=7 SLURM_JOB_PARTITION=batch SLURM_JOB_NODELIST=n1 SLURM_TASKS_PER_NODE=1 \
        SLURM_JOB_CPUS_PER_NODE=2 "$@" muster-supervise --restarts 0 -- srun muster-train job.cfg
}

# slurm VERSION PREEMPT_TYPE
slurm() {
    printf 'MaxBatchRequeue         = 5\nPreemptMode             = REQUEUE\nPreemptType             = %s\nSLURM_VERSION           = %s\n' "$2" "$1" >config
}

# script [VARIABLE=VALUE...]: the job's run, which ends with 75
script() {
    run supervised "$@"
    echo "$output"
    cat done
    [ "$status" -eq 75 ]
}

@test "a preempted job whose QOS has PreemptMode=cancel is not requeued, on any Slurm release" {
    echo cancel >qos
    for version in 22.05.8 26.05.3; do
        slurm $version preempt/qos
        script
        grep -q 'not requeued: it was preempted with PreemptMode=CANCEL' <<<"$output"
        [ ! -s done ]
    done
}

# bats test_tags=quick
@test "a preempted job whose QOS has PreemptMode=requeue or cluster is requeued" {
    for mode in requeue cluster; do
        : >done
        echo $mode >qos
        script
        [ -z "$output" ]
        grep -qx 'scontrol requeue 7' done
    done
}

@test "from Slurm 24.05 on, slurmctld requeues a preempted job until it would hold it; then the script does" {
    slurm 24.05.8 preempt/partition_prio
    for count in 1 4 5 6; do
        : >done
        sed -i "s/ BatchFlag=.*//; s/\$/ BatchFlag=$count/" job
        script
        [ "$(grep -cx 'scontrol requeue 7' done)" -eq $((count >= 5)) ]
        [ "$(grep -c 'preempted: slurmctld requeues the job' <<<"$output")" -eq $((count < 5)) ]
    done
}

@test "a job that ends for good after a requeue has Requeue=0, also if slurmctld is down at that moment" {
    slurm 26.05.3 preempt/partition_prio
    sed -i 's/PreemptTime=.*/PreemptTime=None/' job
    sed -i '2i case "$*" in *"show config") [ ! -e ran ] || [ -e down ] || { touch down; exit 1; } ;; esac' bin/scontrol
    ended 0 SLURM_RESTART_COUNT=1
    [ "$output" = "muster-supervise: slurmctld does not answer, or refuses; asking again" ]
    [ "$(cat done)" = "scontrol update JobId=7 Requeue=0" ]
}

@test "if slurmdbd does not answer, the QOS's PreemptMode is logged as unknown and the job is requeued" {
    script
    [ "$output" = "muster-supervise: preempted: the PreemptMode of QOS low is unknown, slurmdbd does not answer" ]
    grep -qx 'scontrol requeue 7' done
}

@test "without preempt/qos the QOS is ignored" {
    echo cancel >qos
    slurm 22.05.8 preempt/partition_prio
    script
    grep -qx 'scontrol requeue 7' done
}

@test "an array task reads its own state and requeues only itself" {
    sed 's/JobId=7/JobId=9/' job >array_job
    echo "JobId=8 JobName=gpt QOS=low Requeue=1 Restarts=0 PreemptTime=None" >job
    echo cancel >qos # of the other task, which was preempted
    script SLURM_JOB_ID=8 SLURM_ARRAY_JOB_ID=8 SLURM_ARRAY_TASK_ID=3
    grep -qx 'scontrol requeue 8_3' done
}

@test "text in the job's name is not taken for a field of scontrol's output" {
    echo "JobId=7 JobName=a Requeue=0 PreemptTime=None UserId=me(1) GroupId=me(1) QOS=low Requeue=1 PreemptTime=2026-01-02T03:04:05" >job
    echo cancel >qos
    script
    grep -q 'not requeued: it was preempted with PreemptMode=CANCEL' <<<"$output"
}

# ended CODE VARIABLE=VALUE...: the script's run, whose srun ends with that code
ended() {
    local code=$1
    shift
    step "touch ran; exit $code"
    run supervised "$@"
    echo "$output"
    [ "$status" -eq "$code" ]
}

@test "a job that loses a rank in every run is requeued three times, also if the count cannot be written" {
    mkdir .lost-7 # nothing can be written to it
    for restarts in 0 1 2 3; do
        : >done
        ended 76 SLURM_RESTART_COUNT=$restarts
        [ "$(grep -c requeue done)" -eq $((restarts < 3)) ]
    done
    rmdir .lost-7
    for requeued in 1 1 1 0; do
        : >done
        ended 76 SLURM_RESTART_COUNT=9 # of preemptions
        [ "$(grep -c requeue done)" -eq $requeued ]
    done
}

# bats test_tags=quick
@test "with sbatch --signal=B:USR1, the script forwards the signal to srun and requeues the job" {
    step $'trap "echo stopped; exit 75" USR1\ntouch begun\nwhile :; do sleep 0.1; done'
    SLURM_JOB_ID=7 SLURM_JOB_PARTITION=batch SLURM_JOB_NODELIST=n1 SLURM_TASKS_PER_NODE=1 SLURM_JOB_CPUS_PER_NODE=2 \
        muster-supervise --restarts 0 -- srun muster-train job.cfg >out 2>&1 3>&- &
    begun() { [ -e begun ]; }
    eventually 10 begun
    sleep 0.2
    kill -USR1 $!
    code=0
    wait $! || code=$?
    cat out
    [ $code -eq 75 ]
    grep -qx stopped out
    grep -qx 'scontrol requeue 7' done
}
