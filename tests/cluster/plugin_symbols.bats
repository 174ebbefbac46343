#!/usr/bin/env bats
# The plugin lives in other people's daemons: it shows them only what SPANK looks up, and wants only what they have.
load helpers

setup() {
    skip_if "$(why_no_plugin)"
    need nm
    cd "$BATS_TEST_TMPDIR" || return
}

@test "the plugin exports only SPANK's symbols" {
    run nm -D --defined-only --format=posix "$PLUGIN"
    # slurm_spank_init_failure_mode is of Slurm 25.05 and later.
    exported=$(cut -d' ' -f1 <<<"$output" | grep -vx slurm_spank_init_failure_mode | sort | tr '\n' ' ')
    echo "$exported"
    [ "$exported" = "plugin_name plugin_type plugin_version slurm_spank_exit slurm_spank_init slurm_spank_init_post_opt \
slurm_spank_job_epilog slurm_spank_local_user_init slurm_spank_task_init slurm_spank_user_init spank_plugin_version " ]
}

@test "every undefined symbol of the plugin is on the list of allowed symbols" {
    # Lazy binding hides a symbol that is missing until it is called, in slurmd, a year from now.
    grep -v '^#' "$TOP/tests/cluster/plugin_symbols.allow" >"$BATS_TEST_TMPDIR/allow"
    run nm -D --undefined-only "$PLUGIN"
    [ "$(grep -c spank_get_item <<<"$output")" -eq 1 ]
    unknown=$(awk '$1 ~ /^[Uwv]$/ && $2 !~ /@GLIBC_|^_ITM_|^__gmon_start__$/ {print $2}' <<<"$output" |
        grep -vxEf "$BATS_TEST_TMPDIR/allow" || true)
    echo "not on the list: $unknown"
    [ -z "$unknown" ]
}

@test "the plugin links only the C library and libconfig, not hwloc" {
    run objdump -p "$PLUGIN"
    [ "$status" -eq 0 ]
    needed=$(awk '$1 == "NEEDED" {print $2}' <<<"$output" | grep -vE '^lib(c|m|dl|config)\.so\.|^ld-linux' || true)
    echo "also needs: $needed"
    [ -z "$needed" ]
}

@test "libconfig and Slurm's programs define no symbol in common" {
    # Slurm's own would be found first.
    library=$(ldd "$PLUGIN" | awk '$1 ~ /^libconfig\.so/ {print $3}')
    symbols() { nm -D --defined-only --format=posix "$1" | awk '$1 !~ /^(_|__bss_start$|_?e?(nd|data)$)/ {print $1}' | sort -u; }
    symbols "$library" >ours
    [ "$(wc -l <ours)" -ge 50 ]
    for program in srun sbatch salloc slurmd slurmstepd; do
        path=$(command -v "$program")
        [ -x "$path" ]
        symbols "$path" >theirs
        ldd "$path" | awk '/slurm/ {print $3}' | while read -r file; do symbols "$file"; done >>theirs
        [ "$(wc -l <theirs)" -ge 100 ]
        [ -z "$(sort -u theirs | comm -12 ours - | tee /dev/stderr)" ]
    done
}

@test "the plugin compiles against the installed Slurm headers, and a changed API is detected" {
    run "$TOP/tests/slurm-headers" /usr/include
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output =~ ^Slurm\ [0-9.]+:\ [6-9]\ files\ compiled$ ]]
    mkdir -p changed/slurm
    cp /usr/include/slurm/*.h changed/slurm
    sed -i 's/slurm_load_node_single/slurm_load_one_node/' changed/slurm/slurm.h
    run "$TOP/tests/slurm-headers" changed
    echo "$output"
    [ "$status" -eq 1 ]
    [[ ${lines[-1]} == *"; not: slurmctld.c" ]]
}
