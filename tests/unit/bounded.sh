#!/usr/bin/env bash
# tests/bounded: what a test program says and returns goes through; one that hangs ends, and the log says where it was.
bounded=${top_srcdir:-$(dirname "$0")/../..}/tests/bounded
DIR=$(mktemp -d)
trap 'rm -rf "$DIR"' EXIT
number=0 bad=0

# it WORDS COMMAND...: a line of TAP
it() {
    local result=ok
    "${@:2}" || { result='not ok' bad=1; sed 's/^/# /' "$DIR/out"; }
    number=$((number + 1))
    echo "$result $number - $1"
}

# code EXPECTED COMMAND...: what it prints is in $DIR/out
code() {
    "$bounded" "${@:2}" >"$DIR/out" 2>&1
    local got=$?
    echo "exit $got" >>"$DIR/out"
    [ $got = "$1" ]
}

says() {
    local words
    for words in "$@"; do grep -q -e "$words" "$DIR/out" || { echo "lacks $words" >>"$DIR/out"; return 1; }; done
}

# gone FILE...: the process whose number is in it runs no more, though nobody may have asked for its end yet.
gone() {
    local state file
    for file in "$@"; do
        [ -s "$file" ] || return 1
        state=$(ps -o stat= -p "$(<"$file")") || continue
        [[ $state == Z* ]] || { echo "$file still runs: $state" >>"$DIR/out"; return 1; }
    done
}

passes_through() { code 7 bash -c 'echo "ok 1 - a word"; exit 7' && says '^ok 1 - a word$' '^# took [0-9]* s$'; }

dies_at_once() { code 139 bash -c 'kill -SEGV $$'; }

hangs() {
    cat >"$DIR/hangs" <<'EOF'
trap '' TERM
sleep 321 & echo $! >"$1/one"
bash -c 'echo $$ >"$1/two"; exec setsid sleep 322' - "$1" &
echo "ok 1 - before it hung"
sleep 323
EOF
    MUSTER_TEST_LIMIT=3 code 124 bash "$DIR/hangs" "$DIR" &&
        says '^ok 1 - before it hung$' 'sleep 321' 'sleep 322' 'sleep 323' '^Bail out! did not end within 3 s$' &&
        gone "$DIR/one" "$DIR/two"
}

leaves_something() {
    code 0 bash -c "sleep 324 & echo \$! >$DIR/three" && says '^# left running:$' 'sleep 324' && gone "$DIR/three"
}

interrupted() {
    "$bounded" bash -c "echo \$\$ >$DIR/four; sleep 325" >"$DIR/out" 2>&1 &
    until [ -s "$DIR/four" ]; do sleep 0.1; done
    kill -TERM $!
    wait $!
    [ $? = 130 ] && gone "$DIR/four"
}

it "output and exit code are passed through" passes_through
it "a program killed by a signal ends with that signal's exit code" dies_at_once
it "a program that hangs is killed and named, with its children in other sessions" hangs
it "processes that a program leaves running are killed and named" leaves_something
it "an interrupted tests/bounded also ends its program" interrupted
echo "1..$number"
exit $bad
