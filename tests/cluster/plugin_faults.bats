#!/usr/bin/env bats
# bats file_tags=more
# Nonsense from users and from the site, and faults in every callback of the plugin: no node is drained, srun ends in
# time, and somebody is told why.
load helpers

setup_file() {
    plugin_sandbox 3
    [ -z "$WHY_NOT" ] || return 0
    cp "$SANDBOX_DIR/etc/plugstack.conf" "$BATS_FILE_TMPDIR/plugstack"
    # What asks for more than there is shall be refused, not wait for it. An epilog of more than 9 s drains the node.
    sed -i 's/^PlugStackConfig/EnforcePartLimits=ALL\nPrologEpilogTimeout=9\n&/' "$SANDBOX_DIR/etc/slurm.conf"
    scontrol reconfigure
    # Two files: Slurm loads no path twice.
    command -v gcc >/dev/null || return 0
    gcc -std=gnu17 -O1 -shared -fPIC ${MUSTER_TEST_SLURM:+-isystem "$MUSTER_TEST_SLURM/include"} \
        -o "$BATS_FILE_TMPDIR/spank_fault.so" "$TOP/tests/cluster/spank_fault.c"
    cp "$BATS_FILE_TMPDIR"/spank_{fault,mend}.so
}

setup() {
    skip_if "$WHY_NOT"
    unset OMP_NUM_THREADS
    export SLURM_IMMEDIATE=20 # no test is to wait for what will never be
    cd "$BATS_TEST_TMPDIR" || return
    cat >good.cfg <<CFG
model = { preset = "gpt-tiny"; };
data = { train = "train"; };
CFG
    printf 'model = {\n  preset = "gpt-tiny";\n  hiden = 3;\n};\ndata = { train = "train"; };\n' >bad.cfg
    cp "$BATS_FILE_TMPDIR/plugstack" "$SANDBOX_DIR/etc/plugstack.conf"
    show='echo "rank $RANK of $WORLD_SIZE"'
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    eventually 30 all_idle
    [ -z "$(sinfo -h -R)" ] # the reasons of drained nodes
}

# ---- options ---------------------------------------------------------------------------------------------------------

ours=(--muster --muster=good.cfg --muster=bad.cfg --muster=missing.cfg --muster=/ --muster= --muster-report
    --muster-report=json --muster-report=xml --muster-preflight --muster-preflight=no)
theirs=(-n2 -n3 -N2 -N1-3 -N9 --nodes=2 --ntasks-per-node=2 -c2 -c9 --cpus-per-task=1 -mcyclic
    --distribution=block:cyclic "--dist=plane=2" --distribution=arbitrary -wn1 '--nodelist=n[1-2]' -xn3 -r1
    --cpu-bind=cores --cpu-bind=mask_cpu:3
    --hint=nomultithread --export=ALL --export=NONE --export=ALL,RANK=7 --mem=10 -t1 --overlap --exclusive -l -u -K -O
    --mpi=pmi2 --mpi=none --chdir=/ -D/tmp --gres=gpu:1 --gpus-per-task=1 --gpu-bind=none --multi-prog
    --open-mode=append -Jname --comment=x -Q --threads-per-core=1 --signal=USR1@10 -purgent
    --input=none --propagate=NONE --het-group=0)

# Into the variable `word`: one of the arguments, every second one mangled.
pick() {
    local at kind=$((RANDOM % 14)) long
    word=${*:RANDOM % $# + 1:1}
    at=$((RANDOM % ${#word}))
    case $kind in
    0) word=${word:0:at}${word:at+1} ;;
    1) word=${word:0:at}${word:at:1}${word:at} ;;
    2) word=${word:0:at}=${word:at} ;;
    3) word+=$'\x01\xff' ;;
    4) word+='%s%n%s' ;;
    5) printf -v long '%03000d' 7 && word+=$long ;;
    6) word=${word:0:at}' '${word:at} ;;
    esac
    [ -n "$word" ] || word=-
}

@test "with 200 random option strings, srun ends in time with a reason, and no node is drained" {
    local i n words word status refused=0
    RANDOM=6 # seeds bash's generator; not by local, where it is a variable like others
    for ((i = 0; i < 200; i++)); do
        pick "${ours[@]}"
        words=("$word")
        for ((n = RANDOM % 4; n > 0; n--)); do
            pick "${theirs[@]}"
            words+=("$word")
        done
        status=0
        timeout -k 5 40 srun "${words[@]}" true >out 2>&1 </dev/null || status=$?
        printf '%d: %s: %d\n' "$i" "$(printf '%.80q ' "${words[@]}")" "$status"
        head -c 2000 out
        case $status in 124 | 13[0-9]) return 1 ;; esac # out of time, or by a signal
        no_line -iE 'segmentation|aborted|core dumped' out
        [ "$status" -eq 0 ] || [ -s out ]
        [ "$status" -ne 78 ] || grep -q '^muster: ' out
        case ${words[0]} in
        --muster=missing.cfg | --muster=bad.cfg)
            # srun's own complaint may come first.
            [ "$status" -ne 0 ]
            grep -qE '^(muster: (missing|bad|cannot)|srun: )' out
            ;;
        --muster-report=xml) grep -q '^muster: --muster-report=xml is unknown: give ' out ;;
        esac
        [ "$status" -eq 0 ] || refused=$((refused + 1))
    done
    [ "$refused" -ge 50 ] && [ "$refused" -le 180 ] # else these strings try nothing
}

# ---- the site --------------------------------------------------------------------------------------------------------

# bats test_tags=quick
@test "each broken fabric profile is reported by srun with its line, and the ranks still run" {
    local profile name count=0
    mkdir -p "$SANDBOX_DIR/etc/fabric"
    for profile in "$TOP"/tests/unit/broken_fabric/*.cfg; do
        name=${profile##*/}
        cp "$profile" "$SANDBOX_DIR/etc/fabric/$name"
        step -Q --muster -N2 -n2 sh -c "$show" >out 2>err
        rm "$SANDBOX_DIR/etc/fabric/$name"
        cat out err
        [ "$(sort out | tr '\n' ';')" = "rank 0 of 2;rank 1 of 2;" ]
        # What is wrong stands in the profile's first line: "# LINE: MESSAGE".
        [ "$(cat err)" = "muster: warning: $SANDBOX_DIR/etc/fabric/$name:$(head -n 1 "$profile" | cut -c3-)" ]
        count=$((count + 1))
    done
    [ "$count" -ge 50 ]
}

@test "invalid arguments in plugstack.conf cause only warnings, and the ranks still run" {
    local word long
    printf -v long '%05000d' 7
    printf 'SwitchName=s1 Nodes=n[1-\nrubbish\n' >noise
    for word in nonsense=1 = '%s%n' "topology=/no/such/file" topology=/ "topology=$PWD/noise" topology= \
        "profiles=/no/such/directory" "profiles=$PWD/noise" profiles= "fabric=$PWD/noise" fabric=/dev/null fabric= \
        "fabric=/$long" epilog_seconds=soon epilog_seconds=-1 stage_keep=0 stage= "stage=$PWD/noise" ckptd=/no/such/program; do
        echo "required $PLUGIN stage_keep=0 $word" >"$SANDBOX_DIR/etc/plugstack.conf"
        step -Q --muster -N2 -n2 sh -c "$show" >out 2>err
        echo "$word:" | head -c 100
        cat out err
        [ "$(sort out | tr '\n' ';')" = "rank 0 of 2;rank 1 of 2;" ]
        no_line -vE 'muster: |spank: ' err # Slurm itself cuts lines that are too long
    done
    for word in topology=/no/such/file profiles=/no/such/directory "fabric=$PWD/noise" "topology=$PWD/noise" \
        epilog_seconds=soon epilog_seconds=-1 stage=/dev/shm:local stage_keep=24; do
        echo "required $PLUGIN stage_keep=0 $word" >"$SANDBOX_DIR/etc/plugstack.conf"
        timeout 60 salloc -Q -N2 srun --muster -n2 true 2>err
        cat err
        grep -q "muster: .*${word#*=}" err
    done
}

@test "a plugin that does not load: optional, only --muster fails; required, srun, sbatch, salloc and slurmd do" {
    local program
    printf 'no library\n' >broken.so
    chmod +x broken.so
    for mode in optional required; do
        echo "$mode $PWD/broken.so" >"$SANDBOX_DIR/etc/plugstack.conf"
        for program in "srun -n1 true" "sbatch -o /dev/null --wrap true" "salloc -n1 true" "srun --muster -n1 true"; do
            run timeout 60 $program
            echo "$mode $program: $status"
            if [[ $mode = optional && $program != *--muster* ]]; then [ "$status" -eq 0 ]; else [ "$status" -ne 0 ]; fi
        done
        eventually 30 all_idle # the batch job reads the file too
    done
    # not the pid file of the slurmd that runs: a new one would end that
    cp -r "$SANDBOX_DIR"/etc/* .
    sed "s#PidFile=.*/#PidFile=$PWD/#" "$SANDBOX_DIR/etc/slurm.conf" >slurm.conf
    run timeout 20 slurmd -D -N n1 -f "$PWD/slurm.conf"
    echo "$output"
    [[ $status -ne 0 && $status -ne 124 && $output == *"broken.so. Aborting."* ]]
}

@test "a copied plugin uses the fabric profiles next to it, and warns if there are none" {
    mkdir copy
    # By this name the copy finds no profiles of a muster that is installed on this machine.
    LC_ALL=C sed 's|share/muster/fabric|share/absent/fabric|g' "$PLUGIN" >copy/spank_muster.so
    sed "s|[^ ]*/spank_muster.so|$PWD/copy/spank_muster.so|" "$BATS_FILE_TMPDIR/plugstack" \
        >"$SANDBOX_DIR/etc/plugstack.conf"
    # Not installed: the ranks run without a profile, and a line says why.
    step -Q --muster -N2 -n2 sh -c "$show" >out 2>err
    cat out err
    [ "$(sort out | tr '\n' ';')" = "rank 0 of 2;rank 1 of 2;" ]
    grep -q '^muster: warning: no fabric profiles: .*/fabric: No such file or directory; copy them' err
    cp -R "$TOP/etc/fabric" copy
    step -Q --muster-report -N2 -n2 true >out 2>&1
    cat out
    grep -q '^  fabric profile: ' out
    no_line 'none fits|no fabric profiles' out
}

# ---- faults in callbacks ---------------------------------------------------------------------------------------------

# stack MODE FAULT: the plugin, required or optional, amid what does it harm and undoes it
stack() {
    cat >"$SANDBOX_DIR/etc/plugstack.conf" <<CONF
optional $BATS_FILE_TMPDIR/spank_fault.so harm $2
$(sed "s/^optional/$1/" "$BATS_FILE_TMPDIR/plugstack")
optional $BATS_FILE_TMPDIR/spank_mend.so mend $2
CONF
}

# The line that tells of a fault; nothing where it does the plugin no harm, and so must not be noticed.
reason() {
    case $1 in
    local_init=no_files) echo "srun's command line cannot be read: .*: Too many" ;;
    local_init=no_memory) echo 'no memory to read ' ;;
    local_user_init=no_files) echo 'does not give the layout of step' ;;
    user_init=no_files) echo 'etc/fabric: Too many' ;;
    init_post_opt=garbage | remote_init=garbage | user_init=garbage) echo 'has format .*: SLURM_MUSTER_STEP is ignored' ;;
    task_init=no_heap) echo 'malloc failed' ;; # of Slurm itself
    esac
}

# judge FAULT FILE: what came of a run of two ranks
judge() {
    local reason
    reason=$(reason "$1")
    cat "$2"
    # What the plugin needs there may still fit into srun's heap: then nothing fails.
    if [ "$1" = local_init=no_memory ] && ! grep -qE "$reason" "$2"; then
        set -- fits "$2"
        reason=''
    fi
    if [ -n "$reason" ]; then
        grep -qE "$reason" "$2"
    else
        no_line 'muster: ' "$2"
    fi
    case $1 in
    # Before anything is launched srun is refused.
    local_init=no_memory | task_init=no_heap) no_line '^rank' "$2" ;;
    *) [ "$(grep '^rank' "$2" | sort | tr '\n' ';')" = "rank 0 of 2;rank 1 of 2;" ] ;;
    esac
}

harms="no_files no_memory no_write garbage"
callbacks="local_init init_post_opt local_user_init remote_init user_init task_init"

@test "a fault in any callback of srun drains no node and is reported, with a required or optional plugin" {
    [ -f "$BATS_FILE_TMPDIR/spank_mend.so" ] || skip "gcc is not installed"
    local mode callback harm
    for mode in required optional; do
        for callback in $callbacks; do
            for harm in $harms; do
                # Since 24.05 Slurm's library loads plugins there for what it receives, and ends srun if it cannot.
                [ $callback=$harm != local_user_init=no_memory ] || ! slurm_since 24.05 || continue
                echo "$mode $callback=$harm"
                stack "$mode" "$callback=$harm"
                timeout -k 5 40 srun --muster=good.cfg -N2 -n2 sh -c "$show" >out 2>&1 || true
                judge "$callback=$harm" out
            done
        done
        stack "$mode" task_init=no_heap
        timeout -k 5 40 srun --muster=good.cfg -N2 -n2 sh -c "$show" >out 2>&1 || true
        judge task_init=no_heap out
    done
}

@test "a fault in any callback under sbatch drains no node, with a required or optional plugin" {
    [ -f "$BATS_FILE_TMPDIR/spank_mend.so" ] || skip "gcc is not installed"
    local mode callback harm i=0
    for mode in required optional; do
        for callback in $callbacks; do
            for harm in no_files garbage; do
                echo "$mode $callback=$harm"
                stack "$mode" "$callback=$harm"
                i=$((i + 1))
                sbatch -Q -N2 -o "out$i" --wrap 'srun --muster=good.cfg -n2 sh -c "echo rank \$RANK of \$WORLD_SIZE"
                    echo the end' 2>sbatch.err
                eventually 40 grep -qs 'the end' "out$i"
                judge "$callback=$harm" "out$i"
            done
        done
    done
    # sbatch's own init.
    stack required allocator_init=no_files
    run sbatch -Q -W -N1 -o out --muster=good.cfg --wrap true
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "a fault when slurmd starts or a job ends drains no node" {
    [ -f "$BATS_FILE_TMPDIR/spank_mend.so" ] || skip "gcc is not installed"
    local harm mode
    for mode in required optional; do
        stack "$mode" slurmd_init=no_files
        "$SANDBOX" kill-node n3 --dir "$SANDBOX_DIR"
        : >"$SANDBOX_DIR/log/slurmd.n3.log"
        "$SANDBOX" revive-node n3 --dir "$SANDBOX_DIR"
        eventually 20 grep -q 'reads this machine again' "$SANDBOX_DIR/log/slurmd.n3.log"
        step --muster -w n3 -n1 true
        for harm in $harms; do
            stack "$mode" "job_epilog=$harm"
            step --muster -w n3 -n1 true
            eventually 30 all_idle
        done
    done
}

@test "slurmd does not load a library named in its environment" {
    "$SANDBOX" kill-node n3 --dir "$SANDBOX_DIR"
    : >"$SANDBOX_DIR/log/slurmd.n3.log"
    mkdir bin
    printf '#!/bin/sh\nMUSTER_HWLOC=/no/such/libhwloc.so exec %s "$@"\n' "$(command -v slurmd)" >bin/slurmd
    chmod +x bin/slurmd
    PATH=$PWD/bin:$PATH "$SANDBOX" revive-node n3 --dir "$SANDBOX_DIR"
    step --muster-report -w n3 -n1 true >out 2>&1
    cat out
    grep -q 'n3' out
    no_line '/no/such/' out "$SANDBOX_DIR/log/slurmd.n3.log"
}

# hang EPILOG_SECONDS: a job on n1 leaves a stage, on which muster-ckptd hangs until it is killed
hang() {
    : >"$SANDBOX_DIR/log/slurmd.n1.log"
    sed "s|\$| ckptd=$PWD/hang stage=$PWD epilog_seconds=$1|" "$BATS_FILE_TMPDIR/plugstack" \
        >"$SANDBOX_DIR/etc/plugstack.conf"
    step --muster-report -w n1 -n1 sh -c 'mkdir -m 700 "muster-$(id -u)-$SLURM_JOB_ID"' 2>report
    eventually 30 grep -q 'muster-ckptd was killed' "$SANDBOX_DIR/log/slurmd.n1.log"
    eventually 30 all_idle
}

@test "a muster-ckptd that hangs in the epilog drains no node, even if PrologEpilogTimeout is too short" {
    printf '#!/bin/sh\ntrap "" TERM\nsleep 60\n' >hang
    chmod +x hang
    hang 6
    no_line 'too short' report "$SANDBOX_DIR/log/slurmd.n1.log"
    hang 60
    cat report
    grep -q '^muster: warning: .* of 9 s is too short for epilog_seconds=60 .* for 6 s only' report
    no_line 'too short' "$SANDBOX_DIR/log/slurmd.n1.log"
    "$SANDBOX" kill-node n1 --dir "$SANDBOX_DIR"
    "$SANDBOX" revive-node n1 --dir "$SANDBOX_DIR" # slurmd's log has it when slurmd starts
    eventually 20 grep -q "warning: .* of 9 s is too short for epilog_seconds=60 " "$SANDBOX_DIR/log/slurmd.n1.log"
}

@test "ranks run if plugstack.conf loads the plugin twice, under two names" {
    cp "$PLUGIN" "$BATS_FILE_TMPDIR/spank_again.so"
    echo "required $BATS_FILE_TMPDIR/spank_again.so stage_keep=0" >>"$SANDBOX_DIR/etc/plugstack.conf"
    run step --muster=good.cfg -N2 -n2 sh -c "$show"
    echo "$output"
    [ "$(grep '^rank' <<<"$output" | sort | tr '\n' ';')" = "rank 0 of 2;rank 1 of 2;" ]
}
