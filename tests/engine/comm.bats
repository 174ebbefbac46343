# Every operation of comm.h on real ranks; more ranks than cores on purpose.
load ../helpers

# together N: that many ranks; fails unless each ends with 0. The last test leaves without MPI_Finalize, as ranks do
# after a hang.
together() {
    cd "$BATS_TEST_TMPDIR" || return
    outlasting
    ranks "$1" -disable-auto-cleanup ./rank "$BUILD/tests/engine/comm_ranks" | grep '^[0-9]* ranks agree$'
    [ "$(cat codes/* | sort -u)" = 0 ] && [ "$(ls codes | wc -l)" -eq "$1" ]
}

setup() {
    need mpiexec.mpich
}

@test "one rank alone, without a launcher" {
    run "$BUILD/tests/engine/comm_ranks"
    [ "$status" -eq 0 ]
    [ "$output" = "1 ranks agree" ]
}

@test "2 ranks" {
    run together 2
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$output" = "2 ranks agree" ]
}

@test "3 ranks" {
    run together 3
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$output" = "3 ranks agree" ]
}

@test "5 ranks" {
    run together 5
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$output" = "5 ranks agree" ]
}

@test "8 ranks" {
    run together 8
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$output" = "8 ranks agree" ]
}

@test "if ranks fail for different reasons while others wait, all end with the exit code of rank 0" {
    for failing in 1 2 3 4 1 2 3 4; do # mpiexec ORs codes: 74 and 65 would make 75, "requeue me"
        run ranks 4 "$BUILD/tests/engine/comm_ranks" "$failing"
        echo "$failing failing, exit $status: $output"
        [ "$status" -eq 74 ]
        [ -z "$output" ] # mpiexec takes none of them for crashed
    done
}

@test "a process that is alone where the environment tells of several ranks warns of the variable, and trains" {
    cd "$BATS_TEST_TMPDIR"
    tiny_job .
    alone() { env -u SLURM_NTASKS -u WORLD_SIZE "$@" muster-train job.cfg --set batch.steps=6 2>err | grep -x "done at step 6"; }
    alone
    [ ! -s err ]
    for set in SLURM_NTASKS=8 WORLD_SIZE=2; do
        alone "$set"
        cat err
        [ "$(wc -l <err)" -eq 1 ]
        grep -q "^muster-train: warning: $set, but this process is the only rank: .* srun --mpi=" err
    done
}

@test "Slurm tasks without PMI2 are refused instead of running as single ranks" {
    run env SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 "$BUILD/tests/engine/comm_ranks"
    [ "$status" -eq 64 ]
    [[ $output == *"srun --mpi=pmi2"* ]]
}
