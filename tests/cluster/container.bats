#!/usr/bin/env bats
# Jobs whose /dev/shm is their own, as Slurm's job_container/tmpfs and namespace/tmpfs make it, and containers: saves
# are staged where slurmd's epilog sees them too, or a line says that they are not.
load helpers

why_no_container() {
    [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null || echo "this machine lets nobody mount"
}

# A release of Slurm may make /tmp private too: all that jobs need is elsewhere.
setup_file() {
    WHY_NOT=$(why_not)
    WHY_NOT=${WHY_NOT:-$(why_no_container)}
    export WHY_NOT
    [ -z "$WHY_NOT" ] || return 0
    ROOT=$(mktemp -d /var/tmp/muster-container.XXXXXX)
    export ROOT STAGE=$ROOT/stage SANDBOX_DIR=$ROOT/sandbox
    chmod 755 "$ROOT"
    mkdir -m 1777 "$STAGE"
    mkdir "$ROOT/etc" "$ROOT/jobs"
    printf 'AutoBasePath=true\nBasePath=%s/jobs\n' "$ROOT" >"$ROOT/etc/job_container.conf"
    echo PrologFlags=Contain >"$ROOT/etc/slurm.conf"
    if slurm_since 25.11; then
        echo NamespaceType=namespace/tmpfs
    else
        echo JobContainerType=job_container/tmpfs
    fi >>"$ROOT/etc/slurm.conf"
    "$SANDBOX" start --dir "$SANDBOX_DIR" --nodes 1 --plugin "$PLUGIN" --site "stage=/dev/shm:$STAGE" --etc "$ROOT/etc"
    eval "$("$SANDBOX" env --dir "$SANDBOX_DIR")"
}

teardown_file() {
    [ -z "$WHY_NOT" ] || return 0
    sandbox_down
    umount -l "$ROOT"/jobs/n1/*/.ns "$ROOT"/jobs/n1 "$ROOT"/jobs 2>/dev/null || true
    rm -rf "${ROOT:?}" /run/muster/stage_dev_shm:"${ROOT//\//_}"*
}

setup() {
    skip_if "$WHY_NOT"
    unset MUSTER_JOB MUSTER_STAGE
    cd "$ROOT" || return
    DIR=$ROOT/$BATS_TEST_NUMBER
    tiny_job "$DIR"
    # 30 MB of state, which a node drains at 1 MiB a second: there is time to kill it in the middle.
    sed -i 's/hidden = 32;/hidden = 320;/; s/steps = 50;/steps = 60;/; s/_batch = 24;/_batch = 6;/; s/_batch = 4;/_batch = 2;/' \
        "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 30; drain_mib = 1; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    tail -n 20 "$SANDBOX_DIR"/log/slurmd.n1.log
    scancel --user "$(id -un)"
}

staged() {
    ls "$STAGE"/muster-*/step-00000030.*/shard-*.json && [ ! -e ckpt/step-00000030 ]
}

is_empty() {
    [ -z "$(ls -A "$STAGE")" ]
}

@test "a job with a private /dev/shm stages where the epilog can commit a killed job's save" {
    run step --muster-report true
    echo "$output"
    grep -q "note: saves are staged in $STAGE, which slurmd's epilog sees too (stage=/dev/shm:$STAGE)" <<<"$output"
    srun --muster muster-train job.cfg &>out 3>&- &
    eventually 60 staged
    scancel --signal=KILL --full --user "$(id -un)"
    wait $! || true
    cat out
    eventually 60 test -e ckpt/step-00000030
    eventually 60 is_empty
    muster-ckpt verify ckpt
}

@test "a run in a container that hides the stage from slurmd warns that a killed job's save is lost" {
    sed -i 's/steps = 60;/steps = 6;/; s/drain_mib = 1;/drain_mib = 0;/' job.cfg
    # shellcheck disable=SC2016 # for the task
    step --muster unshare --mount bash -c \
        'mount -t tmpfs none /dev/shm && mount -t tmpfs none "$STAGE" && muster-train job.cfg' >out
    cat out
    grep -q '^/dev/shm is not visible to slurmd; staged saves are lost ' out
    grep -q '^done at step 6$' out
    rm -rf ckpt
    step --muster --export=ALL,MUSTER_STAGE="$STAGE" muster-train job.cfg >out # the user's choice
    no_line 'slurmd sees' out
}
