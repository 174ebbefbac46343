#!/usr/bin/env bats
# bats file_tags=more
# muster-supervise: when a rank or a node is lost, the run starts again inside its allocation, and its losses are those of
# an undisturbed run. A signal that comes then is heard.
load supervise

# bats test_tags=quick
@test "a killed rank: the run starts again on the same nodes, bit for bit, and the job is not requeued" {
    submit 3
    eventually 60 steps_done 60
    kill -KILL "$(processes n2 muster-train)"
    eventually 120 completed
    job_is 'Restarts=0 '
    grep -q '^muster-supervise: restart 1 of 5 on 3 of 3 nodes after: rank 1 on n2 is dead' "$OUT"
    [ "$(tail -n 1 "$OUT")" = "done at step 300" ]
    [ "$(grep -c '^resumed from ' "$OUT")" -eq 1 ]
    grep -q '^done at step 300$' "$OUT"
    muster-report summary metrics.jsonl >summary
    grep -q '^  goodput  ' summary
    grep -qE '^  at [0-9]+ +[0-9]+ +[0-9.]+ +- +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+  rank 1 on n2 is dead' summary
    as_undisturbed 3
}

@test "a dead node with a spare: the run goes on with the spare, bit for bit" {
    submit 4 --spares 1
    eventually 60 steps_done 60
    "$SANDBOX" kill-node n3 --dir "$SANDBOX_DIR"
    rm -rf /dev/shm/muster-"$(id -u)-$JOB".n3.*
    eventually 120 completed
    job_is 'Restarts=0 '
    grep -q '^muster-supervise: n3 is left out: it does not answer$' "$OUT"
    grep -q '^muster-supervise: restart 1 of 5 on 3 of 4 nodes after: rank 2 on n3 is ' "$OUT"
    as_undisturbed 3
}

@test "the batch script's node dies: the job is requeued once, and finishes" {
    submit 2-4
    eventually 60 steps_done 60
    "$SANDBOX" kill-node n1 --dir "$SANDBOX_DIR"
    eventually 240 completed
    job_is 'Restarts=1 '
    grep -q '^muster-supervise: the node of the batch script does not answer: n[234] has the job requeued$' "$OUT"
    grep -q '^done at step 300$' "$OUT"
}

# hang_then ARGUMENT...: kills a rank, and calls scancel with these arguments when the hang report has begun
hang_then() {
    submit 3
    eventually 60 steps_done 60
    kill -KILL "$(processes n2 muster-train)"
    eventually 30 grep -q '^---- this run hangs' "$OUT"
    scancel "$@" "$JOB"
}

@test "a signal between the fault and the restart: the job is requeued, not restarted" {
    for signal in USR1 TERM; do
        rm -rf ckpt metrics.jsonl*
        hang_then --signal=$signal
        eventually 60 job_is 'Restarts=1 '
        no_line -q '^muster-supervise: restart 1 ' "$OUT"
        eventually 120 completed
        grep -q '^done at step 300$' "$OUT"
    done
}

@test "scancel between the fault and the restart: the job is cancelled, and nothing of it is left" {
    hang_then
    eventually 60 job_is 'JobState=CANCELLED'
    eventually 60 all_idle
    no_line -q '^muster-supervise: restart 1 ' "$OUT"
    for node in n1 n2 n3; do
        [ -z "$(processes $node muster-train)$(processes $node muster-supervis)" ]
    done
}
