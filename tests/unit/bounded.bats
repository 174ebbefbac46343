#!/usr/bin/env bats
# tests/bounded: what a test program says and returns goes through; one that hangs ends, and the log says where it was.

setup() {
    bounded=$(realpath "$BATS_TEST_DIRNAME/../bounded")
}

# gone PID: it runs no more, though its parent, or init, may not have asked for its end yet.
gone() {
    local state
    state=$(ps -o stat= -p "$1") || return 0
    [[ $state == Z* ]]
}

@test "output and exit code go through" {
    run "$bounded" bash -c 'echo "1..1"; echo "ok 1 - a word"; exit 7'
    [ "$status" = 7 ]
    [ "${lines[0]}" = "1..1" ]
    [ "${lines[1]}" = "ok 1 - a word" ]
    [[ ${lines[2]} =~ ^"# took "[0-9]+" s"$ ]]
}

@test "a program that hangs is killed with all that it started, and named with what it was doing" {
    cat >"$BATS_TEST_TMPDIR/hangs" <<'EOF'
trap '' TERM
sleep 321 & echo $! >"$1"
echo "ok 1 - before it hung"
sleep 322
EOF
    MUSTER_TEST_LIMIT=1 run "$bounded" bash "$BATS_TEST_TMPDIR/hangs" "$BATS_TEST_TMPDIR/pid"
    [ "$status" = 124 ]
    [ "${lines[0]}" = "ok 1 - before it hung" ]
    [ "${lines[-1]}" = "Bail out! did not end within 1 s" ]
    [[ $output == *"sleep 321"* && $output == *"sleep 322"* ]]
    gone "$(<"$BATS_TEST_TMPDIR/pid")"
}

@test "who is interrupted ends the test too" {
    MUSTER_TEST_LIMIT=60 "$bounded" bash -c "echo \$\$ >$BATS_TEST_TMPDIR/pid; sleep 323" 3>&- &
    until [ -s "$BATS_TEST_TMPDIR/pid" ]; do sleep 0.1; done
    kill -TERM $!
    wait $! || true
    gone "$(<"$BATS_TEST_TMPDIR/pid")"
}
