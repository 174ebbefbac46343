#!/usr/bin/env bats
# bats file_tags=more
# The real trainer under etc/train.sbatch: killed, failing alone, out of time.
load helpers

setup_file() {
    plugin_sandbox 3
}

setup() {
    skip_if "$WHY_NOT"
    unset MUSTER_JOB
    export SLURM_WAIT=2
    DIR=$BATS_TEST_TMPDIR OUT=$BATS_TEST_TMPDIR/out
    tiny_job "$DIR"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 20; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
    cp "$TOP/etc/train.sbatch" .
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    cat "$OUT"
    scancel --user "$(id -un)"
    eventually 30 all_idle
}

# submit STEPS ARGUMENT...: the job of that many steps, with these arguments of sbatch
submit() {
    sed -i "s/steps = 50;/steps = $1;/" job.cfg
    shift
    JOB=$(sbatch --parsable --nodes=3 --cpus-per-task=1 --output="$OUT" "$@" train.sbatch job.cfg)
}

# bats test_tags=quick
@test "train.sbatch passes its arguments to muster-train, and reports a missing job file in one line" {
    JOB=$(sbatch --parsable --wait --nodes=2 --output="$OUT" "$TOP/etc/train.sbatch" job.cfg --set batch.steps=7)
    cat "$OUT"
    grep -q '^done at step 7$' "$OUT"
    code=0
    sbatch --wait --nodes=1 --output="$OUT.none" "$TOP/etc/train.sbatch" || code=$?
    [ "$code" -eq 64 ]
    [ "$(cat "$OUT.none")" = "usage: sbatch train.sbatch JOB.cfg [--set path=value]..." ]
}

@test "when a rank is killed, the others end; without restarts in place the job is requeued, resumes and finishes" {
    sed -i 's/muster-supervise --/muster-supervise --restarts 0 --/' train.sbatch
    submit 1000
    eventually 30 steps_done 50
    pid=$(pgrep -f "muster-train job.cfg" | while read -r pid; do
        grep -qz "SLURM_CONF=$SLURM_CONF" "/proc/$pid/environ" && grep -qz '^RANK=1$' "/proc/$pid/environ" && echo "$pid"
    done | head -n 1)
    kill -KILL "$pid"
    eventually 60 job_is 'Restarts=1'
    eventually 120 job_is 'JobState=COMPLETED'
    grep -q '^resumed from ' "$OUT"
    grep -q '^done at step 1000$' "$OUT"
    [ "$(wc -l <metrics.jsonl)" -eq 1000 ]
}

@test "when one rank fails, all end with its code and error, and the job is not requeued" {
    # One byte that the vocabulary does not have, in a place that some rank will read.
    sed -i 's/vocab = 256/vocab = 250/' job.cfg
    printf '\373' | dd of=train.bin bs=1 seek=100000 conv=notrunc status=none
    submit 3000
    eventually 120 job_is 'JobState=FAILED'
    job_is 'ExitCode=65:0'
    job_is 'Restarts=0'
    [ "$(grep -c 'muster-train: .*token.*251' "$OUT")" -eq 1 ]
    [ -d ckpt ]
}

# bats test_tags=quick
@test "at the time limit the run saves and is requeued" {
    submit 1000000 --time=1 --signal=USR1@52
    eventually 60 job_is 'Restarts=1'
    grep -q '^stopped at step' "$OUT"
    grep -q 'stopping after step .*: signal 10' "$OUT"
}

@test "a job ended by scancel is not requeued" {
    submit 1000000
    eventually 30 steps_done 5
    scancel "$JOB"
    eventually 30 job_is 'JobState=CANCELLED'
    eventually 30 all_idle
    job_is 'Restarts=0'
}
