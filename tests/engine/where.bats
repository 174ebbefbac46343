# bats file_tags=more
# muster-report where: all of a run's time, by what the ranks did.
load ../helpers
bats_require_minimum_version 1.5.0

setup() {
    need mpiexec.mpich
    tiny_job "$BATS_TEST_TMPDIR"
    cd "$BATS_TEST_TMPDIR"
    sed -i 's/log_every = 10/log_every = 7; eval_every = 20; eval_batches = 2/' job.cfg
    echo 'checkpoint = { dir = "ckpt"; every = 10; };' >>job.cfg
}

@test "the shares add up to the time of the steps, and each axis that the mesh has is among them" {
    ranks 4 muster-train job.cfg --set parallel.tp=2 --set parallel.pp=2
    muster-report where metrics.jsonl | tee table
    grep -q '^50 steps on dp 1 x tp 2 x pp 2$' table
    for what in computing validating 'saving a checkpoint' 'waiting, tp' 'waiting, pp'; do
        grep -qE "^  $what +[0-9.]+ +[0-9.]+% +[0-9.]+%$" table
    done
    [ "$(grep -c '^  waiting, dp' table)" = 0 ]
    python3 - <<'END'
import json
events = [json.loads(line) for line in open("metrics.jsonl.events") if line.strip()]
ready = next(e["ready"] for e in events if e["event"] == "start")
steps = [json.loads(line) for line in open("metrics.jsonl")]
wall = steps[-1]["time"] - ready
for shares in ("mean", "rank0"):
    told = sum(sum(e[shares].values()) for e in events if e["event"] == "where")
    assert abs(told - wall) < 0.05 * wall + 0.1, (shares, told, wall)
END
}

@test "a run that went on with another mesh has a table for each, beside the plan's prediction" {
    ranks 2 muster-train job.cfg --set batch.steps=20
    ranks 1 muster-train job.cfg
    muster-plan job.cfg --machine h200 --nodes 1 --ranks 2 --json >plan.json
    muster-report where metrics.jsonl --plan plan.json | tee table
    grep -q '^20 steps on dp 2 x tp 1 x pp 1$' table
    grep -q '^30 steps on dp 1 x tp 1 x pp 1$' table
    [ "$(grep -c '    predicted$' table)" = 1 ]
    grep -qE '^  computing +[0-9.]+ +[0-9.]+% +[0-9.]+% +[0-9.]+$' table
    grep -q '^  the plan does not have this mesh$' table
}

@test "what cannot be shown is said in a line" {
    run -74 muster-report where metrics.jsonl
    [ "$output" = "muster-report: cannot open metrics.jsonl.events: No such file or directory" ]
    echo '{"event":"start"}' >metrics.jsonl.events
    run -65 muster-report where metrics.jsonl
    [[ $output == "muster-report: metrics.jsonl.events does not tell yet where the time went: "* ]]
    echo '{"event":"where","steps":1,"mean":{"computing":1},"rank0":3}' >metrics.jsonl.events
    muster-report where metrics.jsonl
    run -65 muster-report where metrics.jsonl --plan job.cfg
    [[ $output == "muster-report: job.cfg: "*"; give the output of muster-plan --json" ]]
}
