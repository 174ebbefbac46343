# bats file_tags=more
# TensorBoard and Weights & Biases show a run that was resumed on other meshes.
load ../helpers

setup() {
    PYTHON=$BUILD/peers/venv_boards/bin/python3
    python_has "$PYTHON" tensorboard wandb ||
        skip "no tensorboard and wandb in build/peers: ./setup --tests=peers gets them from PyPI"
    need mpiexec.mpich
    tiny_job "$BATS_TEST_TMPDIR"
    cd "$BATS_TEST_TMPDIR"
    sed -i 's/log_every = 10/log_every = 10; eval_every = 6; eval_batches = 1; tensorboard = "board"/' job.cfg
    echo 'checkpoint = { dir = "ckpt"; every = 4; keep = 0; };' >>job.cfg
}

# Of a run on one rank, steps 9 to 11 are done again by two ranks: 11, which was the last one, was validated.
resumed_run() {
    ranks 1 muster-train job.cfg --set batch.steps=11
    rm -r ckpt/step-00000011
    ranks 2 muster-train job.cfg --set batch.steps=15
    ranks 3 muster-train job.cfg --set batch.steps=20
    [ "$(ls board | wc -l)" -eq 3 ]
    [ "$(wc -l <metrics.jsonl)" -eq 20 ]
}

has() { timeout 120 "$PYTHON" "$TOP/tests/engine/boards.py" "$@"; }

@test "TensorBoard shows one run on three meshes: each step of the metrics once, with both of its loaders" {
    resumed_run
    has loaded metrics.jsonl board
    has served metrics.jsonl board true
    has served metrics.jsonl board false
}

@test "the recipe's script makes an offline run of Weights & Biases that has every step" {
    resumed_run
    awk '/^```/ {inside = !inside} inside && /^import sys, wandb/ {found = 1} found && inside; found && !inside {exit}' \
        "$TOP/doc/muster-recipes.7.scd" >offline.py
    WANDB_ERROR_REPORTING=false timeout 120 "$PYTHON" offline.py board
    has offline metrics.jsonl wandb/offline-run-*/run-*.wandb
}

@test "a directory that cannot be made is said once, and training goes on" {
    echo >file
    run muster-train job.cfg --set report.tensorboard=file/board --set batch.steps=20
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c "TensorBoard's events cannot be written.*: cannot make file/board: Not a directory" <<<"$output")" -eq 1 ]
    [ "$(wc -l <metrics.jsonl)" -eq 20 ]
    [[ $output != *"metrics cannot be written"* ]]
}
