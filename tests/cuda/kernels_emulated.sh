#!/usr/bin/env bash
# kernels_emulated.sh - the tests of tests/kernels on the device "cuda-emulated": each program with threads and blocks in
# ascending order, and at random from two seeds. They compare with float64, at odd sizes, with outputs poisoned. Attention,
# whose orders test_attention tries, only in ascending order: it takes longest; with documents in the first two.
set -uo pipefail
programs=(attention cached cross_entropy documents dropout embedding layernorm matmul optimizer pointwise repeat types)
seeds=(0 1 2)
export MUSTER_TEST_DEVICE=cuda-emulated MUSTER_EMULATOR_SEED CMOCKA_MESSAGE_OUTPUT=STDOUT

echo "1..$(((${#programs[@]} - 1) * ${#seeds[@]}))"
number=0 failed=0
for program in "${programs[@]}"; do
    for MUSTER_EMULATOR_SEED in "${seeds[@]}"; do
        [ $program != attention ] || [ $MUSTER_EMULATOR_SEED = 0 ] || continue
        [ $program != documents ] || [ $MUSTER_EMULATOR_SEED != 2 ] || continue
        number=$((number + 1))
        said=$("${top_builddir:-.}/tests/kernels/test_$program" 2>&1)
        status=$?
        # A program that ran no test has shown nothing.
        if [ $status -eq 0 ] && grep -q '\[  PASSED  \] [1-9]' <<<"$said"; then
            echo "ok $number - $program, seed $MUSTER_EMULATOR_SEED"
        else
            failed=1
            grep -v -e 'RUN  ' -e '  OK ' <<<"$said" | sed 's/^/# /'
            echo "not ok $number - $program, seed $MUSTER_EMULATOR_SEED"
        fi
    done
done
exit $failed
