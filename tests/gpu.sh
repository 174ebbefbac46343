#!/usr/bin/env bash
# gpu.sh - every kernel test on this machine's GPU, and then again under compute-sanitizer: for `./check gpu`, and by
# itself out of a bundle (etc/bundle).
#
#   tests/gpu.sh [--quick] [BUILD]
#     --quick  without compute-sanitizer
#     BUILD    where the programs are: a build tree or an unpacked bundle; the directory above this one if not given
#
# Inputs are fresh in every run (MUSTER_TEST_SEED repeats one); outputs are NaN before. Ends with one line that counts.
# Exit codes: 0 all passed; 1 not; 77 there is no GPU here.
set -uo pipefail
quick=no
[ "${1:-}" != --quick ] || { quick=yes; shift; }
tests=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:-$tests/..}" && pwd) || exit 64

gpu=$("$build/tests/cuda/describe")
case $? in
0) ;;
77) echo "gpu: $gpu"; exit 77 ;;
*) echo "gpu: $gpu"; exit 1 ;;
esac
: "${MUSTER_TEST_SEED:=$(date +%s)}"
# The tests look into what the device works on, so it must be memory that both can read; and each operation is waited
# for, so that they look after it is done and what fails is named.
export MUSTER_TEST_SEED MUSTER_TEST_DEVICE=cuda MUSTER_CUDA_MEMORY=pinned MUSTER_CUDA_WAIT=1
export CMOCKA_MESSAGE_OUTPUT=TAP OMP_WAIT_POLICY=passive
echo "gpu: $gpu; MUSTER_TEST_SEED=$MUSTER_TEST_SEED"

passed=0 failed=0 skipped=0

# run LABEL COMMAND...: counts its TAP lines; fewer than it planned, or a bad end without a failure, is one.
run() {
    local label=$1 line plan='' seen=0 code=0 bad=0
    shift
    while IFS= read -r line; do
        case $line in
        'not ok '*'# SKIP'* | 'ok '*'# SKIP'*) skipped=$((skipped + 1)) seen=$((seen + 1)); echo "skipped  $label: $line" ;;
        'ok '*) passed=$((passed + 1)) seen=$((seen + 1)) ;;
        'not ok '*) failed=$((failed + 1)) seen=$((seen + 1)) bad=1; echo "FAILED   $label: $line" ;;
        1..[0-9]*) plan=${line#1..} plan=${plan%% *} ;;
        'exit '*) code=${line#exit } ;;
        '#'*) echo "         $label: $line" ;;
        '========='*) echo "         $label: $line" ;;
        esac
    done < <(timeout -k 10 900 "$@" 2>&1; echo "exit $?")
    if [ "$seen" != "${plan:-none}" ] || { [ "$code" != 0 ] && [ $bad = 0 ]; }; then
        failed=$((failed + 1))
        echo "FAILED   $label: ended with $code after $seen of ${plan:-?} tests"
    fi
}

sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v compute-sanitizer) || sanitizer=''
programs=()
for program in "$build"/tests/kernels/test_*; do
    case $program in *.log | *.trs | *.o | *.c) continue ;; esac
    [ -x "$program" ] && programs+=("$program")
done
[ ${#programs[@]} -gt 0 ] || { echo "gpu: no test programs in $build/tests/kernels" >&2; exit 64; }

for program in "${programs[@]}"; do
    run "$(basename "$program")" "$program"
done
if [ $quick = yes ]; then
    echo "gpu: compute-sanitizer not wanted"
elif [ -z "$sanitizer" ]; then
    failed=$((failed + 1))
    echo "FAILED   compute-sanitizer is not here; --quick goes without"
else
    for tool in memcheck racecheck synccheck; do
        for program in "${programs[@]}"; do
            run "$tool $(basename "$program")" "$sanitizer" --tool $tool --error-exitcode 99 --target-processes all \
                "$program"
        done
    done
fi
echo "$passed passed, $failed failed, $skipped skipped on $gpu"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
