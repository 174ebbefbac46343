# supervise.bash - what the tests of muster-supervise share, which both files load.
load helpers

setup_file() {
    plugin_sandbox 8
}

setup() {
    skip_if "$WHY_NOT"
    unset MUSTER_JOB JOB
    DIR=$BATS_TEST_TMPDIR OUT=$BATS_TEST_TMPDIR/out
    tiny_job "$DIR"
    sed -i 's/steps = 50;/steps = 300;/; s/global_batch = 24;/global_batch = 12;/; s/micro_batch = 4;/micro_batch = 1;/' "$DIR/job.cfg"
    sed -i 's/hidden = 32;/hidden = 128;/; s/log_every = 10;/log_every = 50;/' "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 20; partner = true; last_seconds = 20; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
}

teardown() {
    [ -n "${JOB-}" ] || return 0 # skipped
    cat "$OUT"
    tail -n 5 "$SANDBOX_DIR"/log/slurmctld.log
    scancel --user "$(id -un)"
    for node in n{1..8}; do
        "$SANDBOX" revive-node $node --dir "$SANDBOX_DIR" 2>/dev/null || true
    done
    eventually 60 all_idle
    rm -rf /dev/shm/muster-"$(id -u)-${JOB:?}".n[1-8].*
}

# submit NODES [OPTION...]: etc/train.sbatch on the first so many nodes, with these options of muster-supervise
submit() {
    local nodes=$1 others=()
    shift
    [ "$nodes" = 8 ] || others=(--exclude="n[$((${nodes#*-} + 1))-8]")
    sed "s/muster-supervise --/muster-supervise $* --/; s/--nodes=2-4$/--nodes=$nodes/" "$TOP/etc/train.sbatch" >train.sbatch
    JOB=$(sbatch --parsable ${others[@]+"${others[@]}"} --output="$OUT" train.sbatch job.cfg)
}

# processes NODE PROGRAM: those of the job
processes() {
    local pid
    for pid in $(pgrep -x "$2"); do
        grep -qzx "SLURM_JOB_ID=$JOB" "/proc/$pid/environ" 2>/dev/null &&
            grep -qzx "SLURMD_NODENAME=$1" "/proc/$pid/environ" && echo "$pid"
    done
}

completed() { job_is 'JobState=COMPLETED'; }

# The losses are those of a run that nothing disturbed, on as many ranks.
as_undisturbed() {
    sed 's#/ckpt"#/whole"#; s#metrics.jsonl#whole.jsonl#' job.cfg >whole.cfg
    ranks "$1" muster-train whole.cfg >whole.log
    muster-report compare metrics.jsonl whole.jsonl --tolerance 0
}
