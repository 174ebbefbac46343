# Every operation of comm.h on real ranks; more ranks than cores on purpose.
load ../helpers

# together N: the last test leaves without MPI_Finalize, as ranks do after a hang; mpiexec would kill those still in it.
together() {
    ranks "$1" -disable-auto-cleanup "$BUILD/tests/engine/comm_ranks"
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
    [ "$status" -eq 0 ]
    [ "$output" = "2 ranks agree" ]
}

@test "3 ranks" {
    run together 3
    [ "$status" -eq 0 ]
    [ "$output" = "3 ranks agree" ]
}

@test "5 ranks" {
    run together 5
    [ "$status" -eq 0 ]
    [ "$output" = "5 ranks agree" ]
}

@test "8 ranks" {
    run together 8
    [ "$status" -eq 0 ]
    [ "$output" = "8 ranks agree" ]
}

@test "Slurm tasks without PMI2 are refused, not left alone" {
    run env SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 "$BUILD/tests/engine/comm_ranks"
    [ "$status" -eq 64 ]
    [[ $output == *"srun --mpi=pmi2"* ]]
}
