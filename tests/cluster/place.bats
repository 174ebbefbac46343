#!/usr/bin/env bats
# bats file_tags=more
# Which node each rank gets, on 8 nodes under 3 switches whose order is not that of the nodes' names; who decides it;
# and that nothing of it is left behind.
load helpers

setup_file() {
    plugin_sandbox 8 --switches 3
    [ -z "$WHY_NOT" ] || return 0
    # As on a machine that others use too: who asks for nodes gets what is free, a few beneath each switch.
    printf 'SwitchName=%s\n' 's1 Nodes=n[1,4,7]' 's2 Nodes=n[2,5,8]' 's3 Nodes=n[3,6]' 's0 Switches=s[1-3]' \
        >"$SANDBOX_DIR/etc/topology.conf"
    scontrol reconfigure
    tiny_job "$BATS_FILE_TMPDIR"
    sed -i 's/parallel = .*/parallel = { zero = 1; pp = 2; };/
        s/micro_batch = 4; steps = 50/micro_batch = 1; steps = 6/' "$BATS_FILE_TMPDIR/job.cfg"
}

setup() {
    skip_if "$WHY_NOT"
    cd "$BATS_TEST_TMPDIR" || return
    unset OMP_NUM_THREADS
    JOB_FILE=$BATS_FILE_TMPDIR/job.cfg
    scontrol show topology >switches
}

# expect ARGUMENT...: into the file `hosts`, where muster-topo puts the ranks, a line a rank
expect() {
    muster-topo place --topology switches "$@" --hostfile hosts >topo.out || { cat topo.out; return 1; }
}

where='echo "$SLURM_PROCID $SLURMD_NODENAME"'

# landed FILE: the same of an srun whose ranks printed $where
landed() {
    sort -n "$1" | cut -d' ' -f2
}

# landed_as OUT PLAIN: the ranks are where the same srun without --muster had them, whose ranks printed $where. Newer
# releases of Slurm have another order for some distributions than that of the nodes' names.
landed_as() {
    diff <(landed "$2") <(landed "$1")
}

# allocated OPTIONS COMMAND: in an allocation
allocated() {
    local options=$1
    shift
    # shellcheck disable=SC2086 # several options
    timeout -k 5 60 salloc -Q $options sh -c "$*"
}

# bats test_tags=quick
@test "in an allocation, ranks are placed as muster-topo says, node by node and switch by switch" {
    expect --nodes 'n[1-8]' --slots 1 --mesh dp=8 --bytes dp=1
    [ "$(tr '\n' ' ' <hosts)" != "n1 n2 n3 n4 n5 n6 n7 n8 " ]
    allocated -N8 "srun --muster -n8 sh -c '$where'" >out
    cat out
    diff hosts <(landed out)
    # Also out of a batch script, for each step of it, and without -n.
    printf '#!/bin/sh\n#SBATCH -N8 -o batch --muster\nfor i in 1 2; do srun --overlap sh -c '\''%s'\''; done' "$where" \
        >script
    timeout 60 sbatch -W script
    cat batch
    sed p hosts | sort >twice
    diff twice <(cut -d' ' -f2 batch | sort)
    [ "$(sort -u batch | wc -l)" -eq 8 ]
    timeout 60 sbatch -W -N2 -o report --muster-report --wrap 'srun -n2 true'
    cat report
    grep -q '^muster: the environment of rank 0$' report
}

# bats test_tags=quick
@test "the job file's mesh decides the placement of two ranks a node" {
    expect --nodes 'n[1-8]' --slots 2 --job "$JOB_FILE"
    [ "$(uniq hosts | tr '\n' ' ')" != "n1 n2 n3 n4 n5 n6 n7 n8 " ]
    allocated -N8 "srun --muster=$JOB_FILE -n16 --ntasks-per-node=2 sh -c '$where'" >out
    cat out
    diff hosts <(landed out)
}

@test "with uneven tasks per node, each node gets as many ranks as Slurm assigned" {
    allocated "-N5 -n8 -w n[1-5]" "echo \$SLURM_TASKS_PER_NODE >counts; srun --muster sh -c '$where'" >out
    cat counts out
    expect --nodes 'n[1-5]' --slots "$(cat counts)" --mesh dp=8 --bytes dp=1
    diff hosts <(landed out)
    [ "$(sort -u hosts | wc -l)" -eq 5 ]
}

# Of a mesh's ranks, the one that each of Slurm's plays: text of mesh.h, a line a rank
expand_map() {
    tr ',' '\n' <<<"$1" | awk -F'[-:]' '{for (i = $1; i <= (NF > 1 ? $2 : $1); i += NF > 2 ? $3 : 1) print i}'
}

# map_leads_to_hosts: in `out`, lines of "PROCID NODE MAP", each mesh rank is on the node that `hosts` names for it.
map_leads_to_hosts() {
    local procid node mesh_rank
    [ "$(cut -d' ' -f3 out | sort -u | wc -l)" -eq 1 ]
    expand_map "$(head -n 1 out | cut -d' ' -f3)" >map
    [ "$(sort -nu map | wc -l)" -eq 8 ]
    while read -r procid node _; do
        mesh_rank=$(sed -n "$((procid + 1))p" map)
        [ "$(sed -n "$((mesh_rank + 1))p" hosts)" = "$node" ] || { echo "mesh rank $mesh_rank on $node"; return 1; }
    done <out
}

@test "outside an allocation, rank order is unchanged and MUSTER_RANK_MAP maps ranks to the mesh" {
    expect --nodes 'n[1-8]' --slots 1 --job "$JOB_FILE"
    step --muster="$JOB_FILE" -N8 -n8 sh -c 'echo "$SLURM_PROCID $SLURMD_NODENAME $MUSTER_RANK_MAP $RANK"' >out
    step -N8 -n8 sh -c "$where" >plain
    cat out
    landed_as out plain
    awk '$1 != $4 {bad = 1} END {exit bad}' out # RANK is no lie either
    map_leads_to_hosts
}

# From 23.11.4 on srun refuses --nodes on its command line together with --distribution=arbitrary.
@test "srun -N in an allocation keeps Slurm's rank order, and MUSTER_RANK_MAP maps ranks to the mesh" {
    local option
    expect --nodes 'n[1-8]' --slots 1 --job "$JOB_FILE"
    for option in -N8 "-N 8" --nodes=8; do
        allocated -N8 "srun $option -n8 sh -c '$where'" >plain
        allocated -N8 "srun --muster=$JOB_FILE $option -n8 sh -c '$where \$MUSTER_RANK_MAP'" >out
        cat out
        landed_as out plain
        map_leads_to_hosts
        allocated -N8 "srun --muster $option -n8 sh -c '$where \${MUSTER_RANK_MAP-none}'" >out
        landed_as out plain
        no_line -v ' none$' out
    done
    # The number of nodes that salloc and sbatch put into the environment is no such option.
    expect --nodes 'n[1-8]' --slots 1 --mesh dp=8 --bytes dp=1
    allocated -N8 "SLURM_NNODES=8 SLURM_JOB_NUM_NODES=8 srun --muster -n8 sh -c '$where'" >out
    diff hosts <(landed out)
}

@test "an srun inside a step does not inherit the step's MUSTER_RANK_MAP" {
    step --muster="$JOB_FILE" -N8 -n8 sh -c '[ -n "$MUSTER_RANK_MAP" ] || echo outer has none
        [ $SLURM_PROCID != 0 ] || srun --overlap --muster -N2 -n2 sh -c "echo inner \${MUSTER_RANK_MAP-none}"' >out
    cat out
    [ "$(sort -u out)" = "inner none" ]
    [ "$(wc -l <out)" -eq 2 ]
}

# train OPTION...: the losses of the job on 8 nodes
train() {
    rm -f "$BATS_FILE_TMPDIR/metrics.jsonl"
    step -N8 -n8 "$@" muster-train "$JOB_FILE" >train.out 2>&1 || { cat train.out; return 1; }
    grep -o '"loss":[^,}]*' "$BATS_FILE_TMPDIR/metrics.jsonl"
}

@test "with srun --export=NONE, the ranks still get MUSTER_RANK_MAP" {
    expect --nodes 'n[1-8]' --slots 1 --job "$JOB_FILE"
    step --export=NONE --muster="$JOB_FILE" -N8 -n8 /bin/sh -c "$where \$MUSTER_RANK_MAP" >out
    map_leads_to_hosts
}

@test "--muster does not change the number of ranks, however it is given" {
    local given count
    for given in "srun" "srun -c1" "srun -c 2" "SRUN_CPUS_PER_TASK=1 srun" "SLURM_NPROCS=16 srun" "srun -n8 -c1" \
        "srun --ntasks-per-node=2" "SLURM_NTASKS=8 SLURM_NPROCS=16 srun" "SLURM_CPUS_PER_TASK=1 srun" \
        "SLURM_TRES_PER_TASK=cpu=1 srun" "srun --tres-per-task=cpu:1"; do
        [[ $given != *tres* && $given != *TRES* ]] || slurm_since 24.05 || continue
        allocated -N8 "$given sh -c '$where'" >plain
        for count in "" "=$JOB_FILE"; do
            allocated -N8 "$given --muster$count sh -c '$where'" >out
            echo "$given: $(wc -l <out) ranks, $(wc -l <plain) without"
            [ "$(wc -l <plain)" -ge 8 ]
            [ "$(cut -d' ' -f2 out | sort)" = "$(cut -d' ' -f2 plain | sort)" ]
        done
    done
}

# bats test_tags=quick
@test "muster-train follows and logs MUSTER_RANK_MAP, and the losses are the same" {
    export OMP_NUM_THREADS=1 # eight ranks share this machine's cores
    train >without
    no_line MUSTER_RANK_MAP train.out
    train --muster="$JOB_FILE" >with
    cat train.out
    grep -q 'in the order of MUSTER_RANK_MAP' train.out
    [ "$(wc -l <without)" -ge 6 ]
    diff without with
}

@test "the user's options for nodes and distribution are not changed" {
    local option
    for option in "-m block" "--distribution=cyclic" "--dist=block" "-w n[1-8]" "-r0"; do
        # shellcheck disable=SC2086 # an option and its value
        allocated -N8 "srun --muster=$JOB_FILE -n8 $option sh -c '$where \${MUSTER_RANK_MAP-none}'" >out 2>err || true
        allocated -N8 "srun -n8 $option sh -c '$where'" >plain || true
        cat out err
        [ "$(wc -l <out)" -eq 8 ]
        landed_as out plain
        no_line -v ' none$' out
    done
    printf 'n8\nn7\nn6\nn5\nn4\nn3\nn2\nn1\n' >mine
    allocated -N8 "SLURM_HOSTFILE=$PWD/mine srun --distribution=arbitrary --muster -n8 sh -c '$where'" >out
    diff mine <(landed out)
    allocated -N8 "export SLURM_HOSTFILE=$PWD/mine SLURM_DISTRIBUTION=arbitrary; srun --muster -n8 sh -c '
        echo \"\$SLURM_PROCID \$SLURMD_NODENAME \$SLURM_HOSTFILE \$SLURM_DISTRIBUTION\"'" >out
    cat out
    diff mine <(landed out)
    [ "$(cut -d' ' -f3- out | sort -u)" = "$PWD/mine arbitrary" ]
    allocated -N8 "SLURM_DISTRIBUTION=block srun --muster -n8 sh -c '$where'" >out
    allocated -N8 "SLURM_DISTRIBUTION=block srun -n8 sh -c '$where'" >plain
    landed_as out plain
}

@test "with a MUSTER_RANK_MAP set by the user, Slurm places the ranks, and the map reaches them" {
    allocated -N8 "MUSTER_RANK_MAP=7-0:-1 srun --muster=$JOB_FILE -n8 sh -c '$where \$MUSTER_RANK_MAP'" >out
    allocated -N8 "srun -n8 sh -c '$where'" >plain
    cat out
    landed_as out plain
    [ "$(cut -d' ' -f3 out | sort -u)" = 7-0:-1 ]
}

@test "a MASTER_ADDR set by the user keeps rank 0 on the first node" {
    allocated -N8 "MASTER_ADDR=n1 srun --muster=$JOB_FILE -n8 sh -c '$where \$MASTER_ADDR'" >out
    cat out
    [ "$(landed out | head -n 1)" = n1 ]
    [ "$(cut -d' ' -f3 out | sort -u)" = n1 ]
}

@test "an srun inside a reordered step does not inherit the step's rank order" {
    allocated -N8 "srun --muster -n8 sh -c '[ \$SLURM_PROCID != 3 ] || srun --overlap --muster -N8 -n8 sh -c \
        \"echo \\\$SLURM_PROCID \\\$SLURMD_NODENAME \\\${MUSTER_RANK_MAP-none}\"'" >out
    cat out
    [ "$(wc -l <out)" -eq 8 ]
    [ "$(landed out | tr '\n' ' ')" = "n1 n2 n3 n4 n5 n6 n7 n8 " ]
    no_line -v ' none$' out
}

@test "no temporary file or internal variable is left, and the user's variables reach the ranks" {
    mkdir tmp
    export TMPDIR=$PWD/tmp
    allocated -N8 "srun --muster -n8 env; srun --muster -n8 -t nonsense true
        srun --muster -n8 /no/such/program" >out 2>err || true
    cat err
    [ "$(grep -c '^WORLD_SIZE=8$' out)" -eq 8 ]
    no_line -E '^(SLURM_(HOSTFILE|DISTRIBUTION|ARBITRARY_NODELIST)|SLURM_MUSTER_.*|MUSTER_(CPUS_INHERITED|HEAD))=' out
    grep -q 'Invalid --time' err
    grep -q 'no/such/program' err
    [ -z "$(ls tmp)" ]
    SLURM_DISTRIBUTION=block step --muster -N2 -n2 env >out
    [ "$(grep -c '^SLURM_DISTRIBUTION=block$' out)" -eq 2 ]
}

@test "rank placement works if TMPDIR is not a writable directory" {
    expect --nodes 'n[1-8]' --slots 1 --mesh dp=8 --bytes dp=1
    TMPDIR=/proc/nowhere allocated -N8 "srun --muster -n8 sh -c '$where'" >out
    diff hosts <(landed out)
}

@test "all nodes are idle after these tests" {
    eventually 20 all_idle
}

# The last one: with topology.yaml, Slurm ignores topology.conf.
@test "rank order follows the partition's own topology, not the cluster's default (Slurm 25.05)" {
    slurm_since 25.05 || skip "this Slurm has one topology for all partitions"
    cat >"$SANDBOX_DIR/etc/topology.yaml" <<'YAML'
- topology: halves
  cluster_default: true
  tree:
    switches: [{switch: s0, children: "s[1-2]"}, {switch: s1, nodes: "n[1-4]"}, {switch: s2, nodes: "n[5-8]"}]
- topology: odd
  tree:
    switches: [{switch: t0, children: "t[1-2]"}, {switch: t1, nodes: "n[1,3,5,7]"}, {switch: t2, nodes: "n[2,4,6,8]"}]
YAML
    echo 'PartitionName=odd Topology=odd' >>"$SANDBOX_DIR/etc/slurm.conf"
    scontrol reconfigure
    eventually 20 all_idle
    scontrol show topology odd >switches
    expect --nodes 'n[1-8]' --slots 1 --mesh dp=8 --bytes dp=1
    allocated "-N8 -p odd" "srun --muster -n8 sh -c '$where'" >out
    diff hosts <(landed out)
    expect --nodes 'n[1-8]' --slots 1 --job "$JOB_FILE"
    step --muster="$JOB_FILE" -p odd -N8 -n8 sh -c "$where \$MUSTER_RANK_MAP" >out
    map_leads_to_hosts
    allocated -N8 "srun --muster -n8 sh -c '$where'" >out # the default's order is that of the nodes' names
    [ "$(landed out | tr '\n' ' ')" = "n1 n2 n3 n4 n5 n6 n7 n8 " ]
}
