# Saves of a device whose state is copied to the host first: a thread copies them into the stage beside training. The
# crash tests' shim makes that copy wait, fail or kill.
load ../helpers

setup() {
    need mpiexec.mpich
    DIR=$(realpath "$BATS_TEST_TMPDIR")
    mkdir -m 700 "$DIR/stage"
    tiny_job "$DIR"
    sed -i 's/steps = 50;/steps = 9;/; s/global_batch = 24/global_batch = 4/; s/micro_batch = 4/micro_batch = 2/' \
        "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 3; keep = 0; stage = \"$DIR/stage\"; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
    [ -x "$BUILD/tests/discrete/muster-train" ] || skip "tests/discrete is not built"
    PATH=$BUILD/tests/discrete:$PATH
    ranks 2 muster-train job.cfg --set checkpoint.stage= --set checkpoint.every=1 --set checkpoint.dir=straight \
        --set report.metrics=straight.jsonl >straight.log
    # of every rank, but not of the muster-ckptd that they start
    export SHIM_ROOT=$DIR/stage SHIM_PROGRAM=muster-train SHIM_HIT=$DIR/hit SHIM_GO=$DIR/go
    SHIM=$BUILD/tests/crash/.libs/libshim.so
    [ -e "$SHIM" ] || skip "the crash tests' shim is not built"
}

teardown() {
    touch "$DIR/go"
    [ -z "${background:-}" ] || kill -KILL "$background" 2>/dev/null || true
    pkill -KILL -f "muster-ckptd .*$DIR/stage" || true
}

# shimmed CALL:N:HOW COMMAND...
shimmed() {
    local fail=$1
    shift
    env SHIM_FAIL="$fail" LD_PRELOAD="$SHIM" "$@"
}

# all_like_straight LEAST: every checkpoint has the bits of the same step of the run that saved straight.
all_like_straight() {
    local step n=0
    for step in ckpt/step-????????; do
        muster-ckpt verify "$step"
        muster-ckpt diff "straight/${step##*/}" "$step"
        n=$((n + 1))
    done
    [ "$n" -ge "$1" ]
}

# A copy makes its directory in the stage by the third mkdir: the stage and its reserve are made by the first two.
@test "training continues during a copy to the stage, and each save holds the state of its own step" {
    shimmed mkdir:3:WAIT mpiexec.mpich -n 2 muster-train job.cfg >log 2>&1 3>&- &
    background=$!
    eventually 30 test -e hit
    eventually 30 steps_done 6 # the copy of step 3 began after step 4
    [ ! -e ckpt/step-00000003 ]
    [ "$(find stage -name 'shard-*.json' | wc -l)" -le 1 ] # that of the other rank, which does not wait
    touch go
    wait $background
    background=
    [ "$(ls -d ckpt/step-* | wc -l)" -eq 3 ]
    all_like_straight 3
    [ -z "$(ls stage)" ]
}

@test "saves after every step hold the state of their own step" {
    ranks 2 muster-train job.cfg --set checkpoint.every=1 --set checkpoint.staged=16 >log
    all_like_straight 9
}

# The file that says that a copy has begun is the one that stops the run.
@test "a run stopped during a copy to the stage commits that save and the save of its last step" {
    shimmed mkdir:3:WAIT mpiexec.mpich -n 2 muster-train job.cfg --set checkpoint.every=100 --set batch.steps=100000 \
        --set optimizer.decay_steps=9 --set report.kill_file="$DIR/hit" >log 2>&1 3>&- &
    background=$!
    eventually 30 grep -q '^stopping after step' log
    [ ! -e ckpt/step-00000100 ]
    touch go
    wait $background || [ $? -eq 75 ]
    background=
    [ -e ckpt/step-00000100 ]
    last=$(sed -n 's/^stopping after step \([0-9]*\):.*/\1/p' log)
    [ -e "ckpt/$(printf 'step-%08d' "$last")" ]
    muster-ckpt verify --all ckpt
}

@test "no room for one rank's copy: all ranks save directly, and earlier checkpoints remain" {
    ranks 2 muster-train job.cfg --set batch.steps=3 --set optimizer.decay_steps=9 >log
    timeout 60 mpiexec.mpich \
        -n 1 muster-train job.cfg : \
        -n 1 env LD_PRELOAD="$SHIM" SHIM_FAIL=rename:1:ENOSPC+ "$(command -v muster-train)" job.cfg >log 2>&1
    cat log
    [ -e hit ]
    [ "$(grep -c '^checkpoints are written directly to ' log)" -eq 1 ]
    grep -q '^done at step 9$' log
    [ -e ckpt/step-00000003 ]
    [ -e ckpt/step-00000009 ]
    all_like_straight 2 # and one of the step that the copy of step 6 was given up after, if that was not the last
    [ -z "$(ls stage)" ]
}

# muster-ckptd removes a stage that nobody uses; it may do so just after the run.
is_empty() { [ -z "$(ls "$1")" ]; }

# killed ROOT CALL:N:KILL: one rank dies there, in its second save; the next run begins with the first.
killed() {
    local status=0
    rm -rf hit ckpt stage/* metrics.jsonl
    SHIM_ROOT=$1 shimmed "$2" muster-train job.cfg >log 2>&1 3>&- || status=$?
    cat log
    [ "$status" -eq 137 ]
    [ -e hit ]
    "$BUILD/muster-train" job.cfg >log
    cat log
    grep -q "^resumed from .* at step $3 " log
    all_like_straight 3
    eventually 10 is_empty stage
}

@test "a run killed before or during a copy to the stage resumes from the previous save" {
    # as one rank, for the reference
    rm -rf straight
    muster-train job.cfg --set checkpoint.stage= --set checkpoint.every=1 --set checkpoint.dir=straight \
        --set report.metrics=straight.jsonl >straight.log
    killed "$DIR/stage" mkdir:4:KILL 3 # without its directory
    for call in 4 5 6; do killed "$DIR/stage" rename:$call:KILL 3; done # of target.json, the directory and the part
}

@test "a rank is lost during the copies: the other ends with 76, and the incomplete save is not used" {
    outlasting
    shimmed mkdir:3:WAIT timeout 60 mpiexec.mpich -disable-auto-cleanup -n 2 ./rank muster-train job.cfg >log 2>&1 3>&- &
    background=$!
    eventually 30 test -e hit
    eventually 30 steps_done 6
    kill -KILL "$(cat pids/1)"
    eventually 30 test -e codes/1
    touch go
    eventually 30 test -e codes/0
    wait $background || true
    background=
    cat log
    [ "$(cat codes/0)" -eq 76 ]
    ranks 2 muster-train job.cfg >log
    grep -q '^done at step 9$' log
    all_like_straight 3
    [ -z "$(ls stage)" ]
}

# Then what is there by now may be bad, and no good checkpoint is to give way to it.
@test "no room for a copy while steps are skipped: the current state is not saved instead" {
    # Each step multiplies the weights by a million, until none is good any more.
    local bad=(--set optimizer.lr=1000 --set optimizer.weight_decay=1000 --set optimizer.clip=0 \
        --set optimizer.warmup_steps=0 --set batch.steps=50) first
    run ranks 2 muster-train job.cfg "${bad[@]}" --set checkpoint.stage= --set checkpoint.every=50
    [[ $output == *"the gradient was not finite in "*" steps in a row"* ]]
    first=$(sed -n '/"skipped":1/{s/.*"step":\([0-9]*\).*/\1/p;q}' metrics.jsonl)
    [ "$first" -gt 1 ]
    rm -rf metrics.jsonl ckpt
    SHIM_FAIL=rename:1:ENOSPC+ LD_PRELOAD=$SHIM run ranks 2 muster-train job.cfg "${bad[@]}" \
        --set "checkpoint.every=$((first - 1))"
    echo "$output"
    [[ $output == *"the gradient was not finite in "*" steps in a row"* ]]
    [ -e hit ]
    [[ $output == *"checkpoint of step $((first - 1)) failed: "*"; training goes on"* ]]
    [ -z "$(ls -d ckpt/step-* 2>/dev/null)" ]
}

# A small model's step takes longer than its drain: the partner's copy comes when the save is committed already.
@test "a partner's copy that arrives after the commit causes no error" {
    sed -i 's/global_batch = 4/global_batch = 48/; s/hidden = 32/hidden = 128/' job.cfg
    timeout -k 5 100 mpiexec.mpich \
        -n 1 -env SLURMD_NODENAME a muster-train job.cfg --set checkpoint.partner=true : \
        -n 1 -env SLURMD_NODENAME b muster-train job.cfg --set checkpoint.partner=true >log 2>&1
    [ -e ckpt/step-00000009 ] # on a busy machine, one of the earlier two may be overtaken
    [ -z "$(grep -E "failed|dropped|given up" log)" ]
    muster-ckpt verify --all ckpt
    [ -z "$(ls stage)" ]
}

# A snapshot that is not saved must not be taken for the state of a later save.
@test "after a direct save failed, the last save has the state of the last step" {
    local sets=(--set batch.steps=1200 --set checkpoint.stage= --set report.metrics=)
    muster-train job.cfg "${sets[@]}" --set checkpoint.dir=whole --set checkpoint.every=0 >whole.log
    muster-train job.cfg "${sets[@]}" --set checkpoint.every=1000 >log 2>&1 3>&- &
    background=$!
    eventually 30 grep -q '^starting from initial weights' log
    mv ckpt away
    eventually 60 grep -q '^checkpoint of step 1000 failed: ' log
    mv away ckpt
    wait $background
    background=
    cat log
    grep -q '^checkpoint of step 1200 saved' log
    muster-ckpt diff whole/step-00001200 ckpt/step-00001200
}
