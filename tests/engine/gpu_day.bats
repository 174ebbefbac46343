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

# measure LOSS ERROR: bench/gpu on a GPU whose bench/step ends with ERROR unless it has at most 2 samples at a time
measure() {
    echo 'echo "NVIDIA H100 80GB HBM3, 81559, 580.00"' | script bin/nvidia-smi
    script tree/bench/step <<STEP
if [[ "\$*" =~ micro_batch=([0-9]+) ]] && [ "\${BASH_REMATCH[1]}" -gt 2 ]; then
    echo "step: $2" >&2
    exit 78
fi
echo " step   seconds   tokens/s      GFLOP/s       loss"
echo " warm     1.000     1024.0       1000.0    11.0000"
echo "          0.500     2048.0       2000.0    $1"
echo
echo "memory of rank 0          1.50 GiB, and 0.00 GiB of the host's"
STEP
    run env BIN=tree OUT= "$TOP/bench/gpu" --only ours --models gpt-125m --seqs 1024 --tokens 8192 --out out
    echo "$output"
}

@test "bench/gpu halves the micro-batch after each kind of out-of-memory error" {
    local engine="would hold 89.00 GiB of its GPU's memory" memory="12.0 MiB of device memory: this process holds"
    grep -q "GiB of its GPU's memory" "$TOP/trainer/engine.c"
    grep -q "MiB of device memory" "$TOP/kernels/cuda/memory.c"
    for text in "rank 0 $engine, and 78.00 GiB" "activations: $memory" "cuda: cudaMalloc: out of memory"; do
        rm -rf out
        measure 10.5000 "$text"
        [[ $output == *'"micro": 2, '*'"tokens_per_second": 2048.0'* ]]
    done
    rm -rf out
    measure 10.5000 "data: no such file"
    [[ $output == *'failed: ours gpt-125m 1024'* ]]
}

@test "bench/gpu rejects a result whose loss is NaN" {
    measure nan "data: no such file"
    measure nan "rank 0 would hold 89.00 GiB of its GPU's memory"
    [[ $output == *'the loss is nan'*'failed: ours gpt-125m 1024'* ]]
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

@test "bench/gpu finds a bundle's programs in every call" {
    local seq
    measure 10.5000 none
    cp "$TOP"/bench/gpu* tree/bench/
    echo exit | script tree/muster-train
    for seq in 1024 2048; do
        run env BIN= OUT= tree/bench/gpu --only ours --models gpt-125m --seqs $seq --tokens 2048
        echo "$output"
        [[ $output == *'"tokens_per_second": 2048.0'* ]]
    done
}

# It ends with 255 where a program never calls CUDA.
@test "tests/gpu.sh runs each compute-sanitizer tool only on the programs that it applies to" {
    local name
    for name in attention cross_entropy device discrete dropout embedding layernorm matmul optimizer pointwise profile repeat \
        transfer types; do
        printf 'echo 1..1\necho ok 1 - %s\n' $name | script tree/tests/kernels/test_$name
    done
    script bin/compute-sanitizer <<'SANITIZER'
echo "$2 ${*: -1}" >>calls
case ${*: -1} in *discrete | *profile) exit 255 ;; esac
"${@: -1}"
SANITIZER
    run env MUSTER_TEST_DEVICE=cpu "$TOP/tests/gpu.sh" --log log sanitizer tree
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c ^memcheck calls)" -eq 11 ]
    [ "$(grep -c ^racecheck calls)" -eq 5 ]
    ! grep -E 'racecheck.*(matmul|device|repeat)' calls
}
