# Gradients on their way between ranks.
load ../helpers

setup() {
    need mpiexec.mpich
}

@test "gradients of a one-block model are not overwritten while they are sent" {
    for n in 2 3; do
        run ranks $n "$BUILD/tests/engine/zero_ranks"
        [ "$status" -eq 0 ]
        [ "$output" = "$n ranks agree" ]
    done
}
