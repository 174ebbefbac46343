# Any MPI: MPICH and Open MPI under srun --mpi=pmi2 and pmix. What fits trains as one process does; what does not fit is
# refused in one line that has what would be right.
load helpers

setup_file() {
    WHY_NOT=$(why_not)
    local wrapper
    for wrapper in mpicc.mpich mpicc.openmpi; do
        command -v $wrapper >/dev/null || WHY_NOT="$wrapper is not installed"
    done
    export WHY_NOT
    [ -z "$WHY_NOT" ] || return 0
    export DIR=$BATS_FILE_TMPDIR MPICH OPENMPI
    MPICH=$("$TOP/tests/cluster/trainer-for" mpicc.mpich)
    OPENMPI=$("$TOP/tests/cluster/trainer-for" mpicc.openmpi tests/engine/matrix_ranks tests/engine/comm_ranks)
    sandbox_up 2 --plugin "$PLUGIN"
    srun --mpi=list 2>&1 | grep -q pmix || { WHY_NOT="this Slurm has no PMIx"; return; }
    tiny_job "$DIR"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; };" >>"$DIR/job.cfg"
    muster-train "$DIR/job.cfg" --set checkpoint.dir= >/dev/null
    mv "$DIR/metrics.jsonl" "$DIR/alone.jsonl"
}

setup() {
    skip_if "$WHY_NOT"
    unset MUSTER_JOB
    export SLURM_WAIT=2
    # Open MPI's segments in shared memory have names that two nodes of one machine share.
    export OMPI_MCA_btl=self,tcp
    export OMPI_MCA_mpi_yield_when_idle=1 # there are more ranks than cores
    cd "$DIR" || return
}

# trains MPI_BUILD NODES TYPE LIBRARY: on 2 ranks of each node, with the losses of one process
trains() {
    run step "-N$2" --ntasks-per-node=2 "--mpi=$3" --muster=job.cfg "$1/muster-train" job.cfg --set checkpoint.dir=
    echo "$output"
    [ "$status" -eq 0 ]
    grep -q "$(($2 * 2)) ranks.*$4" <<<"$output"
    grep -qx 'done at step 50' <<<"$output"
    muster-report compare --tolerance 1e-5 alone.jsonl metrics.jsonl
    [ "$(wc -l <metrics.jsonl)" -eq 50 ]
}

# refuses RIGHT COMMAND...: with one line that ends with the right way to start
refuses() {
    local right=$1
    shift
    run timeout -k 5 60 "$@" job.cfg
    echo "$output"
    [ "$status" -eq 64 ]
    [ "$(grep -vcE '^srun: (job [0-9]+ |error: n[12]: tasks? )' <<<"$output")" -eq 1 ]
    grep -q "^muster-train: .* started 4 ranks with .*, which .* cannot use: start them with $right\$" <<<"$output"
}

@test "muster-train --mpi prints the type for srun --mpi" {
    [ "$("$MPICH/muster-train" --mpi)" = pmi2 ]
    [ "$("$OPENMPI/muster-train" --mpi)" = pmix ]
}

@test "MPICH over PMI2 has the losses of one process" {
    trains "$MPICH" 2 pmi2 MPICH
}

@test "Open MPI over PMIx has the losses of one process" {
    trains "$OPENMPI" 2 pmix 'Open MPI v'
    unset OMPI_MCA_btl
    trains "$OPENMPI" 1 pmix 'Open MPI v'
}

@test "MPICH under --mpi=pmix and --mpi=none is refused" {
    if ldd "$(command -v mpichversion)" | grep -q libpmix; then skip "this MPICH speaks PMIx"; fi
    refuses 'srun --mpi=pmi2' srun -N2 -n4 --mpi=pmix "$MPICH/muster-train"
    refuses 'srun --mpi=pmi2' srun -N2 -n4 --mpi=none "$MPICH/muster-train"
}

@test "Open MPI under --mpi=pmi2 and --mpi=none is refused" {
    refuses 'srun --mpi=pmix' srun -N2 -n4 --mpi=pmi2 "$OPENMPI/muster-train"
    refuses 'srun --mpi=pmix' srun -N2 -n4 --mpi=none "$OPENMPI/muster-train"
}

@test "mpirun and mpiexec run programs of their own MPI library, and those of the other are refused" {
    local mpirun=(mpirun.openmpi --oversubscribe)
    [ "$(id -u)" != 0 ] || mpirun+=(--allow-run-as-root)
    export -n SLURM_CONF
    unset OMPI_MCA_btl
    timeout -k 5 60 "${mpirun[@]}" -n 4 "$OPENMPI/muster-train" job.cfg --set checkpoint.dir=
    muster-report compare --tolerance 1e-5 alone.jsonl metrics.jsonl
    run timeout -k 5 60 mpiexec.mpich -n 4 "$OPENMPI/muster-train" job.cfg
    echo "$output"
    grep -q '^muster-train: mpiexec started 4 ranks with PMI2, which Open MPI v.*: start them with .*mpirun' <<<"$output"
    run timeout -k 5 60 "${mpirun[@]}" -n 4 "$MPICH/muster-train" job.cfg
    echo "$output"
    grep -q '^muster-train: mpirun started 4 ranks with PMIx, which MPICH .*: start them with its own mpiexec' <<<"$output"
}

# run_ranks [N]: comm_ranks of Open MPI. With Open MPI 4.1.4 and PMIx 4.2.2 on a busy machine, a rank may leave MPI_Init
# while another is still in its first fence there, and that one dies of the first message it gets (SIGSEGV in
# ompi_mpi_init: 16 of 560 steps). Such a step, in which a rank never connected, is repeated.
run_ranks() {
    local try
    for try in 1 2 3; do
        SAY_CONNECTED=1 run step -N2 --ntasks-per-node=2 --mpi=pmix "$OPENMPI/tests/engine/comm_ranks" "$@"
        echo "comm_ranks $*: exit $status: $output"
        [ "$(grep -cx 'rank [0-3] is connected' <<<"$output")" -lt 4 ] || return 0
    done
}

@test "if ranks of Open MPI fail for different reasons, all end with the exit code of rank 0" {
    for failing in 1 2 3 4; do
        run_ranks "$failing"
        [ "$status" -eq 74 ]
    done
    run_ranks
    [ "$status" -eq 0 ]
    grep -qx '4 ranks agree' <<<"$output"
}

@test "an error of all ranks of Open MPI ends them with its code, in one line" {
    run step -N2 --ntasks-per-node=2 --mpi=pmix "$OPENMPI/muster-train" job.cfg --set data.train=nowhere
    echo "$output"
    [ "$status" -eq 65 ]
    [ "$(grep -vc '^srun: ' <<<"$output")" -eq 1 ]
}

@test "every mesh of two ranks of Open MPI trains the same model (with --full, of four)" {
    local ranks=1
    [ -z "${MUSTER_CHECK_FULL:-}" ] || ranks=2 # of a node
    . "$TOP/tests/engine/tap.bash"
    trial_data "$BATS_TEST_TMPDIR"
    "$OPENMPI/tests/engine/matrix_ranks" "$BATS_TEST_TMPDIR" reference
    timeout -k 5 300 srun -N2 --ntasks-per-node=$ranks --mpi=pmix "$OPENMPI/tests/engine/matrix_ranks" "$BATS_TEST_TMPDIR" \
        >trials || { cat trials; false; }
    [ "$(grep -c '^ok ' trials)" -ge 4 ]
    no_line '^not ok ' trials
}

# The job's own story: asked to stop, requeued, resumed, with the losses of a run that was not stopped.
@test "train.sbatch with Open MPI is stopped, requeued, resumes and finishes once" {
    export PATH=$OPENMPI:$PATH
    rm -f metrics.jsonl
    JOB=$(sbatch --parsable --nodes=2 --cpus-per-task=1 --output=out "$TOP/etc/train.sbatch" job.cfg --set batch.steps=2000)
    eventually 60 steps_done 20
    scancel --signal=USR1 "$JOB"
    eventually 60 job_is 'Restarts=1'
    eventually 120 job_is 'JobState=COMPLETED'
    cat out
    grep -q '^resumed from ' out
    grep -q '2 ranks.*Open MPI v' out
    [ "$(grep -c '^done at step 2000$' out)" -eq 1 ]
    [ "$(wc -l <metrics.jsonl)" -eq 2000 ]
    head -n 5 metrics.jsonl >first.jsonl
    muster-report compare --tolerance 1e-5 <(head -n 5 alone.jsonl) first.jsonl
}

@test "--muster-preflight works before a step with PMIx" {
    run step -N2 --ntasks-per-node=1 --mpi=pmix --muster=job.cfg --muster-preflight true
    echo "$output"
    [ "$status" -eq 0 ]
    grep -q '^muster: preflight: all 2 nodes are good' <<<"$output"
}
