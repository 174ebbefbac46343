# helpers.bash - what the cluster tests share. Sourced by `load helpers`; the file's sandbox lives from setup_file to
# teardown_file.
load ../helpers

SANDBOX=$TOP/tests/cluster/sandbox
PLUGIN=$BUILD/srun-plugin/.libs/spank_muster.so
PATH=$PATH:/usr/sbin:/sbin
# MUSTER_TEST_SLURM=DIR: the tests run on the Slurm in DIR (bin, sbin, include/slurm), with a plugin built for it.
if [ -n "${MUSTER_TEST_SLURM:-}" ]; then
    slurm=$(realpath "$MUSTER_TEST_SLURM")
    PATH=$slurm/sbin:$slurm/bin:$PATH
    PLUGIN=$BUILD/slurm/${slurm//\//_}/srun-plugin/.libs/spank_muster.so
fi

# Why a file's tests cannot run here; prints nothing when they can. bats cannot skip in setup_file: that keeps the
# answer in WHY_NOT, and every test's setup looks at it.
why_no_slurm() {
    local program
    for program in slurmctld slurmd srun sbatch; do
        command -v "$program" >/dev/null || { echo "$program is not installed"; return; }
    done
}

why_no_plugin() {
    [ -z "${MUSTER_TEST_SLURM:-}" ] ||
        top_builddir=$BUILD "$TOP/tests/cluster/plugin-for" "$MUSTER_TEST_SLURM" >&2 || return
    if [ ! -f "$PLUGIN" ]; then
        echo "spank_muster.so was not built: configure found no slurm/spank.h"
    elif grep -q '^#define MUSTER_SANITIZED 1' "$BUILD/config.h"; then
        echo "srun cannot load a sanitized plugin"
    fi
}

# slurm_since 23.11: whether the Slurm of the tests is that release or a later one
slurm_since() {
    [ "$(printf '%s\n' "$1" "$(srun --version | cut -d' ' -f2)" | sort -V | head -n 1)" = "$1" ]
}

why_not() {
    local why
    why=$(why_no_slurm)
    echo "${why:-$(why_no_plugin)}"
}

skip_if() {
    [ -z "$1" ] || skip "$1"
}

# sandbox_up NODES [ARGUMENT...]: this file's own Slurm; what its jobs need to know is in the environment afterwards.
sandbox_up() {
    local nodes=$1
    shift
    SANDBOX_DIR=$(mktemp -d "${BATS_FILE_TMPDIR}/sandbox.XXXXXX")
    "$SANDBOX" start --dir "$SANDBOX_DIR" --nodes "$nodes" "$@"
    eval "$("$SANDBOX" env --dir "$SANDBOX_DIR")"
    export SANDBOX_DIR
}

sandbox_down() {
    [ -z "${SANDBOX_DIR:-}" ] || "$SANDBOX" stop --dir "$SANDBOX_DIR"
}

# plugin_sandbox NODES [ARGUMENT...]: in setup_file: a Slurm with the plugin, or WHY_NOT
plugin_sandbox() {
    WHY_NOT=$(why_not)
    export WHY_NOT
    [ -n "$WHY_NOT" ] || sandbox_up "$@" --plugin "$PLUGIN"
}

# Of all files that have no other one.
teardown_file() {
    sandbox_down
}

# step ARGUMENT...: srun, with a bound on its time.
step() {
    timeout -k 5 60 srun "$@"
}

# no_line GREP-ARGUMENT...: none matches; those that do are printed. bats does not see a plain `! grep` fail.
no_line() {
    ! grep "$@"
}

all_idle() {
    ! sinfo -h -N -o %T | grep -qv '^idle$'
}

# job_is PATTERN: what scontrol shows of $JOB has it
job_is() {
    scontrol show job "$JOB" | grep -q "$1"
}

# state JOB: RUNNING, PENDING, ...; empty when Slurm has forgotten the job.
state() {
    squeue -h -o %T -j "$1" 2>/dev/null
}
