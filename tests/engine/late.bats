# A network file system that shows things late (NFS): renames take long, and listings lack the newest names.
load ../helpers

setup() {
    need mpiexec.mpich
    DIR=$(realpath "$BATS_TEST_TMPDIR")
    mkdir -m 700 "$DIR/stage"
    mkdir "$DIR/nfs"
    tiny_job "$DIR"
    sed -i 's/steps = 50;/steps = 20;/' "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$DIR/nfs/ckpt\"; every = 10; keep = 3; stage = \"$DIR/stage\"; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
    SHIM=$BUILD/tests/crash/.libs/libshim.so
    [ -e "$SHIM" ] || skip "the crash tests' shim is not built"
}

# late N WORDS...: N ranks of muster-train, and the muster-ckptd that they start, see $DIR/nfs late.
late() {
    local n=$1
    shift
    ranks "$n" env SHIM_ROOT="$DIR/nfs" SHIM_LATE=400 LD_PRELOAD="$SHIM" muster-train job.cfg "$@"
}

@test "staged and direct saves on a slow network file system are committed and load on another mesh" {
    late 2 >log
    late 2 --set checkpoint.dir=nfs/straight --set checkpoint.stage= --set report.metrics=straight.jsonl >straight.log
    for log in log straight.log; do
        [ "$(grep -c '^checkpoint of step [0-9]* saved in ' $log)" -eq 2 ]
    done
    muster-ckpt verify --all nfs/ckpt
    run muster-ckpt diff nfs/ckpt nfs/straight
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    late 3 --set batch.steps=24 >log
    grep -q 'resumed from .* at step 20 ' log
    grep -q '^done at step 24' log
    [ -z "$(ls stage)" ]
    [ -z "$(find nfs -name '*.partial')" ]
}
