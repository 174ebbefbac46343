# The promises of data parallelism: one training run, whatever the number of ranks and the ZeRO stage.
load ../helpers

setup_file() {
    export DIR=$BATS_FILE_TMPDIR
    load ../helpers
    tiny_job "$DIR"
}

setup() {
    need mpiexec.mpich
}

# train NAME RANKS SET...: a run whose metrics are DIR/NAME.jsonl
train() {
    local name=$1 n=$2 sets=() key
    shift 2
    for key in "report.metrics=$DIR/$name.jsonl" "$@"; do sets+=(--set "$key"); done
    ranks "$n" muster-train "$DIR/job.cfg" "${sets[@]}" >"$DIR/$name.log" 2>&1 || { cat "$DIR/$name.log"; return 1; }
}

@test "50 steps on 1, 2, 3 and 4 ranks agree to 1e-5" {
    for n in 1 2 3 4; do train "dp$n" $n; done
    for n in 2 3 4; do muster-report compare --tolerance 1e-5 "$DIR/dp1.jsonl" "$DIR/dp$n.jsonl"; done
    [ "$(wc -l <"$DIR/dp3.jsonl")" -eq 50 ]
}

@test "the loss falls" {
    train fall 2
    first=$(sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$DIR/fall.jsonl" | head -n 1)
    last=$(sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$DIR/fall.jsonl" | tail -n 1)
    awk -v a="$first" -v b="$last" 'BEGIN { exit !(a > 5.4 && a < 5.7 && b < 3.2) }'
}

@test "ZeRO-0 and ZeRO-1 are bit-identical on 1, 2, 3 and 4 ranks" {
    for n in 1 2 3 4; do
        train "zero0-$n" $n parallel.zero=0
        train "zero1-$n" $n parallel.zero=1
        muster-report compare --tolerance 0 "$DIR/zero0-$n.jsonl" "$DIR/zero1-$n.jsonl"
    done
}

@test "sums of gradients kept in bf16 change the losses by less than 1%, and ZeRO stages that sum alike no bit" {
    local bf16=(precision.compute=bf16 precision.gradients=compute)
    train kept 2 precision.compute=bf16
    for zero in 0 1 2 3; do train "kept$zero" 2 "${bf16[@]}" parallel.zero=$zero; done
    muster-report compare --tolerance 0 "$DIR/kept0.jsonl" "$DIR/kept1.jsonl"
    muster-report compare --tolerance 0 "$DIR/kept2.jsonl" "$DIR/kept3.jsonl"
    for name in kept1 kept2; do
        muster-report compare --tolerance 0.01 "$DIR/kept.jsonl" "$DIR/$name.jsonl"
        ! muster-report compare --tolerance 0 "$DIR/kept.jsonl" "$DIR/$name.jsonl" || return 1
    done
    train near 4 "${bf16[@]}" parallel.pp=2 parallel.offload=optimizer
    muster-report compare --tolerance 0.01 "$DIR/kept.jsonl" "$DIR/near.jsonl"
}

@test "2n ranks with one micro-batch are bit-identical to n ranks with two" {
    train four 4 batch.global_batch=16
    train two 2 batch.global_batch=16
    muster-report compare --tolerance 0 "$DIR/four.jsonl" "$DIR/two.jsonl"
}

@test "the micro-batch size changes only the rounding" {
    train mb1 2 batch.micro_batch=1
    train mb12 2 batch.micro_batch=12
    muster-report compare --tolerance 1e-5 "$DIR/mb1.jsonl" "$DIR/mb12.jsonl"
}

@test "a global batch that the rank count does not divide gives the same losses" {
    train odd1 1 batch.global_batch=7 batch.micro_batch=3
    train odd4 4 batch.global_batch=7 batch.micro_batch=3
    muster-report compare --tolerance 1e-5 "$DIR/odd1.jsonl" "$DIR/odd4.jsonl"
}

@test "more ranks than samples in a batch are refused with 78" {
    run ranks 3 muster-train "$DIR/job.cfg" --set batch.global_batch=2 --set batch.micro_batch=1
    [ "$status" -eq 78 ]
    [[ $output == *"batch.global_batch = 2"* ]]
}

@test "a ramp-up limits the ranks only until the batch has grown: a requeued job starts on more, and --evaluate too" {
    train="muster-train $DIR/job.cfg --set batch.global_batch=4 --set batch.micro_batch=1 --set batch.rampup_start=1
        --set batch.rampup_increment=1 --set batch.rampup_samples=60 --set checkpoint.dir=$DIR/ramp"
    run ranks 2 $train --set batch.steps=10 --set optimizer.decay_steps=50
    echo "$output"
    [ "$status" -eq 78 ]
    [[ $output == *"batch.rampup_start: the next step's batch = 1 is less than the number of data-parallel ranks (2): start at most 1"* ]]
    ranks 1 $train --set batch.steps=10 --set optimizer.decay_steps=50 >/dev/null
    run ranks 2 $train --set batch.steps=12 --set optimizer.decay_steps=50
    [ "$status" -eq 78 ]
    ranks 1 $train --set batch.steps=24 --set optimizer.decay_steps=50 >/dev/null
    ranks 2 $train --set batch.steps=40 --set optimizer.decay_steps=50 | grep -x "done at step 40"
    ranks 4 $train --set batch.steps=50 | grep -x "done at step 50"
    ranks 4 muster-train --evaluate $(cut -d' ' -f2- <<<$train) | grep '"step":50,'
}

@test "another seed gives different losses" {
    train seed1 1
    train seed2 1 batch.seed=2
    run muster-report compare --tolerance 1e-5 "$DIR/seed1.jsonl" "$DIR/seed2.jsonl"
    [ "$status" -eq 1 ]
}
