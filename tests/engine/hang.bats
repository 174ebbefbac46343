# bats file_tags=more
# A rank that is stopped, killed or stuck at a random moment: one report names it, and all others end with 76.
load ../helpers

ROUNDS=${MUSTER_CHECK_FULL:+20}
ROUNDS=${ROUNDS:-3}
HANG=3

setup() {
    need mpiexec.mpich
    DIR=$BATS_TEST_TMPDIR
    tiny_job "$DIR"
    # What mpiexec starts: it would kill the other ranks when one has ended, and all that they could still say.
    cat >"$DIR/rank" <<'SH'
#!/bin/sh
muster-train "$@" &
echo $! >pids/$PMI_RANK
wait $!
echo $? >codes/$PMI_RANK
until [ "$(ls codes | wc -l)" -eq 4 ]; do sleep 0.05; done
sleep 0.3
SH
    chmod +x "$DIR/rank"
    cd "$DIR" || return
}

teardown() {
    [ -z "${mpi_pid:-}" ] || kill "$mpi_pid" 2>/dev/null || true
}

# four_ranks ARGUMENT...: in the background, with nothing of an earlier round
four_ranks() {
    rm -rf pids codes hang-* metrics.jsonl log
    mkdir pids codes
    timeout -k 5 60 mpiexec.mpich -disable-auto-cleanup -n 4 ./rank job.cfg --set batch.steps=1000000 \
        --set report.hang_seconds=$HANG "$@" >log 2>&1 3>&- &
    mpi_pid=$!
}

# within SECONDS COMMAND...: until it succeeds, but not for longer
within() {
    local deadline=$((SECONDS + $1 + 1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "not within its time: $*"; return 1; }
        sleep 0.1
    done
}

under_way() {
    [ -f metrics.jsonl ] && [ "$(wc -l <metrics.jsonl)" -ge 20 ]
}

# reported [DIRECTORY]
reported() {
    [ -s "$(echo "${1:-.}"/hang-*/hang-report.txt)" ]
}

all_ended() {
    [ "$(ls codes | wc -l)" -eq 4 ]
}

printed() {
    grep -q '^---- this run hangs' log
}

# named PATTERN: the report begins with it, and is printed once, after its file; on failure, all there is to see
named() {
    local sentence
    sentence=$(head -n 1 hang-*/hang-report.txt)
    [[ $sentence == $1 ]] && within 10 printed && [ "$(grep -c '^---- this run hangs' log)" -eq 1 ] && return
    echo "# $sentence"
    cat hang-*/hang-report.txt
    return 1
}

# ended_with CODE [RANK ITS_CODE]: that is how all ranks ended, but for one
ended_with() {
    local rank code
    for rank in 0 1 2 3; do
        code=$1
        [ "$rank" != "${2:-}" ] || code=$3
        [ "$(cat codes/$rank)" -eq "$code" ] || { grep -v '^ iteration' log; head codes/*; return 1; }
    done
}

@test "a rank stopped at a random moment is named within hang_seconds + 5, and all ranks end with 76" {
    for round in $(seq "$ROUNDS"); do
        victim=$((RANDOM % 4))
        four_ranks
        within 30 under_way
        sleep "0.$((RANDOM % 10))"
        kill -STOP "$(cat pids/$victim)"
        within $((HANG + 5)) reported
        named "rank $victim on * is stopped (by SIGSTOP or a debugger)*last entered *"
        within 15 all_ended
        ended_with 76
        wait $mpi_pid || true
    done
}

# bats test_tags=quick
@test "a rank killed at a random moment is named at once, and the others end with 76" {
    for round in $(seq "$ROUNDS"); do
        victim=$((RANDOM % 4))
        four_ranks --set report.hang_seconds=1000
        within 30 under_way
        sleep "0.$((RANDOM % 10))"
        kill -KILL "$(cat pids/$victim)"
        within 15 reported
        named "rank $victim on * is dead (its process is gone)*last entered *"
        within 15 all_ended
        ended_with 76 $victim 137
        wait $mpi_pid || true
    done
}

# blocked RANK CALL: that rank's first such call beneath $DIR/stuck never returns.
blocked() {
    local shim=$BUILD/tests/crash/.libs/libshim.so
    [ -e "$shim" ] || skip "the crash tests' shim is not built"
    mkdir stuck
    sed -i "2i [ \$PMI_RANK != $1 ] || export LD_PRELOAD=$shim" rank
    export SHIM_PROGRAM=muster-train SHIM_FAIL=$2:1:WAIT SHIM_GO=$DIR/never SHIM_ROOT
    SHIM_ROOT=$(realpath stuck)
}

@test "a rank that blocks while opening the metrics is named with that operation" {
    blocked 0 open
    four_ranks --set report.metrics="$DIR/stuck/metrics.jsonl"
    within 30 reported stuck
    mv stuck/hang-* .
    named "rank 0 on * is 1 collective behind, last entered *; it has been opening the metrics for *"
    within 15 all_ended
    ended_with 76
}

@test "a rank that blocks while opening its data is named with that operation" {
    blocked 2 look
    mv train.* stuck
    four_ranks --set data.train="$DIR/stuck/train"
    within 30 reported
    named "rank 2 on * is * behind, last entered *; it has been opening its data for *"
    within 15 all_ended
    ended_with 76
}

# bats test_tags=quick
@test "a run that is stopped while nothing hangs leaves no watchdog files" {
    four_ranks --set checkpoint.dir="$DIR/ckpt"
    within 30 under_way
    kill -TERM "$(cat pids/3)"
    within 15 all_ended
    ended_with 75
    run ls -d hang-* "$DIR"/ckpt/hang-*
    [ "$status" -ne 0 ]
    ! ls /dev/shm/muster-record.*."$(cat pids/0)".*
}

@test "report.hang_seconds = 0 turns the watchdog off, and training works" {
    timeout -k 5 60 mpiexec.mpich -n 2 muster-train job.cfg --set report.hang_seconds=0 >log
    grep -q '^done at step 50$' log
}
