# bats file_tags=more
# One directory, one run: who may save in checkpoint.dir, and who takes it over. Slurm is played by its variables and,
# where a test says so, by a squeue; tests/cluster/owner.bats has the real one.
load ../helpers

setup() {
    need mpiexec.mpich
    need python3
    DIR=$(realpath "$BATS_TEST_TMPDIR")
    mkdir -m 700 "$DIR/stage"
    tiny_job "$DIR"
    sed -i 's/steps = 50;/steps = 1000000;/; s/global_batch = 24/global_batch = 4/; s/micro_batch = 4/micro_batch = 2/' \
        "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 20; stage = \"$DIR/stage\"; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
    for name in ${!SLURM_*}; do unset "$name"; done
}

teardown() {
    [ -z "${first:-}" ] || kill -CONT "$first" 2>/dev/null || true
    [ -z "${first:-}" ] || kill -KILL "$first" 2>/dev/null || true
    eventually 20 no_drainer
}

# A muster-ckptd ends by itself when its trainer has ended.
no_drainer() { ! pgrep -f "muster-ckptd .*$DIR/stage" >/dev/null; }

# owner FILE: a run of one rank in the background, its log in FILE; returns when it has saved
owner() {
    local log=$1
    shift
    rm -f "$log"
    env "$@" muster-train job.cfg >"$log" 2>&1 3>&- &
    first=$!
    eventually 30 grep -q '^checkpoint of step 20 saved in ' "$log"
}

# ends CODE COMMAND...: its output is in the file log
ends() {
    local status=0
    timeout 60 "${@:2}" >log 2>&1 </dev/null || status=$?
    cat log
    [ "$status" -eq "$1" ]
}

# next CODE [VARIABLE]...: the short run that comes after
next() {
    ends "$1" env "${@:2}" muster-train job.cfg --set report.minutes=0.01
}

# later JOB: another job takes the directory over, as it does in claim.c
later() {
    python3 - "$1" <<'PY'
import glob, json, os, sys, time
path, = glob.glob("ckpt/owner-*.json")
number = int(path[len("ckpt/owner-"):-len(".json")])
with open(path) as file:
    claim = json.load(file)
claim.update(accepts=number + 1, job=sys.argv[1], host="elsewhere", machine="", since=time.time(), heartbeat=time.time())
with open("later.json", "w") as file:
    json.dump(claim, file)
os.link("later.json", f"ckpt/owner-{number + 1}.json")
PY
}

refused() {
    [ "$(grep -c . log)" -eq 1 ]
    grep -q "^muster-train: checkpoint.dir = \"$DIR/ckpt\" belongs to $1.* since 20.* (owner-[0-9]*.json), which has not ended" log
}

# Without status.json: muster-ckptd writes the time there while a save is in the stage.
sums() {
    find ckpt stage metrics.jsonl -type f ! -name 'status.json*' -exec md5sum {} + | sort
}

# The muster-ckptd of a run that stands still has ended what it was at. The sums are in the file before.
nothing_moves() {
    sums >before
    sleep 0.5
    sums 2>&1 | cmp -s before -
}

# bats test_tags=quick
@test "a second run is refused before its first step, in one line, and changes no file" {
    owner a
    kill -STOP "$first" # a run that stands still owns it, too
    eventually 20 nothing_moves
    ends 78 muster-train job.cfg --set optimizer.lr=1e-3
    refused "process $first on "
    grep -q '; optimizer.lr = 0.003 there, optimizer.lr = 0.001 here: give this run another checkpoint.dir' log
    sums | diff before -
    ends 78 mpiexec.mpich -n 2 muster-train job.cfg
    [ "$(grep -c 'belongs to process' log)" -eq 1 ]
    kill -CONT "$first"
    kill -TERM "$first"
    wait "$first" || [ $? -eq 75 ]
    first=
    # It released the directory: the next run starts at once, and takes nothing over.
    number=$(number)
    next 75
    grep -q '^resumed from ' log
    [ "$(grep -c 'took over' log)" -eq 0 ]
    [ "$(number)" -eq $((number + 1)) ]
}

# bats test_tags=quick
@test "after a run is killed, the next run takes over the directory at once and logs it" {
    owner a
    kill -KILL "$first"
    wait "$first" || true
    next 75
    grep -q "^took over $DIR/ckpt from process $first on .*, which ended without releasing it, " log
    grep -q '^resumed from ' log
    # What it was writing when it was killed is no claim.
    first=
    touch "ckpt/owner-$(($(number) + 1)).json.0123456789abcdef.tmp"
    next 75
    [ "$(ls ckpt/owner-*)" = "ckpt/owner-$(number).json" ]
}

@test "after a reboot without Slurm, the same job file adopts its staged saves, another one does not" {
    owner a
    kill -KILL "$first"
    wait "$first" || true
    first=
    claim machine before-the-reboot released 1
    number=$(number)
    next 75
    [ "$(claimed accepts)" -eq "$number" ]
    claim machine before-the-reboot
    ends 75 muster-train job.cfg --set report.minutes=0.01 --set optimizer.weight_decay=0.2
    [ "$(claimed accepts)" -eq $((number + 2)) ]
}

@test "a run that leaves a save to an epilog does not release the directory" {
    local shim=$BUILD/tests/crash/.libs/libshim.so
    [ -e "$shim" ] || skip "the crash tests' shim is not built"
    ends 75 env LD_PRELOAD="$shim" SHIM_PROGRAM=muster-ckptd SHIM_ROOT="$DIR/ckpt" SHIM_FAIL=fallocate:1:ENOSPC+ \
        muster-train job.cfg --set report.minutes=0.01 --set checkpoint.last_seconds=1
    grep -q 'stays in' log
    [ "$(claimed released)" = 0.0 ]
    next 75
    grep -q '^took over ' log
    [ "$(claimed released)" != 0.0 ]
}

@test "of four runs started at once, exactly one trains" {
    for k in 1 2 3 4; do
        (
            code=0
            timeout 60 muster-train job.cfg --set report.metrics= >"log.$k" 2>&1 || code=$?
            echo $code >"code.$k"
        ) 3>&- &
    done
    eventually 60 eval '[ "$(ls code.? | wc -l)" -eq 3 ] && grep -q iteration log.?'
    kill -TERM "$(claimed pid)"
    wait
    cat log.*
    [ "$(cat code.? | sort | xargs)" = "75 78 78 78" ]
    [ "$(grep -l 'starting from initial weights' log.? | wc -l)" -eq 1 ]
    [ "$(ls ckpt/owner-* | wc -l)" -eq 1 ]
}

# bats test_tags=quick
@test "a requeued job takes over from its earlier run at once, and the earlier run ends with 78" {
    job=(SLURM_JOB_ID=4711 SLURM_CLUSTER_NAME=here)
    owner a "${job[@]}" SLURM_RESTART_COUNT=0
    next 75 "${job[@]}" SLURM_RESTART_COUNT=1
    grep -q '^took over .* from job 4711 (restart 0) on ' log
    status=0
    wait "$first" || status=$?
    first=
    cat a
    [ "$status" -eq 78 ]
    grep -q "^muster-train: $DIR/ckpt belongs to job 4711 (restart 1) .*: the run of owner-[0-9]*.json has lost it, and saves nothing more\$" a
    # An earlier run that comes back late is refused, whatever became of the later one's process.
    claim released 0
    ends 78 env "${job[@]}" SLURM_RESTART_COUNT=0 muster-train job.cfg
    refused 'job 4711 (restart 1) on '
}

@test "a run that lost the directory to another job ends with 78 and commits nothing more" {
    for stage in "$DIR/stage" ""; do
        rm -rf ckpt metrics.jsonl
        sed -i "s|stage = \"[^\"]*\"|stage = \"$stage\"|" job.cfg
        owner a
        kill -STOP "$first"
        eventually 20 nothing_moves
        number=$(number)
        later 5
        muster-ckpt list ckpt | tail -n +2 | sort >before
        kill -CONT "$first"
        status=0
        wait "$first" || status=$?
        first=
        cat a
        [ "$status" -eq 78 ]
        # It is noticed by the claim's own thread, or by a save, whichever is first.
        [ "$(grep -c "^muster-train: \(checkpoint of step [0-9]* failed: \)\?$DIR/ckpt belongs to job 5 .*: the run of owner-$number.json has lost it, and saves nothing more\$" a)" -eq 1 ]
        eventually 20 no_drainer
        # It may have been stopped between a commit and the removal of old checkpoints.
        [ -z "$(muster-ckpt list ckpt | tail -n +2 | sort | diff before - | grep '^>')" ]
        grep -q '"job": "5"' "ckpt/owner-$((number + 1)).json" # not touched by the one that lost
    done
}

@test "if a run's directory is emptied and claimed by another run, the first run ends with 78" {
    for stage in "$DIR/stage" ""; do
        rm -rf ckpt metrics.jsonl
        sed -i "s|stage = \"[^\"]*\"|stage = \"$stage\"|" job.cfg
        owner a
        kill -STOP "$first" # a commit beside rm could leave a step without its files
        eventually 20 nothing_moves
        rm -rf ckpt/* ckpt/.trash
        kill -CONT "$first"
        ends 75 muster-train job.cfg --set optimizer.lr=1e-3 --set report.minutes=0.03 --set report.metrics=
        saved=$(sed -n 's/^stopped at step //p' log)
        status=0
        wait "$first" || status=$?
        first=
        cat a
        [ "$status" -eq 78 ]
        grep -Eq "^muster-train: (checkpoint of step [0-9]+ failed: )?$DIR/ckpt belongs to process .* the run of owner-[0-9]*.json has lost it" a
        muster-ckpt verify ckpt
        [ "$(muster-ckpt list ckpt | awk '$1 ~ /^[0-9]+$/ { print $1 }' | sort -n | tail -n 1)" = "$saved" ]
    done
}

@test "a dead job's staged saves are not committed to a directory that was emptied and claimed anew" {
    sed -i 's/drain_mib = [0-9]*/drain_mib = 1/; s/hidden = 32/hidden = 256/; s/global_batch = [0-9]*/global_batch = 4/' job.cfg
    grep -q drain_mib job.cfg || sed -i 's/checkpoint = {/checkpoint = { drain_mib = 1;/' job.cfg
    SLURM_CLUSTER_NAME=here SLURM_JOB_ID=1 muster-train job.cfg --set checkpoint.every=20 >a 2>&1 3>&- &
    first=$!
    staged() { [ "$(ls -d stage/*/step-*.partial 2>/dev/null | wc -l)" -ge 2 ]; }
    eventually 60 staged
    kill -KILL "$first" $(pgrep -P "$first")
    wait "$first" || true
    first=
    eventually 20 no_drainer
    rm -rf ckpt
    export SLURM_CLUSTER_NAME=here SLURM_JOB_ID=2
    ends 75 muster-train job.cfg --set checkpoint.every=5 --set checkpoint.drain_mib=0 --set report.minutes=0.05
    before=$(muster-ckpt list ckpt)
    muster-ckptd --once stage/muster-*-1.* 2>log || [ $? -ge 74 ]
    cat log
    grep -q 'belongs to job 2' log
    [ "$(muster-ckpt list ckpt)" = "$before" ]
    rm -rf stage/muster-*-1.*
}

# squeue JOB-LINE STEP-LINE: what a squeue prints; "-" stands for an unknown job, "" for a slurmctld that is down
squeue_says() {
    mkdir -p bin
    cat >bin/squeue <<SH
#!/bin/sh
echo "\$*" >>asked
case "$1" in
"") echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"; exit 1 ;;
-) echo "slurm_load_jobs error: Invalid job id specified"; exit 1 ;;
esac
case "\$*" in *--steps=*) [ -z "$2" ] || echo "step $2" ;; *) echo "$1" ;; esac
SH
    chmod +x bin/squeue
}

# beside CASE COMMAND...: in CASE, in a copy of ckpt, COMMAND changes the claim; then a run starts in the background
beside() {
    mkdir "$1"
    cp -r ckpt "$1"
    cd "$1"
    "${@:2}"
    timeout 60 muster-train ../job.cfg --set report.minutes=0.01 --set checkpoint.dir="$PWD/ckpt" --set report.metrics= \
        --set checkpoint.stage= >log 2>&1 </dev/null 3>&- || echo "code $?" >>log &
    cd ..
}

damage() {
    echo '{' >"$(ls ckpt/owner-*)"
    touch -d "$1" ckpt/owner-*
}

@test "without Slurm, the heartbeat decides whether a run on another host is alive" {
    next 75
    claim released 0 machine "another one" heartbeat "$(($(date +%s) - 30))"
    ends 78 muster-train job.cfg
    refused 'process [0-9]* on '
    beside old claim heartbeat "$(($(date +%s) - 90))"
    beside of_the_future claim heartbeat "$(($(date +%s) + 7200))"
    # A file that is no claim any more counts by its age.
    beside damaged damage '2 minutes ago'
    # Slurm does not answer.
    squeue_says "" ""
    SLURM_CLUSTER_NAME=here SLURM_JOB_ID=20 PATH="$DIR/bin:$PATH" \
        beside of_a_job claim heartbeat 1000000000 job 12 cluster here
    damage now
    ends 78 muster-train job.cfg
    refused 'an unknown run'
    wait
    tail */log
    [ "$(grep -c '^code 75$' */log | grep -c ':1$')" -eq 4 ]
    [ "$(cat */log | grep -c '^waiting for .* to leave .*/ckpt, or to refresh its heartbeat, which is -\?[0-9]* s old')" -eq 4 ]
    grep -q '^took over .* from process .* [0-9]* s after its last heartbeat$' old/log
    grep -q '^took over .* 0 s after its last heartbeat$' of_the_future/log
    grep -q '^took over .* from an unknown run ' damaged/log
    grep -q '^took over .* from job 12 ' of_a_job/log
}

@test "a run on another host with a wrong clock counts as alive while its heartbeat changes" {
    next 75
    claim released 0 machine "another one"
    for off in -7200 7200; do
        beside "by$off" claim heartbeat "$(($(date +%s) + off))"
    done
    eventually 30 eval '[ "$(cat by*/log | grep -c "^waiting for process [0-9]* on .* to leave ")" -eq 2 ]'
    for off in -7200 7200; do
        (cd "by$off" && claim heartbeat "$(($(date +%s) + off + 1))")
    done
    wait
    cat by*/log
    [ "$(grep -c '^code 78$' by*/log | grep -c ':1$')" -eq 2 ]
    [ "$(cat by*/log | grep -c 'belongs to process [0-9]* on .* which has not ended')" -eq 2 ]
}

@test "a claim in another release's format is refused with 78, names both releases, and is kept" {
    next 75
    sed -i 's/"version": 1/"version": 2/; s/"muster": "/"muster": "9./' ckpt/owner-*
    md5sum ckpt/owner-* >before
    ends 78 muster-train job.cfg
    grep -q '/owner-[0-9]*.json: format version 2 is unknown (written by muster 9\.[0-9.]* in format 2; this is muster [0-9.]*, which knows format 1)' log
    md5sum ckpt/owner-* | diff before -
}

@test "running, suspended and requeued jobs count as alive, ended or unknown jobs and ended steps do not" {
    here=(SLURM_CLUSTER_NAME=here PATH="$DIR/bin:$PATH")
    next 75 "${here[@]}" SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_ARRAY_JOB_ID=11 SLURM_ARRAY_TASK_ID=3
    revive() { claim released 0 machine "another one" heartbeat "$(date +%s)" job 12 step 0 array_task 11_3; }
    for state in RUNNING SUSPENDED PENDING; do
        revive
        squeue_says $state 11_3.0
        ends 78 env "${here[@]}" SLURM_JOB_ID=20 muster-train job.cfg
        refused 'job 11_3 (restart 0) on '
    done
    grep -q -- '--jobs=11_3 ' asked
    grep -q -- '--steps=11_3.0 ' asked
    for state in CANCELLED NODE_FAIL - RUNNING; do # the last without its step
        revive
        squeue_says $state ""
        next 75 "${here[@]}" SLURM_JOB_ID=20
        grep -q '^took over .* from job 11_3 ' log
    done
    # No answer: the heartbeat.
    revive
    squeue_says "" ""
    ends 78 env "${here[@]}" SLURM_JOB_ID=20 muster-train job.cfg
    # Another cluster's jobs are not asked for.
    revive
    claim cluster there
    squeue_says - ""
    ends 78 env "${here[@]}" SLURM_JOB_ID=20 muster-train job.cfg
}

@test "a run waits until a completing job has ended before it takes over the directory" {
    next 75 SLURM_JOB_ID=12 SLURM_CLUSTER_NAME=here
    claim released 0 machine "another one" heartbeat "$(date +%s)"
    squeue_says COMPLETING ""
    env SLURM_CLUSTER_NAME=here SLURM_JOB_ID=20 PATH="$DIR/bin:$PATH" muster-train job.cfg --set report.minutes=0.01 \
        >a 2>&1 3>&- &
    first=$!
    eventually 30 grep -q '^waiting for job 12 (restart 0) .* to leave ' a
    squeue_says COMPLETED ""
    wait "$first" || [ $? -eq 75 ]
    first=
    grep -q '^took over .* from job 12 ' a
}

@test "a complete save that nobody has committed is named, and muster-ckpt recover commits it if no run owns the directory" {
    next 75
    muster-ckpt list ckpt >listed
    last=$(awk '$1 ~ /^[0-9]+$/ { print $1; exit }' listed)
    committed=ckpt/step-$(printf %08d "$last")
    attempt=$(muster-ckpt show --json "$committed" | python3 -c 'import json, sys; print(json.load(sys.stdin)["attempt"])')
    mv "$committed" "$committed.$attempt.partial"
    said="step $last is complete, not committed: if no run does it, muster-ckpt recover ckpt"
    [ "$(muster-ckpt list ckpt 2>&1 >/dev/null)" = "$said" ]
    [ "$(muster-ckpt show ckpt 2>&1 >/dev/null | head -n 1)" = "$said" ]
    claim released 0 heartbeat "$(date +%s)"
    ends 78 muster-ckpt recover ckpt
    [ "$(grep -c . log)" -eq 1 ]
    grep -q "^muster-ckpt: ckpt: .* trains, or ended less than 60 s ago: it commits its saves itself; try again when it has ended$" log
    [ ! -e "$committed" ]
    claim released 0 heartbeat "$(($(date +%s) - 100))" # it was lost
    ends 0 muster-ckpt recover ckpt
    [ "$(cat log)" = "$committed: committed" ]
    muster-ckpt list ckpt | cmp - listed
    ends 0 muster-ckpt recover ckpt
    grep -q "^ckpt: nothing is left to commit$" log
}
