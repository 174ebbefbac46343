# Every operation of comm.h on real ranks; more ranks than cores on purpose.
load ../helpers

setup() {
    need mpiexec.mpich
}

@test "one rank alone, without a launcher" {
    run "$BUILD/tests/engine/comm_ranks"
    [ "$status" -eq 0 ]
    [ "$output" = "1 ranks agree" ]
}

@test "2 ranks" {
    run ranks 2 "$BUILD/tests/engine/comm_ranks"
    [ "$status" -eq 0 ]
    [ "$output" = "2 ranks agree" ]
}

@test "3 ranks" {
    run ranks 3 "$BUILD/tests/engine/comm_ranks"
    [ "$status" -eq 0 ]
    [ "$output" = "3 ranks agree" ]
}

@test "5 ranks" {
    run ranks 5 "$BUILD/tests/engine/comm_ranks"
    [ "$status" -eq 0 ]
    [ "$output" = "5 ranks agree" ]
}

@test "8 ranks" {
    run ranks 8 "$BUILD/tests/engine/comm_ranks"
    [ "$status" -eq 0 ]
    [ "$output" = "8 ranks agree" ]
}

@test "Slurm tasks without PMI2 are refused, not left alone" {
    run env SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 "$BUILD/tests/engine/comm_ranks"
    [ "$status" -eq 64 ]
    [[ $output == *"srun --mpi=pmi2"* ]]
}
