# bats file_tags=more
# The engine for GPUs as it is, but for what lies under it: the emulated kernels, and a stand-in for CUDA's run-time
# library, cuBLASLt, cuDNN and NCCL (tests/cuda/standin/standin.h), which does what streams and events allow in a random
# order.
load ../helpers

setup_file() {
    export STANDIN=$BUILD/tests/cuda/standin DIR=$BATS_FILE_TMPDIR
    export MUSTER_STANDIN_SEED=${MUSTER_TEST_SEED:-1}
    [ -x "$STANDIN/muster-train" ] || return 0
    export MUSTER_CUBLASLT=$STANDIN/.libs/libstandin.so MUSTER_NCCL=$STANDIN/.libs/libstandin.so TMPDIR=$DIR
    export MUSTER_CUDNN=$STANDIN/.libs/libstandin.so
    english "$DIR/text"
    muster-data "$DIR/text" --out "$DIR/train" --valid-out "$DIR/valid" --valid-percent 5 >/dev/null
    cat >"$DIR/job.cfg" <<CFG
model = { layers = 2; hidden = 32; heads = 2; seq_length = 16; vocab = 256; };
batch = { global_batch = 8; micro_batch = 2; steps = 4; seed = 1; };
optimizer = { lr = 1e-3; min_lr = 1e-4; warmup_steps = 2; weight_decay = 0.1; clip = 1.0; };
data = { train = "$DIR/train"; valid = "$DIR/valid"; };
checkpoint = { stage = ""; };
report = { log_every = 1; peak_tflops = 1.0; hang_seconds = 60; };
CFG
    train cpu 1 device=cpu
}

setup() {
    need mpiexec.mpich
    [ -x "$STANDIN/muster-train" ] || skip "not built with CUDA, or without a C++ compiler"
    cd "$BATS_TEST_TMPDIR" || return
}

# train NAME RANKS SET...: each rank has a GPU; metrics are DIR/NAME.jsonl
train() {
    local name=$1 n=$2 sets=() key
    shift 2
    for key in device=cuda "report.metrics=$DIR/$name.jsonl" "$@"; do sets+=(--set "$key"); done
    rm -f "$DIR/$name.jsonl"
    MUSTER_STANDIN_GPUS=${GPUS:-4} ranks "$n" "$STANDIN/muster-train" "$DIR/job.cfg" "${sets[@]}" \
        >"$DIR/$name.log" 2>&1
}

# like NAME TOLERANCE RANKS SET...
like() {
    local name=$1 tolerance=$2
    shift 2
    train run "$@" && muster-report compare --tolerance "$tolerance" "$DIR/$name.jsonl" "$DIR/run.jsonl" && return
    tail -n 20 "$DIR/run.log"
    return 1
}

# standin_tree DIR: a build tree of links, in which the programs are those that have a stand-in
standin_tree() {
    local program
    mkdir -p "$1/tests/cuda" "$1/tests/kernels" "$1/tests/interop" "$1/bench"
    ln -s "$BUILD"/muster-{data,report,ckpt,ckptd} "$STANDIN"/muster-{train,generate} "$1/"
    ln -s "$STANDIN/describe" "$1/tests/cuda/"
    [ ! -x "$STANDIN/test_nccl" ] || ln -s "$STANDIN/test_nccl" "$1/tests/cuda/"
    ln -s "$BUILD/tests/interop/samples" "$1/tests/interop/"
    ln -s "$STANDIN/step" "$1/bench/"
    for program in "$STANDIN"/test_*; do
        case ${program##*/} in *.* | test_nccl) ;; *) ln -s "$program" "$1/tests/kernels/" ;; esac
    done
}

@test "tests/gpu.sh engine passes with one stand-in GPU for all ranks" {
    [ -n "${MUSTER_CHECK_FULL:-}" ] || skip "its trainings on a stand-in take a minute and more: ./check --full"
    standin_tree all
    run env MUSTER_TEST_EMULATED=1 bash "$TOP/tests/gpu.sh" engine all
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *" passed, 0 failed, 0 skipped on cuda, stand-in for a GPU"* ]]
}

@test "the log and muster-report where tell the power, the clock and the errors of the GPUs" {
    MUSTER_NVML=$BUILD/tests/cuda/.libs/libstandin_nvml.so MUSTER_STANDIN_NVML=ex train nvml 2 batch.steps=20
    grep -q '^warning: the GPU of rank 0 on .*: the driver reports error XID 94, and 3 uncorrected errors of its memory$' "$DIR/nvml.log"
    muster-report where "$DIR/nvml.jsonl" | tee table
    grep -qE '^  computing +[0-9.]+ +[5-9][0-9]\.[0-9]%' table # not waiting for what the GPU does before an operation
    grep -q '^  GPUs: [67][0-9]* W each of 700 W, clock held down by power for [67][0-9]% of the time, 1410 MHz, 71 C$' table
    grep -q '^  lowest clock: 1410 MHz at 71 C, on ' table
    grep -q '^  first error of a GPU: XID 94$' table
    muster-report html "$DIR/nvml.jsonl" | grep -q '"sm_mhz":1410'
}

@test "the message of a rank whose GPU fails begins with the driver's error" {
    local code=0
    MUSTER_NVML=$BUILD/tests/cuda/.libs/libstandin_nvml.so MUSTER_STANDIN_NVML=x MUSTER_STANDIN_BREAK=200 \
        train broken 1 || code=$?
    cat "$DIR/broken.log"
    [ $code = 70 ]
    grep -q '^muster-train: the driver reports error XID 94 of this GPU: cuda: .*cudaErrorLaunchFailure' "$DIR/broken.log"
}

@test "bench/gpu-day measures steps, operations and a save on the stand-in" {
    standin_tree measured
    run env BIN=measured "$TOP/bench/gpu-day" --tiny --only "ours kernels save" 100 out
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"stand-in for a GPU, beside nothing"*"slower than recorded: nothing"* && $output != *"left out"* ]]
    [ "$(wc -l <out/results.jsonl)" -eq 5 ]
    grep -q 'kernels gpt-tiny.*"attention_backward": ' out/results.jsonl
    grep -q 'kernels llama-tiny.*"gated_backward": ' out/results.jsonl
}

@test "tests/kernels pass with the GPU's host code on the stand-in" {
    local program
    for program in "$STANDIN"/test_*; do
        case ${program##*/} in *.* | test_nccl) continue ;; esac
        echo "$program"
        MUSTER_TEST_EMULATED=1 MUSTER_TEST_DEVICE=cuda timeout 120 "$program"
    done
    MUSTER_STANDIN_EPILOGUES=0 MUSTER_TEST_DEVICE=cuda timeout 120 "$STANDIN/test_matmul"
}

# bats test_tags=quick
@test "with one GPU per rank, every mesh has the CPU's losses to 1e-4" {
    like cpu 1e-4 1
    like cpu 1e-4 2 parallel.zero=0
    like cpu 1e-4 2 parallel.zero=2 parallel.offload=optimizer
    like cpu 1e-4 4 parallel.zero=3 parallel.recompute=full
    like cpu 1e-4 4 parallel.tp=2 parallel.zero=3 parallel.offload=optimizer
    like cpu 1e-4 4 parallel.tp=2 parallel.pp=2
}

@test "two ranks with a GPU each communicate by NCCL" {
    [ -x "$STANDIN/test_nccl" ] || skip "not built with NCCL"
    train nccl 2
    grep '^devices communicate by NCCL' "$DIR/nccl.log"
}

# bats test_tags=quick
@test "results are bit-identical for any execution order of the streams" {
    train first 4 parallel.tp=2 parallel.zero=3 precision.compute=bf16 model.dropout=0.1
    for seed in 0 11 12; do
        MUSTER_STANDIN_SEED=$seed like first 0 4 parallel.tp=2 parallel.zero=3 precision.compute=bf16 model.dropout=0.1
    done
}

@test "bf16 and fp16, also without epilogues, have the CPU's losses to 1e-3" {
    for type in bf16 fp16; do
        train near 1 device=cpu precision.compute=$type
        like near 1e-3 1 precision.compute=$type
        MUSTER_STANDIN_EPILOGUES=0 like near 1e-3 1 precision.compute=$type
        MUSTER_STANDIN_REFUSES=1 like near 1e-3 1 precision.compute=$type
    done
}

@test "a Llama has the CPU's losses, to 1e-4 in fp32 and 1e-3 in bf16" {
    local llama=(model.kind=llama model.kv_heads=2 model.qk_norm=true model.untied=true model.window=9 model.biases=qkv)
    train near 1 device=cpu "${llama[@]}"
    like near 1e-4 1 "${llama[@]}"
    like near 1e-4 4 parallel.tp=2 parallel.pp=2 parallel.recompute=light "${llama[@]}"
    train near 1 device=cpu "${llama[@]}" precision.compute=bf16
    like near 1e-3 1 "${llama[@]}" precision.compute=bf16
}

@test "muster's own attention separates documents as on the CPU" {
    local documents=(data.reset=document data.eod=32)
    train near 1 device=cpu "${documents[@]}"
    like near 1e-4 1 "${documents[@]}"
    grep '^documents are separated: they begin at the boundaries of the data.s index and after token 32$' "$DIR/run.log"
    like near 1e-4 4 parallel.tp=2 parallel.pp=2 parallel.recompute=full "${documents[@]}"
    train near 1 device=cpu "${documents[@]}" precision.compute=bf16 model.hidden=128 model.seq_length=64
    like near 1e-3 1 "${documents[@]}" precision.compute=bf16 model.hidden=128 model.seq_length=64
}

@test "a GPU that computes in fp32 is said once; one in bf16, and a CPU, are not" {
    train run 2
    [ "$(grep -c '^precision: fp32, in which a GPU is several times slower than in 16 bits' "$DIR/run.log")" -eq 1 ]
    train run 1 precision.tf32=true
    grep '^precision: fp32 with TF32 products, in which' "$DIR/run.log"
    train run 1 precision.compute=bf16
    [ "$(grep -c '^precision:' "$DIR/run.log" "$DIR/cpu.log" | cut -d: -f2 | tr -d '\n')" = 00 ]
}

@test "attention by cuDNN has the CPU's losses to 1e-3, and what it refuses is computed by muster's own kernels" {
    [ -n "$(nm -D "$STANDIN/.libs/libstandin.so" | grep ' cudnnCreate$')" ] || skip "not built with cuDNN"
    local large=(model.layers=1 model.hidden=256 model.heads=2 model.seq_length=128 batch.global_batch=2 batch.steps=3
        precision.compute=bf16)
    train near 1 device=cpu "${large[@]}"
    like near 1e-3 1 "${large[@]}" attention=own
    grep "attention: muster's own kernels$" "$DIR/run.log"
    train own 1 "${large[@]}" attention=own
    like near 1e-3 1 "${large[@]}" attention=cudnn
    grep "attention: cuDNN's kernels (muster's own if " "$DIR/run.log"
    ! muster-report compare --tolerance 0 "$DIR/own.jsonl" "$DIR/run.jsonl" || return 1
    grep 'largest error of any rank: 0.0%' "$DIR/run.log"
    train cudnn 2 "${large[@]}" attention=cudnn parallel.recompute=full
    MUSTER_STANDIN_SEED=11 like cudnn 0 2 "${large[@]}" attention=cudnn parallel.recompute=full
    local long=("${large[@]}" model.hidden=128 model.seq_length=512 optimizer.warmup_steps=0 batch.steps=1)
    train cudnn 2 "${long[@]}" attention=cudnn
    like cudnn 0 2 "${long[@]}" attention=auto

    # no plan; a short sequence; documents; no library
    MUSTER_STANDIN_PLANS=0 like own 0 1 "${large[@]}" attention=cudnn
    like near 1e-3 1 "${large[@]}"
    grep "attention: muster's own kernels$" "$DIR/run.log"
    train run 1 "${large[@]}" data.reset=document attention=cudnn
    grep "attention: muster's own kernels; cuDNN has none for this job (muster.cfg(5))$" "$DIR/run.log"
    MUSTER_CUDNN=/nonexistent like own 0 1 "${large[@]}" attention=auto

    # a node without the library
    printf '#!/bin/sh\n[ "$PMI_RANK" = 0 ] || export MUSTER_CUDNN=/nonexistent\nexec "$@"\n' >one
    chmod +x one
    ranks() { mpiexec.mpich -n "$1" ./one "${@:2}"; }
    run train run 2 "${long[@]}" attention=auto
    [ "$status" -eq 78 ]
    grep -q 'rank 1 computes attention by other kernels than rank 0: install the same cuDNN on every node' "$DIR/run.log"
}

@test "a resume with other attention kernels logs the change" {
    local job=(precision.compute=bf16 "checkpoint.dir=$PWD/saved" checkpoint.every=2)
    train first 1 "${job[@]}" batch.steps=2 optimizer.schedule=constant attention=own
    train second 1 "${job[@]}" batch.steps=4 optimizer.schedule=constant
    grep 'attention was "own" up to step 2, and is "auto" from now on$' "$DIR/second.log"
}

# An algorithm is chosen once a shape, and then runs with the biases of all layers, wherever these begin.
@test "matmul epilogues accept operands of any alignment" {
    local odd=(precision.compute=bf16 model.hidden=40 model.heads=5 model.layers=3)
    train near 1 device=cpu "${odd[@]}"
    like near 1e-3 1 "${odd[@]}"
}

@test "separate or pinned buffers, and waiting for each operation, change no bit" {
    train arena 1
    MUSTER_CUDA_MEMORY=separate like arena 0 1
    MUSTER_CUDA_MEMORY=pinned like arena 0 1
    MUSTER_CUDA_WAIT=1 like arena 0 1
}

@test "the host never accesses the GPU's memory" {
    export MUSTER_STANDIN_HIDE=1
    like cpu 1e-4 1 parallel.offload=optimizer "checkpoint.dir=$PWD/saved" checkpoint.every=2 \
        "checkpoint.stage=$PWD/stage"
    like cpu 1e-4 2 parallel.tp=2 parallel.zero=3
    local program
    for program in device transfer optimizer; do
        MUSTER_TEST_EMULATED=1 MUSTER_TEST_DEVICE=cuda timeout 120 "$STANDIN/test_$program"
    done
}

@test "a step waits for the GPU as often with eight micro-batches as with two" {
    export MUSTER_STANDIN_WAITS=1
    train eight 1 batch.micro_batch=1
    train two 1 batch.micro_batch=4
    grep 'standin: the host waited [1-9][0-9]* times' "$DIR/eight.log" >eight
    grep 'standin: the host waited [1-9]' "$DIR/two.log" | diff - eight
}

# forgotten FUNCTION:N RANKS SET...: without that wait the losses are others, or the run fails, in some order of what
# streams do. So the tests above would notice a wait that is missing.
forgotten() {
    local what=$1 seed code
    shift
    for seed in $(seq 2 16); do
        code=0
        MUSTER_STANDIN_SEED=$seed MUSTER_STANDIN_FORGET=$what train forgot "$@" || code=$?
        [ $code = 0 ] || [ $code = 70 ] || { echo "$what: ended with $code"; tail "$DIR/forgot.log"; return 1; }
        [ $code = 0 ] && muster-report compare --tolerance 1e-6 "$DIR/cpu.jsonl" "$DIR/forgot.jsonl" || break
        [ "$seed" != 16 ] || { echo "$what is not missed"; return 1; }
    done
    grep "standin: $what is forgotten" "$DIR/forgot.log"
}

@test "a missing wait for a stream or an event is detected" {
    forgotten cudaStreamWaitEvent:1 1 parallel.offload=optimizer   # a transfer, for what is computed
    forgotten cudaStreamWaitEvent:2 1 parallel.offload=optimizer   # what is computed, for a transfer
    forgotten cudaEventSynchronize:1 1 parallel.offload=optimizer  # the host, for a transfer
    forgotten cudaStreamSynchronize:4 1                            # the host, for all that is enqueued
    forgotten cudaStreamSynchronize:5 1 parallel.offload=optimizer # the host, for a result
    [ -x "$STANDIN/test_nccl" ] || return 0
    forgotten cudaStreamWaitEvent:3 2 parallel.tp=2 # a collective, for what is computed
    forgotten cudaEventQuery:1 2 parallel.tp=2      # the host, for a collective
}

@test "a rank is lost while all are in NCCL: NCCL is aborted, and the others end with 76" {
    [ -x "$STANDIN/test_nccl" ] || skip "not built with NCCL"
    # What mpiexec starts: it would kill the other ranks when one has ended, and all that they could still say.
    cat >rank <<'SH'
#!/bin/sh
"$STANDIN/muster-train" "$@" &
echo $! >pids/$PMI_RANK
wait $!
echo $? >codes/$PMI_RANK
until [ "$(ls codes | wc -l)" -eq 4 ]; do sleep 0.05; done
SH
    chmod +x rank
    for signal in STOP KILL; do
        rm -rf pids codes hang-* metrics.jsonl
        mkdir pids codes
        MUSTER_STANDIN_GPUS=4 timeout -k 5 60 mpiexec.mpich -disable-auto-cleanup -n 4 ./rank "$DIR/job.cfg" \
            --set device=cuda --set batch.steps=1000000 --set parallel.zero=3 --set report.metrics=metrics.jsonl \
            --set report.hang_seconds=3 >log 2>&1 3>&- &
        eventually 30 test -s metrics.jsonl
        kill -$signal "$(cat pids/2)"
        eventually 20 test -e codes/3 -a -e codes/1 -a -e codes/0 -a -e codes/2
        cat log codes/*
        [ "$(cat codes/0 codes/1 codes/3 | sort -u)" = 76 ]
        [[ $(head -n 1 hang-*/hang-report.txt) == "rank 2 on "* ]]
        wait || true
    done
}

# refused CODE WORDS COMMAND...
refused() {
    local code=$1 words=$2
    shift 2
    run "$@"
    echo "exit $status: $output"
    [ "$status" -eq "$code" ] && [[ $output == *"$words"* ]]
}

@test "a missing GPU, too little GPU memory, no cuBLASLt or no cuDNN is reported before the first step" {
    local train=("$STANDIN/muster-train" "$DIR/job.cfg" --set device=cuda)
    MUSTER_STANDIN_GPUS=0 refused 78 "this node shows this process no GPU" "${train[@]}"
    MUSTER_STANDIN_MIB=20 refused 78 "rank 0 would hold 0.03 GiB of its GPU's memory, and 0.02 GiB are free" \
        "${train[@]}"
    MUSTER_CUBLASLT=/nonexistent refused 78 "cuBLASLt cannot be opened: /nonexistent: " "${train[@]}"
    MUSTER_CUDNN=/nonexistent refused 78 'attention = "cudnn": cuDNN cannot be opened: /nonexistent: ' "${train[@]}" \
        --set attention=cudnn
}
