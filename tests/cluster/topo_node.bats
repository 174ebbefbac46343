#!/usr/bin/env bats
# muster-topo node and save, as a program: replayed machines and this one.
load ../helpers

setup() {
    need python3
    grep -q '^HWLOC_LIBS = -l' "$BUILD/Makefile" || skip "built without hwloc"
}

snapshot() {
    "$TOP/tests/fixtures/make-machines" "$TOP/tests/fixtures/machines/$1/machine" "$BATS_TEST_TMPDIR/$1"
}

@test "a replayed machine is what is expected of it" {
    snapshot dgx-h100-dead-port
    muster-topo node "$BATS_TEST_TMPDIR/dgx-h100-dead-port" >"$BATS_TEST_TMPDIR/table"
    diff "$TOP/tests/fixtures/machines/dgx-h100-dead-port/expected.txt" "$BATS_TEST_TMPDIR/table"
}

@test "--json says what the table says" {
    snapshot ex-mi250x
    muster-topo node --json "$BATS_TEST_TMPDIR/ex-mi250x" >"$BATS_TEST_TMPDIR/json"
    run python3 - "$BATS_TEST_TMPDIR/json" <<'PYTHON'
import json, sys
all = json.load(open(sys.argv[1]))
print(all["node"]["fabric"], len(all["node"]["gpus"]), all["node"]["gpus"][0]["paths"]["cxi0"])
for rank in all["binding"]["ranks"]:
    print(rank["gpu"], rank["nics"], rank["cpus"], rank["mems"], rank["threads"])
PYTHON
    echo "$output"
    [ "${lines[0]}" = "slingshot 8 switch" ]
    [ "${lines[1]}" = "0 ['cxi0'] 49-55 3 7" ]
    [ "${lines[8]}" = "7 ['cxi3'] 41-47 2 7" ]
}

@test "hwloc's own tools read what make-machines writes" {
    need lstopo-no-graphics
    for machine in "$TOP"/tests/fixtures/machines/*/; do
        snapshot "$(basename "$machine")"
        xml=$BATS_TEST_TMPDIR/$(basename "$machine")/machine.xml
        [ -f "$xml" ] || continue
        run lstopo-no-graphics --input "$xml" --of console
        echo "$machine: $output"
        [ "$status" -eq 0 ]
        [[ $output == *NUMANode* ]]
    done
}

@test "this machine, saved and read again" {
    muster-topo save "$BATS_TEST_TMPDIR/here"
    muster-topo node "$BATS_TEST_TMPDIR/here" | grep -v '^memory' >"$BATS_TEST_TMPDIR/replayed"
    muster-topo node | grep -v '^memory' >"$BATS_TEST_TMPDIR/live"
    diff "$BATS_TEST_TMPDIR/live" "$BATS_TEST_TMPDIR/replayed"
    run muster-topo save "$BATS_TEST_TMPDIR/here"
    [ "$status" -eq 64 ]
}

@test "wrong usage and bad files are told" {
    run muster-topo node --ranks=0
    [ "$status" -eq 64 ]
    run muster-topo node --nonsense
    [ "$status" -eq 64 ]
    [[ $output == *--nonsense* ]]
    run muster-topo node /nowhere
    [ "$status" -eq 74 ]
    echo '<a/>' >"$BATS_TEST_TMPDIR/a.xml"
    run muster-topo node --xml "$BATS_TEST_TMPDIR/a.xml"
    [ "$status" -eq 65 ]
    [[ $output == *a.xml* ]]
    run muster-topo save
    [ "$status" -eq 64 ]
}
