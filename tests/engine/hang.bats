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
    cd "$DIR" || return
}

teardown() {
    [ -z "${mpi_pid:-}" ] || kill "$mpi_pid" 2>/dev/null || true
}

# four_ranks ARGUMENT...: in the background, with nothing of an earlier round
four_ranks() {
    rm -rf hang-* metrics.jsonl log
    outlasting
    [ -z "${shimmed_rank:-}" ] || sed -i "2i [ \$PMI_RANK != $shimmed_rank ] || export LD_PRELOAD=$SHIM" rank
    timeout -k 5 60 mpiexec.mpich -disable-auto-cleanup -n 4 ./rank muster-train job.cfg --set batch.steps=1000000 \
        --set report.hang_seconds=$HANG "$@" >log 2>&1 3>&- &
    mpi_pid=$!
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
    [[ $sentence == $1 ]] && eventually 10 printed && [ "$(grep -c '^---- this run hangs' log)" -eq 1 ] && return
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
        eventually 30 steps_done 20
        sleep "0.$((RANDOM % 10))"
        kill -STOP "$(cat pids/$victim)"
        eventually $((HANG + 6)) reported
        named "rank $victim on * is stopped (by SIGSTOP or a debugger)*last entered *"
        eventually 15 all_ended
        ended_with 76
        wait $mpi_pid || true
    done
    cp hang-*/hang-report.txt report
    muster-report html metrics.jsonl | grep -qF "$(head -n 1 report)" # the page has it
}

# bats test_tags=quick
@test "a rank killed at a random moment is named at once, and the others end with 76" {
    for round in $(seq "$ROUNDS"); do
        victim=$((RANDOM % 4))
        four_ranks --set report.hang_seconds=1000
        eventually 30 steps_done 20
        sleep "0.$((RANDOM % 10))"
        kill -KILL "$(cat pids/$victim)"
        eventually 15 reported
        named "rank $victim on * is dead (its process is gone)*last entered *"
        eventually 15 all_ended
        ended_with 76 $victim 137
        wait $mpi_pid || true
    done
}

# blocked RANK CALL: that rank's first such call beneath $DIR/stuck never returns.
blocked() {
    SHIM=$BUILD/tests/crash/.libs/libshim.so shimmed_rank=$1
    [ -e "$SHIM" ] || skip "the crash tests' shim is not built"
    mkdir stuck
    export SHIM_PROGRAM=muster-train SHIM_FAIL=$2:1:WAIT SHIM_GO=$DIR/never SHIM_ROOT
    SHIM_ROOT=$(realpath stuck)
}

@test "a rank that blocks while opening its data is named with that operation" {
    blocked 2 look
    mv train.* stuck
    four_ranks --set data.train="$DIR/stuck/train"
    eventually 30 reported
    named "rank 2 on * is * behind, last entered *; it has been opening its data for *"
    eventually 15 all_ended
    ended_with 76
}

# bats test_tags=quick
@test "a run that is stopped while nothing hangs leaves no watchdog files" {
    four_ranks --set checkpoint.dir="$DIR/ckpt"
    eventually 30 steps_done 20
    kill -TERM "$(cat pids/3)"
    eventually 15 all_ended
    ended_with 75
    run ls -d hang-* "$DIR"/ckpt/hang-*
    [ "$status" -ne 0 ]
}

@test "report.hang_seconds = 0 turns the watchdog off, and training works" {
    timeout -k 5 60 mpiexec.mpich -n 2 muster-train job.cfg --set report.hang_seconds=0 >log
    grep -q '^done at step 50$' log
}
