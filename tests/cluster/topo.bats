#!/usr/bin/env bats
# What muster-topo makes of a real Slurm's switches, and whether its host file puts the ranks where it says.
load helpers

setup_file() {
    WHY_NOT=$(why_no_slurm)
    export WHY_NOT
    [ -n "$WHY_NOT" ] || sandbox_up 4
}

setup() {
    skip_if "$WHY_NOT"
    cd "$BATS_TEST_TMPDIR"
}

# The heavier axis is pp, so a replica's two stages belong beneath one switch: not the order that Slurm would choose.
@test "ranks are placed as the host file says" {
    scontrol show topology >switches
    run muster-topo place --nodes 'n[1-4]' --topology switches --slots 1 --mesh dp=2,pp=2 --bytes dp=1,pp=100 --hostfile hosts
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"across s0 "* ]]
    [ "$(tr '\n' ' ' <hosts)" = "n1 n3 n2 n4 " ]
    SLURM_HOSTFILE=hosts run step -n4 --distribution=arbitrary sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME'
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(sort -n <<<"$output" | tr '\n' ' ')" = "0 n1 1 n3 2 n2 3 n4 " ]
}

@test "SLURM_LOCALID of several ranks on a node follows muster-topo's order" {
    scontrol show topology >switches
    muster-topo place --nodes 'n[1-4]' --topology switches --slots 2 --mesh tp=2,pp=2 --bytes dp=1,pp=100,tp=1 --hostfile hosts
    SLURM_HOSTFILE=hosts run step -n8 --distribution=arbitrary --overcommit \
        sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME $SLURM_LOCALID'
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(sort -n <<<"$output")" = "$(awk '{ print NR - 1, $1, n[$1]++ + 0 }' hosts)" ]
}
