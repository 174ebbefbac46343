#!/usr/bin/env bash
# kernels_emulated.sh - the tests of tests/kernels on the device "cuda-emulated": each program with threads and blocks in
# ascending order and at random; ./check --full: from two seeds. They compare with float64, at odd sizes, with outputs
# poisoned. Attention, whose orders test_attention tries, only in ascending order: it takes longest.
# ./check without --more, the sanitizers, and ./check --more where no kernel changed (MUSTER_CHECK_EMULATOR): in ascending
# order only, without attention. Two programs run at a time.
set -uo pipefail
programs=(attention documents cross_entropy dropout embedding gated norm matmul optimizer pointwise query_key repeat types)
seeds=(0 1)
[ -z "${MUSTER_CHECK_FULL-}" ] || seeds=(0 1 2)
if [ -n "${MUSTER_CHECK_QUICK-}${MUSTER_CHECK_EMULATOR-}" ]; then
    programs=("${programs[@]:1}")
    seeds=(0)
fi
export MUSTER_TEST_DEVICE=cuda-emulated CMOCKA_MESSAGE_OUTPUT=STDOUT
said=$(mktemp -d) && trap 'rm -rf "$said"' EXIT || exit 74

# one_program NAME SEED: its TAP line, without a number. A program that ran no test has shown nothing.
one_program() {
    local out=$said/$1.$2.out
    if MUSTER_EMULATOR_SEED=$2 "${top_builddir:-.}/tests/kernels/test_$1" >"$out" 2>&1 &&
        grep -q '\[  PASSED  \] [1-9]' "$out"; then
        echo "ok - $1, seed $2"
    else
        echo "not ok - $1, seed $2"
        grep -v -e 'RUN  ' -e '  OK ' "$out" | sed 's/^/# /'
    fi >"$said/$1.$2.tap"
}

count=0
for seed in "${seeds[@]}"; do
    for program in "${programs[@]}"; do
        case $program.$seed in attention.[!0] | documents.2) continue ;; esac
        while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
        one_program "$program" "$seed" &
        count=$((count + 1))
    done
done
wait
echo "1..$count"
cat "$said"/*.tap | awk '/^(not )?ok - / { sub("ok -", "ok " ++number " -") } { print }'
! grep -q '^not ok' "$said"/*.tap
