#!/usr/bin/env bats
# bats file_tags=more
# The private Slurm itself: it comes up, side by side with another; nodes die and come back; nothing is left behind.
load helpers

setup() {
    skip_if "$(why_no_slurm)"
    DIR=$BATS_TEST_TMPDIR/sandbox
}

teardown() {
    [ -n "$DIR" ] || return 0
    "$SANDBOX" stop --dir "$DIR"
    "$SANDBOX" stop --dir "$DIR-2"
}

start() {
    "$SANDBOX" start --dir "$1" --nodes "$2"
    eval "$("$SANDBOX" env --dir "$1")"
}

# The processes of the sandbox in $1, asked of /proc and not of the sandbox: daemons by their log, tasks by SLURM_CONF.
processes() {
    {
        grep -lzxF "SLURM_CONF=$1/etc/slurm.conf" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
        find /proc/[0-9]*/fd -lname "$1/*" 2>/dev/null | cut -d/ -f3
    } | sort -u
}

# How many tasks called $1 the sandbox runs.
tasks_named() {
    processes "$DIR" | while read -r pid; do cat "/proc/$pid/comm" 2>/dev/null; done | grep -cx "$1"
}

# bats test_tags=quick
@test "a step runs on every node, each with its name and switch" {
    start "$DIR" 4
    run step -N4 --ntasks-per-node=1 sh -c 'echo $SLURMD_NODENAME $SLURM_TOPOLOGY_ADDR'
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(sort <<<"$output" | tr '\n' ' ')" = "n1 s0.s1.n1 n2 s0.s1.n2 n3 s0.s2.n3 n4 s0.s2.n4 " ]
}

@test "a client without the sandbox's key is rejected" {
    start "$DIR" 1
    sed 's|^AuthType=.*|AuthType=auth/none|; s|^CredType=.*|CredType=cred/none|; s|^AuthInfo=.*||' \
        "$DIR/etc/slurm.conf" >"$DIR/etc/none.conf"
    SLURM_CONF=$DIR/etc/none.conf run timeout 20 srun -N1 touch "$DIR/ran"
    echo "$output"
    [ "$status" -ne 0 ]
    [ ! -e "$DIR/ran" ]
    [ "$(stat -c %a "$DIR/etc/munge.key")" = 600 ]
}

@test "PMI2 gives each task its rank and the number of ranks" {
    need mpiexec.mpich
    start "$DIR" 2
    run step -N2 --ntasks-per-node=2 sh -c 'echo rank $PMI_RANK of $PMI_SIZE'
    echo "$output"
    [ "$(sort <<<"$output" | tr '\n' ' ')" = "rank 0 of 4 rank 1 of 4 rank 2 of 4 rank 3 of 4 " ]
}

# bats test_tags=quick
@test "stop leaves no process, including those of jobs" {
    start "$DIR" 2
    unset SLURM_CONF # ours would be found below
    SLURM_CONF=$DIR/etc/slurm.conf sbatch -N2 -o /dev/null --wrap 'sleep 600 & srun --ntasks-per-node=1 sleep 600'
    three_sleep() { [ "$(tasks_named sleep)" -eq 3 ]; }
    eventually 20 three_sleep
    "$SANDBOX" stop --dir "$DIR"
    [ -z "$(processes "$DIR")" ]
    [ -d "$DIR" ]
    "$SANDBOX" stop --dir "$DIR" --purge
    [ ! -e "$DIR" ]
}

@test "a directory that no sandbox created is neither used nor purged" {
    mkdir -p "$DIR"/{etc,log}
    echo mine | tee "$DIR/etc/file" "$DIR/log/file" >"$DIR/port"
    cp -a "$DIR" "$DIR-before"
    run "$SANDBOX" start --dir "$DIR" --nodes 1
    echo "$output"
    [ "$status" -eq 64 ]
    [[ $output == *"$DIR has something in it that no sandbox made"* ]]
    run "$SANDBOX" stop --dir "$DIR" --purge
    echo "$output"
    [ "$status" -eq 64 ]
    [[ $output == *"$DIR is not a sandbox's"* ]]
    "$SANDBOX" stop --dir "$DIR"
    diff -r "$DIR-before" "$DIR"
    mkdir "$DIR-2"
    run "$SANDBOX" stop --dir "$DIR-2" --purge
    [ "$status" -eq 64 ]
    [ -d "$DIR-2" ]
}

@test "start accepts an empty directory or a sandbox's own, and stop a missing one" {
    "$SANDBOX" stop --dir "$DIR"
    [ ! -e "$DIR" ]
    mkdir "$DIR"
    start "$DIR" 1
    "$SANDBOX" stop --dir "$DIR"
    start "$DIR" 1
    "$SANDBOX" stop --dir "$DIR" --purge
    [ ! -e "$DIR" ]
}

@test "paths of the plugin and the programs may contain spaces" {
    [ -r "$PLUGIN" ] || skip "the plugin is not built"
    mkdir "$BATS_TEST_TMPDIR/a b"
    ln -s "$(dirname "$PLUGIN")" "$BATS_TEST_TMPDIR/a b/plugin"
    ln -s "$BUILD" "$BATS_TEST_TMPDIR/a b/programs"
    PATH="$BATS_TEST_TMPDIR/a b/programs:$PATH" \
        "$SANDBOX" start --dir "$DIR" --nodes 1 --plugin "$BATS_TEST_TMPDIR/a b/plugin/${PLUGIN##*/}"
    eval "$("$SANDBOX" env --dir "$DIR")"
    run timeout -k 5 60 srun --muster --muster-preflight printenv RANK
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *good* ]]
    [ "${lines[-1]}" = 0 ]
    # A path from here is one, too.
    "$SANDBOX" stop --dir "$DIR"
    cd "$BATS_TEST_TMPDIR/a b/plugin"
    "$SANDBOX" start --dir "$DIR" --nodes 1 --plugin "${PLUGIN##*/}"
    [ "$(timeout -k 5 60 srun --muster printenv RANK)" = 0 ]
}

@test "two sandboxes start at the same time and do not interfere" {
    "$SANDBOX" start --dir "$DIR" --nodes 2 &
    "$SANDBOX" start --dir "$DIR-2" --nodes 3
    wait $!
    [ "$("$SANDBOX" status --dir "$DIR" | grep -c ' idle$')" -eq 2 ]
    [ "$("$SANDBOX" status --dir "$DIR-2" | grep -c ' idle$')" -eq 3 ]
    "$SANDBOX" stop --dir "$DIR"
    [ "$("$SANDBOX" status --dir "$DIR-2" | grep -c ' idle$')" -eq 3 ]
}

@test "a killed node goes down with its tasks, the other stays up, and the killed one is revived" {
    start "$DIR" 2
    step -N2 --ntasks-per-node=1 --no-kill sleep 600 &
    local step=$!
    two_sleep() { [ "$(tasks_named sleep)" -eq 2 ]; }
    eventually 20 two_sleep
    "$SANDBOX" kill-node n2 --dir "$DIR"
    run grep -slzx SLURMD_NODENAME=n2 $(processes "$DIR" | sed 's|.*|/proc/&/environ|')
    echo "$output"
    [ -z "$output" ]
    is_down() { "$SANDBOX" status --dir "$DIR" | grep -q '^n2 down'; }
    eventually 40 is_down
    "$SANDBOX" status --dir "$DIR" | grep -Eq '^n1 (allocated|idle|mixed|completing)'
    scancel --user "$(id -un)"
    wait $step || true
    "$SANDBOX" revive-node n2 --dir "$DIR"
    "$SANDBOX" status --dir "$DIR" | grep -qx 'n2 idle'
}

@test "a lock directory that is a symbolic link is not written to" {
    mkdir "$BATS_TEST_TMPDIR/theirs" "$BATS_TEST_TMPDIR/tmp"
    ln -s ../theirs "$BATS_TEST_TMPDIR/tmp/muster-sandbox-ports.$UID"
    TMPDIR=$BATS_TEST_TMPDIR/tmp run "$SANDBOX" start --dir "$DIR" --nodes 1
    echo "$output"
    [ "$status" -eq 70 ]
    [[ $output == "sandbox: "*"muster-sandbox-ports.$UID is not a directory of ours"* ]]
    [ -z "$(ls -A "$BATS_TEST_TMPDIR/theirs")" ]
}

@test "a running sandbox is not started twice, and a missing plugin is reported" {
    start "$DIR" 1
    run "$SANDBOX" start --dir "$DIR"
    [ "$status" -eq 64 ]
    [[ $output == *"already up in $DIR"* ]]
    run "$SANDBOX" start --dir "$DIR-2" --plugin /nowhere/spank_muster.so
    [ "$status" -eq 64 ]
    [[ $output == *"no plugin /nowhere/spank_muster.so"* ]]
}
