#!/usr/bin/env bats
# bats file_tags=more
# parallel.mesh = "auto": a job that is preempted to fewer nodes goes on there with another mesh, if the old one does not
# fit them.
load helpers

setup_file() {
    plugin_sandbox 4
}

setup() {
    skip_if "$WHY_NOT"
    unset MUSTER_JOB
    export SLURM_WAIT=2
    DIR=$BATS_TEST_TMPDIR OUT=$BATS_TEST_TMPDIR/out
    tiny_job "$DIR"
    cd "$DIR" || return
    cat >job.cfg <<CFG
model = { layers = 4; hidden = 256; heads = 4; seq_length = 64; vocab = 256; };
batch = { global_batch = 8; steps = 40; seed = 1; };
data = { train = "$DIR/train"; };
checkpoint = { dir = "$DIR/ckpt"; every = 5; };
parallel = { mesh = "auto"; machine = "$DIR/node.cfg"; pp = 1; };
report = { metrics = "$DIR/metrics.jsonl"; };
CFG
    cat >node.cfg <<CFG
gpu = false; peak_fp32 = 1e11; product = 0.8; attention = 0.3; memory = 4e9; bandwidth = 1e10; host_rate = 1e10;
levels = ( { ranks = 1; bandwidth = 2e9; latency = 5e-6; }, { bandwidth = 1e9; latency = 2e-5; } );
CFG
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    cat "$OUT"
    scancel --user "$(id -un)"
    eventually 30 all_idle
}

# submit ARGUMENT...: the job on up to 4 nodes, of which each may use $mib MiB, the process itself included
submit() {
    JOB=$(sbatch --parsable --nodes=2-4 --mem="${mib:-96}M" --cpus-per-task=1 --output="$OUT" "$TOP/etc/train.sbatch" job.cfg "$@")
}

meshes() {
    grep -o '^mesh "auto" on node.cfg: [^;]*' "$OUT"
}

# preempted SET...: the job is preempted to two nodes and finishes there, with the losses of a run of one process that was
# not stopped
preempted() {
    submit "$@"
    eventually 120 steps_done 12
    sbatch -p urgent -N2 -o /dev/null --wrap 'sleep 300' >/dev/null
    eventually 60 job_is 'Restarts=1'
    eventually 180 job_is 'JobState=COMPLETED'
    grep -q '^resumed from ' "$OUT"
    [ "$(wc -l <metrics.jsonl)" = 40 ]
    muster-train job.cfg "$@" --set parallel.mesh=given --set checkpoint.dir= --set checkpoint.every=0 \
        --set report.metrics=one.jsonl >/dev/null
    python3 - metrics.jsonl one.jsonl <<'PY'
import json, sys
a, b = ([json.loads(line)["loss"] for line in open(path)] for path in sys.argv[1:])
assert len(a) == len(b) == 40 and max(abs(x - y) for x, y in zip(a, b)) < 1e-4 * a[0], (a, b)
PY
}

@test "a job preempted to two nodes, where its mesh does not fit, goes on there with another" {
    preempted
    meshes
    [ "$(meshes | wc -l)" = 2 ]
    [ "$(meshes | sed 's/dp [0-9]* //' | sort -u | wc -l)" = 2 ]
}

@test "a Llama preempted to two nodes goes on there with the same losses" {
    mib=400
    preempted --set model.kind=llama --set model.kv_heads=2 --set model.untied=true --set model.qk_norm=true
}

# bats test_tags=quick
@test "with a given mesh that does not fit, the line of refusal names the change" {
    submit --set parallel.mesh=given --set parallel.zero=0 --set batch.micro_batch=2
    eventually 60 job_is 'JobState=FAILED'
    job_is 'ExitCode=78:0'
    grep -q 'would hold .* ask for more .* start more nodes, or set parallel.mesh = "auto"' "$OUT"
}

@test "srun hands its choice to the ranks, and a --set that changes it is reported" {
    mib=106 # what srun takes for the process, whose size it does not know, changes nothing
    submit --set batch.steps=2
    eventually 60 job_is 'JobState=COMPLETED'
    ! grep -q 'srun ordered the ranks for another mesh' "$OUT"
    rm -r ckpt
    submit --set batch.steps=2 --set parallel.zero=3
    eventually 60 job_is 'JobState=COMPLETED'
    grep -q '^srun ordered the ranks for another mesh (parallel.tp=.*): options --set, or the memory here, changed' "$OUT"
}
