# What the scripts for a GPU make of what programs tell them there: the programs are stood in for by scripts.
load ../helpers

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    mkdir -p bin tree/tests/kernels tree/bench
    export PATH=$PWD/bin:$PATH
}

# script FILE: an executable of what comes on standard input
script() {
    { echo '#!/usr/bin/env bash'; cat; } >"$1"
    chmod +x "$1"
}

# measure LOSS ERROR: bench/gpu-day on a GPU whose bench/step ends with ERROR unless it has at most 2 samples at a time
measure() {
    mkdir -p tree/tests/cuda
    echo 'echo "cuda, NVIDIA H200, 132 SMs, 140 GiB, GPU 0 of 1"' | script tree/tests/cuda/describe
    script tree/bench/step <<STEP
if [[ "\$*" =~ micro_batch=([0-9]+) ]] && [ "\${BASH_REMATCH[1]}" -gt 2 ]; then
    echo "step: $2" >&2
    exit 78
fi
echo " step   seconds   tokens/s      GFLOP/s       loss"
echo " warm     1.000     1024.0       1000.0    11.0000"
echo "          0.500   ${3:-108000.0}       2000.0    $1"
echo
echo "memory of rank 0          1.50 GiB, and 0.00 GiB of the host's"
STEP
    run env BIN=tree OUT= "$TOP/bench/gpu-day" --only ours 60 out
    echo "$output"
}

@test "bench/gpu-day halves the micro-batch after each kind of out-of-memory error" {
    local engine="would hold 89.00 GiB of its GPU's memory" memory="12.0 MiB of device memory: this process holds"
    grep -q "GiB of its GPU's memory" "$TOP/trainer/engine.c"
    grep -q "MiB of device memory" "$TOP/kernels/cuda/memory.c"
    for text in "rank 0 $engine, and 78.00 GiB" "activations: $memory" "cuda: cudaMalloc: out of memory"; do
        rm -rf out
        measure 10.5000 "$text"
        [ "$status" -eq 0 ]
        grep -q '"ours gpt-1.3b".*"micro": 2, .*"tokens_per_second": 108000.0' out/results.jsonl
    done
    rm -rf out
    measure 10.5000 "data: no such file"
    [ "$status" -eq 1 ]
    [[ $output == *'failed: ours gpt-125m: '*'data: no such file'* ]]
}

@test "bench/gpu-day rejects a result whose loss is NaN" {
    measure nan "rank 0 would hold 89.00 GiB of its GPU's memory"
    [ "$status" -eq 1 ]
    [[ $output == *'failed: ours gpt-125m: the loss is nan'* ]]
}

@test "bench/gpu-day names what became slower than the record of the same GPU, and measures nothing twice" {
    measure 10.5000 "out of memory" 119470.0
    [[ $output == *"NVIDIA H200, beside the record of "* ]]
    [[ $output == *"slower than recorded: ours gpt-125m -80.5%; ours smollm2-135m -67.5%; ours gpt-350m -48.1%"* ]]
    [[ $output != *"gpt-760m -"* && $output != *"gpt-1.3b -"* ]]
    [ "$(wc -l <out/results.jsonl)" -eq 7 ]
    measure 10.5000 "out of memory" 1.0
    [ "$(wc -l <out/results.jsonl)" -eq 7 ]
    sed -i 's/NVIDIA H200/another GPU/' tree/tests/cuda/describe
    run env BIN=tree OUT=again "$TOP/bench/gpu-day" --only ours 60
    [[ $output == *"another GPU, beside nothing: it has no record"*"slower than recorded: nothing"* ]]
}

@test "bench/gpu-day leaves out, from the end, what its time does not suffice for" {
    measure 10.5000 "out of memory"
    run env BIN=tree OUT=short "$TOP/bench/gpu-day" --only "ours save" 45
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"left out, no time: save gpt-760m"* ]]
    run env BIN=tree OUT=shorter "$TOP/bench/gpu-day" --only "ours save" 3
    [[ $output == *"left out, no time: ours gpt-125m; ours llama-3.2-1b; "*"; ours gpt-350m; save gpt-760m"* ]]
}

@test "tests/gpu.sh kernels runs the programs of a directory with a dot in its name" {
    mkdir -p muster-0.1.0-bundle
    mv tree/tests muster-0.1.0-bundle
    printf 'echo 1..1\necho ok 1 - one\n' | script muster-0.1.0-bundle/tests/kernels/test_one
    run env MUSTER_TEST_DEVICE=cpu "$TOP/tests/gpu.sh" --log log kernels muster-0.1.0-bundle
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"1 passed, 0 failed, 0 skipped"* ]]
}

@test "bench/gpu-day finds a bundle's programs in every call" {
    measure 10.5000 "out of memory"
    cp "$TOP"/bench/gpu* tree/bench/
    echo exit | script tree/muster-train
    for dir in one two; do
        run env BIN= OUT= tree/bench/gpu-day --only ours 60 $dir
        echo "$output"
        [ "$status" -eq 0 ]
        grep -q '"tokens_per_second": 108000.0' $dir/results.jsonl
    done
}

# bats test_tags=more
@test "bench/gpu-day --tiny runs whole on the CPU" {
    python_has /usr/bin/python3 torch numpy || skip "python3-torch is not installed"
    run env MUSTER_TEST_DEVICE=cpu BIN="$BUILD" "$TOP/bench/gpu-day" --tiny 240 out
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"slower than recorded: nothing"* && $output != *"left out"* ]]
    [ "$(wc -l <out/results.jsonl)" -eq 12 ]
}

# It ends with 255 where a program never calls CUDA.
@test "tests/gpu.sh runs each compute-sanitizer tool only on the programs that it applies to" {
    local name
    for name in attention cross_entropy device discrete dropout embedding norm matmul optimizer pointwise profile repeat \
        transfer types; do
        printf 'echo 1..1\necho ok 1 - %s\n' $name | script tree/tests/kernels/test_$name
    done
    script bin/compute-sanitizer <<'SANITIZER'
echo "$2 ${*: -1} ${MUSTER_TEST_EMULATED:-all}" >>calls
case ${*: -1} in *discrete | *profile) exit 255 ;; esac
"${@: -1}"
SANITIZER
    run env MUSTER_TEST_DEVICE=cpu "$TOP/tests/gpu.sh" --log log racecheck synccheck memcheck tree
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c ^memcheck calls)" -eq 11 ]
    [ "$(grep -c ^racecheck calls)" -eq 5 ]
    ! grep -E 'racecheck.*(matmul|device|repeat)' calls
    grep -q 'racecheck.*test_attention 1$' calls # which has few shapes then
    grep -q 'memcheck.*test_attention all$' calls
}
