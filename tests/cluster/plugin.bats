#!/usr/bin/env bats
# bats file_tags=more
# srun --muster: every rank finds its variables, the user's stay, a broken job file costs nothing but a line.
load helpers

setup_file() {
    plugin_sandbox 3
}

setup() {
    skip_if "$WHY_NOT"
    unset OMP_NUM_THREADS # ../helpers sets it, and what is set stays
    cd "$BATS_TEST_TMPDIR" || return
    cat >good.cfg <<CFG
model = { preset = "gpt-tiny"; };
data = { train = "train"; };
CFG
    printf 'model = {\n  preset = "gpt-tiny";\n  hiden = 3;\n};\ndata = { train = "train"; };\n' >bad.cfg
}

# The values of some variables in every rank, a line a rank, in the order of ranks.
variables="RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT OMP_NUM_THREADS"
variables+=" MUSTER_NODES MUSTER_JOB_ID MUSTER_RESTART_COUNT MUSTER_JOB"
show="for v in $variables; do eval \"printf '%s ' \\\"\\\${\$v-unset}\\\"\"; done; echo"

# bats test_tags=quick
@test "each rank on two nodes with two tasks each gets its own rank variables" {
    step --muster=good.cfg -N2 --ntasks-per-node=2 sh -c "$show" | sort >ranks
    cat ranks
    [ "$(wc -l <ranks)" -eq 4 ]
    [ "$(cut -d' ' -f1-5 ranks | tr '\n' ';')" = "0 4 0 2 0;1 4 1 2 0;2 4 0 2 1;3 4 1 2 1;" ]
    [ "$(cut -d' ' -f6- ranks | sort -u | wc -l)" -eq 1 ]
    read -r address port threads nodes job restarts file < <(cut -d' ' -f6- ranks)
    [ "$address" = 127.0.0.1 ] # NodeAddr: the nodes' names, n1 and so on, do not resolve here
    [ "$port" -ge 10000 ] && [ "$port" -lt 29391 ]
    [ "$threads $nodes $restarts" = "1 2 0" ]
    [ "$job" -gt 0 ]
    [ "$file" = "$BATS_TEST_TMPDIR/good.cfg" ]
}

@test "rank variables are correct with a cyclic distribution" {
    run step --muster -N2 -n4 -m cyclic sh -c 'echo $RANK $SLURM_PROCID $NODE_RANK $SLURM_NODEID $LOCAL_RANK'
    echo "$output"
    [ "$(sort <<<"$output" | tr '\n' ';')" = "0 0 0 0 0;1 1 1 1 0;2 2 0 0 1;3 3 1 1 1;" ]
}

# bats test_tags=quick
@test "variables set by the user are unchanged" {
    MASTER_PORT=29500 OMP_NUM_THREADS=7 MASTER_ADDR=me MUSTER_NODES=9 run step --muster -N2 --ntasks-per-node=1 \
        sh -c 'echo $MASTER_PORT $OMP_NUM_THREADS $MASTER_ADDR $MUSTER_NODES $WORLD_SIZE'
    echo "$output"
    [ "$(sort -u <<<"$output")" = "29500 7 me 9 2" ]
}

@test "very long variables set by the user are unchanged" {
    local long
    long=$(printf '%05000d' 0)
    MASTER_ADDR=$long MUSTER_NODES=$long run step --muster -n1 sh -c 'echo ${#MASTER_ADDR} ${#MUSTER_NODES} $RANK'
    echo "$output"
    [ "$output" = "5000 5000 0" ]
}

@test "an srun inside a step gets its own rank variables and keeps the user's variables" {
    MASTER_PORT=29500 run step --muster -N2 --ntasks-per-node=1 sh -c \
        'test $RANK = 1 ||
         env -u SLURM_NTASKS_PER_NODE srun --overlap --muster -n4 sh -c "echo \$RANK/\$WORLD_SIZE \$MASTER_PORT"'
    echo "$output"
    [ "$(sort <<<"$output" | tr '\n' ';')" = "0/4 29500;1/4 29500;2/4 29500;3/4 29500;" ]
}

@test "an srun without --muster, or an sbatch, inside a step has nothing of the outer step's" {
    local names='env | grep -cE "^(RANK|WORLD_SIZE|LOCAL_|NODE_RANK|MASTER_|GLOO_|MUSTER_(SET|RANK_MAP|NODES|JOB_ID|PLUGIN))"'
    # MASTER_PORT is the user's, and so is what was changed since
    MASTER_PORT=29500 run step --muster -N1 -n1 sh -c "LOCAL_RANK=5 srun --overlap -n1 sh -c 'echo \$MASTER_PORT \$LOCAL_RANK; $names'
        srun --overlap -n1 sh -c 'srun --overlap --muster -n1 sh -c \"echo \\\$RANK/\\\$WORLD_SIZE \\\$MASTER_PORT\"'"
    echo "$output"
    [ "$(tr '\n' ' ' <<<"$output")" = "29500 5 2 0/1 29500 " ]
    run step --muster -N1 -n1 sh -c "env -u SLURM_JOB_ID sbatch -W -o out --wrap '$names' >/dev/null"
    echo "$output"
    [ "$(cat out)" = 0 ]
}

@test "a port that something listens on is not MASTER_PORT, also where the node's name is not the host's" {
    cat >job <<'SH'
port=$(($(srun -Q --muster -n1 sh -c 'echo $MASTER_PORT') + 1)) # of the next step
python3 -c '
import socket, sys, time
with socket.create_server(("", int(sys.argv[1]))):
    print("taken", flush=True)
    time.sleep(60)' $port >taken &
until [ -s taken ]; do sleep 0.1; done
srun -Q --muster -n1 sh -c "test \$MASTER_PORT != $port && echo other"
kill $!
SH
    timeout 60 sbatch -W -N1 -o out --wrap "$(cat job)"
    cat out
    [ "$(cat out)" = other ]
}

@test "OMP_NUM_THREADS follows --cpus-per-task where srun uses it, else ranks share the node's CPUs" {
    run step --muster -n1 sh -c 'echo $OMP_NUM_THREADS'
    [ "$output" = 2 ]
    run step --muster -n1 -c1 sh -c 'echo $OMP_NUM_THREADS'
    [ "$output" = 1 ]
    run step --muster -n1 -c2 sh -c 'echo $OMP_NUM_THREADS'
    [ "$output" = 2 ]
    # srun inherits sbatch's option again since 23.11.
    local inherited=2
    if slurm_since 23.11; then
        inherited=1
        timeout 60 sbatch -W -N1 -c2 -o out --wrap 'srun --muster -n1 sh -c "echo \$OMP_NUM_THREADS"'
        [ "$(cat out)" = 2 ]
    else
        timeout 60 sbatch -W -N1 -c2 -o out --wrap 'srun --muster -n2 sh -c "echo \$OMP_NUM_THREADS"'
        [ "$(tr '\n' ' ' <out)" = "1 1 " ]
    fi
    # A step of 1 CPU per task, whose rank has the node: sbatch's value is in the environment.
    timeout 60 sbatch -W -N1 -c1 -o out --wrap 'for option in -n1 "-n1 -c1"; do
        srun --muster $option sh -c "echo \$OMP_NUM_THREADS \$SLURM_CPUS_PER_TASK \${MUSTER_CPUS_INHERITED-gone}"; done'
    cat out
    [ "$(tr '\n' ';' <out)" = "$inherited 1 gone;1 1 gone;" ]
}

@test "steps of a job have different MASTER_PORTs" {
    timeout 60 sbatch -W -N1 -o out --wrap \
        'for i in 1 2 3; do srun -Q --muster -n1 sh -c "echo \$MASTER_PORT"; done'
    cat out
    [ "$(wc -l <out)" -eq 3 ]
    [ "$(sort -u out | wc -l)" -eq 3 ]
}

# bats test_tags=quick
@test "without --muster no variable is set" {
    run step -N2 --ntasks-per-node=1 sh -c "$show"
    echo "$output"
    [ "$(tr -s '\n' ' ' <<<"$output" | tr ' ' '\n' | sort -u | grep .)" = unset ]
}

@test "--muster in an sbatch script applies to the job's steps, not to the batch script" {
    cat >script <<SH
#!/bin/sh
#SBATCH --muster=good.cfg --nodes=2 --output=out
echo "batch \${RANK-unset} \${MUSTER_JOB-unset}"
srun --ntasks-per-node=1 sh -c 'echo rank \$RANK of \$WORLD_SIZE \$MUSTER_JOB'
srun --overlap -n1 -N1 --muster sh -c 'echo again \$MUSTER_JOB'
SH
    timeout 60 sbatch -W script
    cat out
    [ "$(sort out | tr '\n' ';')" = "again $PWD/good.cfg;batch unset unset;\
rank 0 of 2 $PWD/good.cfg;rank 1 of 2 $PWD/good.cfg;" ]
}

# bats test_tags=quick
@test "a broken job file ends srun with 78 in one line; no rank starts and no node is drained" {
    run step --muster=bad.cfg -N2 touch started
    echo "$output"
    [ "$status" -eq 78 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == "muster: bad.cfg:3: "*hiden* ]]
    [ ! -e started ]
    all_idle
    run step --muster=missing.cfg true
    [ "$status" -eq 78 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == *missing.cfg* ]]
}

@test "sbatch accepts a job with a broken job file and warns, and the job's srun ends with 78" {
    run timeout 60 sbatch -W -N2 -o out --muster=bad.cfg --wrap 'srun touch started; exit $?'
    echo "$output"
    [ "$status" -eq 78 ]
    [[ ${lines[0]} == "muster: warning: bad.cfg:3: "* ]]
    [ "$(grep -c 'muster: bad.cfg:3: ' out)" -eq 1 ]
    [ ! -e started ]
    eventually 20 all_idle
}

@test "salloc passes --muster on to srun" {
    run timeout 60 salloc -Q -N2 --muster=good.cfg srun --ntasks-per-node=1 sh -c 'echo $RANK $MUSTER_JOB'
    echo "$output"
    [ "$(sort <<<"$output" | tr '\n' ';')" = "0 $PWD/good.cfg;1 $PWD/good.cfg;" ]
}

# interactive OPTION...: salloc with a shell on the node, which runs the file shell.
interactive() {
    sed 's/^PlugStackConfig/LaunchParameters=use_interactive_step\n&/' "$SLURM_CONF" >slurm.conf
    echo "InteractiveStepOptions=\"-n 1 --interactive --preserve-env sh $PWD/shell\"" >>slurm.conf
    SLURM_CONF=$PWD/slurm.conf timeout -k 5 60 salloc -Q "$@" </dev/null
}

@test "salloc's interactive step warns of a broken job file, and an srun in it ends with 78" {
    cat >shell <<'SH'
echo "step $SLURM_STEP_ID ${RANK-unset}"
srun touch started
echo "srun $?"
SH
    run interactive -N1 --muster=bad.cfg
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^muster: warning: bad.cfg:3: ' <<<"$output")" -eq 2 ] # salloc's, and the hidden srun's
    [ "$(grep -c '^muster: bad.cfg:3: ' <<<"$output")" -eq 1 ]
    grep -qxE 'step (4294967290|-6) unset' <<<"$output"
    grep -qx 'srun 78' <<<"$output"
    [ ! -e started ]
}

@test "--interactive as an argument of the program does not make its step interactive" {
    run timeout 60 salloc -Q -N1 srun --muster=bad.cfg touch started --interactive
    echo "$output"
    [ "$status" -eq 78 ]
    [ "${#lines[@]}" -eq 1 ]
    # Refused before there is a step: the job goes on, and has all its CPUs.
    run timeout 60 salloc -Q -N1 sh -c 'srun --muster=bad.cfg touch started --interactive
        echo $?; timeout 20 srun echo next'
    echo "$output"
    [ "${#lines[@]}" -eq 3 ]
    [ "${lines[1]} ${lines[2]}" = "78 next" ]
    # Behind an abbreviation, which the plugin does not know, only the step's id tells; still nothing starts.
    run timeout 60 salloc -Q -N1 srun --muster=bad.cfg --quie touch started --interactive
    echo "$output"
    [ "$status" -eq 78 ]
    [ "${#lines[@]}" -eq 1 ]
    [ ! -e started ]
    eventually 20 all_idle
}

@test "settings for one-node jobs do not apply to a one-node step of a larger job" {
    show='echo "${GLOO_SOCKET_IFNAME-unset}"'
    [ "$(step -N1 -n1 --muster sh -c "$show")" = lo ]
    [ "$(timeout 60 salloc -Q -N2 srun -N1 -n1 --muster sh -c "$show")" = unset ]
}

@test "srun --jobid from within another job lays out the nodes of its own step" {
    local other
    other=$(timeout 60 salloc -w n2 --no-shell 2>&1 | sed -n 's/.*Granted job allocation //p')
    timeout 60 salloc -Q -w n1 srun --jobid="$other" --muster-report -n2 true >out 2>&1
    scancel "$other"
    cat out
    grep -q '^muster: job .*: 2 ranks on 1 node' out
    grep -q '^muster: node n2, ranks 0' out
    no_line 'n1' out
}

@test "with --export=NONE the ranks still get WORLD_SIZE, MASTER_ADDR and MUSTER_JOB" {
    run step --export=NONE --muster=good.cfg -N2 --ntasks-per-node=1 "$(command -v env)"
    echo "$output"
    [ "$(grep -c '^WORLD_SIZE=2$' <<<"$output")" -eq 2 ]
    [ "$(grep -c '^MASTER_ADDR=127.0.0.1$' <<<"$output")" -eq 2 ]
    no_line SLURM_MUSTER <(cat <<<"$output")
    [ "$(grep -c "^MUSTER_JOB=$PWD/good.cfg\$" <<<"$output")" -eq 2 ]
}

@test "srun reads the job file once; nodes and ranks do not read it" {
    local tracer node
    command -v strace >/dev/null || skip "strace is not installed"
    { cat good.cfg && echo 'environment = { FROM_JOB = "a b%20"; };'; } >once.cfg
    # shellcheck disable=SC2046 # several options
    strace -f -qq -e trace=open,openat -o nodes.trace $(sed 's/^/-p /' "$SANDBOX_DIR"/run/slurmd.n*.pid) \
        2>tracer.err 3>&- &
    tracer=$!
    for node in 1 2 3; do
        eventually 10 grep -q '^TracerPid:.*[1-9]' "/proc/$(cat "$SANDBOX_DIR/run/slurmd.n$node.pid")/status" ||
            { cat tracer.err && skip "strace cannot attach here"; }
    done
    timeout 60 salloc -Q -N2 strace -f -qq -e trace=open,openat -o srun.trace \
        srun --muster=once.cfg --muster-report -n4 sh -c 'echo "has $FROM_JOB"' >out 2>&1
    kill "$tracer"
    wait "$tracer" || true
    cat out
    [ "$(grep -c '^has a b%20$' out)" -eq 4 ]
    grep -q '^  FROM_JOB  *a b%20  *.*once.cfg:3' out
    grep once.cfg *.trace
    [ "$(grep -c once.cfg srun.trace)" -eq 1 ]
    grep -q libc nodes.trace # it has traced the nodes
    no_line once.cfg nodes.trace
}

@test "ranks given another MUSTER_JOB by --export get no variables of srun's job file" {
    { cat good.cfg && echo 'environment = { FROM_JOB = "yes"; };'; } >first.cfg
    cp good.cfg second.cfg
    run step --export=PATH,MUSTER_JOB=second.cfg --muster=first.cfg -N2 -n2 sh -c 'echo has $FROM_JOB $MUSTER_JOB'
    echo "$output"
    [ "$(grep -c '^has second.cfg$' <<<"$output")" -eq 2 ]
    [ "$(grep -c "MUSTER_JOB=second.cfg, but srun has read $PWD/first.cfg: none of its variables" <<<"$output")" -eq 1 ]
    run step --export=PATH,MUSTER_JOB=first.cfg --muster=first.cfg -N2 -n2 sh -c 'echo has $FROM_JOB $MUSTER_JOB'
    [ "$(grep -c '^has yes first.cfg$' <<<"$output")" -eq 2 ] # the same file
    [ "$(grep -c warning <<<"$output")" -eq 0 ]
}

@test "all components of a heterogeneous step get the job file's variables" {
    { cat good.cfg && echo 'environment = { FROM_JOB = "yes"; };'; } >het.cfg
    run step --muster=het.cfg -N1 -n1 sh -c 'echo $FROM_JOB $MUSTER_JOB' : -N1 -n1 sh -c 'echo $FROM_JOB $MUSTER_JOB'
    echo "$output"
    [ "$(grep -c "^yes $PWD/het.cfg\$" <<<"$output")" -eq 2 ]
    [ "$(grep -c 'this component of a heterogeneous step has no MASTER_ADDR, and is not bound' <<<"$output")" -eq 1 ]
}

# bats test_tags=quick
@test "--muster-report prints one table with every variable and its source" {
    OMP_NUM_THREADS=5 run step --muster=good.cfg --muster-report -N2 --ntasks-per-node=2 true
    echo "$output"
    [ "$status" -eq 0 ]
    [[ ${lines[0]} =~ ^muster:\ job\ [0-9]+\ step\ 0:\ 4\ ranks\ on\ 2\ nodes,\ rank\ 0\ at\ 127.0.0.1$ ]]
    [ "$(grep -cE '^  s1 +n1 +0-1 +0 +0-1$' <<<"$output")" -eq 1 ] # switch, node, ranks, and their pp and dp
    [ "$(grep -cE '^  s1 +n2 +2-3 +0 +2-3$' <<<"$output")" -eq 1 ]
    [ "$(grep -cE '^  OMP_NUM_THREADS +5 +user$' <<<"$output")" -eq 1 ]
    [ "$(grep -cE '^  WORLD_SIZE +4 +muster: ' <<<"$output")" -eq 1 ]
    # Whatever a rank gets, the table has, but for the record of it all, and what only ./check knows.
    step --muster=good.cfg -n1 env | grep -oE '^(MUSTER_[A-Z_]*|MASTER_[A-Z]*|[A-Z_]*RANK|[A-Z_]*WORLD_SIZE)=' |
        grep -vE '^(PMI|MUSTER_SET|MUSTER_MACHINES|MUSTER_(TEST|CHECK|FUZZ)_)' >names
    [ "$(wc -l <names)" -ge 11 ]
    for name in $(tr -d = <names); do
        [ "$(grep -cE "^  $name " <<<"$output")" -eq 1 ] || { echo "no line for $name"; return 1; }
    done
}

@test "line breaks in the user's variables cannot forge lines of slurmd's log" {
    local value=$'lo\n[2026-01-01T00:00:00.000] error: forged\e[31m\302\23331m' # U+009B, in any locale
    GLOO_SOCKET_IFNAME=$value step --muster-report -N1 -w n1 sh -c 'printf %s "$GLOO_SOCKET_IFNAME"' >out 2>err
    [ "$(cat out)" = "$value" ]
    cat -v err
    grep -q 'forged?\[31m??31m' err
    no_line '^\[2026-01' err
    grep -q 'GLOO_SOCKET_IFNAME .*forged?' "$SANDBOX_DIR/log/slurmd.n1.log"
    no_line -a '^\[2026-01-01' "$SANDBOX_DIR/log/slurmd.n1.log"
}

@test "if slurmctld hides the nodes (PrivateData), MASTER_ADDR is the name of rank 0's node" {
    [ "$(id -u)" -eq 0 ] || skip "only root has other users, to whom PrivateData applies"
    # Not in bats' own directory, which an ordinary user cannot enter.
    local dir
    dir=$(mktemp -d /tmp/muster-plugin-test.XXXXXX)
    chmod 755 "$dir"
    cp -R "$PLUGIN" "$TOP/etc/fabric" "$dir"
    printf 'n2\nn1\n' >"$dir/hosts"
    "$SANDBOX" start --dir "$dir/sandbox" --nodes 2 --plugin "$dir/spank_muster.so"
    SLURM_CONF=$dir/sandbox/etc/slurm.conf
    sed -i 's/^PlugStackConfig/PrivateData=nodes\n&/' "$SLURM_CONF"
    scontrol reconfigure
    cd "$dir"
    SLURM_HOSTFILE=$dir/hosts run timeout 60 setpriv --reuid=65534 --regid=65534 --clear-groups \
        srun --muster-report --distribution=arbitrary -n2 sh -c 'echo $RANK $MASTER_ADDR'
    cd "$BATS_TEST_TMPDIR"
    "$SANDBOX" stop --dir "$dir/sandbox" --purge
    rm -r "$dir"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^muster: warning: ' <<<"$output")" -eq 2 ] # srun's, and of node 0, which looks for the way there
    grep -q '^muster: warning: n2 does not resolve' <<<"$output"
    grep -q '^muster: warning: slurmctld does not give the address of node n2: .*; MASTER_ADDR is its name' <<<"$output"
    grep -q '^muster: job .* 2 ranks on 2 nodes, rank 0 at n2$' <<<"$output" # the layout is not lost
    [ "$(grep -E '^[01] ' <<<"$output" | sort | tr '\n' ';')" = "0 n2;1 n2;" ]
}

@test "all nodes are idle after these tests" {
    eventually 20 all_idle
}
