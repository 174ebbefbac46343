#!/usr/bin/env bats
# bats file_tags=more
# srun --muster-preflight: real faults on one node of a step, each found before any task starts. In the place of
# muster-preflight stands a script that gives the nodes named in FAULTY the fault in FAULT, and becomes the program.
load helpers

setup_file() {
    WHY_NOT=$(why_not)
    export WHY_NOT
    [ -z "$WHY_NOT" ] || return 0
    mkdir "$BATS_FILE_TMPDIR/bin"
    export FAULT=$BATS_FILE_TMPDIR/fault PROGRAM=$BUILD/muster-preflight
    cat >"$BATS_FILE_TMPDIR/bin/muster-preflight" <<SH
#!/bin/sh
[ ! -f "$FAULT.\$SLURMD_NODENAME" ] || . "$FAULT.\$SLURMD_NODENAME"
exec "$PROGRAM" "\$@"
SH
    chmod +x "$BATS_FILE_TMPDIR/bin/muster-preflight"
    PATH=$BATS_FILE_TMPDIR/bin:$PATH sandbox_up 4 --plugin "$PLUGIN"
}

setup() {
    skip_if "$WHY_NOT"
    cd "$BATS_TEST_TMPDIR" || return
    cat >job.cfg <<CFG
model = { preset = "gpt-tiny"; };
data = { train = "train"; };
checkpoint = { dir = "$PWD/checkpoints"; };
CFG
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    rm -f "$FAULT".*
    eventually 30 all_idle
}

# faulty NODE COMMAND: what the node's muster-preflight does before it begins.
faulty() {
    echo "$2" >"$FAULT.$1"
}

# snapshot MACHINE: a directory that a machine replayed from tests/fixtures lies in.
snapshot() {
    "$TOP/tests/fixtures/make-machines" "$TOP/tests/fixtures/machines/$1/machine" "$PWD/$1" >/dev/null
    echo "$PWD/$1"
}

# preflight ARGUMENT...: a step of three nodes, whose program leaves a file for each of its tasks.
preflight() {
    run step -N3 -w 'n[1-3]' --ntasks-per-node=1 --muster-preflight "$@" sh -c "touch $PWD/started.\$SLURMD_NODENAME"
    echo "$output"
}

none_started() {
    ! compgen -G 'started*'
}

# What every step with a bad node has in common; n2 is it.
n2_is_bad() {
    [ "$status" -eq 76 ]
    [ "$(grep -c '^muster: preflight: n[0-9]* is bad: ' <<<"$output")" -eq 1 ]
    grep -q '^muster: preflight: 2 of 3 nodes are good; n2 is not ([0-9.]* s); no task was started$' <<<"$output"
    none_started
}

# bats test_tags=quick
@test "if all nodes are good, preflight prints one line and the tasks start" {
    preflight --muster=job.cfg
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output =~ ^muster:\ preflight:\ all\ 3\ nodes\ are\ good\ \([0-9.]+\ s\)$ ]]
    [ "$(compgen -G 'started.*' | wc -l)" -eq 3 ]
    [ ! -e checkpoints ] # looked at, and not left
    [ -z "$(compgen -G '.muster-preflight*')" ]
}

@test "by hand, muster-preflight prints what it finds on each node" {
    run step -N3 --ntasks-per-node=1 "$PROGRAM"
    echo "$output"
    for i in 1 2 3; do
        [ "$(grep -cE "^preflight n$i (clock|fact muster|fact usable-GPUs|end) " <<<"$output")" -eq 4 ]
    done
    run env -u SLURM_JOB_ID timeout 10 "$PROGRAM"
    [ "$status" -eq 0 ]
    run "$PROGRAM" --no-such
    [ "$status" -eq 64 ]
}

@test "a node whose checkpoint file system is full is reported as bad" {
    unshare --mount true 2>/dev/null || skip "no new mount namespace for this user"
    mkdir checkpoints
    faulty n2 "exec unshare --mount sh -c 'mount -t tmpfs -o size=16k tmpfs $PWD/checkpoints; exec $PROGRAM \"\$@\"' - \"\$@\""
    preflight --muster=job.cfg
    n2_is_bad
    grep -q "n2 is bad: checkpoints cannot be written to $PWD/checkpoints: No space left on device" <<<"$output"
}

@test "a node whose checkpoint file system is read-only or too small is reported as bad" {
    unshare --mount true 2>/dev/null || skip "no new mount namespace for this user"
    mkdir checkpoints
    faulty n2 "exec unshare --mount sh -c 'mount -t tmpfs -o ro tmpfs $PWD/checkpoints; exec $PROGRAM \"\$@\"' - \"\$@\""
    preflight --muster=job.cfg
    n2_is_bad
    grep -q "checkpoints: Read-only file system" <<<"$output"
    faulty n2 "exec unshare --mount sh -c 'mount -t tmpfs -o size=1M tmpfs $PWD/checkpoints; exec $PROGRAM \"\$@\"' - \"\$@\""
    preflight --muster=job.cfg
    n2_is_bad
    grep -qE "$PWD/checkpoints has 0.0 GiB free, and [0-9.]+ GiB are needed" <<<"$output"
}

@test "a checkpoint directory that no node can write to ends srun with 74 and blames no node" {
    sed -i 's|dir = .*;|dir = "/proc/checkpoints"; };|' job.cfg
    preflight --muster=job.cfg
    [ "$status" -eq 74 ]
    grep -q '^muster: preflight: all 3 nodes: checkpoints cannot be written to /proc: ' <<<"$output"
    none_started
}

@test "a node that hangs is reported as silent in time, and no process of it is left" {
    faulty n2 'kill -STOP $$'
    preflight
    n2_is_bad
    grep -qE 'n2 is bad: silent: no answer in 2[0-9] s' <<<"$output"
    # Nothing stopped is left behind.
    left() { grep -lzx "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ 2>/dev/null | xargs -r -n1 dirname |
        xargs -r -I{} grep -l '^State:.*stopped' {}/status; }
    gone() { [ -z "$(left)" ]; }
    eventually 10 gone
}

@test "if all nodes hang, all are reported, no task starts, and srun ends with 74" {
    for i in 1 2 3; do faulty "n$i" 'kill -STOP $$'; done
    preflight
    [ "$status" -eq 74 ]
    grep -qE '^muster: preflight: all 3 nodes: silent: no answer in 2[0-9] s$' <<<"$output"
    none_started
}

@test "a node with another plugin release is reported, and counts as good" {
    local release
    release=$(srun --muster -N1 -n1 printenv MUSTER_PLUGIN_VERSION)
    [[ $release == [0-9]*.[0-9]* ]]
    preflight
    [[ $output != *"plugin: not the same"* ]]
    rm started.*
    faulty n2 "export MUSTER_PLUGIN_VERSION=0.0.9"
    preflight
    [ "$status" -eq 0 ]
    grep -q "plugin: not the same on all nodes: n1 has $release, n2 has 0.0.9" <<<"$output"
}

@test "a node where slurmd has not loaded the plugin is reported as bad" {
    mkdir none
    cp "$SANDBOX_DIR"/etc/*.conf none
    : >none/plugstack.conf
    sed -i "s|^PlugStackConfig=.*|PlugStackConfig=$PWD/none/plugstack.conf|" none/slurm.conf
    "$SANDBOX" kill-node n2 --dir "$SANDBOX_DIR"
    setsid env -i PATH="$PATH" HOME=/ SLURM_CONF="$PWD/none/slurm.conf" \
        slurmd -D -N n2 </dev/null >/dev/null 2>&1 3>&- &
    eventually 60 all_idle
    preflight
    local code=$status said=$output
    "$SANDBOX" kill-node n2 --dir "$SANDBOX_DIR"
    "$SANDBOX" revive-node n2 --dir "$SANDBOX_DIR"
    [ "$code" -eq 76 ]
    [[ $said == *"n2 is bad: slurmd has not loaded spank_muster.so there"* ]]
    none_started
}

@test "a node with a lost GPU is reported as bad, a dead InfiniBand port is a note (recorded machines)" {
    grep -q '^HWLOC_LIBS = -l' "$BUILD/Makefile" || skip "built without hwloc"
    local good lost dead
    good=$(snapshot dgx-h100) dead=$(snapshot dgx-h100-dead-port)
    for i in 1 2 3; do faulty "n$i" "export MUSTER_PREFLIGHT_ROOT=$good"; done
    preflight
    [ "$status" -eq 0 ]
    rm started.*
    faulty n2 "export MUSTER_PREFLIGHT_ROOT=$dead"
    preflight
    [ "$status" -eq 0 ]
    grep -q '^muster: preflight: note: n2: infiniband port .* is not active' <<<"${output,,}"
    rm started.*
    good=$(snapshot dgx-a100) lost=$(snapshot dgx-a100-gpu-lost)
    for i in 1 2 3; do faulty "n$i" "export MUSTER_PREFLIGHT_ROOT=$good SLURM_GPUS_ON_NODE=8"; done
    faulty n2 "export MUSTER_PREFLIGHT_ROOT=$lost SLURM_GPUS_ON_NODE=8"
    preflight
    n2_is_bad
    grep -q 'Slurm gave 8 GPUs, but 6 are usable' <<<"$output"
}

# bats test_tags=quick
@test "after a failed preflight, the step's CPUs are free and the job continues" {
    faulty n2 "export MUSTER_PREFLIGHT_ROOT=/nonexistent"
    cat >script <<'SH'
srun -N3 --ntasks-per-node=1 --muster-preflight touch started
echo "code $?"
timeout 20 srun --exclusive -N3 -n6 echo next
SH
    run timeout 60 salloc -Q -N3 -w 'n[1-3]' sh script
    echo "$output"
    [ ! -e started ]
    grep -qx 'code 76' <<<"$output"
    [ "$(grep -cx next <<<"$output")" -eq 6 ]
}

@test "a dead node that Slurm has not detected yet is reported as bad" {
    cat >script <<SH
"$SANDBOX" kill-node n2 --dir "$SANDBOX_DIR"
srun -N3 --ntasks-per-node=1 --muster-preflight touch started
echo "code \$?"
SH
    run timeout 100 salloc -Q -N3 -w 'n[1-3]' sh script
    "$SANDBOX" revive-node n2 --dir "$SANDBOX_DIR"
    echo "$output"
    none_started
    grep -qx 'code 76' <<<"$output"
    grep -q '^muster: preflight: n2 is bad: srun cannot start a task there: ' <<<"$output"
    grep -q '^muster: preflight: 2 of 3 nodes are good; n2 is not ' <<<"$output"
}

@test "with --export=NONE, no task starts if a node is bad" {
    faulty n2 "export MUSTER_PREFLIGHT_ROOT=/nonexistent"
    preflight --export=NONE
    [ "$status" -eq 76 ]
    none_started
}

@test "--muster-preflight=exclude requeues the job without the bad node" {
    faulty n2 "export MUSTER_PREFLIGHT_ROOT=/nonexistent"
    cat >script <<'SH'
#!/bin/sh
#SBATCH -N3 --requeue --open-mode=append --output=out
echo "run ${SLURM_RESTART_COUNT:-0}"
srun --ntasks-per-node=1 --muster-preflight=exclude sh -c 'echo "up $SLURMD_NODENAME"'
SH
    job=$(sbatch --parsable script)
    eventually 45 grep -q '^up n4' out
    eventually 20 all_idle
    cat out
    [ "$(grep -c '^up ' out)" -eq 3 ]
    [ "$(grep -c '^up n2' out)" -eq 0 ]
    grep -qx "muster: preflight: job $job is requeued without n2" out
    [ "$(sort -u <(grep '^run' out) | tr '\n' ' ')" = "run 0 run 1 " ]
}

@test "--muster-preflight=exclude reports why a job cannot be requeued" {
    faulty n2 "export MUSTER_PREFLIGHT_ROOT=/nonexistent"
    run timeout 60 salloc -Q -N3 -w 'n[1-3]' srun --ntasks-per-node=1 --muster-preflight=exclude true
    echo "$output"
    [ "$status" -eq 76 ]
    grep -q 'not requeued: only .* jobs can be requeued: give --exclude=n2 ' <<<"$output"
    timeout 60 sbatch -W --no-requeue -N3 -o out --wrap 'srun --ntasks-per-node=1 --muster-preflight=exclude true' || true
    cat out
    grep -q 'not requeued: the job may not be requeued' out
}

@test "a missing muster-preflight causes a warning, and an invalid argument is refused" {
    sed "s| preflight=[^ ]*| preflight=/nonexistent|" "$SANDBOX_DIR/etc/plugstack.conf" >plugstack.conf
    sed "s|^PlugStackConfig=.*|PlugStackConfig=$PWD/plugstack.conf|" "$SLURM_CONF" >slurm.conf
    SLURM_CONF=$PWD/slurm.conf run step -N3 --ntasks-per-node=1 --muster-preflight echo up
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -cx up <<<"$output")" -eq 3 ]
    # 22.05 names slurmstepd and the node, 26.05 the time.
    grep -q '^muster: preflight: .*error: execve(): /nonexistent: No such file' <<<"$output"
    grep -qx 'muster: preflight: warning: the nodes were not checked: no node answered: /nonexistent did not run there' \
        <<<"$output"
    run step -N1 --muster-preflight=nonsense true
    echo "$output"
    [ "$status" -ne 0 ]
    grep -q 'give --muster-preflight or --muster-preflight=exclude' <<<"$output"
}
