#!/usr/bin/env bats
# bats file_tags=more
# One directory, one run, by Slurm's word. All nodes are this machine, where a look for the process would decide: a test
# that asks Slurm first makes the claim one of another machine, with an old heartbeat.
load helpers

setup_file() {
    WHY_NOT=$(why_not)
    command -v python3 >/dev/null || WHY_NOT="python3 is not installed"
    export WHY_NOT
    [ -z "$WHY_NOT" ] || return 0
    sandbox_up 3 --plugin "$PLUGIN"
}

setup() {
    skip_if "$WHY_NOT"
    unset MUSTER_JOB
    DIR=$BATS_TEST_TMPDIR
    tiny_job "$DIR"
    sed -i 's/steps = 50;/steps = 1000000;/; s/global_batch = 24/global_batch = 4/; s/micro_batch = 4/micro_batch = 2/' \
        "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 50; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
    TRAIN="srun --mpi=$(muster-train --mpi) muster-train job.cfg"
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    tail -n 5 out.*
    scancel --user "$(id -un)"
    eventually 60 all_idle
}

# submit NAME ARGUMENT...: a job that trains on one node, its output in out.NAME
submit() {
    JOB=$(sbatch --parsable --nodes=1 --output="out.$1" --open-mode=append "${@:2}" --wrap "$TRAIN")
}

saved() {
    grep -sq '^checkpoint of step 50 saved in ' "out.$1"
}

ended() {
    scontrol show job "$1" | grep -qE 'JobState=(COMPLETED|FAILED|CANCELLED)'
}

# Steps that take longer than KillWait: Slurm kills such a run before it could save and release its directory.
long_steps() {
    sed -i 's/global_batch = 4/global_batch = 400000/; s/micro_batch = 2/micro_batch = 64/' job.cfg
}

# refused NAME OWNER: job NAME ended with 78 at its start, for job OWNER
refused() {
    eventually 60 ended "$JOB"
    scontrol show job "$JOB" | grep -q 'ExitCode=78:0'
    grep -q "belongs to job $2 (restart 0) on n[123] since .*, which has not ended" "out.$1"
    no_line -q 'iteration' "out.$1"
}

# The process is not to be found from here, and its heartbeat would say that it is dead.
only_slurm() {
    claim machine elsewhere heartbeat 1000000000
}

@test "of two array tasks in one directory, one trains and the other ends with 78 before its first step" {
    submit %a --array=1-2 --requeue
    both() { [ "$(cat out.[12] 2>/dev/null | grep -cE 'belongs to job|^checkpoint of step 50 saved')" -eq 2 ]; }
    eventually 60 both
    refused=$(grep -l 'belongs to job' out.[12])
    owner=$([ "$refused" = out.1 ] && echo 2 || echo 1)
    grep -q "belongs to job ${JOB}_$owner (restart 0) on n[123] since " "$refused"
    no_line -q 'iteration' "$refused"
    failed() { scontrol show job "${JOB}_${refused#out.}" | grep -q 'ExitCode=78:0'; }
    eventually 30 failed
    [ "$(state "${JOB}_$owner")" = RUNNING ]
}

@test "a running job and a suspended job own their directory" {
    submit first
    first=$JOB
    eventually 60 saved first
    only_slurm
    submit second
    refused second "$first"
    scontrol suspend "$first"
    only_slurm
    submit third
    refused third "$first"
}

# bats test_tags=quick
@test "the directory of a job that scancel killed is taken over at once" {
    long_steps
    submit first
    first=$JOB
    eventually 60 claimed pid
    scancel "$first"
    eventually 60 ended "$first"
    claim machine elsewhere heartbeat "$(date +%s)" # fresh: only Slurm knows that it is dead
    submit second
    took_over() { grep -sq "^took over .* from job $first (restart 0) on n[123] .*, which ended without releasing it, " out.second; }
    eventually 60 took_over
}

@test "the directory of a killed step is taken over even if its job still runs" {
    TRAIN="$TRAIN; sleep 600"
    submit first
    first=$JOB
    eventually 60 saved first
    kill -KILL "$(claimed pid)"
    gone() { [ -z "$(squeue -h -s "$first.0" -o %i)" ]; }
    eventually 30 gone
    claim machine elsewhere heartbeat "$(date +%s)"
    submit second
    resumed() { grep -q '^resumed from ' out.second; }
    eventually 60 resumed
    [ "$(state "$first")" = RUNNING ]
}

@test "a requeued job keeps its directory while pending, and takes it over at once when it restarts" {
    long_steps
    submit first --requeue
    first=$JOB
    in_a_step() { [ "$(awk '{ print $14 }' "/proc/$(claimed pid)/stat")" -gt 100 ]; } # has run for a second
    eventually 60 in_a_step 2>/dev/null
    scontrol requeuehold "$first"
    waits() { [ "$(state "$first")" = PENDING ]; }
    eventually 60 waits
    submit second
    refused second "$first"
    claim machine elsewhere heartbeat "$(date +%s)"
    scontrol release "$first"
    took_over() { grep -sq "^took over .* from job $first (restart 0) on n[123] " out.first; }
    eventually 60 took_over
    [ "$(state "$first")" = RUNNING ]
}
