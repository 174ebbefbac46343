#!/usr/bin/env bash
# gpu.sh - what needs a GPU to be shown, in stages: for `./check gpu`, and by itself out of a bundle (etc/bundle).
#
#   tests/gpu.sh [--log FILE] [STAGE]... [BUILD]
#     quick      products, operations of each kind, one training step: whether anything works at all
#     kernels    tests/kernels on the GPU's own memory
#     engine     transfers; NCCL, a rank alone; training in bf16 on the GPU: losses against the CPU's, meshes of up to 4
#                ranks on the one GPU, saves, a run that is stopped and resumed
#     pytorch    200 steps in bf16 against PyTorch's
#     racecheck, synccheck, memcheck    tests/kernels under this tool of compute-sanitizer
#   (none named: all but quick, in this order)
#     BUILD      where the programs are: a build tree or an unpacked bundle; the directory above this one if not given
#     --log      everything that was said, appended to FILE (BUILD/gpu.log)
#
# Each stage has a bound on its time, and so has each program; what there was no time for has failed. Inputs are fresh
# in every run (MUSTER_TEST_SEED repeats one). MUSTER_TEST_DEVICE names another device in place of "cuda", and
# MUSTER_TEST_EMULATED=1 makes models and operands small, to try the stages where there is no GPU; MUSTER_GPU_SECONDS is
# another bound. Ends with one line that counts.
# Exit codes: 0 all passed; 1 not; 64 usage; 77 there is no GPU here.
set -uo pipefail
tests=$(cd "$(dirname "$0")" && pwd)
all=(kernels engine pytorch racecheck synccheck memcheck)
stages=() build=$tests/.. log=''
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) sed -n '2,20s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --log) log=${2:?--log wants a file}; shift ;;
    quick | kernels | engine | pytorch | racecheck | synccheck | memcheck) stages+=("$1") ;;
    -*) echo "gpu: what is $1? --help shows how" >&2; exit 64 ;;
    *) build=$1 ;;
    esac
    shift
done
build=$(cd "$build" && pwd) || exit 64
[ ${#stages[@]} -gt 0 ] || stages=("${all[@]}")
: "${log:=$build/gpu.log}"

if [ "${MUSTER_TEST_DEVICE:-cuda}" = cuda ]; then
    gpu=$("$build/tests/cuda/describe")
    case $? in
    0) ;;
    77) echo "gpu: $gpu"; exit 77 ;;
    *) echo "gpu: $gpu"; exit 1 ;;
    esac
else
    gpu="$MUSTER_TEST_DEVICE, in place of a GPU"
fi
: "${MUSTER_TEST_SEED:=$(date +%s)}" "${MUSTER_TEST_DEVICE:=cuda}"
export MUSTER_TEST_SEED MUSTER_TEST_DEVICE CMOCKA_MESSAGE_OUTPUT=TAP OMP_WAIT_POLICY=passive

passed=0 failed=0 skipped=0

say() { echo "$*"; echo "$*" >>"$log"; }
fail() { failed=$((failed + 1)); say "FAILED   $*"; }

# run LABEL COMMAND...: counts its TAP lines; fewer than it planned, or a bad end without a failure, is one.
run() {
    local label=$stage/$1 line plan='' seen=0 code=0 bad=0 left=$((deadline - SECONDS))
    shift
    [ $left -le "$each" ] || left=$each
    [ $left -gt 0 ] || { fail "$label: not begun, the stage's time is over"; return; }
    echo "==== $label: $*" >>"$log"
    while IFS= read -r line; do
        echo "$line" >>"$log"
        case $line in
        'not ok '*'# SKIP'* | 'ok '*'# SKIP'*) skipped=$((skipped + 1)) seen=$((seen + 1)); echo "skipped  $label: $line" ;;
        'ok '*) passed=$((passed + 1)) seen=$((seen + 1)) ;;
        'not ok '*) failed=$((failed + 1)) seen=$((seen + 1)) bad=1; echo "FAILED   $label: $line" ;;
        1..[0-9]*) plan=${line#1..} plan=${plan%% *} ;;
        'exit '*) code=${line#exit } ;;
        '#'* | '========='*) echo "         $label: $line" ;;
        esac
    done < <(timeout -k 10 "$left" "$@" 2>&1; echo "exit $?")
    if [ "$seen" != "${plan:-none}" ] || { [ "$code" != 0 ] && [ $bad = 0 ]; }; then
        fail "$label: ended with $code after $seen of ${plan:-?} tests"
    fi
}

# kernels [NAME]...: these programs of tests/kernels in this order, or all
kernels() {
    local program name names=("$@")
    if [ $# -eq 0 ]; then
        for program in "$build"/tests/kernels/test_*; do
            case ${program##*/} in *.*) continue ;; esac
            [ ! -x "$program" ] || [ ! -f "$program" ] || names+=("${program##*/test_}")
        done
        [ ${#names[@]} -gt 0 ] || fail "$stage: no test programs in $build/tests/kernels"
    fi
    for name in "${names[@]}"; do
        program=$build/tests/kernels/test_$name
        if [ -x "$program" ]; then run "test_$name" "${under[@]}" "$program"; else fail "$stage: no $program"; fi
    done
}

# sanitizer TOOL: racecheck and synccheck on our kernels with shared memory and barriers, and not on those of cuBLASLt,
# whose hazards are not ours to mend; memcheck on all kernels, also of cuBLASLt, which would fault where it is called
# wrongly. discrete and profile are not among them: they never call CUDA, which the tool reports as an error. Nor is
# transfer, about the order of streams, and slow where memory is read over the bus.
sanitizer() {
    local sanitizer barriers=(cross_entropy embedding norm optimizer attention)
    sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v compute-sanitizer) ||
        { fail "$stage: compute-sanitizer is not here"; return; }
    under=("$sanitizer" --tool "$1" --error-exitcode 99 --target-processes all)
    # It sees nothing of an arena: every buffer is an allocation of its own, which host and GPU both read.
    export MUSTER_CUDA_MEMORY=pinned
    if [ "$1" = memcheck ]; then
        # Each call's status is looked at anyway; here a call that may fail would count: an allocation that a test wants
        # refused, and functions that CUDA's libraries look for in the driver.
        under+=(--report-api-errors no)
        kernels "${barriers[@]}"
        MUSTER_TEST_EMULATED=1 kernels types pointwise dropout device repeat matmul
    else # a race shows in any shape of several tiles, and racecheck is the slowest: few shapes
        MUSTER_TEST_EMULATED=1 kernels "${barriers[@]}"
    fi
    unset MUSTER_CUDA_MEMORY
}

say "gpu: $gpu; MUSTER_TEST_SEED=$MUSTER_TEST_SEED; $(date -u +%FT%TZ)"
for stage in "${stages[@]}"; do
    begun=$SECONDS under=() each=9999
    # Each operation is waited for, so that what fails is named; but then no two streams ever race, and training is to
    # show whether they do.
    case $stage in engine | pytorch) unset MUSTER_CUDA_WAIT ;; *) export MUSTER_CUDA_WAIT=1 ;; esac
    case $stage in quick) bound=120 ;; pytorch) bound=300 ;; *) bound=420 ;; esac
    deadline=$((SECONDS + ${MUSTER_GPU_SECONDS:-$bound}))
    case $stage in
    quick)
        each=90 # the first to call cuBLASLt reads hundreds of megabytes from a cold disk
        kernels device matmul pointwise norm embedding cross_entropy dropout optimizer
        run training bash "$tests/gpu_engine.sh" "$build" one ;;
    kernels) each=150; kernels ;;
    engine)
        kernels transfer # where nothing is waited for
        [ ! -e "$build/tests/cuda/test_nccl" ] || run nccl "$build/tests/cuda/test_nccl"
        run training bash "$tests/gpu_engine.sh" "$build" all ;;
    pytorch) run training bash "$tests/gpu_pytorch.sh" "$build" ;;
    *) each=150; sanitizer "$stage" ;;
    esac
    say "         $stage took $((SECONDS - begun)) s"
done
say "$passed passed, $failed failed, $skipped skipped on $gpu; the log is $log"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
