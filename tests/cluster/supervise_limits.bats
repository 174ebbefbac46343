#!/usr/bin/env bats
# bats file_tags=more
# muster-supervise: several faults, faults at any moment, and those after which the job is requeued or ends.
load supervise

@test "two nodes that hold each other's copies die at once: the run goes on from the newest committed checkpoint" {
    submit 2-4
    eventually 60 steps_done 60
    "$SANDBOX" kill-node n2 --dir "$SANDBOX_DIR"
    "$SANDBOX" kill-node n3 --dir "$SANDBOX_DIR"
    rm -rf /dev/shm/muster-"$(id -u)-$JOB".n[23].*
    eventually 120 completed
    job_is 'Restarts=0 '
    grep -q '^muster-supervise: restart [12] of 5 on 2 of 4 nodes after: ' "$OUT" # the second may die later
    grep -q '^resumed from .* at step ' "$OUT"
    grep -q '^done at step 300$' "$OUT"
}

@test "without partner copies a dead node costs the steps since the last committed save" {
    local saved resumed
    sed -i 's/partner = true; //' job.cfg
    submit 4 --spares 1
    eventually 60 steps_done 70
    "$SANDBOX" kill-node n3 --dir "$SANDBOX_DIR"
    rm -rf /dev/shm/muster-"$(id -u)-$JOB".n3.*
    eventually 120 completed
    saved=$(sed '/^---- this run hangs/q' "$OUT" | sed -n 's/^checkpoint of step \([0-9]*\) saved .*/\1/p' | tail -n 1)
    resumed=$(sed -n 's/^resumed from .* at step \([0-9]*\).*/\1/p' "$OUT")
    [ "$saved" -ge 20 ] && [ "$resumed" -ge "$saved" ] # it may be committed before the log says so
    as_undisturbed 3
}

@test "if fewer nodes are left than the job needs, it is requeued" {
    submit 4 --spares 1
    eventually 60 steps_done 60
    "$SANDBOX" kill-node n2 --dir "$SANDBOX_DIR"
    "$SANDBOX" kill-node n3 --dir "$SANDBOX_DIR"
    eventually 60 grep -q '^muster-supervise: too few nodes: 2 are left, and the job needs 3$' "$OUT"
    eventually 30 job_is 'Restarts=1 '
}

@test "after as many restarts as are allowed, the next fault requeues the job" {
    submit 2 --restarts 1
    eventually 60 steps_done 60
    kill -KILL "$(processes n2 muster-train)"
    eventually 60 grep -q '^resumed from ' "$OUT"
    eventually 60 steps_done 100
    kill -KILL "$(processes n2 muster-train)"
    eventually 60 grep -q '^muster-supervise: no restart: 1 within an hour$' "$OUT"
    eventually 120 completed
    job_is 'Restarts=1 '
    grep -q '^done at step 300$' "$OUT"
}

@test "the same fault at the same step, twice: the job ends with it, and is not requeued" {
    cat >program <<'END'
#!/bin/sh
echo "---- this run hangs ----
rank 0 on $SLURMD_NODENAME is dead
hang report of job 1, at step 7" >&2
exit 76
END
    chmod +x program
    sed 's#--mpi=.*#./program#; s/--nodes=2-4$/--nodes=1/' "$TOP/etc/train.sbatch" >train.sbatch
    JOB=$(sbatch --parsable --output="$OUT" train.sbatch job.cfg)
    eventually 60 job_is 'JobState=FAILED'
    job_is 'ExitCode=76:0'
    job_is 'Restarts=0 '
    [ "$(grep -c '^muster-supervise: restart ' "$OUT")" = 1 ]
    grep -q '^muster-supervise: the same fault at the same step, twice: the job ends: rank 0 on n[1-8] is dead$' "$OUT"
}

@test "the first check leaves too few nodes: the job is requeued" {
    mkdir bin
    cat >bin/muster-preflight <<END
#!/bin/sh
case \$SLURM_NODEID in [12]) export MUSTER_PREFLIGHT_ROOT=/nonexistent ;; esac
exec "$BUILD/muster-preflight" "\$@"
END
    chmod +x bin/muster-preflight
    PATH=$PWD/bin:$PATH submit 4 --spares 1
    eventually 60 grep -q '^muster-supervise: too few nodes: 2 are left, and the job needs 3$' "$OUT"
    eventually 30 job_is 'Restarts=1 '
    no_line -q '^model: ' "$OUT"
}

@test "a node that dies while it is checked is left out after seconds, and the run goes on" {
    mkdir bin
    cat >bin/muster-preflight <<END
#!/bin/sh
if [ -e slow ] && touch checking.\$SLURMD_NODENAME; then sleep 5; fi
exec "$BUILD/muster-preflight" "\$@"
END
    chmod +x bin/muster-preflight
    PATH=$PWD/bin:$PATH submit 4 --spares 1
    eventually 60 steps_done 60
    touch slow
    kill -KILL "$(processes n2 muster-train)"
    eventually 30 test -e checking.n3
    "$SANDBOX" kill-node n3 --dir "$SANDBOX_DIR"
    eventually 25 grep -q '^muster-supervise: n3 is left out: it does not answer$' "$OUT"
    eventually 120 completed
    job_is 'Restarts=0 '
    as_undisturbed 3
}

@test "a node that dies before the first start: the job is requeued, and finishes" {
    sed 's/exec muster-supervise/until [ -e go ]; do sleep 0.2; done; &/' "$TOP/etc/train.sbatch" >train.sbatch
    JOB=$(sbatch --parsable --nodes=3 --exclude='n[5-8]' --output="$OUT" train.sbatch job.cfg)
    eventually 30 job_is 'JobState=RUNNING'
    "$SANDBOX" kill-node "$(scontrol show hostnames "$(squeue -h -o %N -j "$JOB")" | sed -n 2p)" --dir "$SANDBOX_DIR"
    touch go
    eventually 240 completed
    job_is 'Restarts=1 '
    grep -q '^done at step 300$' "$OUT"
}

# fault KIND: on one of the nodes n2 to n8 that run; fails once the run has ended
fault() {
    local node pid=''
    while [ -z "$pid" ]; do
        no_line -q '^done at ' "$OUT" || return
        node=n$((RANDOM % 7 + 2))
        pid=$(processes $node muster-train | head -n 1)
        [ -n "$pid" ] || sleep 0.2
    done
    echo "$(date +%T) $1 on $node, $(wc -l <metrics.jsonl) steps done" >>faults
    case $1 in
    rank) kill -KILL "$pid" ;;
    ckptd) pkill -KILL -f "muster-ckptd .*/muster-$(id -u)-$JOB[.]$node[.]" || true ;;
    node)
        "$SANDBOX" kill-node $node --dir "$SANDBOX_DIR"
        rm -rf /dev/shm/muster-"$(id -u)-$JOB".$node.*
        ;;
    esac
}

# MUSTER_TEST_JOBS: how many jobs; each has four faults
@test "faults at random moments, in a restart too: the run goes on each time, bit for bit" {
    local kind
    [ -n "${MUSTER_TEST_JOBS-}${MUSTER_CHECK_FULL-}" ] || skip "four faults at random moments take minutes: ./check --full"
    sed -i 's/steps = 300;/steps = 1000;/' job.cfg
    for ((k = 0; k < ${MUSTER_TEST_JOBS:-1}; k++)); do
        rm -rf ckpt metrics.jsonl faults "$OUT"
        submit 8 --spares 2 --restarts 9
        eventually 60 steps_done 30
        for kind in $(shuf -e rank node ckptd node); do
            sleep $((RANDOM % 5)).$((RANDOM % 10))
            fault "$kind" || echo "# the run ended before the fault: $kind" >&3
        done
        eventually 240 completed
        cat faults >&3
        grep '^muster-supervise' "$OUT" | cut -c1-100 >&3
        muster-report summary metrics.jsonl | sed -n '/goodput/,/^$/p; /went on/,/^$/p' >&3
        job_is 'Restarts=0 '
        grep -q '^done at step 1000$' "$OUT"
        as_undisturbed 6
        for node in n{1..8}; do
            "$SANDBOX" revive-node $node --dir "$SANDBOX_DIR" 2>/dev/null || true
        done
        eventually 60 all_idle
    done
}
