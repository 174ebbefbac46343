# Gradients on their way between ranks.
load ../helpers

setup() {
    need mpiexec.mpich
}

@test "gradients of a block that follows itself are not written over while they are sent" {
    for n in 2 3; do
        run ranks $n "$BUILD/tests/engine/zero_ranks"
        [ "$status" -eq 0 ]
        [ "$output" = "$n ranks agree" ]
    done
}
