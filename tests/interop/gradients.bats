# Losses and every parameter's gradient against PyTorch.
load ../helpers

setup() {
    /usr/bin/python3 -c 'import torch, numpy' 2>/dev/null || skip "python3-torch is not installed"
    tiny_job "$BATS_TEST_TMPDIR"
    mkdir "$BATS_TEST_TMPDIR/out"
}

# compare LAYERS HEADS SEQ HIDDEN BATCH MICRO_BATCH [VOCAB]
compare() {
    local vocab=${7:-256}
    "$BUILD/tests/interop/gradients" "$BATS_TEST_TMPDIR/job.cfg" "$BATS_TEST_TMPDIR/out" "model.layers=$1" "model.heads=$2" \
        "model.seq_length=$3" "model.hidden=$4" "batch.global_batch=$5" "batch.micro_batch=$6" "model.init_std=0.1" \
        "model.vocab=$vocab"
    /usr/bin/python3 "$TOP/tests/interop/gradients.py" "$BATS_TEST_TMPDIR/out" "$1" "$2" "$3" "$vocab" "$4" "$5"
}

@test "2 layers, 2 heads, sequence 32" { compare 2 2 32 32 8 8; }

@test "3 layers, 5 heads, odd sizes, accumulated over unequal micro-batches" { compare 3 5 37 80 5 2; }

@test "4 layers, 4 heads, sequence 128: gpt-tiny" { compare 4 4 128 128 8 4; }

@test "a vocabulary that is padded, more rows than the head takes at once, two threads" {
    OMP_NUM_THREADS=2 compare 2 4 128 64 10 10 300
}
