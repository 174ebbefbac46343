#!/usr/bin/env bats
# bats file_tags=more
# The epilog gives a node back: it does not wait for dead nodes, and frees what earlier jobs left, after the data.
load helpers

setup_file() {
    WHY_NOT=$(why_not)
    export WHY_NOT
    [ -z "$WHY_NOT" ] || return 0
    # A directory of its own: other sandboxes' nodes are this machine too. A long time, which nothing here waits for.
    export STAGE=$BATS_FILE_TMPDIR/stage
    mkdir -m 1777 "$STAGE" "$BATS_FILE_TMPDIR/prom"
    sandbox_up 2 --plugin "$PLUGIN" \
        --site "stage=$STAGE stage_keep=24h epilog_seconds=600 prometheus=$BATS_FILE_TMPDIR/prom"
}

setup() {
    skip_if "$WHY_NOT"
    unset MUSTER_JOB
    export UCX_TLS=^cma # a rank reads no memory of another node's, and does not abort when that rank has died
    export SLURM_WAIT=5
    DIR=$BATS_TEST_TMPDIR OUT=$BATS_TEST_TMPDIR/out
    tiny_job "$DIR"
    # 30 MB of state, which a node drains at 1 MiB a second: there is time to kill it in the middle.
    sed -i 's/hidden = 32;/hidden = 320;/; s/steps = 50;/steps = 100000;/; s/_batch = 24;/_batch = 6;/; s/_batch = 4;/_batch = 2;/' \
        "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; stage = \"$STAGE\"; every = 30; drain_mib = 1; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    cat "$OUT"
    [ -z "${DEAD:-}" ] || "$SANDBOX" revive-node n2 --dir "$SANDBOX_DIR"
    tail -n 20 "$SANDBOX_DIR"/log/slurmd.n*.log
    ls -R "$STAGE"
    scancel --user "$(id -un)"
    eventually 60 all_idle
    rm -rf "${STAGE:?}"/*
}

# train NODES: a job that is not requeued; returns when step 30 is staged on all of its nodes, and not committed.
train() {
    JOB=$(sbatch --parsable --nodes="$1" --no-requeue --output="$OUT" \
        --wrap "srun --ntasks-per-node=1 muster-train job.cfg")
    STAGED=$1
    eventually 60 staged
}

staged() {
    [ "$(compgen -G "$STAGE/muster-*/step-00000030.*/shard-*.json" | wc -l)" = "$STAGED" ] &&
        [ ! -e ckpt/step-00000030 ]
}

idle() {
    [ "$(sinfo -h -N -p batch -n "$1" -o %T)" = idle ]
}

logged() {
    grep -hE "$1" "$SANDBOX_DIR"/log/slurmd.n?.log
}

is_empty() {
    [ -z "$(ls -A "$STAGE")" ]
}

@test "an epilog does not wait for a dead node, whose last shard is committed when it returns" {
    train 2
    DEAD=n2
    "$SANDBOX" kill-node n2 --dir "$SANDBOX_DIR"
    mkdir lost
    mv "$STAGE"/muster-*.n2.* lost # this machine is all nodes: n2's memory is not seen on n1
    scancel "$JOB"                 # sooner than Slurm finds that n2 is dead
    # n1's shard is drained by the epilog, or by the run's muster-ckptd, whose rank has seen that n2 is lost.
    eventually 90 idle n1
    eventually 60 is_empty
    newest=$(cd lost/* && ls step-*/shard-*.json | tail -n 1) # staged on n2, and not drained
    [ -n "$newest" ]
    [ ! -e "ckpt/${newest%%.*}" ]
    mv lost/* "$STAGE"
    "$SANDBOX" revive-node n2 --dir "$SANDBOX_DIR"
    DEAD=
    eventually 60 test -e "ckpt/${newest%%.*}"
    eventually 60 is_empty
    muster-ckpt verify ckpt
}

# bats test_tags=quick
@test "a save that a job left behind is drained by a later job's epilog, as the save's user" {
    train 1
    mv ckpt away
    touch ckpt
    sed -i 's/epilog_seconds=600/epilog_seconds=6/' "$SANDBOX_DIR/etc/plugstack.conf"
    scancel "$JOB"
    eventually 90 all_idle
    logged 'the rest is kept. muster-ckptd --once continues'
    [ -n "$(ls "$STAGE")" ]
    step true # tries once, and keeps what is younger than 24 hours
    eventually 60 all_idle
    [ -n "$(ls "$STAGE")" ]
    rm ckpt
    mv away ckpt
    if another_user_can -x "$BUILD/muster-ckptd"; then # the leftover is another user's than the later job's
        mv "$STAGE"/muster-0-* "$STAGE/muster-65534-1"
        chown -R 65534 "$STAGE/muster-65534-1" ckpt
        chmod a+x "$BATS_TEST_TMPDIR" "$BATS_RUN_TMPDIR"
    fi
    step true
    eventually 60 is_empty
    [ "$(stat -c %u ckpt/step-???????? | sort -u)" = "$(stat -c %u ckpt)" ]
    muster-ckpt verify ckpt
}

@test "a save that cannot be drained is removed after stage_keep, and the log names it" {
    sed -i 's/epilog_seconds=600/epilog_seconds=6/; s/stage_keep=24h/stage_keep=1s/' "$SANDBOX_DIR/etc/plugstack.conf"
    train 1
    mv ckpt away
    touch ckpt
    scancel "$JOB"
    eventually 90 all_idle
    [ -n "$(ls "$STAGE")" ]
    step true
    eventually 60 is_empty
    eventually 10 logged 'failed: staged .* hours ago in .* removed, [0-9]+ bytes are lost'
}

@test "a killed run's file for Prometheus, in the site's directory, is removed by the epilog" {
    local pids
    JOB=$(sbatch --parsable --no-requeue --output="$OUT" \
        --wrap "srun --muster=job.cfg --ntasks=1 muster-train job.cfg --set checkpoint.dir= --set checkpoint.every=0")
    FILE=$BATS_FILE_TMPDIR/prom/muster-$(id -u)-$JOB.prom
    eventually 60 test -s "$FILE"
    mapfile -t pids < <(grep -lzxF "SLURM_JOB_ID=$JOB" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3)
    for signal in STOP KILL; do # at once: the writer would remove its file, and the trainer start another writer
        for pid in "${pids[@]}"; do
            case $(cat "/proc/$pid/comm") in muster-report | muster-train) kill -$signal "$pid" ;; esac
        done
        [ -s "$FILE" ]
    done
    touch "$FILE.tmp"
    eventually 60 test ! -e "$FILE"
    [ ! -e "$FILE.tmp" ]
}
