#!/usr/bin/env bats
# bats file_tags=more
# Nothing that the user set is changed: every variable that muster can set, in random company, with random values, by
# the environment, by --export and in a batch script.
load helpers

setup_file() {
    plugin_sandbox 2 --site "prometheus=$BATS_FILE_TMPDIR"
    [ -z "$WHY_NOT" ] || return 0
    fabric_variables >"$BATS_FILE_TMPDIR/fabric"
    own_variables | cat - "$BATS_FILE_TMPDIR/fabric" >"$BATS_FILE_TMPDIR/all"
    # A network on which everything is set that any profile sets, so that every one of them could be overwritten.
    mkdir -p "$SANDBOX_DIR/etc/fabric"
    {
        echo 'name = "all"; priority = 1000; match = { least_nodes = 1; };'
        echo 'set = ('
        sed 's/.*/{ name = "&"; value = "musters"; why = "a test"; source = "none"; },/; $s/,$//' \
            "$BATS_FILE_TMPDIR/fabric"
        echo ');'
    } >"$SANDBOX_DIR/etc/fabric/all.cfg"
}

setup() {
    skip_if "$WHY_NOT"
    cd "$BATS_TEST_TMPDIR" || return
    unset OMP_NUM_THREADS
    RANDOM=${#BATS_TEST_NAME}
    mapfile -t variables <"$BATS_FILE_TMPDIR/all"
}

# All that the shipped profiles know.
fabric_variables() {
    sed -n 's/^ *name = "\([A-Z][A-Z0-9_]*\)";.*/\1/p' "$TOP"/etc/fabric/*.cfg | sort -u
}

# What rank_setup.c sets; not MUSTER_JOB, MUSTER_SET and SLURM_MUSTER_STEP, by which muster talks to itself, nor CUDA_DEVICE_ORDER,
# which it sets where there are GPUs; but that must stay as well.
own_variables() {
    sed -n 's/.*add_variable(\(&maker\|maker\), "\([A-Z_]*\)".*/\2/p' "$TOP/srun-plugin/spank/rank_setup.c" | sort -u
    echo MUSTER_RANK_MAP
}

# random_value [PATTERN]: into `value`, up to 40 printable characters but those of the pattern; often none
random_value() {
    local length=$((RANDOM % 3 ? RANDOM % 40 : 0)) code character
    value=''
    while ((${#value} < length)); do
        printf -v code '%x' $((32 + RANDOM % 95))
        printf -v character "\\x$code"
        # shellcheck disable=SC2053 # $1 is a pattern
        [[ -n ${1:-} && $character == $1 ]] || value+=$character
    done
}

# choose [PATTERN]: into the array `chosen`, "NAME=value" of a third of the variables
choose() {
    local name
    chosen=()
    for name in "${variables[@]}"; do
        ((RANDOM % 3 == 0)) || continue
        random_value "$@"
        chosen+=("$name=$value")
    done
}

# Into the file `environments`, a line an entry, what four ranks printed by `srun -o rank%t ... env -0`.
collect() {
    cat rank[0-3] | tr '\n\0' '\001\n' >environments
    rm rank[0-3]
}

# In the environments of the four ranks everything chosen is there as it was, and muster has been at work on the others.
judge() {
    local entry name
    collect
    [ "$(grep -c '^SLURM_PROCID=' environments)" -eq 4 ]
    for entry in "${chosen[@]}"; do
        [ "$(grep -cxF -e "$entry" environments)" -eq 4 ] || {
            echo "not everywhere: $entry"
            grep "^${entry%%=*}=" environments
            return 1
        }
    done
    for name in NCCL_SOCKET_IFNAME WORLD_SIZE; do
        [[ " ${chosen[*]} " == *" $name="* ]] || [ "$(grep -cE "^$name=(musters|4)$" environments)" -eq 4 ]
    done
}

# bats test_tags=quick
@test "the lists of variables are complete" {
    printf '%s\n' "${variables[@]}"
    [ "${#variables[@]}" -ge 25 ]
    for name in RANK WORLD_SIZE MASTER_ADDR OMP_NUM_THREADS MUSTER_RESTART_COUNT NCCL_SOCKET_IFNAME; do
        [[ " ${variables[*]} " == *" $name "* ]]
    done
    # With nothing chosen muster sets them all, or these tests would not see it overwrite one.
    step --muster -N2 -n4 -o rank%t env -0
    collect
    for name in "${variables[@]}"; do
        case $name in CUDA_DEVICE_ORDER | MUSTER_RANK_MAP) continue ;; esac
        [ "$(grep -c "^$name=" environments)" -eq 4 ] || { echo "not set: $name"; return 1; }
    done
}

# bats test_tags=quick
@test "variables in the user's environment are unchanged" {
    local i
    for i in {1..30}; do
        choose
        env "${chosen[@]}" timeout 60 srun --muster -N2 -n4 -o rank%t env -0
        judge
    done
}

# --export takes no commas in values, cuts blanks, and reads quotes.
@test "variables set by --export are unchanged" {
    local i
    for i in {1..30}; do
        choose "[, '\"\\\\]"
        [ ${#chosen[@]} -gt 0 ] || continue
        timeout 60 srun --muster --export="ALL$(printf ',%s' "${chosen[@]}")" -N2 -n4 -o rank%t env -0
        judge
    done
}

@test "variables set by sbatch and a batch script are unchanged, also with --muster in the script" {
    local i quoted
    for i in {1..8}; do
        choose "[, '\\\\]"
        [ ${#chosen[@]} -gt 1 ] || continue
        {
            echo '#!/bin/bash'
            echo '#SBATCH -N2 --muster --output=/dev/null'
            # The first by #SBATCH, the others by the script.
            echo "#SBATCH --export=ALL,${chosen[0]%%=*}=a:b"
            chosen[0]="${chosen[0]%%=*}=a:b"
            printf -v quoted '%q ' "${chosen[@]:1}"
            echo "export $quoted"
            echo "srun -n4 --ntasks-per-node=2 -o rank%t env -0; echo end >end$i"
        } >script
        sbatch -Q script >/dev/null
        eventually 40 test -s "end$i"
        judge
    done
}

@test "an inner srun replaces the outer srun's variables, and keeps those that the program has set" {
    choose "'"
    {
        echo '[ $SLURM_PROCID = 1 ] || exit 0'
        printf 'export %q\n' "${chosen[@]}"
        echo 'env -u SLURM_NTASKS_PER_NODE srun --overlap --muster -N2 -n4 -o rank%t env -0'
    } >inner
    step --muster -N2 -n2 bash inner
    judge
    chosen=()
    printf '[ $SLURM_PROCID = 1 ] || exit 0; srun --overlap --muster -N2 -n4 -o rank%%t env -0' >inner
    step --muster -N2 -n2 bash inner
    judge
    [ "$(grep -c '^WORLD_SIZE=4$' environments)" -eq 4 ]
}
