#!/usr/bin/env bats
# bats file_tags=more
# A rank that is stopped or killed on a node: the report names it and its node, and the run starts again.
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
    sed -i 's/steps = 50;/steps = 800;/; s/log_every = 10;/log_every = 100; hang_seconds = 4;/' "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 100; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    cat "$OUT"
    scancel --user "$(id -un)"
    eventually 30 all_idle
}

# pid_of RANK: of this sandbox's trainer
pid_of() {
    pgrep -f "muster-train job.cfg" | while read -r pid; do
        grep -qz "SLURM_CONF=$SLURM_CONF" "/proc/$pid/environ" && grep -qz "^RANK=$1\$" "/proc/$pid/environ" && echo "$pid"
    done | head -n 1
}

# stopped RANK SENTENCE: the job runs; that rank is stopped; the report begins so; the job comes back and finishes
stopped() {
    eventually 60 steps_done 110 # with a checkpoint to go on from
    kill -STOP "$(pid_of "$1")"
    eventually 60 grep -q '^muster-supervise: restart 1 of 5 on [23] of [23] nodes after: rank' "$OUT"
    [ -f "ckpt/hang-$JOB.1.0/hang-report.txt" ]
    [[ $(head -n 1 "ckpt/hang-$JOB.1.0/hang-report.txt") == $2 ]]
    grep -Eq "^job $JOB, step 1, restart 0, .*, at step [1-9][0-9]{2}$" "ckpt/hang-$JOB.1.0/hang-report.txt"
    [ "$(grep -c '^---- this run hangs' "$OUT")" -eq 1 ]
    eventually 120 job_is 'JobState=COMPLETED'
    grep -q '^resumed from ' "$OUT"
    grep -q '^done at step 800$' "$OUT"
    [ "$(wc -l <metrics.jsonl)" -eq 800 ]
    job_is 'Restarts=0 '
}

@test "a stopped rank that shares its node is named as stopped, and the run starts again" {
    sed 's/--ntasks-per-node=1/--ntasks-per-node=2/' "$TOP/etc/train.sbatch" >train.sbatch
    JOB=$(sbatch --parsable --nodes=2 --output="$OUT" train.sbatch job.cfg)
    stopped 3 'rank 3 on n2 is stopped (by SIGSTOP or a debugger)*last entered *'
}

@test "a node whose only rank is stopped is reported as silent, and Slurm ends it" {
    JOB=$(sbatch --parsable --nodes=3 --cpus-per-task=1 --output="$OUT" "$TOP/etc/train.sbatch" job.cfg)
    stopped 1 'rank 1 on n2 is silent*'
}

# killed RANK SIGNAL SENTENCE: with one rank on each of two nodes, in a step that srun would end after a minute
killed() {
    rm -rf metrics.jsonl out pids hang-*
    mkdir pids
    SLURM_WAIT=60 step -N2 -n2 -c1 sh -c 'echo $$ >pids/$SLURM_PROCID; exec muster-train job.cfg "$@"' x \
        --set checkpoint.dir= --set checkpoint.every=0 --set batch.steps=1000000 --set report.hang_seconds=600 \
        >"$OUT" 2>&1 &
    local srun=$!
    eventually 60 steps_done 20
    sleep "0.$((RANDOM % 10))"
    kill -"$2" "$(cat "pids/$1")"
    wait "$srun" || true
    [[ $(head -n 1 hang-*/hang-report.txt) == $3 ]]
    [[ $(grep -v '^srun: \|^slurmstepd: ' "$OUT" | tail -n 1) == "muster-train: "$3 ]]
    grep -q "task $((1 - $1)): Exited with exit code 76" "$OUT"
    no_line 'First task exited\|backtrace\|UCX  WARN' "$OUT" # srun did not end it; UCX says nothing of its own
}

@test "a rank that is killed, alone on its node, is named within seconds, and the other one ends with 76" {
    rounds=${MUSTER_CHECK_FULL:+100}
    for round in $(seq "${rounds:-3}"); do
        victim=$((RANDOM % 2))
        killed "$victim" KILL "rank $victim on n$((victim + 1)) is dead (its process is gone), probably by SIGKILL*"
        no_line 'the abort is the cause' "$OUT"
    done
}

# bats test_tags=quick
@test "a rank that crashes is named with its signal, and the other one ends with 76" {
    killed 1 QUIT 'rank 1 on n2 was ended by signal 3 (Quit);*'
}

@test "a job that is suspended and resumed trains on" {
    JOB=$(sbatch --parsable --nodes=2 --cpus-per-task=1 --output="$OUT" "$TOP/etc/train.sbatch" job.cfg)
    eventually 60 steps_done 110
    scontrol suspend "$JOB"
    sleep 8 # longer than a node may be silent
    scontrol resume "$JOB"
    eventually 120 job_is 'JobState=COMPLETED'
    job_is 'Restarts=0 '
    run ls -d ckpt/hang-*
    [ "$status" -ne 0 ]
}
