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

@test "the table of a recorded machine is as expected" {
    snapshot dgx-h100-dead-port
    muster-topo node "$BATS_TEST_TMPDIR/dgx-h100-dead-port" >"$BATS_TEST_TMPDIR/table"
    diff "$TOP/tests/fixtures/machines/dgx-h100-dead-port/expected.txt" "$BATS_TEST_TMPDIR/table"
}

@test "without libhwloc, a node's NICs are listed and the missing library is reported" {
    snapshot dgx-h100
    MUSTER_HWLOC=/no/such/libhwloc.so run muster-topo node "$BATS_TEST_TMPDIR/dgx-h100"
    echo "$output"
    [ "$status" -eq 0 ]
    grep -q '^problem: cores, memory and GPUs are not known: hwloc cannot be opened: /no/such/libhwloc.so' <<<"$output"
    grep -q '^mlx5_0:1 ' <<<"$output"
    [ "$(grep -c '^gpu ' <<<"$output")" -eq 0 ]
}

@test "--json has the node's fabric and each rank's GPU, NICs, CPUs, memory and threads" {
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

@test "--environment --json has each rank's variables with value and source" {
    snapshot hgx-roce
    muster-topo node --json --environment --nodes 2 --profiles "$TOP/etc/fabric" "$BATS_TEST_TMPDIR/hgx-roce" \
        >"$BATS_TEST_TMPDIR/json"
    run python3 - "$BATS_TEST_TMPDIR/json" <<'PYTHON'
import json, os, sys
environment = json.load(open(sys.argv[1]))["environment"]
print(environment["profile"], environment["notes"], len(environment["ranks"]))
for name in ("LOCAL_RANK", "NCCL_IB_GID_INDEX", "NCCL_SOCKET_IFNAME"):
    variable = environment["ranks"][7][name]
    print(name, variable["value"], os.path.basename(variable["source"]).split(":")[0], variable["set"], bool(variable["why"]))
PYTHON
    echo "$output"
    [ "${lines[0]}" = "roce [] 8" ]
    [ "${lines[1]}" = "LOCAL_RANK 7 muster True True" ]
    [ "${lines[2]}" = "NCCL_IB_GID_INDEX 3 roce.cfg True True" ]
    [ "${lines[3]}" = "NCCL_SOCKET_IFNAME =bond0 roce.cfg True True" ]
}

@test "--environment shows variables that the user and the site have set" {
    mkdir "$BATS_TEST_TMPDIR/site"
    cat >"$BATS_TEST_TMPDIR/site/ours.cfg" <<'PROFILE'
name = "ours";
match = { };
set = (
    { name = "NCCL_IB_TC"; value = "106"; why = "our switches"; source = "our handbook"; },
    { name = "NCCL_IB_SL"; value = "3"; why = "our switches"; source = "our handbook"; }
);
PROFILE
    echo 'name = 5;' >"$BATS_TEST_TMPDIR/site/broken.cfg"
    NCCL_IB_SL=1 run muster-topo node --environment --profiles "$TOP/etc/fabric" --site "$BATS_TEST_TMPDIR/site" /
    echo "$output"
    [ "$status" -eq 0 ]
    grep -q '^NCCL_IB_TC  *106  *ours.cfg:4  *our switches$' <<<"$output"
    grep -q '^NCCL_IB_SL  *1  *user  *ours.cfg:5 would have set 3$' <<<"$output"
    grep -q '^note: broken.cfg:1: ' <<<"$output"
}

@test "--xml without a directory shows that machine alone: nothing of this one" {
    snapshot epyc-nps4
    mkdir "$BATS_TEST_TMPDIR/empty"
    muster-topo node --xml "$BATS_TEST_TMPDIR/epyc-nps4/machine.xml" >"$BATS_TEST_TMPDIR/alone"
    cat "$BATS_TEST_TMPDIR/alone"
    grep -q '^cores    128, CPUs 0-255$' "$BATS_TEST_TMPDIR/alone"
    grep -q '^   7 .* 112-127,240-255  *-$' "$BATS_TEST_TMPDIR/alone"
    [ "$(grep -c -e '^allowed' -e '^note' -e '^memory' -e '^nic' -e virtual "$BATS_TEST_TMPDIR/alone")" -eq 0 ]
    muster-topo node --xml "$BATS_TEST_TMPDIR/epyc-nps4/machine.xml" "$BATS_TEST_TMPDIR/empty" |
        diff "$BATS_TEST_TMPDIR/alone" -
}

@test "hwloc's own tools read the files of make-machines" {
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

@test "a saved snapshot of this machine gives the same table" {
    muster-topo save "$BATS_TEST_TMPDIR/here"
    muster-topo node "$BATS_TEST_TMPDIR/here" | grep -v '^memory' >"$BATS_TEST_TMPDIR/replayed"
    muster-topo node | grep -v '^memory' >"$BATS_TEST_TMPDIR/live"
    diff "$BATS_TEST_TMPDIR/live" "$BATS_TEST_TMPDIR/replayed"
    run muster-topo save "$BATS_TEST_TMPDIR/here"
    [ "$status" -eq 64 ]
}

@test "invalid options and files are reported" {
    run muster-topo node --ranks=0
    [ "$status" -eq 64 ]
    run muster-topo node --environment --nodes=0
    [ "$status" -eq 64 ]
    [[ $output == *"--nodes needs a whole number from 1 to 1000000, not 0"* ]]
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
