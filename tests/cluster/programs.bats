#!/usr/bin/env bats
# bats file_tags=more
# Programs of every kind start with the one flag, on several nodes, and with nothing else set by hand.
load helpers

setup_file() {
    plugin_sandbox 4 --switches 2
}

setup() {
    skip_if "$WHY_NOT"
    unset OMP_NUM_THREADS
    cd "$BATS_TEST_TMPDIR" || return
}

# bats test_tags=quick
@test "ranks of a program without MPI connect by MASTER_ADDR and MASTER_PORT" {
    need bash
    cat >meet <<'SH'
#!/usr/bin/env bash
# Rank 0 waits, and every other rank comes by.
if [ "$RANK" = 0 ]; then
    /usr/bin/python3 -c '
import os, socket
with socket.create_server(("", int(os.environ["MASTER_PORT"]))) as server:
    ranks = sorted(int(server.accept()[0].recv(16)) for _ in range(int(os.environ["WORLD_SIZE"]) - 1))
print("met", ranks)'
else
    for _ in $(seq 200); do
        { exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT"; } 2>/dev/null && break
        sleep 0.1
    done
    printf %s "$RANK" >&3
fi
SH
    run step --muster -N4 -n4 bash meet
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$output" = "met [1, 2, 3]" ]
}

@test "a PyTorch job with gloo runs on four nodes" {
    /usr/bin/python3 -c 'import torch' 2>/dev/null || skip "python3-torch is not installed"
    cat >sum.py <<'PY'
import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="env://")
numbers = torch.arange(1000, dtype=torch.float64) * (dist.get_rank() + 1)
dist.all_reduce(numbers)
assert torch.equal(numbers, torch.arange(1000, dtype=torch.float64) * 10)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "threads", torch.get_num_threads())
dist.destroy_process_group()
PY
    run timeout -k 5 120 srun --muster -N4 -n4 /usr/bin/python3 sum.py
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -cE '^rank [0-3] of 4 threads [1-9]' <<<"$output")" -eq 4 ]
}

@test "an MPICH program runs on four nodes" {
    need mpicc.mpich
    cat >sum.c <<'C'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, size, sum = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d %s of %d %s sum %d\n", rank, getenv("RANK"), size, getenv("WORLD_SIZE"), sum);
    MPI_Finalize();
    return 0;
}
C
    mpicc.mpich -o sum sum.c
    run step --muster -N4 -n8 ./sum
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(sort <<<"$output")" = "$(for r in {0..7}; do echo "rank $r $r of 8 8 sum 28"; done)" ]
}

# bats test_tags=quick
@test "muster-train runs on four nodes" {
    tiny_job "$PWD"
    sed -i 's/steps = 50/steps = 6/; s/log_every = 10/log_every = 1/' job.cfg
    run step --muster=job.cfg -N4 -n4 muster-train job.cfg
    echo "$output"
    [ "$status" -eq 0 ]
    grep -q '^done at step 6$' <<<"$output"
    grep -q ' 4 ranks' <<<"$output"
}
