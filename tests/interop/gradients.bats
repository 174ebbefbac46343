# bats file_tags=more
# Losses and every parameter's gradient against PyTorch: gradients.py says what is compared, and how nearly.
load ../helpers

setup_file() {
    export DIR=$BATS_FILE_TMPDIR
    load ../helpers
    tiny_job "$DIR"
    muster-data "$DIR/text" --out "$DIR/pairs" --sentences >/dev/null
}

setup() {
    python_has /usr/bin/python3 torch numpy || skip "python3-torch is not installed"
}

# compare KIND PRECISION SEEDS LAYERS HEADS SEQ HIDDEN BATCH MICRO_BATCH VOCAB [SET...]
compare() {
    local kind=$1 precision=$2 seeds=$3 heads=$5 seq=$6 batch=$8 seed out outs=()
    local sets=("model.kind=$kind" "precision.compute=$precision" "model.layers=$4" "model.heads=$5" "model.seq_length=$6"
        "model.hidden=$7" "batch.global_batch=$8" "batch.micro_batch=$9" "model.vocab=${10}" model.init_std=0.1
        parallel.zero=0 "${@:11}")
    [ "$kind" = gpt ] || sets+=("data.train=$DIR/pairs" data.valid=)
    for seed in $(seq "$seeds"); do
        out=$BATS_TEST_TMPDIR/$seed
        mkdir "$out"
        "$BUILD/tests/interop/gradients" "$DIR/job.cfg" "$out" "${sets[@]}" "batch.seed=$seed"
        "$BUILD/tests/interop/samples" "$DIR/job.cfg" train "$batch" "$out/batch.bin" "${sets[@]}" "batch.seed=$seed"
        outs+=("$out")
    done
    /usr/bin/python3 "$TOP/tests/interop/gradients.py" ${EOD:+--eod "$EOD"} "$heads" "$seq" "$precision" "${outs[@]}"
}

@test "GPT, fp32: 2 layers, 2 heads, sequence 32" { compare gpt fp32 2 2 2 32 32 8 8 256; }

# bats test_tags=quick
@test "GPT, fp32: 3 layers, 5 heads, odd sizes, accumulated over unequal micro-batches" {
    compare gpt fp32 2 3 5 37 80 5 2 256
}

@test "GPT, fp32: 4 layers, 4 heads, sequence 128: gpt-tiny" { compare gpt fp32 1 4 4 128 128 8 4 256; }

@test "GPT, fp32: a padded vocabulary, more rows than the output head takes at once, two threads" {
    OMP_NUM_THREADS=2 compare gpt fp32 1 2 4 128 64 10 10 300
}

# bats test_tags=quick
@test "GPT, fp32: documents that end with a space" {
    EOD=32 compare gpt fp32 2 3 5 37 80 5 2 256 data.reset=document data.eod=32
}

@test "GPT, fp32: documents that end with a full stop, two threads" {
    EOD=46 OMP_NUM_THREADS=2 compare gpt fp32 2 2 4 200 64 4 4 256 data.reset=document data.eod=46
}

@test "BERT, fp32: 2 layers, 2 heads, sequence 32" { compare bert fp32 2 2 2 32 32 8 8 260; }

# bats test_tags=quick
@test "BERT, fp32: 3 layers, 5 heads, odd sizes, much padding, accumulated over unequal micro-batches" {
    compare bert fp32 2 3 5 37 80 5 2 300 data.short_probability=0.9
}

@test "BERT, fp32: 4 layers, 4 heads, sequence 128, more rows than the output head takes at once, two threads" {
    OMP_NUM_THREADS=2 compare bert fp32 1 4 4 128 128 8 8 260
}

@test "GPT, bf16: 2 layers, 2 heads, sequence 32" { compare gpt bf16 16 2 2 32 32 8 8 256; }

# bats test_tags=quick
@test "GPT, bf16: 3 layers, 5 heads, odd sizes, accumulated over unequal micro-batches" {
    compare gpt bf16 16 3 5 37 80 5 2 300
}

@test "GPT, bf16: gpt-tiny" { compare gpt bf16 4 4 4 128 128 8 8 256; }

@test "GPT, bf16: documents that end with a space" {
    EOD=32 compare gpt bf16 8 2 2 32 32 8 8 256 data.reset=document data.eod=32
}

@test "BERT, bf16: 2 layers, 2 heads, sequence 32" { compare bert bf16 16 2 2 32 32 8 8 260; }

@test "BERT, bf16: 3 layers, 5 heads, odd sizes, much padding, accumulated over unequal micro-batches" {
    compare bert bf16 16 3 5 37 80 5 2 300 data.short_probability=0.9
}

@test "BERT, bf16: 4 layers, 4 heads, sequence 128" { compare bert bf16 6 4 4 128 128 8 8 260; }

@test "GPT, fp16" { compare gpt fp16 8 2 2 32 32 8 8 256 precision.loss_scale=1024; }

@test "BERT, fp16" { compare bert fp16 8 3 5 37 80 5 2 300 data.short_probability=0.9 precision.loss_scale=1024; }
